package target

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

	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
)

// wire sends requests through a franz-go client. It keeps the leaders that
// metadata named and a sender for each broker.
type wire struct {
	client *kgo.Client

	mu      sync.Mutex
	leaders map[flow.TopicPartition]int32
	senders map[int32]*sender
	// transactions is empty until the first one. longest is the longest time-out of
	// them that is not known to be refused, 0 for any.
	transactions protocol
	longest      time.Duration
}

func newWire(client *kgo.Client) *wire {
	return &wire{client: client, leaders: map[flow.TopicPartition]int32{}, senders: map[int32]*sender{}}
}

// leader returns the broker that leads a partition, asking for metadata where
// it is not known.
func (w *wire) leader(ctx context.Context, p Partition) (int32, error) {
	w.mu.Lock()
	node, ok := w.leaders[p.TopicPartition]
	w.mu.Unlock()
	if ok {
		return node, nil
	}
	topics, err := w.topics(ctx, []string{p.Topic})
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNotSent, err)
	}
	t := topics[p.Topic]
	if t.Err == nil && p.TopicID != [16]byte{} && t.ID != p.TopicID {
		return 0, ErrRecreated
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if node, ok = w.leaders[p.TopicPartition]; !ok {
		if t.Err == nil {
			t.Err = kerr.LeaderNotAvailable
		}
		return 0, fmt.Errorf("%w: find the leader: %w", errNotSent, t.Err)
	}
	return node, nil
}

func (w *wire) forget(p Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leaders, p.TopicPartition)
}

// Topic is what the target's metadata says of a topic.
type Topic struct {
	ID [16]byte
	// Partitions is the number of partitions.
	Partitions int32
	// Err is Kafka's error for this topic, such as kerr.UnknownTopicOrPartition.
	Err error
}

// Topics asks for the metadata of topics. It never creates one.
func (l *Log) Topics(ctx context.Context, names []string) (map[string]Topic, error) {
	w, ok := l.brokers.(*wire)
	if !ok {
		return nil, errors.New("read metadata: not a Kafka cluster")
	}
	return w.topics(ctx, names)
}

// metadataFor is how long a cluster that gives no answer is asked: brokers restart,
// and one that limits new connections closes those that are too many.
const metadataFor = 10 * time.Second

func (w *wire) topics(ctx context.Context, names []string) (map[string]Topic, error) {
	within, cancel := context.WithTimeout(ctx, metadataFor)
	defer cancel()
	for wait := newBackoff(); ; {
		out, err := w.topicsOnce(ctx, names)
		if _, refused := errors.AsType[*kerr.Error](err); err == nil || refused || !wait.next(within) {
			return out, err
		}
	}
}

func (w *wire) topicsOnce(ctx context.Context, names []string) (map[string]Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, w.client)
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	out := make(map[string]Topic, len(names))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		out[*t.Topic] = Topic{ID: t.TopicID, Partitions: int32(len(t.Partitions)), Err: kerr.ErrorForCode(t.ErrorCode)}
		for _, p := range t.Partitions {
			tp := flow.TopicPartition{Topic: *t.Topic, Partition: p.Partition}
			if p.Leader >= 0 {
				w.leaders[tp] = p.Leader
			} else {
				delete(w.leaders, tp)
			}
		}
	}
	return out, nil
}

// produce hands the batch to its leader's sender.
func (w *wire) produce(ctx context.Context, p Partition, raw []byte) (answer, error) {
	node, err := w.leader(ctx, p)
	if err != nil {
		return answer{}, err
	}
	w.mu.Lock()
	s := w.senders[node]
	if s == nil {
		s = &sender{broker: w.client.Broker(int(node))}
		w.senders[node] = s
	}
	w.mu.Unlock()
	ans, err := s.send(ctx, p, raw)
	if err != nil || transient(ans.code) {
		w.forget(p)
	}
	return ans, err
}

