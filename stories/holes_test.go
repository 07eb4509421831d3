package stories_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/shared/mirror"
	"mirrorless/shared/status"
)

// TestWhatAnEventCannotCarryIsCopied is of all that makes offsets skip: compaction,
// markers, records over the payload's cap, retention that overtakes; and of headers
// without a value. verify calls the copies equal.
func TestWhatAnEventCannotCarryIsCopied(t *testing.T) {
	ctx := within(t, 6*time.Minute)
	a, b := startBoth(t, kafka.Options{Properties: map[string]string{
		// The cleaner spares only the segment that is written to.
		"log.roll.ms": "300", "log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01",
	}}, kafka.Options{})
	onA := connect(t, a, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(16<<20))
	onB := connect(t, b)
	compact, large := "compact", "12000000"
	create(ctx, t, onA, 1, map[string]*string{"cleanup.policy": &compact}, "compacted")
	create(ctx, t, onA, 1, map[string]*string{"max.message.bytes": &large}, "large")
	create(ctx, t, onA, 1, nil, "transactional", "nulls", "overtaken")

	compacted(ctx, t, a, onA)
	mixed(ctx, t, a, onA, "transactional", 40)
	produce(ctx, t, onA, nulls("nulls", 200)...)
	produce(ctx, t, onA, numbered("overtaken", "%d", 0, 100)...)
	big := func(n int) *kgo.Record {
		return &kgo.Record{Topic: "large", Key: fmt.Appendf(nil, "big %d", n), Value: bytes.Repeat([]byte{'a' + byte(n)}, 5<<20)}
	}
	produce(ctx, t, onA, numbered("large", "%d", 0, 10)...)
	produce(ctx, t, onA, big(0))
	produce(ctx, t, onA, numbered("large", "%d", 10, 20)...)
	produce(ctx, t, onA, big(1), big(2)) // the last ones of their partition

	file := properties(t, a, b, "clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = compacted, large, transactional, nulls, overtaken", "A->B.groups = reader-.*",
		"refresh.topics.interval.seconds = 2", "emit.checkpoints.interval.seconds = 1", "replication.factor = 1",
		"A->B.sync.group.offsets.enabled = true", "A->B.sync.group.offsets.interval.seconds = 1", "mirrorless.metrics = topics")
	printed := filepath.Join(t.TempDir(), "metrics")
	expected := map[string][]at{}
	groups := map[string]int64{} // where they go on, on B
	for _, topic := range []string{"compacted", "large", "transactional", "nulls", "overtaken"} {
		expected[topic] = offsetsAndRecords(ctx, t, a, topic)
		// A group stands at every seventh offset, also in gaps.
		end := expected[topic][len(expected[topic])-1].offset
		for g := int64(0); g <= end; g += max(7, end/12) {
			name := fmt.Sprintf("reader-%s-%d", topic, g)
			commitAs(ctx, t, onA, name, topic, g)
			groups[name] = int64(slices.IndexFunc(expected[topic], func(r at) bool { return r.offset >= g }))
		}
	}

	r := run(t, nil, file, "--metrics", printed)
	begun := time.Now()
	for topic, want := range expected {
		eventually(ctx, t, "all of "+topic+" on B", func() bool {
			return exists(ctx, t, onB, "A."+topic) && ends(ctx, t, onB, "A."+topic) == int64(len(want))
		})
		t.Logf("%s: %d records, up to offset %d, on B after %v", topic, len(want), want[len(want)-1].offset, time.Since(begun).Round(time.Second))
		if diff := cmp.Diff(records(want), records(offsetsAndRecords(ctx, t, b, "A."+topic))); diff != "" {
			t.Errorf("%s on A and B (-A +B):\n%s", topic, diff)
		}
	}
	adm := kadm.NewClient(onB)
	for name, want := range groups {
		topic := strings.Split(name, "-")[1]
		got := int64(-1)
		eventually(ctx, t, "group "+name+" on B", func() bool {
			offsets, err := adm.FetchOffsets(ctx, name)
			if o, ok := offsets.Lookup("A."+topic, 0); err == nil && ok {
				got = o.At
			}
			return got >= 0
		})
		if got != want {
			t.Errorf("group %s goes on at %d on B, want %d", name, got, want)
		}
	}
	r.stop(t)

	// Retention overtakes the event source while nothing runs.
	produce(ctx, t, onA, numbered("overtaken", "%d", 100, 200)...)
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: "overtaken", At: 150, LeaderEpoch: -1})
	if _, err := kadm.NewClient(onA).DeleteRecords(ctx, before); err != nil {
		t.Fatal(err)
	}
	r = run(t, nil, file, "--metrics", printed)
	eventually(ctx, t, "what is left of overtaken on B", func() bool { return ends(ctx, t, onB, "A.overtaken") == 150 })
	ledger := holesOf(t, file)
	want := []status.Hole{{Kind: mirror.HoleExpired, Topic: "overtaken", From: 100, To: 150, Records: 50}}
	if diff := cmp.Diff(want, ledger); diff != "" {
		t.Errorf("status shows holes (-want +got):\n%s", diff)
	}
	for topic, flags := range map[string][]string{
		"compacted": nil, "large": nil, "transactional": nil, "nulls": nil, "overtaken": {"--allow-unprovable"},
	} {
		out, err := mirrorless(t, append([]string{"verify", file, "--topics", topic}, flags...)...).CombinedOutput()
		if err != nil {
			t.Errorf("verify %s: %v", topic, err)
		}
		t.Logf("verify %s printed:\n%s", topic, out)
	}
	r.stop(t)
	// Metrics say the same, with what a sweep has copied.
	m := metricsOf(t, printed)
	for topic, records := range expected {
		more, holes := 0, 0
		if topic == "overtaken" {
			more, holes = 50, 1
		}
		m.want(t, "A."+topic, "record-count", len(records)+more)
		m.want(t, "A."+topic, "holes", holes)
		m.want(t, "A."+topic, "duplicates-detected", 0)
	}
}

