package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/shared/kafkaevent"
)

const (
	topic = "orders"
	group = "mirrorless/test/A/B/orders"
)

// world is a cluster with one topic, a function and what it saw, in a bubble of
// its own time.
type world struct {
	t       *testing.T
	cluster *kfake.Cluster
	client  *kgo.Client // produces, and asks
	opts    []kgo.Opt
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	begin   time.Time

	mappings []*eventsource.Mapping

	mu    sync.Mutex
	calls []call
	// reply answers an invocation, counted from 1; nil succeeds.
	reply func(n int, c call) ([]byte, error)
	// running are the partitions in flight.
	running map[int32]int
	most    int // partitions in flight at once
}

// call is one invocation of the function.
type call struct {
	at      time.Duration
	size    int
	records []kafkaevent.Record
}

// in runs a test in a bubble, with a topic of some partitions.
func in(t *testing.T, partitions int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(
			kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen),
			kfake.SeedTopics(int32(partitions), topic),
			kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000000"}),
		)
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		w := &world{t: t, cluster: cluster, begin: time.Now(), dial: network.DialContext, running: make(map[int32]int)}
		w.opts = []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(network.DialContext)}
		w.client, err = kgo.NewClient(append(slices.Clone(w.opts), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchMaxBytes(15_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
		if err != nil {
			t.Fatal(err)
		}
		defer w.client.Close()
		defer func() {
			for _, m := range w.mappings {
				m.Kill()
			}
			time.Sleep(time.Minute) // what is in flight ends
		}()
		test(t, w)
	})
}

// options are those of a mapping in the world; change them before start.
func (w *world) options() eventsource.Options {
	return eventsource.Options{
		Client: w.opts, Topic: topic, Group: group, BootstrapServers: "127.0.0.1:9092",
		Invoker: eventsource.InvokerFunc(w.invoke),
	}
}

func (w *world) start(o eventsource.Options) *eventsource.Mapping {
	w.t.Helper()
	m, err := eventsource.Start(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mappings = append(w.mappings, m)
	return m
}

func (w *world) stop(m *eventsource.Mapping) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// invoke is the function.
func (w *world) invoke(_ context.Context, payload []byte) ([]byte, error) {
	size := len(payload)
	event, err := kafkaevent.Decode(payload)
	if err != nil {
		w.t.Errorf("the event source sent: %v", err)
		return nil, err
	}
	// The payload goes back; what is kept must be copied.
	c := call{at: time.Since(w.begin), size: size, records: clone(event.Records)}
	w.mu.Lock()
	w.calls = append(w.calls, c)
	n, reply := len(w.calls), w.reply
	for _, p := range partitions(c.records) {
		w.running[p]++
		if w.running[p] > 1 {
			w.t.Errorf("two invocations of partition %d in flight", p)
		}
	}
	w.most = max(w.most, len(w.running))
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range partitions(c.records) {
			if w.running[p]--; w.running[p] == 0 {
				delete(w.running, p)
			}
		}
	}()
	if reply == nil {
		return []byte("null"), nil
	}
	return reply(n, c)
}

func clone(records []kafkaevent.Record) []kafkaevent.Record {
	records = slices.Clone(records)
	for i := range records {
		r := &records[i]
		r.Key, r.Value, r.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Headers)
		for h := range r.Headers {
			r.Headers[h].Value = slices.Clone(r.Headers[h].Value)
		}
	}
	return records
}

func partitions(records []kafkaevent.Record) (numbers []int32) {
	for _, r := range records {
		if !slices.Contains(numbers, r.Partition) {
			numbers = append(numbers, r.Partition)
		}
	}
	return numbers
}

// seen returns the calls so far.
func (w *world) seen() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// answer sets what the function replies from now on.
func (w *world) answer(reply func(n int, c call) ([]byte, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply = reply
}

// produce appends n records to a partition, with their numbers as values.
func (w *world) produce(partition int32, n int) {
	w.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Value: fmt.Append(nil, i)}
	}
	w.produceRecords(partition, records...)
}

func (w *world) produceRecords(partition int32, records ...*kgo.Record) {
	w.t.Helper()
	for _, r := range records {
		r.Topic, r.Partition = topic, partition
	}
	if err := w.client.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// committed returns the group's offset, -1 for none.
func (w *world) committed(partition int32) int64 {
	w.t.Helper()
	offsets, err := kadm.NewClient(w.client).FetchOffsets(w.t.Context(), group)
	if err != nil {
		w.t.Fatal(err)
	}
	if o, ok := offsets.Lookup(topic, partition); ok {
		return o.At
	}
	return -1
}

func (w *world) expectCommitted(partition int32, want int64) {
	w.t.Helper()
	if got := w.committed(partition); got != want {
		w.t.Errorf("got %d committed of partition %d, want %d", got, partition, want)
	}
}

// summary tells each call in a line: its partitions with first and last offset.
func summary(calls []call) []string {
	var lines []string
	for _, c := range calls {
		var parts []string
		for i := 0; i < len(c.records); {
			j := i
			for j+1 < len(c.records) && c.records[j+1].Partition == c.records[i].Partition && c.records[j+1].Offset == c.records[j].Offset+1 {
				j++
			}
			parts = append(parts, fmt.Sprintf("%d:%d..%d", c.records[i].Partition, c.records[i].Offset, c.records[j].Offset))
			i = j + 1
		}
		lines = append(lines, strings.Join(parts, " "))
	}
	return lines
}

// offsets returns what the function saw of a partition, in order.
func offsets(calls []call, partition int32) (all []int64) {
	for _, c := range calls {
		for _, r := range c.records {
			if r.Partition == partition {
				all = append(all, r.Offset)
			}
		}
	}
	return all
}

// upTo is 0, 1, … n−1.
func upTo(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i)
	}
	return all
}

var errRefused = errors.New("refused by the test")

// count is the function for tests that let it run beside itself.
func (w *world) count(_ context.Context, payload []byte) ([]byte, error) {
	event, err := kafkaevent.Decode(payload)
	if err != nil {
		w.t.Errorf("the event source sent: %v", err)
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call{at: time.Since(w.begin), records: clone(event.Records)})
	return nil, nil
}
