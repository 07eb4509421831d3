// Package statetest is the contract of state.Store as tests, which every
// implementation passes:
//
//	statetest.Run(t, statetest.Harness{Open: …, Upgrade: …})
package statetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// A Harness gives the suite stores to test.
type Harness struct {
	// Open returns the store of a new flow, with nothing in it, whose leases are
	// measured by now. It is closed by the suite.
	Open func(t *testing.T, now func() time.Time) state.Store
	// Upgrade raises the schema version of every row in the store by one, as a
	// newer mirrorless would have written them.
	Upgrade func(t *testing.T, store state.Store)
}

// Run tests the contract.
func Run(t *testing.T, h Harness) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"flow row is versioned", flowRow},
		{"positions come back as they were stored", positionsExact},
		{"positions that are not stored are absent", positionsAbsent},
		{"advance reports a conflict and stores the others", advanceConflict},
		{"advance repeated is no conflict", advanceRepeated},
		{"advance never goes backwards, rewind does", advanceBackwards},
		{"advance refuses runs over the limit alone", advanceTooLarge},
		{"advance keeps blocks at the limit", advanceFull},
		{"advance of one position has one winner", advanceRace},
		{"partitions of one block do not disturb each other", advanceNeighbours},
		{"mixed batches lose no step", advanceMixed},
		{"runs are ordered by offset", runsOrdered},
		{"runs are never shortened", runsLongest},
		{"runs of many chunks are read whole", runsMany},
		{"runs are deleted by range", runsDeleted},
		{"lease has one owner until it expires", leaseExpiry},
		{"lease is renewed and released by its owner only", leaseOwner},
		{"lease has one winner", leaseRace},
		{"checkpoints are listed and replaced", checkpoints},
		{"checkpoints over a limit are refused alone", checkpointsTooLarge},
		{"event sources are versioned", eventSources},
		{"holes are recorded once", holes},
		{"flushed offsets are kept by partition", flushed},
		{"rows of a newer schema are refused and kept", newerSchema},
		{"a cancelled context ends every call", cancelled},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &suite{clock: time.UnixMilli(1_700_000_000_123)}
			s.Store = h.Open(t, s.now)
			s.upgrade = h.Upgrade
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			test.run(t, s)
		})
	}
}

type suite struct {
	state.Store
	upgrade func(*testing.T, state.Store)
	mu      sync.Mutex
	clock   time.Time
}

func (s *suite) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *suite) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

func tp(topic string, partition int32) flow.TopicPartition {
	return flow.TopicPartition{Topic: topic, Partition: partition}
}

// at is a time as it comes back from a store.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// wantAs returns the error of type E in err.
func wantAs[E error](t *testing.T, what string, err error) E {
	t.Helper()
	as, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("%s: got error %v, want a %T", what, err, as)
	}
	return as
}

func flowRow(t *testing.T, s *suite) {
	ctx := t.Context()
	_, err := s.Flow(ctx)
	wantErr(t, "Flow of a new store", err, state.ErrNotFound)

	first := state.FlowRow{
		Flow:            flow.Flow{Source: "A", Target: "B"},
		SourceClusterID: "MkU3OEVBNTcwNTJENDM2Qk", TargetClusterID: "",
		ProducerID: state.NoProducerID, Created: at(1_700_000_000_000),
	}
	stored, err := s.PutFlow(ctx, first)
	must(t, err)
	want := first
	want.Version = 1
	same(t, "PutFlow", stored, want)
	got, err := s.Flow(ctx)
	must(t, err)
	same(t, "Flow", got, want)

	again, err := s.PutFlow(ctx, first)
	must(t, err)
	same(t, "PutFlow repeated", again, want)

	other := first
	other.ProducerID = 7
	_, err = s.PutFlow(ctx, other)
	wantErr(t, "PutFlow of version 0", err, state.ErrConflict)

	other.Version, other.ProducerID = 1, 1<<60+1
	stored, err = s.PutFlow(ctx, other)
	must(t, err)
	got, err = s.Flow(ctx)
	must(t, err)
	same(t, "Flow after an update", got, stored)
	if got.Version != 2 || got.ProducerID != 1<<60+1 {
		t.Errorf("got version %d and producer id %d, want 2 and 2⁶⁰+1", got.Version, got.ProducerID)
	}
}

