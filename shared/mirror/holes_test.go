package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// produce appends records to orders-0 of A and returns them as an event could
// bring them.
func (w *world) produce(rs ...*kgo.Record) []kafkaevent.Record {
	w.t.Helper()
	w.produceBy(w.connect(w.a, kgo.ProducerBatchMaxBytes(16<<20)), rs...)
	var out []kafkaevent.Record
	for _, r := range rs {
		out = append(out, eventRecord(r))
	}
	return out
}

func (w *world) produceBy(client *kgo.Client, rs ...*kgo.Record) {
	w.t.Helper()
	if err := client.ProduceSync(w.t.Context(), rs...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

func some(from, to int) []*kgo.Record {
	var rs []*kgo.Record
	for i := from; i < to; i++ {
		rs = append(rs, kgo.KeyStringRecord(fmt.Sprint("k", i), fmt.Sprint("v", i)))
	}
	return rs
}

// blind is an environment that does not reach the source.
func (w *world) blind() *mirror.Mirror {
	return mirror.New(mirror.Options{Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{})})
}

func (w *world) wantCopies(want []kafkaevent.Record) {
	w.t.Helper()
	if diff := cmp.Diff(lines(want), w.copies()); diff != "" {
		w.t.Errorf("records on B (-want +got):\n%s", diff)
	}
}

func (w *world) wantHoles(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.holes()); diff != "" {
		w.t.Errorf("holes (-want +got):\n%s", diff)
	}
}

// crash lets an event fail after its records were appended, and before that was
// stored.
func (w *world) crash(m *mirror.Mirror, rs ...[]kafkaevent.Record) {
	w.t.Helper()
	w.broken.fail(errors.New("throttled"), nil)
	if _, err := handle(m, rs...); err == nil {
		w.t.Fatal("got no error, want the store's")
	}
}

func TestAnAttemptThatCouldNotReadTheSourceIsNotRepeatedByOneThatCan(t *testing.T) {
	null := kgo.RecordHeader{Key: "null"}
	t.Run("records that it has copied past are named", func(t *testing.T) {
		w := newWorld(t)
		rs := w.produce(some(0, 10)...)
		w.crash(w.blind(), rs[:4], rs[7:9])
		w.must(w.cold(), rs[:4], rs[7:])
		want := slices.Concat(rs[:4], rs[7:])
		w.wantCopies(want)
		w.wantHoles("orders-0 [4, 7) passed over: 3", "orders-0 [4, 7) unexplained: 3") // one by each attempt
		w.wantMap(want, 10)
	})
	t.Run("and stop the partition where holes do", func(t *testing.T) {
		w := newWorld(t)
		rs := w.produce(some(0, 10)...)
		w.crash(w.blind(), rs[:4], rs[7:9])
		w.settings.Holes = "stop"
		if _, err := handle(w.cold(), rs[:4], rs[7:]); err == nil || !strings.Contains(err.Error(), "copy orders-0 at offset 4") {
			t.Errorf("got %v, want offset 4 named", err)
		}
	})
	t.Run("nor is a header's lost name", func(t *testing.T) {
		w := newWorld(t)
		in := some(0, 5)
		in[2].Headers = []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, null}
		rs := w.produce(in...)
		w.crash(w.blind(), rs)
		w.must(w.cold(), rs)
		rs[2].Headers = rs[2].Headers[:1]
		w.wantCopies(rs)
		w.wantHoles("orders-0 [2, 3) null headers: 1")
	})
	t.Run("and the other way round, what is there is found", func(t *testing.T) {
		w := newWorld(t)
		in := some(0, 10)
		in[2].Headers = []kgo.RecordHeader{null}
		rs := w.produce(in...)
		w.crash(w.cold(), rs[:4], rs[7:9])
		w.must(w.blind(), rs[:4], rs[7:])
		w.wantCopies(rs)
		w.wantMap(rs, 10)
	})
}

func TestHolesStopAPartitionOnlyForLoss(t *testing.T) {
	w := newWorld(t, "mirrorless.holes = stop")
	writer := w.connect(w.a, kgo.TransactionalID("writer"))
	for range 3 {
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		w.produceBy(writer, some(0, 2)...)
		if err := writer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	w.produce(some(0, 12)...)
	rs := w.source(kgo.ReadUncommitted())
	m := w.cold()
	w.must(m, rs[:10]) // three markers
	w.wantHoles()
	w.deleteRecords(rs[14].Offset)
	_, err := handle(m, rs[14:])
	want := fmt.Sprintf("offsets %d to %d are gone from cluster A before they were copied (expired), and mirrorless.holes is stop", rs[10].Offset, rs[13].Offset)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	w.wantCopies(rs[:10])
	w.settings.Holes = "continue"
	w.must(w.cold(), rs[14:])
	w.wantCopies(slices.Delete(rs, 10, 14))
	w.wantHoles("orders-0 [13, 17) expired: 4")
}

func TestASourceThatIsOnlyAwayIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	rs := w.produce(some(0, 10)...)
	m := w.cold()
	w.must(m, rs[:4])
	w.fakeA.Close()
	payload := kafkaevent.Encode(kafkaevent.Event{Source: kafkaevent.SourceSelfManaged, Records: rs[7:]})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := m.Handle(ctx, payload); err == nil || !strings.Contains(err.Error(), "of which the event lacks something") {
		t.Errorf("got %v, want an error, so that the batch comes again", err)
	}
	w.wantCopies(rs[:4])
	w.wantHoles()
}

