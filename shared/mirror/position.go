package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"mirrorless/shared/batch"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// locate gives each lot its position: from memory where that can be trusted,
// else by one read of the store for all, one look at the topics of both
// clusters and one question to each of the target's brokers.
func (m *Mirror) locate(ctx context.Context, lots []*lot) {
	var read []*lot
	for _, l := range lots {
		l.again, l.changed, l.rewound, l.sourceID = nil, false, false, state.TopicID{}
		l.warm, l.trusted = false, false
		l.standing = target.Standing{Verdict: target.Agrees}
		if l.sweep != nil || l.done == len(l.all) || l.tries > 0 || !m.recall(l) {
			read = append(read, l)
		}
	}
	if len(read) == 0 {
		return
	}
	if err := m.read(ctx, read); err != nil {
		for _, l := range read {
			if l.err == nil {
				l.fail(err)
			}
		}
	}
}

// recall takes the position from memory. It must not be used where the broker
// may have forgotten the producer, because it takes any sequence then. Where the
// batch begins behind the position, another environment may have copied what lies
// between: if the source shows that anything does, fill asks for another round.
func (m *Mirror) recall(l *lot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	mem, ok := m.memory[l.TopicPartition]
	if !ok || mem.pos.ProducerID == target.Unknown || m.Now().Sub(time.UnixMilli(mem.pos.Newest)) > m.ProducerExpiration/2 {
		return false
	}
	// A lot that goes on where its last round ended needs no such caution.
	if next := l.all[l.done].Offset; next > mem.pos.Upstream && !l.more {
		if m.Source == nil {
			return false
		}
		l.warm = true
	}
	l.pos, l.open = mem.pos, mem.open
	l.remote = m.remote(l.TopicPartition, mem.pos.TargetTopicID)
	return true
}

// keep remembers a position for the next invocation; forget makes it read the
// store.
func (m *Mirror) keep(l *lot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory[l.TopicPartition] = memory{pos: l.pos, open: l.open}
}

func (m *Mirror) forget(l *lot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.memory, l.TopicPartition)
}

func (m *Mirror) remote(tp flow.TopicPartition, id state.TopicID) target.Partition {
	return target.Partition{
		TopicPartition: flow.TopicPartition{Topic: m.selector.Remote(tp.Topic), Partition: tp.Partition},
		TopicID:        id,
		Source:         tp,
	}
}

// ErrNotPrepared is returned for a partition that has no position yet. topics
// writes the first one, before it lets anything use the target's partition.
var ErrNotPrepared = errors.New("no position is stored: the topics function prepares a partition within one refresh, and the event source sends the batch again until then")

// read fills lots from the store and from both clusters. Its error concerns all
// of them.
func (m *Mirror) read(ctx context.Context, lots []*lot) error {
	tps := make([]flow.TopicPartition, len(lots))
	topics := map[string]bool{}
	for i, l := range lots {
		tps[i] = l.TopicPartition
		topics[l.Topic] = true
	}
	positions, err := m.Store.Positions(ctx, tps)
	if err != nil {
		return fmt.Errorf("read positions: %w", err)
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, m.selector.Remote(t))
	}
	remotes, err := m.Target.Topics(ctx, names)
	if err != nil {
		return err
	}
	// The ids are asked for after the positions were read, so one that differs from
	// a position's is newer. What an earlier question was told may be older.
	asked := m.source.ask(ctx, slices.Collect(maps.Keys(topics))...) == nil
	var probes []target.Probe
	for _, l := range lots {
		pos, ok := positions[l.TopicPartition]
		if !ok {
			l.fail(ErrNotPrepared)
			continue
		}
		if asked {
			l.sourceID = m.source.id(l.Topic)
		}
		if err := m.place(ctx, l, pos, remotes[m.selector.Remote(l.Topic)]); err != nil {
			l.fail(err)
			continue
		}
		probes = append(probes, target.Probe{Partition: l.remote, Cursor: l.cursor()})
	}
	if len(probes) == 0 {
		return nil
	}
	standings, err := m.Target.Standing(ctx, probes)
	if err != nil {
		return err
	}
	for _, l := range lots {
		if s, ok := standings[l.remote.TopicPartition]; ok {
			l.standing = s
			if s.Err != nil {
				l.fail(s.Err)
			}
		}
	}
	return nil
}

