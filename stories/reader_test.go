package stories_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
)

// readAll is the second reader: it shares no code with verify. It returns every
// record of a topic by partition, with all that a mirror must keep spelled out.
func readAll(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string) map[int32][]string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	last, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	last.Each(func(o kadm.ListedOffset) {
		if s, _ := starts.Lookup(topic, o.Partition); s.Offset < o.Offset {
			left[o.Partition] = o.Offset
		}
	})
	out := map[int32][]string{}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			out[r.Partition] = append(out[r.Partition], fmt.Sprintf("%d %s=%s %s", r.Timestamp.UnixMilli(), nullOr(r.Key), nullOr(r.Value), headers(r)))
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

func nullOr(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%x.", b)
}

func headers(r *kgo.Record) (s string) {
	for _, h := range r.Headers {
		s += fmt.Sprintf("[%q=%s]", h.Key, nullOr(h.Value))
	}
	return s
}