// A hole would be for good, and the right is soon given.
func TestATopicThatTheSourceHidesStopsThePartitionUntilItIsShown(t *testing.T) {
	w := newWorld(t)
	rs := w.produce(some(0, 10)...)
	w.must(w.cold(), rs[:4])
	var hide atomic.Bool
	hide.Store(true)
	w.fakeA.ControlKey(kmsg.Metadata.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.fakeA.KeepControl()
		req := kreq.(*kmsg.MetadataRequest)
		if !hide.Load() || len(req.Topics) == 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.ErrorCode = asked.Topic, kerr.TopicAuthorizationFailed.Code
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	m := w.cold()
	began := time.Now()
	if _, err := handle(m, rs[7:]); err == nil || !strings.Contains(err.Error(), "grant READ on the topic to the user of the source's consumer") {
		t.Errorf("got %v, want the right named", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v, want no waiting for what does not come by itself", took)
	}
	w.wantCopies(rs[:4])
	w.wantHoles()
	hide.Store(false)
	w.must(m, rs[7:])
	w.wantCopies(rs)
	w.wantHoles()
}

func TestASourceThatHasNeverAnsweredIsAskedSixTimes(t *testing.T) {
	w := newWorld(t)
	rs := w.produce(some(0, 10)...)
	w.must(w.cold(), rs[:4])
	w.fakeA.Close()
	now := time.Now()
	m := mirror.New(mirror.Options{
		Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}),
		Source: w.connect(w.a, kgo.RequestRetries(0)), Now: func() time.Time { return now },
	})
	try := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Handle(ctx, kafkaevent.Encode(kafkaevent.Event{Source: kafkaevent.SourceSelfManaged, Records: rs[7:]}))
		now = now.Add(3 * time.Second)
		return err
	}
	for n := range 5 { // it may only be away
		if err := try(); err == nil || !strings.Contains(err.Error(), "of which the event lacks something") {
			t.Errorf("attempt %d: got %v, want an error, so that the batch comes again", n, err)
		}
	}
	w.wantCopies(rs[:4])
	w.wantHoles()
	if err := try(); err != nil {
		t.Errorf("got %v, want the event copied: it cannot wait for ever", err)
	}
	w.wantCopies(slices.Concat(rs[:4], rs[7:]))
	w.wantHoles("orders-0 [4, 7) unexplained: 3")
}

// doubling is a target on which a late request has landed twice.
type doubling struct {
	mirror.Target
	second []target.SecondCopy
	before func() // each append
}

func (d *doubling) Claim(ctx context.Context, p target.Partition, c target.Cursor, records []batch.Record, want int) (target.Appended, error) {
	got, err := d.Target.Claim(ctx, p, c, records, want)
	got.Second = append(got.Second, d.second...)
	return got, err
}

func (d *doubling) Append(ctx context.Context, p target.Partition, c target.Cursor, records []batch.Record, upstream target.Upstream) (target.Appended, error) {
	if d.before != nil {
		d.before()
	}
	return d.Target.Append(ctx, p, c, records, upstream)
}

func TestASecondCopyIsCountedOnceHoweverOftenItIsNoticed(t *testing.T) {
	w := newWorld(t)
	rs := w.produce(some(0, 10)...)
	w.crash(w.cold(), rs[:2])
	d := &doubling{Target: target.New(w.b, target.Options{}), second: []target.SecondCopy{{Offset: 40, Records: 3}, {Offset: 43, Records: 2}}}
	m := func() *mirror.Mirror {
		return mirror.New(mirror.Options{Settings: w.settings, Store: w.store, Target: d, Source: w.a})
	}
	want := []string{"orders-0 [40, 43) second copy: 3", "orders-0 [43, 45) second copy: 2"}
	w.crash(m(), rs[:2])
	w.wantHoles(want...)
	// With a new epoch the position is stored, and nobody will look there again.
	d.second = append(d.second, target.SecondCopy{Offset: 45, Records: 1})
	want = append(want, "orders-0 [45, 46) second copy: 1")
	d.before = func() { w.wantHoles(want...) }
	w.must(m(), rs)
	w.wantCopies(rs)
	w.wantHoles(want...)
}

