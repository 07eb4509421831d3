package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// cluster asks one of the two clusters. It keeps nothing between two calls and
// never takes an answer from the client's cache: a round is about what is there
// now.
type cluster struct {
	alias   string
	client  *kgo.Client
	timeout time.Duration // of one request: admin.timeout.ms
}

// view is what metadata says of a cluster.
type view struct {
	id      string // the cluster's id; empty where its brokers do not tell
	brokers int
	topics  map[string]topicView // those that exist
}

// topicView is a topic in metadata.
type topicView struct {
	id      state.TopicID
	leaders []int32 // by partition; −1 where there is none
	err     error   // why nothing else is known
}

func (v topicView) partitions() int32 { return int32(len(v.leaders)) }

// led reports whether each of the first n partitions has a leader.
func (v topicView) led(n int32) bool {
	return v.err == nil && v.partitions() >= n && !slices.Contains(v.leaders[:n], -1)
}

// refusal is a broker's answer to a part of a request.
type refusal struct {
	code   *kerr.Error
	detail string // the broker's own words
}

func (r *refusal) Error() string {
	if r.detail == "" {
		return r.code.Error()
	}
	return r.code.Message + ": " + r.detail
}

func (r *refusal) Unwrap() error { return r.code }

// answer makes an error of an error code, nil of none.
func answer(code int16, detail *string) error {
	err, ok := kerr.ErrorForCode(code).(*kerr.Error)
	if !ok {
		return nil
	}
	r := &refusal{code: err}
	if detail != nil {
		r.detail = *detail
	}
	return r
}

// is reports whether err is one of Kafka's errors.
func is(err error, codes ...*kerr.Error) bool {
	return slices.ContainsFunc(codes, func(e *kerr.Error) bool { return errors.Is(err, e) })
}

func isAuthorization(err error) bool {
	return is(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed)
}

// patience is how long a round waits for a leader, and a question about rights for
// its answer. The next one asks again.
const patience = 15 * time.Second

// bounded is ctx with the time of one request.
func (c cluster) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("cluster %s did not answer within admin.timeout.ms, %s: %w", c.alias, c.timeout, context.DeadlineExceeded))
}

// cause replaces a bare time-out by what ran out.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// metadata reads all topics, or the named ones. It never creates one.
func (c cluster) metadata(ctx context.Context, all bool, names ...string) (view, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	if !all {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names))
	}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return view{}, fmt.Errorf("read the topics of cluster %s: %w", c.alias, cause(ctx, err))
	}
	v := view{brokers: len(resp.Brokers), topics: make(map[string]topicView, len(resp.Topics))}
	if resp.ClusterID != nil {
		v.id = *resp.ClusterID
	}
	for _, t := range resp.Topics {
		err := answer(t.ErrorCode, nil)
		if t.Topic == nil || is(err, kerr.UnknownTopicOrPartition) {
			continue
		}
		topic := topicView{id: t.TopicID, err: err}
		for _, p := range t.Partitions {
			for topic.partitions() <= p.Partition {
				topic.leaders = append(topic.leaders, -1)
			}
			topic.leaders[p.Partition] = p.Leader
		}
		v.topics[*t.Topic] = topic
	}
	return v, nil
}

// configEntry is one config of a topic as a broker describes it.
type configEntry struct {
	name, value string
	source      kmsg.ConfigSource
	readOnly    bool
	sensitive   bool
}

// described is the answer for one topic.
type described struct {
	entries []configEntry
	err     error
}

// describeBatch bounds a request: a topic has about 35 configs.
const describeBatch = 250

// configs describes the configs of topics. A topic that is refused has an error
// of its own.
func (c cluster) configs(ctx context.Context, names []string) (map[string]described, error) {
	out := make(map[string]described, len(names))
	for batch := range slices.Chunk(names, describeBatch) {
		if err := c.configsOf(ctx, batch, out); err != nil {
			return nil, fmt.Errorf("read topic configs of cluster %s: %w", c.alias, err)
		}
	}
	return out, nil
}

func (c cluster) configsOf(ctx context.Context, names []string, out map[string]described) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, r)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return cause(ctx, err)
	}
	for _, r := range resp.Resources {
		d := described{err: answer(r.ErrorCode, r.ErrorMessage)}
		for _, e := range r.Configs {
			entry := configEntry{name: e.Name, source: e.Source, readOnly: e.ReadOnly, sensitive: e.IsSensitive}
			if entry.source <= kmsg.ConfigSourceUnknown { // brokers before Kafka 1.1
				entry.source = kmsg.ConfigSourceDynamicTopicConfig
				if e.IsDefault {
					entry.source = kmsg.ConfigSourceDefaultConfig
				}
			}
			if e.Value != nil {
				entry.value = *e.Value
			} else {
				entry.sensitive = true // a value that is not told
			}
			d.entries = append(d.entries, entry)
		}
		out[r.ResourceName] = d
	}
	return nil
}

