package eventsource_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/shared/kafkaevent"
)

// On real brokers: two mappings share a group under load, one is killed and one
// stopped, others take over; the function sees every record, of each partition
// in order but for repetitions, and the group ends at the end.
func TestARealGroup(t *testing.T) {
	cluster := kafkatest.Start(t, kafka.Options{})
	seeds := []kgo.Opt{kgo.SeedBrokers(cluster.Seeds()...)}
	client, err := kgo.NewClient(append(seeds, kgo.TransactionalID("load"), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	const partitions = 4
	if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	next := make(map[int32]int64) // first offset not seen
	values := make(map[string]bool)
	arrived := make(chan struct{}, 1)
	o := eventsource.Options{
		Client: seeds, Topic: topic, Group: group, Window: 50 * time.Millisecond,
		Invoker: eventsource.InvokerFunc(func(_ context.Context, payload []byte) ([]byte, error) {
			event, err := kafkaevent.Decode(payload)
			if err != nil {
				t.Error(err)
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range event.Records {
				// Between two records is at most the marker of a transaction.
				if n := next[r.Partition]; r.Offset > n+1 {
					t.Errorf("partition %d: offset %d came after %d", r.Partition, r.Offset, n-1)
				}
				next[r.Partition] = max(next[r.Partition], r.Offset+1)
				values[string(r.Value)] = true
			}
			select {
			case arrived <- struct{}{}:
			default:
			}
			return nil, nil
		}),
	}
	start := func(instance string) *eventsource.Mapping {
		o.InstanceID = group + "/" + instance // as local runs name them
		m, err := eventsource.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Kill)
		return m
	}
	produced := 0
	produce := func() {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		var records []*kgo.Record
		for range 1000 {
			records = append(records, kgo.StringRecord(fmt.Sprint(produced)))
			produced++
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}

	produce()
	a, b := start("a"), start("b")
	<-arrived
	produce()
	a.Kill()
	produce()
	a = start("a")
	<-arrived
	produce()
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	produce()

	deadline := time.After(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for caughtUp := false; !caughtUp; {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not caught up: %+v", a.Progress())
		}
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := a.Progress()
		caughtUp = len(p.Partitions) == partitions
		for _, p := range p.Partitions {
			caughtUp = caughtUp && p.End > 0 && p.Behind() == 0 && p.Committed == p.End
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(values) != produced {
		t.Errorf("got %d of %d records", len(values), produced)
	}
	lags, err := admin.Lag(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	group := lags[group]
	if diff := cmp.Diff(int64(0), group.Lag.Total()); diff != "" {
		t.Errorf("the group's lag differs (-want +got):\n%s", diff)
	}
}

// A real broker refuses the id of a topic that was deleted, drops the group's
// offsets with it, and is slow to know the new one.
func TestARealTopicThatIsCreatedAgain(t *testing.T) {
	cluster := kafkatest.Start(t, kafka.Options{})
	seeds := []kgo.Opt{kgo.SeedBrokers(cluster.Seeds()...)}
	client, err := kgo.NewClient(append(seeds, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	values := make(chan string, 1000)
	m, err := eventsource.Start(eventsource.Options{
		Client: seeds, Topic: topic, Group: group, InstanceID: group,
		Invoker: eventsource.InvokerFunc(func(_ context.Context, payload []byte) ([]byte, error) {
			event, err := kafkaevent.Decode(payload)
			for _, r := range event.Records {
				values <- string(r.Value)
			}
			return nil, err
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	within := time.After(2 * time.Minute)
	for life, partitions := range []int32{2, 3, 1} {
		if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
		client.PurgeTopicsFromClient(topic)
		want := make(map[string]bool)
		for i := range 100 {
			value := fmt.Sprintf("%d of life %d", i, life)
			if err := client.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
				t.Fatal(err)
			}
			want[value] = true
		}
		for len(want) > 0 {
			select {
			case value := <-values:
				delete(want, value)
			case <-within:
				t.Fatalf("%d records of life %d did not come: %+v", len(want), life, m.Progress())
			}
		}
		if _, err := admin.DeleteTopics(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
}
