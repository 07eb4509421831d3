package topics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/target"
)

// takeOver finds how far copies are that hold records and that the state knows
// nothing of: MirrorMaker 2 has made them, or the state was lost. The offset
// syncs topic, which MirrorMaker 2 and this flow both keep, names for each
// partition a record of the source and the place of its copy. Where both are the
// same record, the position begins behind them, with an unknown producer: mirror
// compares what lies behind on the target with what the source has, and appends
// only the rest.
func (t *Topics) takeOver(ctx context.Context, o observation, asked map[flow.TopicPartition]beginning, copies view) error {
	occupied := map[flow.TopicPartition]beginning{}
	for tp, b := range asked {
		if b.end > 0 && b.stored.Version == 0 {
			occupied[tp] = b
		}
	}
	if len(occupied) == 0 || !t.Settings.EmitOffsetSyncs {
		return nil
	}
	syncs, err := t.readSyncs(ctx, o, copies)
	if isAuthorization(err) {
		return nil // nobody here has ever written one
	}
	if err != nil {
		return err
	}
	var errs []error
	for tp, b := range occupied {
		s, ok := syncs[tp]
		if !ok || s.Downstream >= b.end || s.Downstream < 0 {
			continue
		}
		same, err := t.sameRecord(ctx, o, copies, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("compare the copy of %s with its source: %w", tp, err))
			continue
		}
		if same {
			b.takenOver, b.start, b.end, b.producer = true, s.Upstream+1, s.Downstream+1, target.Unknown
			b.late = false
			asked[tp] = b
		}
	}
	return errors.Join(errs...)
}

// readSyncs reads the newest offset sync of every partition. A record that is
// none is passed over.
func (t *Topics) readSyncs(ctx context.Context, o observation, copies view) (map[flow.TopicPartition]mm2.OffsetSync, error) {
	c, v := t.source, o.source
	if t.Settings.OffsetSyncsOnTarget {
		c, v = t.target, copies
	}
	topic := flow.TopicPartition{Topic: t.Settings.OffsetSyncsTopic()}
	syncs := map[flow.TopicPartition]mm2.OffsetSync{}
	err := c.read(ctx, v, topic, 0, func(r batch.Placed) bool {
		if s, err := mm2.ParseOffsetSync(r.Key, r.Value); err == nil {
			syncs[flow.TopicPartition{Topic: s.Topic, Partition: s.Partition}] = s
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read %s on cluster %s: %w", topic.Topic, c.alias, err)
	}
	return syncs, nil
}

// sameRecord reads the two records that a sync names. Where one of them is gone,
// nothing is proved.
func (t *Topics) sameRecord(ctx context.Context, o observation, copies view, s mm2.OffsetSync) (bool, error) {
	a, err := t.source.recordAt(ctx, o.source, flow.TopicPartition{Topic: s.Topic, Partition: s.Partition}, s.Upstream)
	if a == nil || err != nil {
		return false, err
	}
	b, err := t.target.recordAt(ctx, copies, flow.TopicPartition{Topic: t.rules.selector.Remote(s.Topic), Partition: s.Partition}, s.Downstream)
	if b == nil || err != nil {
		return false, err
	}
	return a.Timestamp == b.Timestamp && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value), nil
}

func (c cluster) recordAt(ctx context.Context, v view, tp flow.TopicPartition, offset int64) (*batch.Placed, error) {
	var found *batch.Placed
	err := c.read(ctx, v, tp, offset, func(r batch.Placed) bool {
		if r.Offset == offset {
			found = &r
		}
		return r.Offset < offset
	})
	return found, err
}

// read hands out the records of a partition from an offset on, until f has seen
// enough or the log ends. A partition that is not there has none.
func (c cluster) read(ctx context.Context, v view, tp flow.TopicPartition, from int64, f func(batch.Placed) bool) error {
	topic := v.topics[tp.Topic]
	if topic.err != nil || tp.Partition >= topic.partitions() {
		return topic.err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	broker := c.client.Broker(int(topic.leaders[tp.Partition]))
	for {
		got, err := fetch.Read(ctx, broker, fetch.Request{TopicPartition: tp, TopicID: topic.id, Offset: from, MaxBytes: 1 << 20})
		if is(err, kerr.OffsetOutOfRange) && from == 0 {
			starts, failed := c.offsetsOf(ctx, v.topics, map[flow.TopicPartition]int64{tp: logStart})
			if from = starts[tp]; failed[tp] == nil && from > 0 {
				continue
			}
		}
		if is(err, kerr.OffsetOutOfRange) {
			return nil
		}
		if err != nil {
			return cause(ctx, err)
		}
		at := from
		for b, err := range got.Batches() {
			if err != nil {
				return err
			}
			from = max(from, b.NextOffset())
			if b.Control() {
				continue
			}
			records, err := b.Records(fetch.Decompress)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(records, func(r batch.Placed) bool { return r.Offset >= at && !f(r) }) {
				return nil
			}
		}
		if from >= got.End {
			return nil
		}
	}
}
