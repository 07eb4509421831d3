package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/cluster"
	"mirrorless/shared/state"
)

// side is what one cluster says of itself.
type side struct {
	client *kgo.Client
	// committed asks for ends and records as a reader with isolation.level =
	// read_committed sees them.
	committed bool
	err       error // why it says nothing
	id        string
	topics    map[string]topic
	ends      map[string]map[int32]bounds // of the topics that were measured
}

type topic struct {
	id         state.TopicID
	partitions int32
	leaders    map[int32]int32
}

// bounds are the ends of a partition's log.
type bounds struct {
	start, end int64
	err        error
}

var errNoClient = errors.New("there is no client of it")

// look reads the metadata of a cluster. It makes the request itself, since a
// client's own copy may be older than the question.
func look(ctx context.Context, client *kgo.Client, err error) *side {
	s := &side{client: client, err: err}
	if client == nil {
		if err == nil {
			s.err = errNoClient
		}
		return s
	}
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		s.err = cluster.Explain(client, err)
		return s
	}
	if resp.ClusterID != nil {
		s.id = *resp.ClusterID
	}
	s.topics = make(map[string]topic, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		leaders := make(map[int32]int32, len(t.Partitions))
		for _, p := range t.Partitions {
			leaders[p.Partition] = p.Leader
		}
		s.topics[*t.Topic] = topic{id: t.TopicID, partitions: int32(len(t.Partitions)), leaders: leaders}
	}
	return s
}

// Kafka's timestamps for the ends of a log, as in ListOffsetsRequest.
const (
	logEnd   = -1
	logStart = -2
)

// measure asks where the partitions of chosen topics begin and end.
func (s *side) measure(ctx context.Context, chosen func(topic string) bool) {
	if s.err != nil {
		return
	}
	s.ends = map[string]map[int32]bounds{}
	for name, t := range s.topics {
		if !chosen(name) {
			continue
		}
		s.ends[name] = make(map[int32]bounds, t.partitions)
		for p := range t.leaders {
			s.ends[name][p] = bounds{start: -1, end: -1}
		}
	}
	if len(s.ends) == 0 {
		return
	}
	s.list(ctx, logEnd, func(b *bounds, offset int64) { b.end = offset })
	s.list(ctx, logStart, func(b *bounds, offset int64) { b.start = offset })
}

// list asks every leader for one offset of each partition.
func (s *side) list(ctx context.Context, which int64, set func(*bounds, int64)) {
	req := kmsg.NewPtrListOffsetsRequest()
	if s.committed {
		req.IsolationLevel = 1 // the end is then the last stable offset
	}
	for name, partitions := range s.ends {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = name
		for p := range partitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, which
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics, t)
	}
	update := func(name string, p int32, offset int64, err error) {
		b, ok := s.ends[name][p]
		if !ok {
			return
		}
		if err != nil {
			b.err = err
		} else {
			set(&b, offset)
		}
		s.ends[name][p] = b
	}
	failed, answered := error(nil), false
	for _, shard := range s.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			failed = cluster.Explain(s.client, shard.Err)
			for _, t := range shard.Req.(*kmsg.ListOffsetsRequest).Topics {
				for _, p := range t.Partitions {
					update(t.Topic, p.Partition, -1, failed)
				}
			}
			continue
		}
		answered = true
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				update(t.Topic, p.Partition, p.Offset, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	if !answered && failed != nil {
		s.err = fmt.Errorf("list offsets: %w", failed)
	}
}
