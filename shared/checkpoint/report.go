package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/shared/flow"
)

// Report is how far the copies are, and what a round has written, in plain numbers.
type Report struct {
	// Lags are the partitions of all topics that are copied, by topic and
	// partition; nil where the round has not looked, which it does once a minute.
	Lags []Lag
	// Checkpoints are those that were written.
	Checkpoints []Latency
	// Heartbeat is the age of the newest heartbeat that has come through the flow,
	// or, where no heartbeats topic is copied, of the newest one on the target. It
	// is negative where that is not known, or the round has not looked.
	Heartbeat time.Duration
}

// Lag is how far a copy is behind, whether anything moves or not.
type Lag struct {
	flow.TopicPartition        // of the source
	Remote              string // the topic on the target
	// Offsets lie between the position and the end of the source. Some of them may
	// never have held a record.
	Offsets int64
}

// Latency is how long it took to write a checkpoint, from the group's offset being
// read to the target's acknowledgement.
type Latency struct {
	Group string
	flow.TopicPartition
	Took time.Duration
}

// lookEvery is how often a round looks how far the copies are.
const lookEvery = time.Minute

// unknownAge is the age of a heartbeat that nobody has seen.
const unknownAge = -1

// look finds out how far the copies are.
func (r *round) look(ctx context.Context) {
	ctx, cancel := r.step(ctx)
	defer cancel()
	names := slices.Sorted(maps.Keys(r.remotes))
	if len(names) == 0 {
		r.report.Lags = []Lag{}
		return
	}
	admin := kadm.NewClient(r.Source)
	ask := admin.ListEndOffsets
	if r.Settings.IsolationLevel == "read_committed" {
		ask = admin.ListCommittedOffsets
	}
	ends, err := r.list(ctx, ask, names)
	if err != nil {
		r.fail(fmt.Errorf("list end offsets of cluster %s: %w", r.Settings.Source, because(ctx, err)))
		return
	}
	// What has no position yet is behind by all that it holds.
	var waiting []string
	for tp := range ends {
		if _, ok := r.positions[tp]; !ok && !slices.Contains(waiting, tp.Topic) {
			waiting = append(waiting, tp.Topic)
		}
	}
	starts, err := r.list(ctx, admin.ListStartOffsets, waiting)
	if err != nil {
		r.fail(fmt.Errorf("list start offsets of cluster %s: %w", r.Settings.Source, because(ctx, err)))
		return
	}
	lags := make([]Lag, 0, len(ends))
	for tp, end := range ends {
		from := starts[tp]
		if pos, ok := r.positions[tp]; ok {
			from = pos.Upstream
		}
		lags = append(lags, Lag{TopicPartition: tp, Remote: r.selector.Remote(tp.Topic), Offsets: max(0, end-from)})
	}
	slices.SortFunc(lags, func(a, b Lag) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	r.report.Lags = lags
	r.report.Heartbeat = r.heartbeatAge(ctx)
}

// list asks for an offset of each partition of topics. Those whose leader does not
// answer are left out.
func (r *round) list(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error), topics []string) (map[flow.TopicPartition]int64, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	listed, err := ask(ctx, topics...)
	if err != nil && len(listed) == 0 {
		return nil, err
	}
	offsets := map[flow.TopicPartition]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			offsets[flow.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
	})
	return offsets, nil
}

// heartbeatAge reads off the position of the source's heartbeats topic when the last
// beat came through. Before the first one it counts from when it was missed first.
func (r *round) heartbeatAge(ctx context.Context) time.Duration {
	topic := r.Settings.Policy.HeartbeatsTopic()
	var newest time.Time
	if _, copied := r.remotes[topic]; copied {
		for tp, pos := range r.positions {
			if at := time.UnixMilli(pos.Newest); tp.Topic == topic && pos.Copied > 0 && at.After(newest) {
				newest = at
			}
		}
	} else {
		if !r.Settings.EmitHeartbeats.Enabled {
			return unknownAge
		}
		listed, err := kadm.NewClient(r.Target).ListMaxTimestampOffsets(ctx, topic)
		o, ok := listed.Lookup(topic, 0)
		if err != nil || !ok || o.Err != nil {
			return unknownAge // brokers before Kafka 3.0 cannot tell
		}
		if o.Timestamp > 0 {
			newest = time.UnixMilli(o.Timestamp)
		}
	}
	if newest.IsZero() {
		if r.missed.IsZero() {
			r.missed = r.now
		}
		newest = r.missed
	}
	return max(0, r.now.Sub(newest))
}

// tell hands the report over, if somebody wants it and there is anything in it.
func (r *round) tell() {
	if r.Observe != nil && (r.report.Lags != nil || len(r.report.Checkpoints) > 0) {
		r.Observe(r.report)
	}
}
