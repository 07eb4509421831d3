package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/mirror"
	"mirrorless/shared/mm2"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// txWorld is a world whose flow copies in transactions.
type txWorld struct {
	*world
	forgetful *forgetful
}

func newTxWorld(t *testing.T) txWorld {
	t.Helper()
	w := newWorld(t, "B.exactly.once.source.support = enabled")
	if _, err := kadm.NewClient(w.b).CreateTopic(t.Context(), 25, 1, nil, w.settings.PositionsTopic); err != nil {
		t.Fatal(err)
	}
	f := &forgetful{Store: w.store}
	w.store = f
	return txWorld{w, f}
}

// forgetful is a store that loses the next write after it was told to.
type forgetful struct {
	state.Store
	lose atomic.Bool
}

var errThrottled = errors.New("throttled")

func (f *forgetful) Advance(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	if f.lose.CompareAndSwap(true, false) {
		return nil, errThrottled
	}
	return f.Store.Advance(ctx, next)
}

func (w txWorld) cold() *mirror.Mirror {
	return mirror.New(mirror.Options{Settings: w.settings, Store: w.store, Source: w.a, Target: target.NewTransactions(w.b, target.TransactionOptions{
		Flow: w.settings.Flow, Connector: w.settings.Connector, Cluster: w.settings.SourceAlias, Positions: w.settings.PositionsTopic,
	})})
}

// committed reads a partition of B as a consumer with isolation.level =
// read_committed does, which the end of the last transaction does not hold up.
func (w txWorld) committed(topic string, partition int32) []*kgo.Record {
	w.t.Helper()
	ends, err := kadm.NewClient(w.b).ListCommittedOffsets(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, partition)
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.b.OptValue(kgo.SeedBrokers).([]string)...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	var out []*kgo.Record
	for next := int64(0); next < end.Offset; {
		fs := reader.PollFetches(w.t.Context())
		if err := fs.Err(); err != nil {
			w.t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
		})
	}
	return out
}

// want fails unless B shows the records from..to of orders-0 once, in order, and
// the position record and the run map tell of them.
func (w txWorld) want(from, to int64) {
	w.t.Helper()
	copies := w.committed("A.orders", 0)
	var keys []string
	for _, r := range copies {
		keys = append(keys, string(r.Key))
	}
	if diff := cmp.Diff(keysOf(from, to), keys); diff != "" {
		w.t.Fatalf("keys on B (-want +got):\n%s", diff)
	}
	position := mm2.SourcePosition{Connector: mm2.SourceConnector, Cluster: "A", Topic: "orders", Partition: 0}
	records := w.committed(w.settings.PositionsTopic, position.RecordPartition(25))
	if last := records[len(records)-1]; string(last.Key) != `["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]` ||
		string(last.Value) != fmt.Sprintf(`{"offset":%d}`, to-1) {
		w.t.Errorf("got position record %s %s, want offset %d", last.Key, last.Value, to-1)
	}
	pos := w.position()
	var runs offsets.Map
	chunks, err := w.store.Runs(w.t.Context(), orders0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range append(chunks, state.RunChunk{Data: pos.Runs}) {
		if err := runs.AddChunk(c.Data); err != nil {
			w.t.Fatal(err)
		}
	}
	for i, r := range copies {
		bounds := offsets.Bounds{First: pos.First, Next: pos.Upstream, End: pos.Downstream, LogEnd: pos.Downstream}
		if got, ok := runs.Translate(from+int64(i), bounds); !ok || got != r.Offset {
			w.t.Errorf("translate %d: got %d, %t; want %d", from+int64(i), got, ok, r.Offset)
		}
	}
}

func TestInTransactionsARepeatedEventChangesNothing(t *testing.T) {
	for name, next := range map[string]func(w txWorld, warm *mirror.Mirror) *mirror.Mirror{
		"warm": func(_ txWorld, warm *mirror.Mirror) *mirror.Mirror { return warm },
		"cold": func(w txWorld, _ *mirror.Mirror) *mirror.Mirror { return w.cold() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTxWorld(t)
			m := w.cold()
			w.must(m, numbered(0, 20))
			w.must(next(w, m), numbered(0, 20))
			w.must(next(w, m), numbered(10, 30)) // another boundary
			w.want(0, 30)
		})
	}
}