func TestACommittedReadWaitsAtTheFirstUndecidedRecord(t *testing.T) {
	w := newWorld(t, "A.consumer.isolation.level = read_committed")
	if _, err := w.store.PutEventSource(t.Context(), state.EventSource{Topic: "orders", PartialFailures: true}); err != nil {
		t.Fatal(err)
	}
	w.produce(some(0, 3)...)
	writer := w.connect(w.a, kgo.TransactionalID("writer"))
	if err := writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	w.produceBy(writer, some(3, 5)...)
	w.produce(some(5, 7)...)
	all := w.source(kgo.ReadUncommitted())
	m := w.cold()
	for range 2 {
		reply, err := handle(m, all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kafkaevent.DecodeFailures(reply)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 4 || got[0].Offset != 3 {
			t.Errorf("got failures %v, want those from offset 3 on", got)
		}
		w.wantCopies(all[:3])
	}
	if err := writer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	w.must(m, all[3:])
	w.wantCopies(slices.Delete(slices.Clone(all), 3, 5))
	w.wantHoles()

	// An event of which everything was aborted moves the position all the same.
	if err := writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	w.produceBy(writer, some(8, 10)...)
	if err := writer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	w.must(m, w.source(kgo.ReadUncommitted())[7:])
	if got := w.position(); got.Upstream != 10 || got.Copied != 5 {
		t.Errorf("got position %d with %d copied, want 10 with 5", got.Upstream, got.Copied)
	}
	w.produce(some(10, 11)...)
	all = w.source(kgo.ReadUncommitted())
	before := w.copies()
	if _, err := w.store.PutEventSource(t.Context(), state.EventSource{Version: 1, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	if _, err := handle(w.blind(), all[len(all)-1:]); err == nil || !strings.Contains(err.Error(), "read cluster A, which isolation.level = read_committed needs") {
		t.Errorf("without the source: got %v, want an error that says what for it is needed", err)
	}
	if diff := cmp.Diff(before, w.copies()); diff != "" {
		t.Errorf("without the source, something was copied:\n%s", diff)
	}
}

func TestWhatIsTooLargeForAnEventIsSwept(t *testing.T) {
	w := newWorld(t)
	limit := "20000000"
	for client, topic := range map[*kgo.Client]string{w.a: "orders", w.b: "A.orders"} {
		if _, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, topic); err != nil {
			t.Fatal(err)
		}
	}
	large := func(i int) *kgo.Record {
		return kgo.KeySliceRecord(fmt.Appendf(nil, "large %d", i), bytes.Repeat([]byte{byte(i)}, 5_000_000))
	}
	rs := w.produce(some(0, 3)...)
	rs = append(rs, w.produce(large(0))...)
	rs = append(rs, w.produce(some(3, 4)...)...)
	rs = append(rs, w.produce(large(1), large(2), large(3))...)
	w.must(w.cold(), rs[:3], rs[4:5]) // one in the middle
	w.wantCopies(rs[:5])
	if err := w.sweep(-1); err != nil { // nothing is known of the group
		t.Fatal(err)
	}
	w.wantCopies(rs)
	w.wantHoles()
	if got := w.position(); got.Upstream != 8 {
		t.Errorf("got position %d, want 8", got.Upstream)
	}

	// What an event can bring is left to it, until the group has passed.
	rs = append(rs, w.produce(some(4, 5)...)...)
	rs = append(rs, w.produce(large(4))...)
	if err := w.sweep(8); err != nil {
		t.Fatal(err)
	}
	w.wantCopies(rs[:8])
	if err := w.sweep(9); err != nil {
		t.Fatal(err)
	}
	w.wantCopies(rs)
}

// counting counts reads of positions.
type counting struct {
	state.Store
	reads int
}

func (c *counting) Positions(ctx context.Context, tps []flow.TopicPartition) (map[flow.TopicPartition]state.Position, error) {
	c.reads++
	return c.Store.Positions(ctx, tps)
}

func TestASourceAtRestIsSweptForNothing(t *testing.T) {
	w := newWorld(t)
	writer := w.connect(w.a, kgo.TransactionalID("writer"))
	if err := writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	w.produceBy(writer, some(0, 2)...)
	if err := writer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	w.must(w.cold(), w.source(kgo.ReadUncommitted()))
	before := w.position()
	store := &counting{Store: w.store}
	now := time.Now()
	m := mirror.New(mirror.Options{
		Settings: w.settings, Store: store, Target: target.New(w.b, target.Options{}), Source: w.a,
		Now: func() time.Time { return now },
	})
	for range 20 {
		if err := m.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	// The second look is a close one, at all three partitions; then that at the
	// marker behind the position.
	if store.reads > 2 {
		t.Errorf("got %d reads of positions in twenty sweeps, want two", store.reads)
	}
	if got := w.position(); got.Version != before.Version {
		t.Errorf("the position was written again, for a marker")
	}
}

func TestTheBeginningOfATopicThatWasMadeAgainIsFilled(t *testing.T) {
	w := newWorld(t)
	old := w.produce(some(0, 10)...)
	w.must(w.cold(), old)
	adm := kadm.NewClient(w.a)
	if _, err := adm.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	rs := w.produce(some(20, 26)...)
	w.must(w.cold(), rs[2:4])
	w.must(w.cold(), rs[5:])
	w.wantCopies(slices.Concat(old, rs))
	w.wantHoles()
}
