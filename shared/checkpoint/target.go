package checkpoint

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
)

// remote is a topic of the target.
type remote struct {
	id         [16]byte
	partitions int32 // 0 where there is no such topic
}

// describeTargets asks for topics of the target. One that is not there, or that
// cannot be seen, is not in the map.
func (r *round) describeTargets(ctx context.Context, names []string) (map[string]remote, error) {
	ctx, cancel := r.step(ctx)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // nil would be all
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, r.Target)
	if err != nil {
		return nil, fmt.Errorf("describe topics of cluster %s: %w", r.Settings.Target, because(ctx, err))
	}
	found := make(map[string]remote, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic != nil && t.ErrorCode == 0 {
			found[*t.Topic] = remote{id: t.TopicID, partitions: int32(len(t.Partitions))}
		}
	}
	return found, nil
}

// span is what a partition of the target holds: from its log start to its end.
type span struct{ start, end int64 }

// Timestamps of a ListOffsets request that ask for an end of the log.
const (
	latest   = -1
	earliest = -2
)

// measure looks up the logs of partitions of the target that this round has not
// looked up yet, in one request to each broker for either end.
func (r *round) measure(ctx context.Context, partitions []flow.TopicPartition) {
	var unknown []flow.TopicPartition
	for _, tp := range partitions {
		if _, ok := r.logs[tp]; !ok {
			unknown = append(unknown, tp)
		}
	}
	if len(unknown) == 0 {
		return
	}
	starts := r.listOffsets(ctx, unknown, earliest)
	ends := r.listOffsets(ctx, unknown, latest)
	for _, tp := range unknown {
		start, ok := starts[tp]
		end, both := ends[tp]
		if ok && both {
			r.logs[tp] = span{start, end}
		}
	}
}

// listOffsets reports what it could not look up as failures.
func (r *round) listOffsets(ctx context.Context, partitions []flow.TopicPartition, timestamp int64) map[flow.TopicPartition]int64 {
	ctx, cancel := r.step(ctx)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	at := map[string]int{}
	for _, tp := range partitions {
		i, ok := at[tp.Topic]
		if !ok {
			i = len(req.Topics)
			at[tp.Topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = tp.Partition, timestamp
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	found := make(map[flow.TopicPartition]int64, len(partitions))
	for _, shard := range r.Target.RequestSharded(ctx, req) {
		if shard.Err != nil {
			r.fail(fmt.Errorf("look up logs of cluster %s: %w", r.Settings.Target, because(ctx, shard.Err)))
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				tp := flow.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					r.fail(fmt.Errorf("look up the log of %s on cluster %s: %w", tp, r.Settings.Target, err))
					continue
				}
				found[tp] = p.Offset
			}
		}
	}
	return found
}