func eventSources(t *testing.T, s *suite) {
	ctx := t.Context()
	_, err := s.EventSource(ctx, "orders")
	wantErr(t, "EventSource of a new store", err, state.ErrNotFound)

	orders := state.EventSource{
		Topic: "orders", ID: "14e0db71-xmpl", Group: "mirrorless/s/A/B/orders", State: "Creating",
		BatchSize: 10_000, Window: 500 * time.Millisecond, Partitions: 12,
		LastResult: "No records processed", Updated: at(1_700_000_000_001),
	}
	stored, err := s.PutEventSource(ctx, orders)
	must(t, err)
	want := orders
	want.Version = 1
	same(t, "PutEventSource", stored, want)
	_, err = s.PutEventSource(ctx, state.EventSource{Topic: "clicks"})
	must(t, err)

	stored, err = s.PutEventSource(ctx, orders)
	must(t, err)
	same(t, "PutEventSource repeated", stored, want)

	stale := orders
	stale.State = "Enabled"
	_, err = s.PutEventSource(ctx, stale)
	wantErr(t, "PutEventSource of version 0", err, state.ErrConflict)

	want.State, want.PartialFailures = "Enabled", true
	want, err = s.PutEventSource(ctx, want)
	must(t, err)
	got, err := s.EventSource(ctx, "orders")
	must(t, err)
	same(t, "EventSource", got, want)
	all, err := s.EventSources(ctx)
	must(t, err)
	same(t, "EventSources", all, []state.EventSource{{Version: 1, Topic: "clicks"}, want})

	wantErr(t, "DeleteEventSource of an old version", s.DeleteEventSource(ctx, state.EventSource{Topic: "orders", Version: 1}), state.ErrConflict)
	must(t, s.DeleteEventSource(ctx, want))
	must(t, s.DeleteEventSource(ctx, want))
	_, err = s.EventSource(ctx, "orders")
	wantErr(t, "EventSource after its deletion", err, state.ErrNotFound)
}

func holes(t *testing.T, s *suite) {
	ctx := t.Context()
	none, err := s.Holes(ctx)
	must(t, err)
	if len(none) != 0 {
		t.Errorf("got holes %v in a new store", none)
	}
	a := state.Hole{TopicPartition: tp("orders", 2), From: 1<<53 + 1, To: 1<<53 + 4, Kind: "retention", Records: 3, Seen: at(5)}
	b := state.Hole{TopicPartition: tp("orders", 2), From: 9, To: 10, Kind: "headers", Records: 1, Seen: at(6)}
	c := state.Hole{TopicPartition: tp("orders", 2), From: 9, To: 30, Kind: "retention", Records: -1, Seen: at(7)}
	d := state.Hole{TopicPartition: tp("clicks", 11), From: 0, To: 1, Kind: "size", Records: 1, Seen: at(8)}
	var many []state.Hole
	for i := range 60 {
		many = append(many, state.Hole{TopicPartition: tp("many", int32(i%3)), From: int64(i), To: int64(i) + 1, Kind: "k"})
	}
	must(t, s.PutHoles(ctx, nil))
	must(t, s.PutHoles(ctx, append([]state.Hole{a, b, c, d}, many...)))
	c.To, c.Seen = 31, at(9)
	must(t, s.PutHoles(ctx, []state.Hole{d, c, a, {TopicPartition: c.TopicPartition, From: 9, To: 12, Kind: "retention"}, c}))
	got, err := s.Holes(ctx)
	must(t, err)
	if len(got) != 64 {
		t.Fatalf("got %d holes, want 64", len(got))
	}
	same(t, "Holes of orders and clicks", append(got[:1:1], got[61:]...), []state.Hole{d, b, c, a})
	for i, h := range got[1:61] {
		if i > 0 && got[i].TopicPartition.Compare(h.TopicPartition) == 0 && got[i].From >= h.From {
			t.Errorf("got %v after %v", h, got[i])
		}
	}
}