// Special timestamps of ListOffsets.
const (
	logEnd   int64 = -1
	logStart int64 = -2
)

// offsetsOf asks the leaders for one offset of each partition: of a timestamp in
// milliseconds, or one of the special ones. topics says who leads. A partition
// whose leader does not answer yet is asked again with new metadata, as long as
// patience lasts; so a success also says that the partition can be used.
func (c cluster) offsetsOf(ctx context.Context, topics map[string]topicView, at map[flow.TopicPartition]int64) (map[flow.TopicPartition]int64, map[flow.TopicPartition]error) {
	limit := min(c.timeout, patience)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer of its leader within %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	found := make(map[flow.TopicPartition]int64, len(at))
	failed := map[flow.TopicPartition]error{}
	pending := at
	for wait := newBackoff(); len(pending) > 0; {
		answers := c.askLeaders(ctx, topics, pending)
		retry := map[flow.TopicPartition]int64{}
		for tp, timestamp := range pending {
			a := answers[tp]
			delete(failed, tp)
			if a.err == nil {
				found[tp] = a.offset
				continue
			}
			failed[tp] = a.err
			if !isRefusal(a.err) || kerr.IsRetriable(a.err) {
				retry[tp] = timestamp
			}
		}
		pending = retry
		if len(pending) == 0 || !wait.next(ctx) {
			break
		}
		v, err := c.metadata(ctx, false, topicsOf(pending)...)
		if err != nil {
			break // time is up; what was answered last is in failed
		}
		topics = v.topics
	}
	return found, failed
}

type offsetAnswer struct {
	offset int64
	err    error
}

// askLeaders sends one request to each leader.
func (c cluster) askLeaders(ctx context.Context, topics map[string]topicView, at map[flow.TopicPartition]int64) map[flow.TopicPartition]offsetAnswer {
	answers := make(map[flow.TopicPartition]offsetAnswer, len(at))
	byLeader := map[int32][]flow.TopicPartition{}
	for tp := range at {
		t := topics[tp.Topic]
		if t.partitions() <= tp.Partition || t.leaders[tp.Partition] < 0 {
			answers[tp] = offsetAnswer{err: answer(kerr.LeaderNotAvailable.Code, nil)}
			continue
		}
		leader := t.leaders[tp.Partition]
		byLeader[leader] = append(byLeader[leader], tp)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for leader, tps := range byLeader {
		wg.Go(func() {
			got := c.askLeader(ctx, leader, tps, at)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(answers, got)
		})
	}
	wg.Wait()
	return answers
}

func (c cluster) askLeader(ctx context.Context, leader int32, tps []flow.TopicPartition, at map[flow.TopicPartition]int64) map[flow.TopicPartition]offsetAnswer {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.TimeoutMillis = int32(c.timeout.Milliseconds())
	index := map[string]int{}
	for _, tp := range tps {
		i, ok := index[tp.Topic]
		if !ok {
			i = len(req.Topics)
			index[tp.Topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = tp.Partition, at[tp]
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	answers := make(map[flow.TopicPartition]offsetAnswer, len(tps))
	resp, err := c.client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		for _, tp := range tps {
			answers[tp] = offsetAnswer{err: cause(ctx, err)}
		}
		return answers
	}
	for _, tp := range tps {
		answers[tp] = offsetAnswer{err: answer(kerr.UnknownTopicOrPartition.Code, nil)}
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			answers[flow.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = offsetAnswer{offset: p.Offset, err: answer(p.ErrorCode, nil)}
		}
	}
	return answers
}

// topicsOf lists the topics of partitions, in order.
func topicsOf[V any](partitions map[flow.TopicPartition]V) []string {
	var names []string
	for tp := range partitions {
		names = append(names, tp.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// backoff is the wait between two questions about something that changes.
type backoff time.Duration

func newBackoff() *backoff { return new(backoff(10 * time.Millisecond)) }

// next waits, longer each time, and reports whether there is time to ask again.
func (b *backoff) next(ctx context.Context) bool {
	timer := time.NewTimer(time.Duration(*b))
	defer timer.Stop()
	*b = min(2**b, backoff(time.Second))
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isRefusal reports that a broker has answered.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}
