package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/target"
)

// world is a flow A->B between two fake clusters with one topic, prepared as
// the topics function does.
type world struct {
	t        *testing.T
	settings config.Flow
	a, b     *kgo.Client
	fakeA    *kfake.Cluster
	fakeB    *kfake.Cluster
	store    state.Store
	broken   *breakable
}

var orders0 = flow.TopicPartition{Topic: "orders", Partition: 0}

func newWorld(t *testing.T, properties ...string) *world {
	t.Helper()
	file := strings.Join(append([]string{
		"clusters = A, B", "A.bootstrap.servers = localhost:1", "B.bootstrap.servers = localhost:2", "A->B.enabled = true",
	}, properties...), "\n")
	c := config.Parse("mm2.properties", []byte(file), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	settings, _ := c.Flow(flow.Flow{Source: "A", Target: "B"})
	w := &world{t: t, settings: settings}
	w.fakeA, w.a = newCluster(t, "orders")
	w.fakeB, w.b = newCluster(t, "A.orders")
	file2, err := embedded.Open(filepath.Join(t.TempDir(), "state.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file2.Close() })
	store, err := file2.Store(settings.Flow)
	if err != nil {
		t.Fatal(err)
	}
	w.broken = &breakable{Store: store}
	w.store = w.broken
	id, err := target.New(w.b, target.Options{}).NewProducer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := map[flow.TopicPartition]state.Position{}
	for p := range int32(3) {
		first[flow.TopicPartition{Topic: "orders", Partition: p}] = state.Position{ProducerID: id, SourceTopicID: w.id(w.a, "orders"), TargetTopicID: w.id(w.b, "A.orders")}
	}
	if _, err := store.Advance(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	return w
}

func newCluster(t *testing.T, topic string) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return c, client
}

func (w *world) id(c *kgo.Client, topic string) state.TopicID {
	w.t.Helper()
	topics, err := kadm.NewClient(c).ListTopics(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	return state.TopicID(topics[topic].ID)
}

// cold returns a Mirror that remembers nothing, as after a crash.
func (w *world) cold() *mirror.Mirror {
	return mirror.New(mirror.Options{Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}), Source: w.a})
}

// breakable is a store whose next Advance after an append can be made to fail before
// or after the write. It spares new epochs: the fake brokers do not say what they
// know of a producer, so that a cold environment takes an epoch from a warm one.
type breakable struct {
	state.Store
	mu            sync.Mutex
	before, after error
}

func (b *breakable) fail(before, after error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before, b.after = before, after
}

func (b *breakable) Advance(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	var before, after error
	for _, pos := range next {
		if pos.Sequence > 0 {
			b.mu.Lock()
			before, after, b.before, b.after = b.before, b.after, nil, nil
			b.mu.Unlock()
			break
		}
	}
	if before != nil {
		return nil, before
	}
	stored, err := b.Store.Advance(ctx, next)
	if after != nil {
		return nil, after
	}
	return stored, err
}

var begun = time.Now().UnixMilli()

// numbered is a run of plain records of orders-0, the same ones at every call.
func numbered(from, to int64) []kafkaevent.Record {
	var rs []kafkaevent.Record
	for o := from; o < to; o++ {
		rs = append(rs, kafkaevent.Record{
			Topic: "orders", Offset: o, Timestamp: begun + o, TimestampType: kafkaevent.CreateTime,
			Key: fmt.Appendf(nil, "k%d", o), Value: fmt.Appendf(nil, "v%d", o),
		})
	}
	return rs
}

func handle(m *mirror.Mirror, rs ...[]kafkaevent.Record) ([]byte, error) {
	var event kafkaevent.Event
	event.Source = kafkaevent.SourceSelfManaged
	for _, r := range rs {
		event.Records = append(event.Records, r...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return m.Handle(ctx, kafkaevent.Encode(event))
}

func (w *world) must(m *mirror.Mirror, rs ...[]kafkaevent.Record) {
	w.t.Helper()
	if _, err := handle(m, rs...); err != nil {
		w.t.Fatal(err)
	}
}

// keys reads orders-0 of B.
func (w *world) keys() []string {
	w.t.Helper()
	var keys []string
	for _, r := range w.records("A.orders", 0) {
		keys = append(keys, string(r.Key))
	}
	return keys
}

func (w *world) records(topic string, partition int32) []*kgo.Record {
	w.t.Helper()
	ends, err := kadm.NewClient(w.b).ListEndOffsets(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, partition)
	var out []*kgo.Record
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.b.OptValue(kgo.SeedBrokers).([]string)...), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	for int64(len(out)) < end.Offset {
		fs := reader.PollFetches(w.t.Context())
		if err := fs.Err(); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, fs.Records()...)
	}
	return out
}

func keysOf(from, to int64) []string {
	var keys []string
	for o := from; o < to; o++ {
		keys = append(keys, fmt.Sprintf("k%d", o))
	}
	return keys
}

func (w *world) position() state.Position {
	w.t.Helper()
	ps, err := w.store.Positions(w.t.Context(), []flow.TopicPartition{orders0})
	if err != nil {
		w.t.Fatal(err)
	}
	return ps[orders0]
}

func (w *world) wantKeys(from, to int64) {
	w.t.Helper()
	if diff := cmp.Diff(keysOf(from, to), w.keys()); diff != "" {
		w.t.Errorf("keys on B (-want +got):\n%s", diff)
	}
}

func TestRecordsArriveAsTheyWere(t *testing.T) {
	w := newWorld(t)
	odd := []kafkaevent.Record{
		{Topic: "orders", Partition: 2, Offset: 0, Timestamp: 1, Key: nil, Value: nil},
		{Topic: "orders", Partition: 2, Offset: 1, Timestamp: 0, Key: []byte{}, Value: []byte{}},
		{Topic: "orders", Partition: 2, Offset: 2, Timestamp: 1700000000000, Key: []byte{0xff, 0, 0xfe}, Value: []byte("v"), Headers: []kafkaevent.Header{
			{Name: "h", Value: []byte{0x80}}, {Name: "h", Value: []byte{}}, {Name: "", Value: []byte("x")},
		}},
	}
	w.must(w.cold(), odd)
	got := w.records("A.orders", 2)
	if len(got) != 3 {
		t.Fatalf("got %d records, want 3", len(got))
	}
	for i, r := range got {
		if (r.Key == nil) != (odd[i].Key == nil) || string(r.Key) != string(odd[i].Key) || (r.Value == nil) != (odd[i].Value == nil) || r.Timestamp.UnixMilli() != odd[i].Timestamp {
			t.Errorf("record %d: got key %v value %v at %d", i, r.Key, r.Value, r.Timestamp.UnixMilli())
		}
		var hs []kafkaevent.Header
		for _, h := range r.Headers {
			hs = append(hs, kafkaevent.Header{Name: h.Key, Value: h.Value})
		}
		if diff := cmp.Diff(odd[i].Headers, hs); diff != "" {
			t.Errorf("record %d headers (-want +got):\n%s", i, diff)
		}
	}
}

func TestARepeatedEventChangesNothing(t *testing.T) {
	for name, next := range map[string]func(w *world, warm *mirror.Mirror) *mirror.Mirror{
		"warm": func(_ *world, warm *mirror.Mirror) *mirror.Mirror { return warm },
		"cold": func(w *world, _ *mirror.Mirror) *mirror.Mirror { return w.cold() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.cold()
			w.must(m, numbered(0, 20))
			w.must(next(w, m), numbered(0, 20))
			w.must(next(w, m), numbered(10, 30)) // another boundary
			w.wantKeys(0, 30)
			if got := w.position(); got.Upstream != 30 || got.Downstream != 30 || got.Copied != 30 {
				t.Errorf("position: got %+v, want 30 copied", got)
			}
		})
	}
}

func TestACrashBetweenAppendAndRememberLosesAndDoublesNothing(t *testing.T) {
	for name, broken := range map[string]struct{ before, after error }{
		"before the write": {before: errors.New("throttled")},
		"after the write":  {after: errors.New("time-out")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(w.cold(), numbered(0, 5))
			m := w.cold()
			w.broken.fail(broken.before, broken.after)
			if _, err := handle(m, numbered(5, 15)); err == nil {
				t.Fatal("got no error, want the store's")
			}
			w.must(w.cold(), numbered(5, 12)) // the retry may be cut elsewhere
			w.must(m, numbered(12, 40))
			w.wantKeys(0, 40)
		})
	}
}

