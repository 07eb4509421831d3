package row

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// An Outcome collects what becomes of the positions of one Advance or Rewind. Its
// methods may be called concurrently.
type Outcome struct {
	rewind    bool
	mu        sync.Mutex
	stored    map[flow.TopicPartition]state.Position
	conflicts map[flow.TopicPartition]state.Position
	errs      []error
}

// NewOutcome begins one; rewind lets upstream offsets go back.
func NewOutcome(rewind bool) *Outcome {
	return &Outcome{
		rewind:    rewind,
		stored:    make(map[flow.TopicPartition]state.Position),
		conflicts: make(map[flow.TopicPartition]state.Position),
	}
}

// Rewinds says whether upstream offsets may go back.
func (o *Outcome) Rewinds() bool { return o.rewind }

// Admit returns the partitions, in order, whose positions can be stored at all.
func (o *Outcome) Admit(next map[flow.TopicPartition]state.Position) []flow.TopicPartition {
	var admitted []flow.TopicPartition
	for _, tp := range slices.SortedFunc(maps.Keys(next), flow.TopicPartition.Compare) {
		switch p := next[tp]; {
		case len(p.Runs) > state.MaxRuns:
			o.Fail(CheckSize("runs", tp.String(), len(p.Runs), state.MaxRuns))
		case p.Version < 0:
			o.Fail(fmt.Errorf("advance %s: version %d is negative", tp, p.Version))
		default:
			admitted = append(admitted, tp)
		}
	}
	return admitted
}

// Decide says whether next must be written over stored, the zero Position where
// nothing is stored. Where it need not or must not, the outcome is recorded.
func (o *Outcome) Decide(tp flow.TopicPartition, stored, next state.Position) bool {
	switch {
	case stored.Version == next.Version+1 && same(stored, next):
		// Stored by an earlier try of ours whose answer was lost, or by an equal
		// writer, which comes to the same.
		o.Store(tp, next)
	case stored.Version != next.Version:
		o.mu.Lock()
		o.conflicts[tp] = stored
		o.mu.Unlock()
	case stored.Version != 0 && next.Upstream < stored.Upstream && !o.rewind:
		o.Fail(&state.BackwardsError{TopicPartition: tp, Stored: stored.Upstream, Asked: next.Upstream})
	default:
		return true
	}
	return false
}

// Store records that next is stored, and returns it as it is.
func (o *Outcome) Store(tp flow.TopicPartition, next state.Position) {
	next.Version++
	next.Runs = bytes.Clone(next.Runs)
	o.mu.Lock()
	o.stored[tp] = next
	o.mu.Unlock()
}

// Fail records an error of one or several positions.
func (o *Outcome) Fail(err error) {
	o.mu.Lock()
	o.errs = append(o.errs, err)
	o.mu.Unlock()
}

// Result is what Advance and Rewind return.
func (o *Outcome) Result() (map[flow.TopicPartition]state.Position, error) {
	errs := o.errs
	if len(o.conflicts) > 0 {
		errs = append(errs, &state.ConflictError{Current: o.conflicts})
	}
	return o.stored, errors.Join(errs...)
}

// same compares all but the version.
func same(a, b state.Position) bool {
	a.Version, b.Version = 1, 1
	return bytes.Equal(AppendPosition(nil, a), AppendPosition(nil, b))
}

// CheckCheckpoint refuses a checkpoint that no store can keep.
func CheckCheckpoint(c state.Checkpoint) error {
	if err := CheckSize("group id", c.Group, len(c.Group), state.MaxGroup); err != nil {
		return err
	}
	return CheckSize("checkpoint metadata", c.Group+" "+c.TopicPartition.String(), len(c.Metadata), state.MaxMetadata)
}

// CheckChunk refuses a chunk that no store can keep.
func CheckChunk(tp flow.TopicPartition, c state.RunChunk) error {
	if c.First < 0 {
		return fmt.Errorf("store runs of %s: first offset %d is negative", tp, c.First)
	}
	return CheckSize("runs", tp.String(), len(c.Data), state.MaxChunk)
}

// SameFlow compares rows as they are stored.
func SameFlow(a, b state.FlowRow) bool {
	return bytes.Equal(MarshalFlow(a), MarshalFlow(b))
}

// SameEventSource compares rows as they are stored.
func SameEventSource(a, b state.EventSource) bool {
	return bytes.Equal(MarshalEventSource(a), MarshalEventSource(b))
}

// CompareCheckpoints orders by group, topic, partition.
func CompareCheckpoints(a, b state.Checkpoint) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), a.TopicPartition.Compare(b.TopicPartition))
}

// CompareHoles orders by topic, partition, From, Kind.
func CompareHoles(a, b state.Hole) int {
	return cmp.Or(
		a.TopicPartition.Compare(b.TopicPartition),
		cmp.Compare(a.From, b.From),
		cmp.Compare(a.Kind, b.Kind),
	)
}