func TestACrashAfterTheCommitCopiesNothingTwice(t *testing.T) {
	w := newTxWorld(t)
	w.must(w.cold(), numbered(0, 5))
	m := w.cold()
	w.forgetful.lose.Store(true)
	if _, err := handle(m, numbered(5, 15)); !errors.Is(err, errThrottled) {
		t.Fatalf("got %v, want the store's error", err)
	}
	w.must(w.cold(), numbered(5, 12)) // the retry may be cut elsewhere
	w.must(w.cold(), numbered(12, 20))
	w.want(0, 20)
}

func TestInTransactionsTwoEnvironmentsTakeTurns(t *testing.T) {
	w := newTxWorld(t)
	one, two := w.cold(), w.cold()
	w.must(one, numbered(0, 5))
	w.must(two, numbered(5, 50))
	w.must(one, numbered(50, 60))
	w.must(two, numbered(40, 70))
	w.want(0, 70)
}

func TestAFlowMayBeginAndEndToUseTransactions(t *testing.T) {
	w := newTxWorld(t)
	w.must(w.world.cold(), numbered(0, 5))
	w.must(w.cold(), numbered(5, 10))
	w.must(w.world.cold(), numbered(10, 12))
	w.must(w.cold(), numbered(12, 20))
	w.want(0, 20)
}

func TestARecreatedTopicIsNotJudgedByThePositionOfTheOldOne(t *testing.T) {
	w := newTxWorld(t)
	w.must(w.cold(), numbered(0, 10))
	w.forgetful.lose.Store(true)
	if _, err := handle(w.cold(), numbered(10, 20)); !errors.Is(err, errThrottled) {
		t.Fatalf("got %v, want the store's error", err)
	}
	adm := kadm.NewClient(w.a)
	if _, err := adm.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	w.must(w.cold(), numbered(0, 4))
	var keys []string
	for _, r := range w.committed("A.orders", 0) {
		keys = append(keys, string(r.Key))
	}
	if diff := cmp.Diff(append(keysOf(0, 20), keysOf(0, 4)...), keys); diff != "" {
		t.Errorf("keys on B (-want +got):\n%s", diff)
	}
}

func TestWhatIsCommittedStaysAlthoughTheSourceShowsOtherRecordsNow(t *testing.T) {
	w := newTxWorld(t)
	w.must(w.cold(), numbered(0, 10))
	w.forgetful.lose.Store(true)
	if _, err := handle(w.cold(), numbered(10, 15)); !errors.Is(err, errThrottled) {
		t.Fatalf("got %v, want the store's error", err)
	}
	changed := numbered(10, 20)
	for i := range 5 {
		changed[i].Value = []byte("another")
	}
	w.must(w.cold(), changed)
	copies := w.committed("A.orders", 0)
	if len(copies) != 20 || string(copies[12].Value) != "v12" {
		t.Errorf("got %d copies, want 20, those of 10 to 14 as they were", len(copies))
	}
	if got := w.position(); got.Upstream != 20 {
		t.Errorf("got position %d, want 20", got.Upstream)
	}
}

func TestInTransactionsWhatTheTargetLostIsCopiedAgainByItsOffset(t *testing.T) {
	w := newTxWorld(t)
	w.settings.Recreated = config.RecreatedCopy
	w.must(w.cold(), numbered(0, 10))
	// The position knows of two more records, which an election has lost with the
	// end of their transaction.
	pos := w.position()
	pos.Upstream, pos.Downstream, pos.Copied = 12, 14, 12
	pos.Runs = offsets.AppendChunk(nil, []offsets.Run{{Upstream: 0, Downstream: 0, Length: 10}, {Upstream: 10, Downstream: 11, Length: 2}})
	if _, err := w.store.Advance(t.Context(), map[flow.TopicPartition]state.Position{orders0: pos}); err != nil {
		t.Fatal(err)
	}
	w.must(w.cold(), numbered(10, 20))
	w.want(0, 20)
}