// newerSchema fills every kind, raises the schemas and expects that each call
// says so and that nothing is overwritten.
func newerSchema(t *testing.T, s *suite) {
	ctx := t.Context()
	orders := tp("orders", 3)
	position := map[flow.TopicPartition]state.Position{orders: {Upstream: 5}}
	chunk := state.RunChunk{First: 1, Next: 2, Data: []byte{1}}
	checkpoint := state.Checkpoint{Group: "g", TopicPartition: orders, Upstream: 1, Downstream: 1}
	hole := state.Hole{TopicPartition: orders, From: 1, To: 2, Kind: "k"}
	mark := map[flow.TopicPartition]state.Flushed{orders: {Sync: 1, Position: 2}}
	source := state.EventSource{Topic: "orders"}

	write := map[string]func(version int64) error{
		"PutFlow":        func(v int64) error { _, err := s.PutFlow(ctx, state.FlowRow{Version: v, ProducerID: v}); return err },
		"PutRuns":        func(v int64) error { chunk.Next += v; return s.PutRuns(ctx, orders, chunk) },
		"Acquire":        func(int64) error { _, err := s.Acquire(ctx, "lease", "me", time.Minute); return err },
		"PutCheckpoints": func(int64) error { return s.PutCheckpoints(ctx, []state.Checkpoint{checkpoint}) },
		"PutHoles":       func(int64) error { return s.PutHoles(ctx, []state.Hole{hole}) },
		"PutFlushed":     func(int64) error { return s.PutFlushed(ctx, mark) },
		"Advance": func(v int64) error {
			p := position[orders]
			p.Version, p.Upstream = v, p.Upstream+v
			_, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{orders: p})
			return err
		},
		"PutEventSource": func(v int64) error {
			source.Version, source.State = v, fmt.Sprint(v)
			_, err := s.PutEventSource(ctx, source)
			return err
		},
	}
	for name, call := range write {
		if err := call(0); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	s.upgrade(t, s.Store)

	read := map[string]func() error{
		"Flow":              func() error { _, err := s.Flow(ctx); return err },
		"Positions":         func() error { _, err := s.Positions(ctx, []flow.TopicPartition{orders}); return err },
		"Runs":              func() error { _, err := s.Runs(ctx, orders); return err },
		"DeleteRuns":        func() error { return s.DeleteRuns(ctx, orders, 0, 10) },
		"Renew":             func() error { _, err := s.Renew(ctx, state.Lease{Name: "lease", Owner: "me", Token: 1}, 1); return err },
		"Release":           func() error { return s.Release(ctx, state.Lease{Name: "lease", Owner: "me", Token: 1}) },
		"Checkpoints":       func() error { _, err := s.Checkpoints(ctx); return err },
		"EventSource":       func() error { _, err := s.EventSource(ctx, "orders"); return err },
		"EventSources":      func() error { _, err := s.EventSources(ctx); return err },
		"DeleteEventSource": func() error { return s.DeleteEventSource(ctx, state.EventSource{Topic: "orders", Version: 7}) },
		"Holes":             func() error { _, err := s.Holes(ctx); return err },
		"Flushed":           func() error { _, err := s.Flushed(ctx, []flow.TopicPartition{orders}); return err },
	}
	for range 2 { // the second time shows that the first overwrote nothing
		for name, call := range write {
			// A version that is not the stored one: with the right one the caller
			// must have been able to read the row.
			err := wantAs[*state.SchemaError](t, name, call(7))
			if !strings.Contains(err.Error(), "upgrade mirrorless") {
				t.Errorf("%s: got %q, want it to say what to do", name, err)
			}
		}
		for name, call := range read {
			wantAs[*state.SchemaError](t, name, call())
		}
	}
}

func cancelled(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Positions(ctx, []flow.TopicPartition{tp("orders", 0)})
	wantErr(t, "Positions", err, context.Canceled)
	_, err = s.Advance(ctx, map[flow.TopicPartition]state.Position{tp("orders", 0): {}})
	wantErr(t, "Advance", err, context.Canceled)
	_, err = s.Acquire(ctx, "lease", "me", time.Minute)
	wantErr(t, "Acquire", err, context.Canceled)
	_, err = s.Holes(ctx)
	wantErr(t, "Holes", err, context.Canceled)
}
