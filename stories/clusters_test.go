package stories_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
)

// within is the test's context with a limit.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("story took longer than %s", d))
	t.Cleanup(cancel)
	return ctx
}

// startBoth starts two clusters at the same time.
func startBoth(t testing.TB, source, target kafka.Options) (a, b *kafka.Cluster) {
	t.Helper()
	kafkatest.Find(t) // skips here, in the test's own goroutine
	var wg sync.WaitGroup
	wg.Go(func() { a = kafkatest.Start(t, source) })
	wg.Go(func() { b = kafkatest.Start(t, target) })
	wg.Wait()
	if a == nil || b == nil {
		t.FailNow()
	}
	return a, b
}

// connect is a client of a cluster that is closed with the test.
func connect(t testing.TB, c *kafka.Cluster, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(c.Seeds()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// read returns the values of the first n records of a topic, in order.
func read(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string, n int) []string {
	t.Helper()
	client := connect(t, c, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var values []string
	for len(values) < n {
		fetches := client.PollRecords(ctx, n-len(values))
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: got %d of %d records: %v", topic, len(values), n, err)
		}
		for record := range fetches.RecordsAll() {
			values = append(values, string(record.Value))
		}
	}
	return values
}

// everyRecord hands out the records that a topic holds now, past any proxy; or only
// those that committed transactions wrote, up to the first that is open.
func everyRecord(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string, committed bool, each func(*kgo.Record)) {
	t.Helper()
	isolation, ends := kgo.ReadUncommitted(), (*kadm.Client).ListEndOffsets
	if committed {
		isolation, ends = kgo.ReadCommitted(), (*kadm.Client).ListCommittedOffsets
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords()) // one of which may be the last
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	listed, err := ends(kadm.NewClient(client), ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if ok && r.Offset < end && !r.Attrs.IsControl() {
				each(r)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
	}
}

// mirrorMaker starts a MirrorMaker 2, which tells what it said last where the test
// fails.
func mirrorMaker(t testing.TB, in kafka.Installation, file string) *kafka.MirrorMaker {
	t.Helper()
	mm2, err := in.MirrorMaker(file, filepath.Join(t.TempDir(), "mm2.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(mm2.LogFile())
			lines := strings.SplitAfter(string(log), "\n")
			t.Logf("MirrorMaker 2 said, at the end:\n%s", strings.Join(lines[max(0, len(lines)-20):], ""))
		}
		mm2.Close()
	})
	return mm2
}

func TestTwoClustersAreApart(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	a, b := startBoth(t, kafka.Options{Brokers: 3}, kafka.Options{})
	if a.ID() == b.ID() {
		t.Errorf("got cluster id %s twice", a.ID())
	}
	producer := connect(t, a, kgo.DefaultProduceTopic("mm2-source-topic"))
	if _, err := kadm.NewClient(producer).CreateTopic(ctx, 1, 3, nil, "mm2-source-topic"); err != nil {
		t.Fatal(err)
	}
	var want []string
	var records []*kgo.Record
	for i := range 50 {
		want = append(want, fmt.Sprintf("clusterA-msg-%d", i))
		records = append(records, kgo.StringRecord(want[i]))
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read(ctx, t, a, "mm2-source-topic", len(want))); diff != "" {
		t.Errorf("records on A (-want +got):\n%s", diff)
	}
	topics, err := kadm.NewClient(connect(t, b)).ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := topics.Names(); len(got) != 0 {
		t.Errorf("got topics %q on B, want none", got)
	}
}
