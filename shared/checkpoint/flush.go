package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/offsets"
	"mirrorless/shared/producer"
	"mirrorless/shared/state"
)

// flushed is what MirrorMaker 2's internal topics know of a partition. version is
// that of the position at which there was nothing more to tell them.
type flushed struct {
	state.Flushed
	version int64
}

// lastCopied is the pair of offsets of the last record that was copied; false
// where there is none. A position's open chunk always has the last run.
func lastCopied(pos state.Position) (offsets.Sync, bool, error) {
	runs, err := offsets.ParseChunk(pos.Runs)
	if err != nil || len(runs) == 0 {
		return offsets.Sync{}, false, err
	}
	last := runs[len(runs)-1]
	return offsets.Sync{Upstream: last.Upstream + last.Length - 1, Downstream: last.Downstream + last.Length - 1}, true, nil
}

// flush writes the slow records of the partitions that have moved since they were
// written last, as MirrorMaker 2 does whenever Connect commits. Its error says
// what is to be tried again.
func (r *round) flush(ctx context.Context) error {
	if err := r.readFlushed(ctx); err != nil {
		return err
	}
	syncs, positions := map[flow.TopicPartition]offsets.Sync{}, map[flow.TopicPartition]offsets.Sync{}
	var errs failures
	for tp, pos := range r.positions {
		known := r.flushed[tp]
		if known.version == pos.Version {
			continue
		}
		last, ok, err := lastCopied(pos)
		if err != nil {
			errs.fail(fmt.Errorf("read the run map of %s: %w", tp, err))
			continue
		}
		if ok && r.Settings.EmitOffsetSyncs && known.Sync != last.Upstream {
			syncs[tp] = last
		}
		// In transactions mirror writes them with the copies: what is read here is
		// older, and the record would go back.
		if ok && !r.Settings.ExactlyOnce && known.Position != last.Upstream {
			positions[tp] = last
		}
	}
	if err := r.putSyncs(ctx, syncs); err != nil {
		errs.fail(err)
	}
	if err := r.putPositions(ctx, positions); err != nil {
		errs.fail(err)
	}
	r.remember(ctx, syncs, positions, &errs)
	return errs.err()
}

// readFlushed reads what the last round has not left in memory.
func (r *round) readFlushed(ctx context.Context) error {
	var unknown []flow.TopicPartition
	for tp := range r.positions {
		if _, ok := r.flushed[tp]; !ok {
			unknown = append(unknown, tp)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	stored, err := r.Store.Flushed(ctx, unknown)
	if err != nil {
		return fmt.Errorf("read what was written of positions: %w", err)
	}
	for _, tp := range unknown {
		known, ok := stored[tp]
		if !ok {
			known = state.Flushed{Sync: state.NotFlushed, Position: state.NotFlushed}
		}
		r.flushed[tp] = flushed{Flushed: known}
	}
	return nil
}

// remember stores what was written.
func (r *round) remember(ctx context.Context, syncs, positions map[flow.TopicPartition]offsets.Sync, errs *failures) {
	next := map[flow.TopicPartition]state.Flushed{}
	for tp, last := range syncs {
		next[tp] = state.Flushed{Sync: last.Upstream, Position: r.flushed[tp].Position}
	}
	for tp, last := range positions {
		f, ok := next[tp]
		if !ok {
			f = r.flushed[tp].Flushed
		}
		f.Position = last.Upstream
		next[tp] = f
	}
	if len(next) > 0 {
		if err := r.Store.PutFlushed(ctx, next); err != nil {
			// The next round reads what is there, and writes the records once more.
			for tp := range next {
				delete(r.flushed, tp)
			}
			errs.fail(fmt.Errorf("store what was written of positions: %w", err))
			return
		}
	}
	whole := errs.failed() == 0 && !r.warned
	for tp, pos := range r.positions {
		f := r.flushed[tp]
		if n, ok := next[tp]; ok {
			f.Flushed = n
		}
		if whole {
			f.version = pos.Version
		}
		r.flushed[tp] = f
	}
}

// patience is how long a cluster that cannot be written to may hold up a round
// with offset syncs, which nothing of ours needs.
const patience = 10 * time.Second

// putSyncs writes offset syncs, and leaves in syncs what was written. A source
// that cannot be written to is no failure, and told once.
func (r *round) putSyncs(ctx context.Context, syncs map[flow.TopicPartition]offsets.Sync) error {
	if len(syncs) == 0 {
		return nil
	}
	to := flow.TopicPartition{Topic: r.Settings.OffsetSyncsTopic()}
	var records []producer.Record
	for tp, last := range syncs {
		s := mm2.OffsetSync{Topic: tp.Topic, Partition: tp.Partition, Upstream: last.Upstream, Downstream: last.Downstream}
		records = append(records, r.record(to, s.Key(), s.Value()))
	}
	sending, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := producer.Send(sending, r.OffsetSyncs, records)
	if err == nil {
		r.warned = false
		return nil
	}
	clear(syncs)
	if r.Settings.OffsetSyncsOnTarget {
		return fmt.Errorf("write offset syncs on cluster %s: %w", r.Settings.Target, err)
	}
	if !r.warned {
		r.Logger.WarnContext(ctx, "no offset syncs on the source, which only MirrorMaker 2 and its tools need",
			"topic", to.Topic, "error", err.Error())
	}
	r.warned = true
	return nil
}

// putPositions writes Connect's source offsets, and leaves in positions those
// that were written.
func (r *round) putPositions(ctx context.Context, positions map[flow.TopicPartition]offsets.Sync) error {
	if len(positions) == 0 {
		return nil
	}
	topic := r.Settings.PositionsTopic
	n, err := r.partitionsOf(ctx, topic)
	if err != nil {
		clear(positions)
		return fmt.Errorf("write positions to %s on cluster %s: %w", topic, r.Settings.Target, err)
	}
	var records []producer.Record
	to := map[flow.TopicPartition]flow.TopicPartition{}
	for tp, last := range positions {
		p := mm2.SourcePosition{
			Connector: r.Settings.Connector, Cluster: r.Settings.SourceAlias,
			Topic: tp.Topic, Partition: tp.Partition, Offset: last.Upstream,
		}
		to[tp] = flow.TopicPartition{Topic: topic, Partition: p.RecordPartition(n)}
		records = append(records, r.record(to[tp], p.Key(), p.Value()))
	}
	err = producer.Send(ctx, r.Target, records)
	if err == nil {
		return nil
	}
	failed, partial := errors.AsType[*producer.Error](err)
	maps.DeleteFunc(positions, func(tp flow.TopicPartition, _ offsets.Sync) bool {
		return !partial || failed.Failed[to[tp]] != nil
	})
	return fmt.Errorf("write positions on cluster %s: %w", r.Settings.Target, err)
}

// partitionsOf is the number of partitions of a topic of the target.
func (r *round) partitionsOf(ctx context.Context, topic string) (int32, error) {
	topics, err := r.describeTargets(ctx, []string{topic})
	if err != nil {
		return 0, err
	}
	if n := topics[topic].partitions; n > 0 {
		return n, nil
	}
	return 0, producer.ErrNoTopic
}

func (r *round) record(to flow.TopicPartition, key, value []byte) producer.Record {
	return producer.Record{Partition: to, Record: batch.Record{Timestamp: r.now.UnixMilli(), Key: key, Value: value}}
}
