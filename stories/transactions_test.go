package stories_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/localstack/realtest"
)

// inTransactions are settings under which ours and MirrorMaker 2 copy in
// transactions.
var inTransactions = []string{
	"clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B", "A->B.enabled = true",
	"B.exactly.once.source.support = enabled", "dedicated.mode.enable.internal.rest = true", "listeners = http://127.0.0.1:0",
	"emit.checkpoints.interval.seconds = 1", "refresh.topics.interval.seconds = 2", "offset.flush.interval.ms = 500",
	"replication.factor = 1", "checkpoints.topic.replication.factor = 1", "heartbeats.topic.replication.factor = 1",
	"offset-syncs.topic.replication.factor = 1", "offset.storage.replication.factor = 1",
	"status.storage.replication.factor = 1", "config.storage.replication.factor = 1",
}

// follower reads a load's copy as a consumer with isolation.level = read_committed
// does, while it is written.
type follower struct {
	mu   sync.Mutex
	next map[int32]uint64 // number of the record that is to come, by partition
	n    int64
	odd  []string // what was seen against the order of the load
}

func follow(ctx context.Context, t *testing.T, c *kafka.Cluster, topic string) *follower {
	t.Helper()
	client := connect(t, c, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(100*time.Millisecond))
	f := &follower{next: map[int32]uint64{}}
	go func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(f.take)
		}
	}()
	return f
}

func (f *follower) take(r *kgo.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if got := binary.BigEndian.Uint64(r.Value); got != f.next[r.Partition] && len(f.odd) < 10 {
		f.odd = append(f.odd, fmt.Sprintf("%s-%d at %d: got record %d, want %d", r.Topic, r.Partition, r.Offset, got, f.next[r.Partition]))
	}
	f.next[r.Partition] = binary.BigEndian.Uint64(r.Value) + 1
}

func (f *follower) seen() (int64, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.odd
}

// readCommitted returns the committed records of a topic, up to the first
// transaction that is open now.
func readCommitted(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string) (all []*kgo.Record) {
	t.Helper()
	everyRecord(ctx, t, c, topic, true, func(r *kgo.Record) { all = append(all, r) })
	return all
}

// TestReadersOfCommittedRecordsSeeEachOnceWhoeverIsKilled kills mirror again and
// again, and freezes it so that it comes back as a zombie, while a consumer reads.
func TestReadersOfCommittedRecordsSeeEachOnceWhoeverIsKilled(t *testing.T) {
	if !realtest.Full() {
		t.Skip("takes minutes: make test FULL=1 runs it")
	}
	const n, every = 600_000, 400 * time.Millisecond
	ctx := within(t, 6*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{Brokers: 3, Properties: map[string]string{"min.insync.replicas": "2"}})
	env, args := bootstraps(t)
	create(ctx, t, connect(t, a), 4, nil, "load")
	l := newLoad(t, a, "load", 4, 1000)
	l.write(ctx, t, n/2)
	settings := append(inTransactions, "A->B.topics = load", "replication.factor = 3")
	r := run(t, env, properties(t, a, b, settings...), args...)
	f := follow(ctx, t, b, "A.load")
	eventually(ctx, t, "the first copies", func() bool { seen, _ := f.seen(); return seen > 0 })

	rng := rand.New(rand.NewPCG(1, 2))
	kills, freezes := 0, 0
	for written := false; ; {
		if seen, _ := f.seen(); seen >= int64(n)*9/10 {
			break
		}
		if !sleep(ctx, every/2+rand.N(every)) {
			t.Fatal(context.Cause(ctx))
		}
		if !written && kills+freezes > 3 {
			l.write(ctx, t, n-n/2)
			written = true
		}
		pids := processes(filepath.Join(bin, "mirror", "bootstrap"))
		if len(pids) == 0 {
			continue
		}
		pid := pids[rng.IntN(len(pids))]
		if rng.IntN(3) > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			kills++
			continue
		}
		// Its invocation times out meanwhile, or another one takes over.
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		sleep(ctx, time.Second)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		freezes++
	}
	eventually(ctx, t, "all records on B", func() bool { seen, _ := f.seen(); return seen >= int64(n) })
	r.stop(t)
	seen, odd := f.seen()
	t.Logf("%d kills and %d freezes: a reader of committed records saw %d of %d records, %d out of place", kills, freezes, seen, n, len(odd))
	if seen != int64(n) || len(odd) > 0 || kills < 5 {
		t.Errorf("got %d records, want %d, after %d kills; out of place:\n%s", seen, n, kills, strings.Join(odd, "\n"))
	}
}

// TestMirrorMaker2AndTransactionsTakeTurns lets MirrorMaker 2 go on where ours
// stopped, and ours where MirrorMaker 2 did, both in transactions.
func TestMirrorMaker2AndTransactionsTakeTurns(t *testing.T) {
	if !realtest.Full() {
		t.Skip("takes minutes: make test FULL=1 runs it")
	}
	ctx := within(t, 4*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	in := kafkatest.Find(t)
	atA, atB := connect(t, a), connect(t, b, kgo.MetadataMinAge(20*time.Millisecond))
	create(ctx, t, atA, 1, nil, "orders")
	file := properties(t, a, b, append(inTransactions, "A->B.topics = orders")...)
	var want []string
	write := func(to int) {
		produce(ctx, t, atA, numbered("orders", "order-%d", len(want), to)...)
		for len(want) < to {
			want = append(want, fmt.Sprintf("order-%d", len(want)))
		}
	}
	committed := func() []string {
		var values []string
		if exists(ctx, t, atB, "A.orders") {
			for _, r := range readCommitted(ctx, t, b, "A.orders") {
				values = append(values, string(r.Value))
			}
		}
		return values
	}
	wantAll := func(who string) {
		t.Helper()
		eventually(ctx, t, "the copies of "+who, func() bool { return len(committed()) >= len(want) })
		if diff := cmp.Diff(want, committed()); diff != "" {
			t.Fatalf("committed records on B after %s (-want +got):\n%s", who, diff)
		}
	}
	ours := func() {
		t.Helper()
		r := run(t, nil, file)
		wantAll("ours")
		r.stop(t)
	}
	write(100)
	ours()
	var last string
	for _, r := range readCommitted(ctx, t, b, "mm2-offsets.A.internal") {
		if string(r.Key) == `["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]` {
			last = string(r.Value)
		}
	}
	if want := `{"offset":99}`; last != want {
		t.Errorf("got position record %s on B, want %s", last, want)
	}

	write(130)
	peer := mirrorMaker(t, in, file)
	wantAll("MirrorMaker 2")
	stopping, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := peer.Stop(stopping); err != nil {
		t.Fatal(err)
	}

	write(150)
	ours()
}
