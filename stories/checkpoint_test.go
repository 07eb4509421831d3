package stories_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/shared/mm2"
)

// transactions writes n transactions of ten records each; the marker behind each
// takes an offset of the source and none of the target.
func transactions(ctx context.Context, t *testing.T, c *kafka.Cluster, topic string, n int) {
	t.Helper()
	client := connect(t, c, kgo.TransactionalID("orders-app"), kgo.DefaultProduceTopic(topic))
	for i := range n {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(ctx, t, client, numbered(topic, "order-%d", 10*i, 10*i+10)...)
		if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
}

// commitAs gives a group an offset without being its member.
func commitAs(ctx context.Context, t *testing.T, client *kgo.Client, group, topic string, offset int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, At: offset, LeaderEpoch: -1, Metadata: "from " + topic})
	if err := kadm.NewClient(client).CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
}

// member joins a group that reads topic, and waits for its partition.
func member(ctx context.Context, t *testing.T, c *kafka.Cluster, group, topic string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	assigned := make(chan struct{}, 1)
	client := connect(t, c, append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
			if len(of) > 0 {
				select {
				case assigned <- struct{}{}:
				default:
				}
			}
		}))...)
	select {
	case <-assigned:
	case <-ctx.Done():
		t.Fatalf("join group %s: %v", group, context.Cause(ctx))
	}
	return client
}

// offsetsOf asks kafka-consumer-groups for the offset and the lag of all groups
// in a topic's first partition.
func offsetsOf(ctx context.Context, t *testing.T, in kafka.Installation, c *kafka.Cluster, topic string) (offsets, lags map[string]int64) {
	t.Helper()
	out, err := in.Tool(ctx, "kafka-consumer-groups", "--bootstrap-server", c.Bootstrap(), "--describe", "--all-groups", "--offsets")
	if err != nil {
		t.Fatal(err)
	}
	offsets, lags = map[string]int64{}, map[string]int64{}
	for line := range strings.Lines(out) { // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG …
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != topic || f[2] != "0" {
			continue
		}
		offset, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			continue // "-": none
		}
		offsets[f[0]] = offset
		if lags[f[0]], err = strconv.ParseInt(f[5], 10, 64); err != nil {
			t.Fatalf("kafka-consumer-groups printed %q", line)
		}
	}
	return offsets, lags
}

