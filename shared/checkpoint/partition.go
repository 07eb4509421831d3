package checkpoint

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"mirrorless/shared/flow"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
)

// partition is what is known of a source partition between two rounds: its run
// map as far as it was needed.
type partition struct {
	pos  state.Position // whose runs the map has; Version 0 before the first
	runs offsets.Map
	// from: of records at or behind this upstream offset the map knows all that
	// the position vouches for. Groups before it need the chunks of the store.
	from int64
	// sampled is MirrorMaker 2's view of the same, with mirrorless.compat = mm2.
	sampled *sampled
}

// whole is the from of a map that has everything.
const whole = math.MinInt64

// update takes in a newer position. Its open chunk holds the runs since the last
// chunk that was put into the store, so it continues what is known unless
// another chunk was put there since.
func (p *partition) update(pos state.Position) error {
	if p.pos.Version == pos.Version {
		return nil
	}
	open, err := offsets.ParseChunk(pos.Runs)
	if err != nil {
		return err
	}
	first := pos.Upstream
	if len(open) > 0 {
		first = open[0].Upstream
	}
	if p.pos.Version == 0 || first > p.pos.Upstream || pos.Upstream < p.pos.Upstream || !sameLogs(p.pos, pos) {
		*p = partition{from: first}
	}
	for _, run := range open {
		p.runs.Add(run)
	}
	p.pos = pos
	return nil
}

// sameLogs is false where a position was rewound, or began again under another
// epoch, so that nothing may be kept of what was known.
func sameLogs(a, b state.Position) bool {
	return a.First == b.First && a.ProducerID == b.ProducerID && a.Epoch == b.Epoch &&
		a.SourceTopicID == b.SourceTopicID && a.TargetTopicID == b.TargetTopicID
}

// lacks reports whether a group at an upstream offset needs the stored chunks.
func (p *partition) lacks(group int64) bool { return group < p.from }

// load makes the map whole.
func (p *partition) load(ctx context.Context, store state.Store, tp flow.TopicPartition) error {
	chunks, err := store.Runs(ctx, tp)
	if err != nil {
		return err
	}
	var runs offsets.Map
	for _, c := range chunks {
		if err := runs.AddChunk(c.Data); err != nil {
			return fmt.Errorf("chunk at upstream offset %d: %w", c.First, err)
		}
	}
	if err := runs.AddChunk(p.pos.Runs); err != nil {
		return err
	}
	p.runs, p.from = runs, whole
	return nil
}

// loads bounds how many partitions are read from the store at a time.
const loads = 16

// prepare brings the run maps up to date that are needed for groups at the given
// upstream offsets, of which each partition's lowest counts that can be
// translated at all. A partition whose map cannot be read is not among those
// returned.
func (r *round) prepare(ctx context.Context, lowest map[flow.TopicPartition]int64) map[flow.TopicPartition]*partition {
	ready := make(map[flow.TopicPartition]*partition, len(lowest))
	var wanting []flow.TopicPartition
	for tp, group := range lowest {
		p := r.partitions[tp]
		if p == nil {
			p = &partition{}
			r.partitions[tp] = p
		}
		if err := p.update(r.positions[tp]); err != nil {
			delete(r.partitions, tp)
			r.fail(fmt.Errorf("read the run map of %s: %w", tp, err))
			continue
		}
		ready[tp] = p
		if p.lacks(group) || r.Settings.Compat && p.lacks(p.pos.First) {
			wanting = append(wanting, tp)
		}
	}
	errs := make([]error, len(wanting))
	var loading errgroup.Group
	loading.SetLimit(loads)
	for i, tp := range wanting {
		loading.Go(func() error {
			errs[i] = ready[tp].load(ctx, r.Store, tp)
			return nil
		})
	}
	_ = loading.Wait()
	for i, err := range errs {
		if err != nil {
			delete(ready, wanting[i])
			r.fail(fmt.Errorf("read the run map of %s: %w", wanting[i], err))
		}
	}
	if r.Settings.Compat {
		for _, p := range ready {
			p.sample(r.Settings.OffsetLagMax)
		}
	}
	return ready
}