func TestAnEnvironmentThatSleptWhileAnotherCopiedAddsNothingTwice(t *testing.T) {
	w := newWorld(t)
	slept, other := w.cold(), w.cold()
	w.must(slept, numbered(0, 5))
	w.must(other, numbered(5, 50))
	w.must(slept, numbered(50, 60))
	w.must(other, numbered(40, 70))
	w.wantKeys(0, 70)
	holes, err := w.store.Holes(t.Context())
	if err != nil || len(holes) != 0 {
		t.Errorf("got holes %v, %v; want none", holes, err)
	}
}

func TestMissingOffsetsAreRecordedAndTranslatedAround(t *testing.T) {
	w := newWorld(t)
	w.must(w.cold(), numbered(0, 5), numbered(8, 10))
	holes, err := w.store.Holes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(holes) != 1 || holes[0].From != 5 || holes[0].To != 8 || holes[0].Records != 3 || holes[0].TopicPartition != orders0 {
		t.Errorf("got holes %+v, want orders-0 [5, 8)", holes)
	}
	runs, err := offsets.ParseChunk(w.position().Runs)
	if err != nil {
		t.Fatal(err)
	}
	want := []offsets.Run{{Upstream: 0, Downstream: 0, Length: 5}, {Upstream: 8, Downstream: 5, Length: 2}}
	if diff := cmp.Diff(want, runs); diff != "" {
		t.Errorf("run map (-want +got):\n%s", diff)
	}
}

