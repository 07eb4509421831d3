package eventsource_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/shared/kafkaevent"
)

func TestABatchIsClosedByCount(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 250)
		w.start(w.options())
		time.Sleep(2 * time.Second)
		calls := w.seen()
		if diff := cmp.Diff([]string{"0:0..99", "0:100..199", "0:200..249"}, summary(calls)); diff != "" {
			t.Fatalf("calls differ (-want +got):\n%s", diff)
		}
		if calls[1].at != calls[0].at {
			t.Errorf("got the second full batch %v after the first, want it at once", calls[1].at-calls[0].at)
		}
		if got := calls[2].at - calls[0].at; got != eventsource.DefaultWindow {
			t.Errorf("got the rest %v after the fetch, want the window to pass", got)
		}
		w.expectCommitted(0, 250)
	})
}

func TestABatchIsClosedByItsWindow(t *testing.T) {
	for _, test := range []struct{ window, want time.Duration }{
		{0, 500 * time.Millisecond},
		{eventsource.NoWindow, 0},
		{3 * time.Second, 3 * time.Second},
	} {
		t.Run(fmt.Sprint(test.window), func(t *testing.T) {
			in(t, 1, func(t *testing.T, w *world) {
				o := w.options()
				o.Window = test.window
				w.start(o)
				time.Sleep(5 * time.Second)
				w.produce(0, 2)
				produced := time.Since(w.begin)
				time.Sleep(10 * time.Second)
				calls := w.seen()
				if len(calls) != 1 {
					t.Fatalf("got calls %v, want one", summary(calls))
				}
				if got := calls[0].at - produced; got != test.want {
					t.Errorf("got the call after %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestABatchIsClosedByThePayload(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		var records []*kgo.Record
		for i := range 40 {
			records = append(records, &kgo.Record{Value: make([]byte, 100*i)})
		}
		w.produceRecords(0, records...)
		o := w.options()
		o.MaxPayload = 20_000
		w.start(o)
		time.Sleep(2 * time.Second)
		calls := w.seen()
		if diff := cmp.Diff(upTo(40), offsets(calls, 0)); diff != "" {
			t.Fatalf("records differ (-want +got):\n%s", diff)
		}
		for i, c := range calls {
			if c.size > o.MaxPayload {
				t.Errorf("got a payload of %d bytes, want at most %d", c.size, o.MaxPayload)
			}
			if i+1 < len(calls) {
				if next := kafkaevent.RecordSize(&calls[i+1].records[0]); c.size+next <= o.MaxPayload {
					t.Errorf("got a payload of %d bytes, but the next record of %d had room", c.size, next)
				}
			}
		}
	})
}

// The cap to the byte: the largest record that fits is delivered, one byte more
// is dropped, told of, and passed over.
func TestARecordOverThePayloadIsDropped(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		o := w.options()
		var dropped []eventsource.Dropped
		o.Dropped = func(d eventsource.Dropped) { dropped = append(dropped, d) }
		// Base64 grows by four bytes per three, so the key makes up for them.
		envelope := kafkaevent.Envelope{Source: kafkaevent.SourceSelfManaged, BootstrapServers: o.BootstrapServers}
		room := kafkaevent.MaxPayload - envelope.Size() - kafkaevent.ListSize(topic, 0)
		stamp := time.UnixMilli(1_750_000_000_000)
		empty := kafkaevent.RecordSize(&kafkaevent.Record{Topic: topic, Offset: 1, Timestamp: stamp.UnixMilli(), TimestampType: kafkaevent.CreateTime, Value: []byte{}})
		fits := (room - empty) / 4 * 3
		w.produceRecords(0, &kgo.Record{Value: []byte("before"), Timestamp: stamp})
		w.produceRecords(0, &kgo.Record{Value: make([]byte, fits), Timestamp: stamp})
		w.produceRecords(0, &kgo.Record{Value: make([]byte, fits+1), Timestamp: stamp})
		w.produceRecords(0, &kgo.Record{Value: []byte("after"), Timestamp: stamp})
		w.produceRecords(0, &kgo.Record{Value: make([]byte, 8_000_000), Timestamp: stamp})
		m := w.start(o)
		time.Sleep(5 * time.Second)
		if diff := cmp.Diff([]int64{0, 1, 3}, offsets(w.seen(), 0)); diff != "" {
			t.Errorf("records differ (-want +got):\n%s", diff)
		}
		largest := 0
		for _, c := range w.seen() {
			largest = max(largest, c.size)
		}
		if largest > kafkaevent.MaxPayload || largest < kafkaevent.MaxPayload-4 {
			t.Errorf("got a largest payload of %d bytes, want it at the cap of %d", largest, kafkaevent.MaxPayload)
		}
		if len(dropped) != 2 || dropped[0].Offset != 2 || dropped[1].Offset != 4 || m.Progress().Stats.Dropped != 2 {
			t.Errorf("got %v dropped, want offsets 2 and 4", dropped)
		}
		// The gap at the end does not look like a lag for ever.
		w.expectCommitted(0, 5)
	})
}

func TestOnePayloadHoldsSeveralPartitions(t *testing.T) {
	in(t, 3, func(t *testing.T, w *world) {
		for p := range int32(3) {
			w.produce(p, 20)
		}
		w.start(w.options())
		time.Sleep(2 * time.Second)
		if diff := cmp.Diff([]string{"0:0..19 1:0..19 2:0..19"}, summary(w.seen())); diff != "" {
			t.Errorf("calls differ (-want +got):\n%s", diff)
		}
		for p := range int32(3) {
			w.expectCommitted(p, 20)
		}
	})
}

// With a backlog, a partition fills a payload of its own, and as many as allowed
// are in flight at once; the harness sees to it that each is only once.
func TestPartitionsAreInFlightBesideEachOther(t *testing.T) {
	in(t, 8, func(t *testing.T, w *world) {
		for p := range int32(8) {
			w.produce(p, 500)
		}
		w.answer(func(int, call) ([]byte, error) { time.Sleep(time.Second); return nil, nil })
		o := w.options()
		o.Concurrency = 5
		w.start(o)
		time.Sleep(time.Minute)
		for p := range int32(8) {
			if diff := cmp.Diff(upTo(500), offsets(w.seen(), p)); diff != "" {
				t.Errorf("records of partition %d differ (-want +got):\n%s", p, diff)
			}
		}
		if w.most != 5 {
			t.Errorf("got at most %d partitions in flight, want 5", w.most)
		}
	})
}

// What Lambda leaves out of an event is left out here.
func TestNullsArriveAsFromLambda(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		stamp := time.UnixMilli(1_600_000_000_123)
		w.produceRecords(0,
			&kgo.Record{Timestamp: stamp, Key: []byte("k"), Value: nil},
			&kgo.Record{Timestamp: stamp, Key: []byte{}, Value: []byte{}, Headers: []kgo.RecordHeader{
				{Key: "a", Value: []byte{0, 127, 128, 255}}, {Key: "null", Value: nil}, {Key: "", Value: []byte{}}, {Key: "a", Value: []byte("2")},
			}},
			&kgo.Record{Timestamp: stamp, Key: nil, Value: []byte{0xff, 0}},
		)
		var payload []byte
		o := w.options()
		inner := o.Invoker
		o.Invoker = eventsource.InvokerFunc(func(ctx context.Context, p []byte) ([]byte, error) {
			payload = bytes.Clone(p)
			return inner.Invoke(ctx, p)
		})
		w.start(o)
		time.Sleep(time.Second)
		record := func(offset int64, key, value []byte, headers ...kafkaevent.Header) kafkaevent.Record {
			return kafkaevent.Record{Topic: topic, Offset: offset, Timestamp: stamp.UnixMilli(), TimestampType: kafkaevent.CreateTime, Key: key, Value: value, Headers: headers}
		}
		want := []kafkaevent.Record{
			record(0, []byte("k"), nil),
			record(1, []byte{}, []byte{},
				kafkaevent.Header{Name: "a", Value: []byte{0, 127, 128, 255}}, kafkaevent.Header{Lost: true},
				kafkaevent.Header{Name: "", Value: []byte{}}, kafkaevent.Header{Name: "a", Value: []byte("2")}),
			record(2, nil, []byte{0xff, 0}),
		}
		calls := w.seen()
		if len(calls) != 1 {
			t.Fatalf("got calls %v, want one", summary(calls))
		}
		if diff := cmp.Diff(want, calls[0].records); diff != "" {
			t.Errorf("records differ (-want +got):\n%s", diff)
		}
		if !bytes.Contains(payload, []byte(`"headers":[{"a":[0,127,-128,-1]},{},{"":[]},{"a":[50]}]`)) {
			t.Errorf("got %s, want the headers with signed bytes and {} for the null one", payload)
		}
		if bytes.Contains(payload, []byte("null")) {
			t.Errorf("got %s, want null keys and values left out", payload)
		}
	})
}

// Markers of transactions are no records, but the group gets past them.
func TestTransactionMarkersArePassed(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		txn, err := kgo.NewClient(append(w.opts, kgo.TransactionalID("t"), kgo.DefaultProduceTopic(topic))...)
		if err != nil {
			t.Fatal(err)
		}
		defer txn.Close()
		for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			if err := txn.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := txn.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := txn.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		m := w.start(w.options())
		time.Sleep(3 * time.Second)
		// 0 is aborted, and delivered all the same; 1 and 3 are markers.
		if diff := cmp.Diff([]int64{0, 2}, offsets(w.seen(), 0)); diff != "" {
			t.Errorf("records differ (-want +got):\n%s", diff)
		}
		w.expectCommitted(0, 4)
		if p := m.Progress().Partitions[0]; p.Behind() != 0 {
			t.Errorf("got %d behind, want 0", p.Behind())
		}
	})
}