// TestACommittedReadCopiesNothingThatWasAborted also waits for a transaction that
// is open.
func TestACommittedReadCopiesNothingThatWasAborted(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	onA := connect(t, a, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	create(ctx, t, onA, 1, nil, "transactional")
	mixed(ctx, t, a, onA, "transactional", 40)
	committed := offsetsAndRecords(ctx, t, a, "transactional", kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	writer := connect(t, a, kgo.TransactionalID("open"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(ctx, t, writer, numbered("transactional", "open %d", 0, 5)...)
	produce(ctx, t, onA, numbered("transactional", "behind %d", 0, 5)...)

	file := seed1(t, a, b, "A->B.topics = transactional", "A.consumer.isolation.level = read_committed")
	r := run(t, nil, file)
	onB := connect(t, b)
	copied := func() int {
		if !exists(ctx, t, onB, "A.transactional") {
			return 0
		}
		return int(ends(ctx, t, onB, "A.transactional"))
	}
	eventually(ctx, t, "what is decided on B", func() bool { return copied() >= len(committed) })
	eventually(ctx, t, "the reason for waiting", func() bool { return strings.Contains(r.out.String(), "not decided yet") })
	if got := copied(); got != len(committed) {
		t.Errorf("got %d records on B while a transaction is open, want %d", got, len(committed))
	}
	if err := writer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "everything on B", func() bool { return copied() == len(committed)+10 })
	want := offsetsAndRecords(ctx, t, a, "transactional", kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if diff := cmp.Diff(records(want), records(offsetsAndRecords(ctx, t, b, "A.transactional"))); diff != "" {
		t.Errorf("committed on A, and B (-A +B):\n%s", diff)
	}
	out, err := mirrorless(t, "verify", file, "--topics", "transactional").CombinedOutput()
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	t.Logf("verify printed:\n%s", out)
	if got := holesOf(t, file); len(got) > 0 {
		t.Errorf("status shows holes %v, want none", got)
	}
	r.stop(t)
}

// compacted fills a topic of A with keys that are overwritten again and again, and
// waits until the cleaner has been there.
func compacted(ctx context.Context, t *testing.T, a *kafka.Cluster, client *kgo.Client) {
	t.Helper()
	written := 0
	for round := range 4 {
		var rs []*kgo.Record
		for i := range 300 {
			rs = append(rs, &kgo.Record{Topic: "compacted", Key: fmt.Appendf(nil, "%d", (i*(round+1))%120), Value: fmt.Appendf(nil, "%d-%d", round, i)})
		}
		produce(ctx, t, client, rs...)
		written += len(rs)
	}
	eventually(ctx, t, "the cleaner", func() bool {
		// Each record that comes after log.roll.ms rolls the segment.
		produce(ctx, t, client, &kgo.Record{Topic: "compacted", Key: fmt.Appendf(nil, "tick %d", written), Value: []byte("x")})
		written++
		return len(offsetsAndRecords(ctx, t, a, "compacted")) < written/2
	})
	// What is compacted between the copy and the comparison would be a difference.
	last, since := -1, time.Now()
	eventually(ctx, t, "the cleaner's rest", func() bool {
		if n := len(offsetsAndRecords(ctx, t, a, "compacted")); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	})
}

// mixed writes transactions of two producers, of which every third is aborted, and
// plain records between them.
func mixed(ctx context.Context, t *testing.T, c *kafka.Cluster, plain *kgo.Client, topic string, n int) {
	t.Helper()
	one := connect(t, c, kgo.TransactionalID(topic+"-one"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	other := connect(t, c, kgo.TransactionalID(topic+"-other"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range n {
		for _, w := range []*kgo.Client{one, other} {
			if err := w.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			produce(ctx, t, w, numbered(topic, fmt.Sprint("transaction ", i, " record %d"), 0, 1+i%4)...)
		}
		produce(ctx, t, plain, numbered(topic, fmt.Sprint("between ", i, " record %d"), 0, i%3)...)
		for j, w := range []*kgo.Client{other, one} {
			if err := w.EndTransaction(ctx, kgo.TransactionEndTry((i+j)%3 != 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(ctx, t, plain, numbered(topic, "last %d", 0, 1)...)
}

func nulls(topic string, n int) []*kgo.Record {
	rs := numbered(topic, "%d", 0, n)
	for i, r := range rs {
		for j := range i % 4 {
			h := kgo.RecordHeader{Key: fmt.Sprint("h", j), Value: []byte("v")}
			if (i+j)%3 == 0 {
				h.Value = nil
			}
			r.Headers = append(r.Headers, h)
		}
	}
	return rs
}

// at is a record and its offset.
type at struct {
	offset int64
	record string
}

func records(rs []at) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.record)
	}
	return out
}

// offsetsAndRecords reads partition 0 of a topic, with all that a mirror must keep.
func offsetsAndRecords(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string, opts ...kgo.Opt) []at {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.Seeds()...), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := listed.Lookup(topic, 0)
	var out []at
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		for r := range fetches.RecordsAll() {
			if !r.Attrs.IsControl() {
				value := nullOr(r.Value)
				if len(r.Value) > 100 {
					value = fmt.Sprintf("%d times %q", len(r.Value), r.Value[0])
				}
				out = append(out, at{r.Offset, fmt.Sprintf("%d %s=%s %s", r.Timestamp.UnixMilli(), nullOr(r.Key), value, headers(r))})
			}
			if r.Offset >= end.Offset-1 {
				return out
			}
		}
	}
}

// holesOf asks status for the ledger.
func holesOf(t *testing.T, file string) []status.Hole {
	t.Helper()
	out, err := mirrorless(t, "status", file, "--json").Output()
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	var reports []status.Report
	if err := json.Unmarshal(out, &reports); err != nil {
		t.Fatal(err)
	}
	var holes []status.Hole
	for _, r := range reports {
		for _, h := range r.Holes {
			h.Seen = time.Time{}
			holes = append(holes, h)
		}
	}
	return holes
}