func TestAHoleStopsItsPartitionWhereToldTo(t *testing.T) {
	w := newWorld(t, "mirrorless.holes = stop")
	_, err := handle(w.cold(), numbered(0, 5), numbered(8, 10))
	if err == nil || !strings.Contains(err.Error(), "offsets 5 to 7") {
		t.Errorf("got %v, want the missing offsets named", err)
	}
	w.wantKeys(0, 5)
}

func TestTheRunMapIsSpilledBeforeItGrowsLarge(t *testing.T) {
	w := newWorld(t)
	m := w.cold()
	var rs []kafkaevent.Record
	for o := int64(0); o < 1200; o += 2 { // a transaction marker after each record
		rs = append(rs, numbered(o, o+1)...)
	}
	w.must(m, rs[:400])
	w.must(w.cold(), rs[400:])
	pos := w.position()
	chunks, err := w.store.Runs(t.Context(), orders0)
	if err != nil {
		t.Fatal(err)
	}
	if len(pos.Runs) > 512 || len(chunks) == 0 {
		t.Errorf("got %d bytes in the position and %d chunks", len(pos.Runs), len(chunks))
	}
	var all offsets.Map
	for _, c := range chunks {
		if err := all.AddChunk(c.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.AddChunk(pos.Runs); err != nil {
		t.Fatal(err)
	}
	for i, r := range rs {
		got, ok := all.Translate(r.Offset, offsets.Bounds{Next: pos.Upstream, End: pos.Downstream, LogEnd: pos.Downstream})
		if !ok || got != int64(i) {
			t.Fatalf("translate %d: got %d, %v; want %d", r.Offset, got, ok, i)
		}
	}
}

func TestANullHeaderIsLeftOutAndNamed(t *testing.T) {
	w := newWorld(t)
	rs := numbered(0, 4)
	rs[1].Headers = []kafkaevent.Header{{Name: "a", Value: []byte("1")}, {Lost: true}, {Name: "b", Value: []byte("2")}}
	rs[2].Headers = []kafkaevent.Header{{Lost: true}, {Lost: true}}
	w.must(w.cold(), rs)
	got := w.records("A.orders", 0)
	if n := len(got[1].Headers); n != 2 {
		t.Errorf("got %d headers, want 2", n)
	}
	holes, err := w.store.Holes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(holes) != 1 || holes[0].Kind != mirror.HoleNullHeaders || holes[0].From != 1 || holes[0].To != 3 || holes[0].Records != 2 {
		t.Errorf("got %+v, want null headers of 1 and 2", holes)
	}
}

func TestOnePartitionsFailureDoesNotHoldUpAnother(t *testing.T) {
	w := newWorld(t)
	bad := numbered(0, 3)
	for i := range bad {
		bad[i].Partition = 1
	}
	bad[1].Timestamp = -2
	_, err := handle(w.cold(), bad, numbered(0, 3))
	if err == nil || !strings.Contains(err.Error(), "copy orders-1 at offset 1: timestamp -2") {
		t.Errorf("got %v, want orders-1 at offset 1 named", err)
	}
	w.wantKeys(0, 3)
	if got := len(w.records("A.orders", 1)); got != 1 {
		t.Errorf("got %d records of orders-1, want the one before the bad one", got)
	}
}

func TestFailuresAreAnsweredRecordByRecordOnlyWhereThatIsConfirmed(t *testing.T) {
	w := newWorld(t)
	if _, err := w.store.PutEventSource(t.Context(), state.EventSource{Topic: "orders", PartialFailures: true}); err != nil {
		t.Fatal(err)
	}
	bad := numbered(0, 4)
	bad[2].Timestamp = -2
	reply, err := handle(w.cold(), bad)
	if err != nil {
		t.Fatal(err)
	}
	got, err := kafkaevent.DecodeFailures(reply)
	if err != nil {
		t.Fatal(err)
	}
	want := []kafkaevent.Failure{{Topic: "orders", Offset: 2}, {Topic: "orders", Offset: 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func TestWhatMustNotBeCopiedIsAnError(t *testing.T) {
	w := newWorld(t)
	for want, rs := range map[string][]kafkaevent.Record{
		"offsets of the event do not rise: 5 comes after 5": {numbered(5, 6)[0], numbered(5, 6)[0]},
		"no position is stored":                             {{Topic: "orders", Partition: 9, Offset: 0}},
		"came from the target":                              {{Topic: "B.orders", Offset: 0}},
	} {
		if _, err := handle(w.cold(), rs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if got := len(w.keys()); got != 0 {
		t.Errorf("got %d records on B, want none", got)
	}
}

func TestASourceTopicThatWasMadeAgainIsCopiedAfterTheOldOne(t *testing.T) {
	w := newWorld(t)
	w.must(w.cold(), numbered(0, 10))
	adm := kadm.NewClient(w.a)
	if _, err := adm.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	w.must(w.cold(), numbered(0, 4))
	w.must(w.cold(), numbered(0, 6))
	if diff := cmp.Diff(append(keysOf(0, 10), keysOf(0, 6)...), w.keys()); diff != "" {
		t.Errorf("keys on B (-want +got):\n%s", diff)
	}
}

func TestATargetTopicThatWasMadeAgainStopsTheFlow(t *testing.T) {
	w := newWorld(t)
	w.must(w.cold(), numbered(0, 10))
	adm := kadm.NewClient(w.b)
	if _, err := adm.DeleteTopic(t.Context(), "A.orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "A.orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := handle(w.cold(), numbered(10, 12)); !errors.Is(err, target.ErrRecreated) {
		t.Errorf("got %v, want ErrRecreated", err)
	}
	w.settings.Recreated = config.RecreatedCopy
	w.must(w.cold(), numbered(10, 12))
	w.wantKeys(10, 12)
}

func TestWithoutTheSourceTheCopyTellsARepeatedRecordFromANewTopic(t *testing.T) {
	w := newWorld(t)
	m := mirror.New(mirror.Options{Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{})})
	first := numbered(0, 10)
	w.must(m, first)
	w.must(m, first[4:]) // repeated
	w.wantKeys(0, 10)
	other := numbered(0, 2)
	other[0].Value, other[1].Value = []byte("new"), []byte("new")
	w.must(m, other)
	if got := len(w.keys()); got != 12 {
		t.Errorf("got %d records on B, want 12", got)
	}
}
