package target

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
)

// TestAnAttemptThatKnewLessOfTheSourceIsSettled: the earlier attempt could not
// read the source, and this one can.
func TestAnAttemptThatKnewLessOfTheSourceIsSettled(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	log := New(client, Options{})
	partition := func(n int32) (Partition, Cursor) {
		t.Helper()
		id, err := log.NewProducer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return Partition{TopicPartition: flow.TopicPartition{Topic: "orders", Partition: n}, TopicID: topics["orders"].ID},
			Cursor{Producer: batch.Producer{ID: id}}
	}

	t.Run("headers without a value may be missing", func(t *testing.T) {
		p, cursor := partition(0)
		full := values(0, 5)
		full[1].Headers = []batch.Header{{Name: "a", Value: []byte("1")}, {Name: "null"}, {Name: "b", Value: []byte{}}}
		full[4].Headers = []batch.Header{{Name: "null"}}
		bare := slices.Clone(full)
		bare[1].Headers = []batch.Header{full[1].Headers[0], full[1].Headers[2]}
		bare[4].Headers = nil
		if _, err := log.Append(t.Context(), p, cursor, bare, nil); err != nil {
			t.Fatal(err)
		}
		got, err := log.Claim(t.Context(), p, cursor, full, -1)
		if err != nil || got.Done != 5 || got.Extra != 0 {
			t.Errorf("got %+v, %v; want all five found", got, err)
		}
		if diff := cmp.Diff([]int{1, 4}, got.Stripped); diff != "" {
			t.Errorf("stripped (-want +got):\n%s", diff)
		}
		full[1].Headers[0].Value = []byte("2")
		if got, _ := log.Claim(t.Context(), p, cursor, full[:2], -1); got.Done != 1 {
			t.Errorf("another value of a header: got %d records found, want 1", got.Done)
		}
	})
	t.Run("records before one that is there are named", func(t *testing.T) {
		p, cursor := partition(1)
		full := values(0, 9)
		if _, err := log.Append(t.Context(), p, cursor, slices.Delete(slices.Clone(full), 4, 7), nil); err != nil {
			t.Fatal(err)
		}
		got, err := log.Claim(t.Context(), p, cursor, full, -1)
		altered, ok := errors.AsType[*AlteredError](err)
		if !ok || altered.Record != 4 || altered.Next != 7 || altered.Offset != 4 || got.Done != 4 {
			t.Errorf("got %+v, %v; want records 4 to 6 named after 4", got, err)
		}
	})
}