// producers asks for the active producers; the client sends the request to the
// leaders and merges their answers. Those that answer do not wait for one that
// does not until there is no time left.
func (w *wire) producers(ctx context.Context, ps []Partition) (map[Partition]told, error) {
	patient, cancel := patience(ctx)
	defer cancel()
	i := inquiry{out: make(map[Partition]told, len(ps)), pending: make(map[flow.TopicPartition]Partition, len(ps))}
	for _, p := range ps {
		i.pending[p.TopicPartition] = p
	}
	for wait := newBackoff(); ; {
		within := patient
		if patient.Err() != nil {
			within = ctx
		}
		resp, err := describeProducers(slices.Collect(maps.Keys(i.pending))).RequestWith(within, w.client)
		if err != nil {
			if w.lacksDescribeProducers(ctx) {
				i.close(told{})
				return i.out, nil
			}
			i.last = err
		}
		if resp != nil { // of some leaders, even with an error
			i.take(resp)
		}
		if len(i.pending) == 0 {
			return i.out, nil
		}
		if len(i.out) == 0 {
			within = ctx
		}
		switch {
		case wait.next(within):
		case len(i.out) == 0:
			return nil, fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), i.last)
		default:
			i.close(told{err: fmt.Errorf("%w (last answer: %w)", context.Cause(within), i.last)})
			return i.out, nil
		}
	}
}

// inquiry is what leaders have told so far.
type inquiry struct {
	out     map[Partition]told
	pending map[flow.TopicPartition]Partition
	last    error // of those that are to be asked again
}

func (i *inquiry) take(resp *kmsg.DescribeProducersResponse) {
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			tp := flow.TopicPartition{Topic: t.Topic, Partition: rp.Partition}
			p, ok := i.pending[tp]
			if !ok {
				continue
			}
			var said told
			if said.err = kerr.ErrorForCode(rp.ErrorCode); kerr.IsRetriable(said.err) {
				i.last = fmt.Errorf("%s: %w", tp, said.err)
				continue
			}
			for _, a := range rp.ActiveProducers {
				said.producers = append(said.producers, known{id: a.ProducerID, epoch: int16(a.ProducerEpoch), sequence: a.LastSequence})
			}
			i.out[p] = said
			delete(i.pending, tp)
		}
	}
}

// close says the same of all that have not answered.
func (i *inquiry) close(said told) {
	for _, p := range i.pending {
		i.out[p] = said
	}
	clear(i.pending)
}

// patience is a context for half the time that is left.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	left := noDeadline
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return context.WithTimeoutCause(ctx, left/2, errNoLeader)
}

func describeProducers(tps []flow.TopicPartition) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	at := map[string]int{}
	for _, tp := range tps {
		i, ok := at[tp.Topic]
		if !ok {
			i = len(req.Topics)
			at[tp.Topic] = i
			t := kmsg.NewDescribeProducersRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, tp.Partition)
	}
	return req
}

// lacksDescribeProducers asks a broker whether it has the request at all: the
// client's own error for that has no name.
func (w *wire) lacksDescribeProducers(ctx context.Context) bool {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, w.client)
	return err == nil && !slices.ContainsFunc(resp.ApiKeys, func(key kmsg.ApiVersionsResponseApiKey) bool {
		return key.ApiKey == kmsg.DescribeProducers.Int16()
	})
}

// fetchBytes bounds one read back.
const fetchBytes = 4 << 20

func (w *wire) fetch(ctx context.Context, p Partition, offset int64) (fetched, error) {
	var last error
	for wait := newBackoff(); ; {
		got, err := w.fetchOnce(ctx, p, offset)
		if err == nil || errors.Is(err, ErrRecreated) || errors.Is(err, kerr.OffsetOutOfRange) {
			return got, err
		}
		var ke *kerr.Error
		if errors.As(err, &ke) && !ke.Retriable {
			return got, err
		}
		last = err
		w.forget(p)
		if !wait.next(ctx) {
			return fetched{}, fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), last)
		}
	}
}

func (w *wire) fetchOnce(ctx context.Context, p Partition, offset int64) (fetched, error) {
	node, err := w.leader(ctx, p)
	if err != nil {
		return fetched{}, err
	}
	// Whoever waits for records asks again. A broker that waited for them would keep
	// the other partitions waiting, which share its connection.
	got, err := fetch.Read(ctx, w.client.Broker(int(node)), fetch.Request{
		TopicPartition: p.TopicPartition, TopicID: p.TopicID, Offset: offset, MaxBytes: fetchBytes, MaxWait: time.Millisecond,
	})
	return fetched{raw: got.Raw, start: got.Start, end: got.End}, err
}

// NewProducer allocates a producer id that no one else has (InitProducerId
// without a transactional id). Its first epoch is 0.
func (l *Log) NewProducer(ctx context.Context) (int64, error) {
	w, ok := l.brokers.(*wire)
	if !ok {
		return 0, errors.New("allocate a producer id: not a Kafka cluster")
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = -1
	resp, err := req.RequestWith(ctx, w.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("allocate a producer id: %w", err)
	}
	return resp.ProducerID, nil
}