// place gives a lot the stored position, after a look at the target's topic.
func (m *Mirror) place(ctx context.Context, l *lot, pos state.Position, remote target.Topic) error {
	open, err := parseRuns(pos.Runs)
	if err != nil {
		return fmt.Errorf("read the run map: %w", err)
	}
	l.pos, l.open = pos, open
	l.remote = m.remote(l.TopicPartition, remote.ID)
	switch {
	case remote.Err != nil:
		return fmt.Errorf("find %s on %s: %w; topics creates it at its next refresh", l.remote.Topic, m.Settings.Target, remote.Err)
	case l.Partition >= remote.Partitions:
		return fmt.Errorf("%s has %d partitions on %s: topics adds the missing one at its next refresh", l.remote.Topic, remote.Partitions, m.Settings.Target)
	case pos.TargetTopicID != state.TopicID{} && remote.ID != pos.TargetTopicID:
		if m.Settings.Recreated != config.RecreatedCopy {
			return fmt.Errorf("%w: %s holds nothing of what was copied before upstream offset %d; set mirrorless.recreated = copy to go on from there",
				target.ErrRecreated, l.remote.Topic, pos.Upstream)
		}
		return m.beginAgain(ctx, l, remote.ID)
	}
	l.pos.TargetTopicID = remote.ID
	return nil
}

// beginAgain goes on in a target topic that was created again: from the
// position, under a new epoch, with an empty run map.
func (m *Mirror) beginAgain(ctx context.Context, l *lot, id state.TopicID) error {
	if err := m.Store.DeleteRuns(ctx, l.TopicPartition, 0, l.pos.Upstream); err != nil {
		return fmt.Errorf("delete the run map: %w", err)
	}
	m.Logger.WarnContext(ctx, "target topic was re-created, earlier records are not copied again",
		"topic", l.remote.Topic, "partition", l.Partition, "offset", l.pos.Upstream)
	l.pos.TargetTopicID = id
	l.pos.First, l.pos.Downstream = l.pos.Upstream, 0
	l.pos.Epoch, l.pos.Sequence = l.pos.Epoch+1, 0
	l.open = nil
	l.changed = true
	return nil
}

// startOver goes on from the first record of a source topic that was created
// again, behind what the target holds.
func (m *Mirror) startOver(ctx context.Context, l *lot) error {
	if m.Settings.Recreated == config.RecreatedStop {
		return fmt.Errorf("source topic was re-created after upstream offset %d, and mirrorless.recreated is stop", l.pos.Upstream)
	}
	if err := m.Store.DeleteRuns(ctx, l.TopicPartition, 0, l.pos.Upstream); err != nil {
		return fmt.Errorf("delete the run map: %w", err)
	}
	first := l.records[0].Offset
	if start, err := m.source.start(ctx, l.TopicPartition); err == nil {
		first = min(first, start)
	} else if first > 0 {
		l.holes = append(l.holes, state.Hole{
			TopicPartition: l.TopicPartition, To: first, Kind: HoleRecreated, Records: state.NotFlushed, Seen: m.Now(),
		})
	}
	m.Logger.WarnContext(ctx, "source topic was re-created, its records follow those of the old one",
		"topic", l.Topic, "partition", l.Partition, "offset", first)
	l.pos.First, l.pos.Upstream = first, first
	l.pos.SourceTopicID = l.sourceID
	l.open = nil
	l.rewound, l.changed = true, true
	return nil
}

// cursor is where the target is to append.
func (l *lot) cursor() target.Cursor {
	return target.Cursor{
		End:      l.pos.Downstream,
		Producer: batch.Producer{ID: l.pos.ProducerID, Epoch: l.pos.Epoch, Sequence: l.pos.Sequence},
		Newest:   l.pos.Newest,
	}
}
