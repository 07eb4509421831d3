package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// DefaultTimeout is how long a cluster may take to answer.
const DefaultTimeout = 5 * time.Second

// Options are what a report is made of. Settings and Store are needed.
type Options struct {
	Settings config.Flow
	Store    state.Store
	// Source and Target are clients of the two clusters. Where one is nil,
	// SourceErr or TargetErr says why.
	Source, Target       *kgo.Client
	SourceErr, TargetErr error
	// Failures are those of the event sources that this process runs: nil if it
	// runs none, empty if none fails.
	Failures Failures
	// Functions are the failures of the scheduled functions, by name.
	Functions map[string]Failure
	// EventSources asks whoever runs the event sources, by topic. Where it is nil,
	// the report has what the state remembers of them.
	EventSources func(context.Context) (map[string]EventSource, error)
	// Now is the clock, time.Now if nil. Its location is that of the sentence.
	Now func() time.Time
	// Timeout is how long a cluster may take to answer, DefaultTimeout unless
	// set.
	Timeout time.Duration
}

// Gather reports on one flow. The error is the store's or the context's; a
// cluster that does not answer is part of the report.
func Gather(ctx context.Context, o Options) (Report, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	g := &gatherer{Options: o, selector: o.Settings.Selector()}
	report, err := g.gather(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("report on %s: %w", o.Settings.Flow, err)
	}
	return report, nil
}

// gatherer holds what has been read while a report is made.
type gatherer struct {
	Options
	selector flow.Selector

	at         time.Time
	sources    map[string]state.EventSource
	live       map[string]EventSource // nil where the state has to do
	liveErr    error
	a, b       *side
	row        state.FlowRow
	positions  map[flow.TopicPartition]state.Position
	partitions map[string]int32 // of each topic to report on
	pending    map[flow.TopicPartition]pending
}

func (g *gatherer) gather(ctx context.Context) (Report, error) {
	rows, err := g.Store.EventSources(ctx)
	if err != nil {
		return Report{}, err
	}
	g.sources = make(map[string]state.EventSource, len(rows))
	for _, row := range rows {
		g.sources[row.Topic] = row
	}
	g.ask(ctx)
	if ctx.Err() != nil {
		return Report{}, context.Cause(ctx)
	}
	// The positions are read after A's ends: they only grow, so what they have
	// reached by then was there at the time.
	if err := g.read(ctx); err != nil {
		return Report{}, err
	}
	var wg sync.WaitGroup
	wg.Go(func() { g.compare(ctx) })
	g.lookAhead(ctx)
	wg.Wait()
	if ctx.Err() != nil {
		return Report{}, context.Cause(ctx)
	}
	return g.report(ctx)
}

// ask asks both clusters at a time.
func (g *gatherer) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		g.a = look(ctx, g.Source, g.SourceErr)
		g.a.committed = g.Settings.IsolationLevel == "read_committed"
		g.at = g.Now().Truncate(time.Millisecond)
		g.a.measure(ctx, func(name string) bool {
			_, ours := g.sources[name]
			return ours || g.selector.Select(name).Copy
		})
	})
	wg.Go(func() { g.b = look(ctx, g.Target, g.TargetErr) })
	if g.EventSources != nil {
		wg.Go(func() { g.live, g.liveErr = g.EventSources(ctx) })
	}
	wg.Wait()
}

// compare asks B how long the copies are. It comes after the positions: a
// partition that was shorter before has only grown since.
func (g *gatherer) compare(ctx context.Context) {
	if g.b.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	g.b = look(ctx, g.Target, nil)
	g.b.measure(ctx, func(name string) bool { return g.upstream(name) != "" })
}

// upstream is the topic of A that a topic of B is the copy of, by its name and
// the flow's lists; empty if it is none.
func (g *gatherer) upstream(remote string) string {
	name := remote
	if !g.Settings.Policy.Identity() {
		alias, ok := g.Settings.Policy.Source(remote)
		if !ok || alias != g.Settings.SourceAlias {
			return ""
		}
		if name, ok = g.Settings.Policy.Upstream(remote); !ok {
			return ""
		}
	}
	_, ours := g.sources[name]
	if !ours && !g.selector.Select(name).Copy {
		return ""
	}
	return name
}

// read reads the state of the topics to report on, of which A knows best how
// many partitions they have.
func (g *gatherer) read(ctx context.Context) error {
	var err error
	if g.row, err = g.Store.Flow(ctx); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	g.partitions = map[string]int32{}
	for name, t := range g.b.topics {
		if name = g.upstream(name); name != "" {
			g.partitions[name] = t.partitions
		}
	}
	guessed := maps.Clone(g.partitions)
	for name, row := range g.sources {
		g.partitions[name] = max(row.Partitions, g.partitions[name])
		delete(guessed, name)
	}
	for name := range g.a.ends {
		g.partitions[name] = g.a.topics[name].partitions
		delete(guessed, name)
	}
	var all []flow.TopicPartition
	for name, n := range g.partitions {
		for p := range n {
			all = append(all, flow.TopicPartition{Topic: name, Partition: p})
		}
	}
	if g.positions, err = g.Store.Positions(ctx, all); err != nil {
		return err
	}
	// A topic that only B's names speak of is the flow's if something was copied.
	for tp := range g.positions {
		delete(guessed, tp.Topic)
	}
	for name := range guessed {
		delete(g.partitions, name)
	}
	return nil
}

