package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/producer"
)

func start(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	network := &kfake.VirtualNetwork{}
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.Ports(9092)}, opts...)
	c, err := kfake.NewCluster(append(opts, kfake.ListenFn(network.Listen))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(network.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return c, client
}

// records are n records for partition p of topic, with values of size bytes that
// begin with their number.
func records(topic string, p int32, n, size int) []producer.Record {
	var rs []producer.Record
	for i := range n {
		value := fmt.Appendf(nil, "%d ", i)
		rs = append(rs, producer.Record{
			Partition: flow.TopicPartition{Topic: topic, Partition: p},
			Record:    batch.Record{Timestamp: int64(i), Key: []byte("k"), Value: append(value, strings.Repeat("x", size)...)},
		})
	}
	return rs
}

// numbers reads the numbers of all records of a partition.
func numbers(t *testing.T, client *kgo.Client, topic string, p int32) []int {
	t.Helper()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, p)
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().AtStart()}})
	defer client.RemoveConsumePartitions(map[string][]int32{topic: {p}})
	var got []int
	for int64(len(got)) < end.Offset {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			var n int
			if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
	}
	return got
}

func upTo(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestSendKeepsTheOrderOverManyBatches(t *testing.T) {
	for name, opts := range map[string][]kfake.Opt{
		"of the usual size": {kfake.SeedTopics(2, "t")},
		"where the topic takes small ones only": {
			kfake.SeedTopics(2, "t"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000"}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := start(t, opts...)
			if err := producer.Send(t.Context(), client, append(records("t", 0, 500, 5000), records("t", 1, 3, 10)...)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(upTo(500), numbers(t, client, "t", 0)); diff != "" {
				t.Errorf("partition 0 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(upTo(3), numbers(t, client, "t", 1)); diff != "" {
				t.Errorf("partition 1 (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSendNothing(t *testing.T) {
	_, client := start(t)
	if err := producer.Send(t.Context(), client, nil); err != nil {
		t.Error(err)
	}
}

func TestSendFollowsTheLeader(t *testing.T) {
	c, client := start(t, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(1, "t"))
	for i := range 4 {
		if err := producer.Send(t.Context(), client, records("t", 0, 1, 1)); err != nil {
			t.Fatal(err)
		}
		if err := c.MoveTopicPartition("t", 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(numbers(t, client, "t", 0)); got != 4 {
		t.Errorf("got %d records, want 4", got)
	}
}

func TestSendOutlivesPassingErrors(t *testing.T) {
	for _, passing := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.RequestTimedOut, kerr.UnknownTopicOrPartition} {
		t.Run(passing.Message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := start(t, kfake.SeedTopics(1, "t"))
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: passing, Count: 3})
				if err := producer.Send(t.Context(), client, records("t", 0, 1, 1)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestSendTellsPartitionsApart(t *testing.T) {
	c, client := start(t, kfake.SeedTopics(1, "denied", "fine"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "denied", Err: kerr.TopicAuthorizationFailed, Count: -1})
	all := append(append(records("missing", 0, 1, 1), records("denied", 0, 1, 1)...), records("fine", 0, 1, 1)...)
	all = append(all, records("fine", 7, 1, 1)...)
	err := producer.Send(t.Context(), client, all)
	failed, ok := errors.AsType[*producer.Error](err)
	if !ok {
		t.Fatalf("got error %v, want a *producer.Error", err)
	}
	for tp, want := range map[flow.TopicPartition]error{
		{Topic: "missing"}: producer.ErrNoTopic, {Topic: "denied"}: kerr.TopicAuthorizationFailed, {Topic: "fine"}: nil,
		{Topic: "fine", Partition: 7}: producer.ErrNoTopic,
	} {
		if got := failed.Failed[tp]; !errors.Is(got, want) {
			t.Errorf("%s: got error %v, want %v", tp, got, want)
		}
	}
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "denied-0") {
		t.Errorf("got error %v, want one that names the partition", err)
	}
	if diff := cmp.Diff(upTo(1), numbers(t, client, "fine", 0)); diff != "" {
		t.Errorf("the partition that is fine (-want +got):\n%s", diff)
	}
}

func TestSendRefusesARecordThatIsTooLarge(t *testing.T) {
	_, client := start(t, kfake.SeedTopics(1, "t"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "1000"}))
	err := producer.Send(t.Context(), client, records("t", 0, 1, 5000))
	if !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("got error %v, want MESSAGE_TOO_LARGE", err)
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := start(t, kfake.SeedTopics(1, "t"))
		stuck := make(chan struct{})
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.SleepControl(func() { <-stuck })
			return nil, nil, false
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		err := producer.Send(ctx, client, records("t", 0, 1, 1))
		if !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("got error %v after %s, want the context's after 1s", err, time.Since(began))
		}
		close(stuck)
	})
}
