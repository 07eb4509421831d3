package mirror_test

import (
	"context"
	"maps"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// inMemory is a store that keeps positions without a disk.
type inMemory struct {
	state.Store
	mu        sync.Mutex
	positions map[flow.TopicPartition]state.Position
}

func (s *inMemory) Positions(_ context.Context, tps []flow.TopicPartition) (map[flow.TopicPartition]state.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[flow.TopicPartition]state.Position{}
	for _, tp := range tps {
		out[tp] = s.positions[tp]
	}
	return out, nil
}

func (s *inMemory) Advance(_ context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[flow.TopicPartition]state.Position{}
	for tp, pos := range next {
		pos.Version++
		out[tp] = pos
	}
	maps.Copy(s.positions, out)
	return out, nil
}

// footprint is what a process holds.
type footprint struct {
	goroutines, descriptors int
	heap                    int64
}

func footprintNow(t *testing.T) footprint {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	runtime.GC()
	runtime.GC() // finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), len(open), int64(m.HeapAlloc)}
}

// TestTenThousandInvocationsLeaveNothingBehind is of one environment that lives
// long. What the fake broker keeps of the records is deleted there.
func TestTenThousandInvocationsLeaveNothingBehind(t *testing.T) {
	w := newWorld(t)
	all := []flow.TopicPartition{orders0, {Topic: "orders", Partition: 1}, {Topic: "orders", Partition: 2}}
	first, err := w.store.Positions(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	m := mirror.New(mirror.Options{
		Settings: w.settings, Store: &inMemory{Store: w.store, positions: first}, Target: target.New(w.b, target.Options{}), Source: w.a,
	})
	invoke := func(from, to int64) {
		for o := from; o < to; o++ {
			var rs []kafkaevent.Record
			for p := range int32(3) {
				rs = append(rs, inPartition(numbered(o, o+1), p)...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := m.Handle(ctx, kafkaevent.Encode(kafkaevent.Event{Source: kafkaevent.SourceSelfManaged, Records: rs}))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if o%500 == 499 {
				w.deleteBefore(o)
			}
		}
	}
	const settled, most = 1000, 10_000
	invoke(0, settled)
	before := footprintNow(t)
	invoke(settled, most)
	after := footprintNow(t)
	t.Logf("after %d invocations %+v, after %d %+v", settled, before, most, after)
	const slack = 4
	if after.goroutines > before.goroutines+slack || after.descriptors > before.descriptors+slack {
		t.Errorf("got %+v after %d invocations, want what there was after %d, %+v", after, most, settled, before)
	}
	if grown := after.heap - before.heap; grown > 8<<20 {
		t.Errorf("heap has grown by %d bytes in %d invocations, want it flat", grown, most-settled)
	}
}

// deleteBefore lets B forget what it has of orders.
func (w *world) deleteBefore(offset int64) {
	w.t.Helper()
	var at kadm.Offsets
	for p := range int32(3) {
		at.Add(kadm.Offset{Topic: "A.orders", Partition: p, At: offset, LeaderEpoch: -1})
	}
	if _, err := kadm.NewClient(w.b).DeleteRecords(w.t.Context(), at); err != nil {
		w.t.Fatal(err)
	}
}