// report puts together what has been read.
func (g *gatherer) report(ctx context.Context) (Report, error) {
	holes, err := g.Store.Holes(ctx)
	if err != nil {
		return Report{}, err
	}
	checkpoints, err := g.Store.Checkpoints(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		Flow:    g.Settings.Flow.String(),
		At:      g.at,
		Running: g.Failures != nil, Functions: g.Functions,
		Source:            Cluster{Alias: g.Settings.Source, ID: g.a.id, Stored: g.row.SourceClusterID, Error: message(g.a.err)},
		Target:            Cluster{Alias: g.Settings.Target, ID: g.b.id, Stored: g.row.TargetClusterID, Error: message(g.b.err)},
		EventSourcesError: message(g.liveErr),
		Topics:            []Topic{}, Holes: []Hole{}, Twice: []Hole{}, Groups: groups(checkpoints),
	}
	for _, name := range slices.Sorted(maps.Keys(g.partitions)) {
		r.Topics = append(r.Topics, g.topic(name))
	}
	for _, h := range holes {
		to := &r.Holes
		if h.Kind == state.SecondCopy {
			to = &r.Twice
		}
		*to = append(*to, Hole{
			Kind: h.Kind, Topic: h.Topic, Partition: h.Partition,
			From: h.From, To: h.To, Records: h.Records, Seen: h.Seen,
		})
	}
	r.Answer, r.Sentence = Judge(r)
	return r, nil
}

func (g *gatherer) topic(name string) Topic {
	t := Topic{
		Topic: name, Remote: g.Settings.RemoteTopic(name), Heartbeats: g.Settings.Policy.IsHeartbeats(name),
		LastError: g.failure(name, AllPartitions), Partitions: []Partition{},
	}
	t.EventSource = g.eventSource(name)
	if _, there := g.a.topics[name]; g.a.err == nil && !there {
		t.Note = "not on " + g.Settings.Source + " any more"
	}
	for p := range g.partitions[name] {
		t.Partitions = append(t.Partitions, g.partition(flow.TopicPartition{Topic: name, Partition: p}, t.Remote))
	}
	return t
}

// eventSource is a topic's, by who runs it or else by the state.
func (g *gatherer) eventSource(topic string) *EventSource {
	row, stored := g.sources[topic]
	s, found := g.live[topic]
	switch {
	case found:
		s.Live = true
	case g.live != nil && stored:
		return &EventSource{ID: row.ID, Group: row.Group, State: Missing, Live: true}
	case stored:
		s = EventSource{ID: row.ID, Group: row.Group, State: row.State, LastResult: row.LastResult}
	default:
		return nil
	}
	// What topics has confirmed is what mirror goes by.
	s.PartialFailures, s.Updated = row.PartialFailures, row.Updated
	return &s
}

func (g *gatherer) partition(tp flow.TopicPartition, remote string) Partition {
	p := Partition{Partition: tp.Partition, Position: -1, Downstream: -1, End: -1, Behind: -1, AgeSeconds: -1, LastError: g.failure(tp.Topic, tp.Partition)}
	var notes []string
	pos, ok := g.positions[tp]
	if ok {
		p.Prepared, p.Position, p.Downstream, p.Copied = true, pos.Upstream, pos.Downstream, pos.Copied
		if pos.Newest > 0 {
			p.Newest = time.UnixMilli(pos.Newest).UTC()
			p.AgeSeconds = max(0, g.at.Sub(p.Newest).Round(time.Millisecond).Seconds())
		}
		if lost, note := g.lost(tp, remote, pos); note != "" {
			p.Lost = lost
			notes = append(notes, note)
		}
	} else {
		notes = append(notes, "not prepared: topics writes the first position")
	}
	todo := g.pending[tp]
	p.End, p.Behind, p.Oldest, p.Expired = todo.end, todo.behind, todo.oldest, todo.expired
	if todo.note != "" {
		notes = append(notes, todo.note)
	}
	p.Note = strings.Join(notes, "; ")
	return p
}

// lost compares the position with the copy.
func (g *gatherer) lost(tp flow.TopicPartition, remote string, pos state.Position) (records int64, note string) {
	t, there := g.b.topics[remote]
	end, known := g.b.ends[remote][tp.Partition]
	none := state.TopicID{}
	switch {
	case g.b.err != nil:
		return 0, ""
	case !there && pos.Copied == 0:
		return 0, ""
	case !there:
		return pos.Copied, remote + " is not on " + g.Settings.Target
	case t.id != none && pos.TargetTopicID != none && t.id != pos.TargetTopicID:
		return pos.Copied, remote + " was created again on " + g.Settings.Target
	case known && end.err == nil && end.end < pos.Downstream:
		return pos.Downstream - end.end, fmt.Sprintf("ends at %d on %s, not at %d", end.end, g.Settings.Target, pos.Downstream)
	}
	return 0, ""
}

func (g *gatherer) failure(topic string, partition int32) *Failure {
	if f, ok := g.Failures[flow.TopicPartition{Topic: topic, Partition: partition}]; ok {
		return &f
	}
	return nil
}

func groups(checkpoints []state.Checkpoint) []Group {
	all := []Group{}
	for _, c := range checkpoints {
		if n := len(all); n == 0 || all[n-1].Group != c.Group {
			all = append(all, Group{Group: c.Group})
		}
		g := &all[len(all)-1]
		if c.Written.After(g.Written) {
			g.Written = c.Written
		}
		g.Partitions = append(g.Partitions, GroupPartition{
			Topic: c.Topic, Partition: c.Partition, Upstream: c.Upstream, Downstream: c.Downstream, Written: c.Written,
		})
	}
	return all
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
