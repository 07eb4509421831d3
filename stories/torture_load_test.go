package stories_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
)

// The topics of the torture. Their records bear a number in the header "n",
// rising within a partition.
const (
	youngTopic        = "young"        // records as applications write them
	oddTopic          = "odd"          // nulls, empty things, bytes that are no text
	oldTopic          = "old"          // timestamps older than B's producer expiry
	transactionsTopic = "transactions" // committed and aborted, with markers between
	largeTopic        = "large"        // some of which no event can carry
)

// tortureTopics are the topics with their numbers of partitions.
var tortureTopics = map[string]int32{youngTopic: 4, oddTopic: 3, oldTopic: 3, transactionsTopic: 2, largeTopic: 1}

// largestRecord is more than Lambda's event can carry, which is 4.7 MB raw.
const largestRecord = 5_000_000

// oldAge is how old the records of the old topic are: older than the day after
// which B forgets a producer, younger than the 24 days after which A does.
const oldAge = 72 * time.Hour

// stream is a load that goes on until it is stopped.
type stream struct {
	ctx    context.Context // of the clients, longer than the load
	a      *kafka.Cluster
	client *kgo.Client
	topics []string // of the records that are not in transactions

	mu   sync.Mutex // of the rest
	rng  *rand.Rand
	next map[string][]uint64
}

func newStream(ctx context.Context, t testing.TB, a *kafka.Cluster, seed uint64, topics ...string) *stream {
	t.Helper()
	s := &stream{
		ctx: ctx, a: a, topics: topics, rng: rand.New(rand.NewPCG(seed, 100)), next: map[string][]uint64{},
		client: connect(t, a, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
			kgo.ProducerBatchMaxBytes(2*largestRecord)),
	}
	for topic, partitions := range tortureTopics {
		s.next[topic] = make([]uint64, partitions)
	}
	return s
}

// record makes the next record of a partition, −1 being one by chance.
func (s *stream) record(topic string, partition int32) *kgo.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if partition < 0 {
		partition = s.rng.Int32N(tortureTopics[topic])
	}
	n := s.next[topic][partition]
	s.next[topic][partition]++
	r := &kgo.Record{Topic: topic, Partition: partition, Timestamp: time.Now()}
	switch topic {
	case oddTopic:
		r.Key, r.Value = s.odd(), s.odd()
		for range s.rng.IntN(3) {
			// The event does not carry the name of a header that is null.
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: []string{"", "a", "a", "ключ"}[s.rng.IntN(4)], Value: s.odd()})
		}
	case largeTopic:
		r.Value = make([]byte, 100)
		if s.rng.IntN(500) == 0 {
			r.Value = make([]byte, largestRecord)
		}
	default:
		r.Key = fmt.Appendf(nil, "key-%d", s.rng.IntN(100))
		r.Value = make([]byte, 100+s.rng.IntN(700))
		for i := range r.Value {
			r.Value[i] = "0123456789abcdef"[s.rng.IntN(16)]
		}
	}
	if topic == oldTopic {
		r.Timestamp = r.Timestamp.Add(-oldAge)
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: "n", Value: binary.BigEndian.AppendUint64(nil, n)})
	return r
}

func (s *stream) odd() []byte {
	switch s.rng.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte{0xff, 0, 0xfe, 0x80}
	case 3:
		return make([]byte, s.rng.IntN(20_000))
	}
	return fmt.Appendf(nil, "text %d", s.rng.IntN(1000))
}

// run writes until loading ends: a trickle, and bursts that make full batches.
func (s *stream) run(loading context.Context, t testing.TB) {
	var writers sync.WaitGroup
	defer writers.Wait()
	writers.Go(func() { s.transactions(loading, t) })
	for {
		topics, n := s.topics, 5
		s.mu.Lock()
		if s.rng.IntN(20) == 0 {
			topics, n = topics[s.rng.IntN(3):][:1], 300
		}
		s.mu.Unlock()
		for range n {
			for _, topic := range topics {
				s.client.Produce(s.ctx, s.record(topic, -1), s.failed(t))
			}
		}
		if !sleep(loading, 50*time.Millisecond) {
			break
		}
	}
	if err := s.client.Flush(s.ctx); err != nil {
		t.Errorf("write the load: %v", err)
	}
}

func (s *stream) failed(t testing.TB) func(*kgo.Record, error) {
	return func(_ *kgo.Record, err error) {
		if err != nil && s.ctx.Err() == nil {
			t.Errorf("write the load: %v", err)
		}
	}
}

// transactions writes transactions of which every fifth is aborted. What fails
// with A's broker is given up: what is there counts.
func (s *stream) transactions(loading context.Context, t testing.TB) {
	var client *kgo.Client
	defer func() {
		if client != nil {
			client.Close()
		}
	}()
	for n := 0; loading.Err() == nil; n++ {
		if client == nil {
			var err error
			client, err = kgo.NewClient(kgo.SeedBrokers(s.a.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("load"))
			if err != nil {
				t.Error(err)
				return
			}
		}
		if err := s.transaction(client, kgo.TransactionEndTry(n%5 != 0)); err != nil {
			client.Close()
			client = nil
		}
		sleep(loading, 100*time.Millisecond)
	}
}

func (s *stream) transaction(client *kgo.Client, end kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for range 10 {
		records = append(records, s.record(transactionsTopic, -1))
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, end)
}

// last writes one record more to every partition and waits until they are there.
func (s *stream) last(t testing.TB) {
	t.Helper()
	for _, topic := range append(s.topics[:len(s.topics):len(s.topics)], transactionsTopic) {
		for p := range tortureTopics[topic] {
			produce(s.ctx, t, s.client, s.record(topic, p))
		}
	}
}