// TestGroupsGoOnWhereTheyWere holds exact translation against real groups of
// every kind over a topic full of transaction markers; then a real MirrorMaker 2
// takes over from what was written for it.
func TestGroupsGoOnWhereTheyWere(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	in := kafkatest.Find(t)
	atA, atB := connect(t, a), connect(t, b)
	create(ctx, t, atA, 1, nil, "orders")
	transactions(ctx, t, a, "orders", 10) // offsets 0 … 109, of which every eleventh is a marker

	file := properties(t, a, b,
		"clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = orders", "A->B.sync.group.offsets.enabled = true",
		"replication.factor = 1", "checkpoints.topic.replication.factor = 1", "heartbeats.topic.replication.factor = 1",
		"offset-syncs.topic.replication.factor = 1", "offset.storage.replication.factor = 1",
		"config.storage.replication.factor = 1", "status.storage.replication.factor = 1",
		"refresh.topics.interval.seconds = 2", "emit.checkpoints.interval.seconds = 1",
		"sync.group.offsets.interval.seconds = 1", "B.offset.flush.interval.ms = 1000", "mirrorless.metrics = partitions")
	printed := filepath.Join(t.TempDir(), "metrics")
	r := run(t, nil, file, "--metrics", printed)
	read(ctx, t, b, "A.orders", 100)

	// On B two of the groups are alive already.
	classic := member(ctx, t, b, "live-classic", "A.orders")
	newer := member(ctx, t, b, "live-consumer", "A.orders", kgo.ServerSideBalancer())
	want := map[string]int64{"at-the-start": 0, "in-the-middle": 50, "on-a-marker": 50, "at-the-end": 100}
	for group, offset := range map[string]int64{
		"at-the-start": 0, "in-the-middle": 55, "on-a-marker": 54, "at-the-end": 110, "live-classic": 33, "live-consumer": 33,
	} {
		commitAs(ctx, t, atA, group, "orders", offset)
	}
	eventually(ctx, t, "checkpoints of six groups", func() bool {
		return exists(ctx, t, atB, "A.checkpoints.internal") && ends(ctx, t, atB, "A.checkpoints.internal") >= 6
	})
	eventually(ctx, t, "the offsets of the groups on B", func() bool {
		offsets, lags := offsetsOf(ctx, t, in, b, "A.orders")
		for group, lag := range lags {
			if lag < 0 {
				t.Fatalf("group %s lags %d records behind on B", group, lag)
			}
		}
		for _, live := range []string{"live-classic", "live-consumer"} {
			if offset, ok := offsets[live]; ok {
				t.Fatalf("group %s has members on B and was set to %d", live, offset)
			}
		}
		return maps.Equal(want, offsets)
	})
	fetched, err := kadm.NewClient(atB).FetchOffsets(ctx, "in-the-middle")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := fetched.Lookup("A.orders", 0); o.Metadata != "from orders" {
		t.Errorf("got metadata %q, want what the group committed on A", o.Metadata)
	}

	// They leave, and go on where they were on A; who has moved on does not go back.
	commitAs(ctx, t, atB, "in-the-middle", "A.orders", 80)
	classic.Close()
	newer.Close()
	want["live-classic"], want["live-consumer"], want["in-the-middle"] = 30, 30, 80
	eventually(ctx, t, "the offsets of the groups that left", func() bool {
		offsets, _ := offsetsOf(ctx, t, in, b, "A.orders")
		return maps.Equal(want, offsets)
	})
	r.stop(t)
	m := metricsOf(t, printed)
	m.wantAll(t)
	m.want(t, "A.orders 0", "record-count", 100)
	m.want(t, "A.orders", "holes", 0) // markers are none
	for group := range want {
		if got := m[group+" A.orders 0"]["checkpoint-latency-ms"]; len(got) == 0 || slices.Min(got) < 0 {
			t.Errorf("checkpoint-latency-ms of group %s: got %v", group, got)
		}
	}
	if got := m[""]["event-sources-not-enabled"]; got[len(got)-1] != 0 {
		t.Errorf("event-sources-not-enabled: got %v, want 0 at last", got)
	}
	wantPosition(ctx, t, b, mm2.SourcePosition{Connector: mm2.SourceConnector, Cluster: "A", Topic: "orders", Offset: 108})

	// MirrorMaker 2 goes on behind the last record: nothing twice, nothing left out.
	produce(ctx, t, atA, numbered("orders", "order-%d", 100, 103)...)
	mirrorMaker(t, in, file)
	var orders []string
	for i := range 103 {
		orders = append(orders, fmt.Sprintf("order-%d", i))
	}
	got := read(ctx, t, b, "A.orders", 103)
	if diff := cmp.Diff(orders, got); diff != "" {
		t.Errorf("records on B after MirrorMaker 2 took over (-want +got):\n%s", diff)
	}
	if n := ends(ctx, t, atB, "A.orders"); n != 103 {
		t.Errorf("got %d records on B, want 103", n)
	}
}

// wantPosition looks for Connect's source offset.
func wantPosition(ctx context.Context, t *testing.T, c *kafka.Cluster, want mm2.SourcePosition) {
	t.Helper()
	client := connect(t, c)
	topic := "mm2-offsets." + want.Cluster + ".internal"
	n := ends(ctx, t, client, topic)
	reader := connect(t, c, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var all []mm2.SourcePosition
	for int64(len(all)) < n {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for record := range fetches.RecordsAll() {
			p, err := mm2.ParseSourcePosition(record.Key, record.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
	}
	if !slices.Contains(all, want) {
		t.Errorf("got positions %+v in %s, want %+v among them", all, topic, want)
	}
}
