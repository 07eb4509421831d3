package statetest

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

func runsOrdered(t *testing.T, s *suite) {
	ctx := t.Context()
	orders := tp("orders", 3)
	firsts := []int64{1 << 53, 9, math.MaxInt64, 10, 1<<53 + 1, 0, 1<<62 + 1}
	for _, first := range firsts {
		must(t, s.PutRuns(ctx, orders, state.RunChunk{First: first, Next: math.MaxInt64, Data: fmt.Append(nil, first)}))
	}
	for _, neighbour := range []flow.TopicPartition{tp("orders", 30), tp("orders", 4), tp("order", 3), tp("orders#3", 0)} {
		must(t, s.PutRuns(ctx, neighbour, state.RunChunk{First: 5, Next: 6}))
	}
	got, err := s.Runs(ctx, orders)
	must(t, err)
	var want []state.RunChunk
	for _, first := range []int64{0, 9, 10, 1 << 53, 1<<53 + 1, 1<<62 + 1, math.MaxInt64} {
		want = append(want, state.RunChunk{First: first, Next: math.MaxInt64, Data: fmt.Append(nil, first)})
	}
	same(t, "Runs", got, want)
	none, err := s.Runs(ctx, tp("orders", 5))
	must(t, err)
	if len(none) != 0 {
		t.Errorf("got runs %v of a partition without", none)
	}
	if err := s.PutRuns(ctx, orders, state.RunChunk{First: -1}); err == nil {
		t.Error("PutRuns took a negative offset")
	}
}

func runsLongest(t *testing.T, s *suite) {
	ctx := t.Context()
	orders := tp("orders", 3)
	long := state.RunChunk{First: 10, Next: 30, Data: []byte("long")}
	for _, chunk := range []state.RunChunk{
		{First: 10, Next: 20, Data: []byte("first")},
		long,
		{First: 10, Next: 15, Data: []byte("late")},
		long,
	} {
		must(t, s.PutRuns(ctx, orders, chunk))
	}
	got, err := s.Runs(ctx, orders)
	must(t, err)
	same(t, "Runs", got, []state.RunChunk{long})
}

func runsMany(t *testing.T, s *suite) {
	ctx := t.Context()
	orders := tp("orders", 3)
	const chunks = 12 // of 256 KiB: more than one answer of DynamoDB holds
	for i := range int64(chunks) {
		must(t, s.PutRuns(ctx, orders, state.RunChunk{First: i, Next: i + 1, Data: make([]byte, state.MaxChunk)}))
	}
	got, err := s.Runs(ctx, orders)
	must(t, err)
	if len(got) != chunks {
		t.Fatalf("got %d chunks, want %d", len(got), chunks)
	}
	for i, c := range got {
		if c.First != int64(i) || len(c.Data) != state.MaxChunk {
			t.Errorf("got chunk %d of %d bytes at %d", c.First, len(c.Data), i)
		}
	}
}

func runsDeleted(t *testing.T, s *suite) {
	ctx := t.Context()
	orders := tp("orders", 3)
	var firsts []int64
	for i := range int64(60) {
		firsts = append(firsts, i*10)
		must(t, s.PutRuns(ctx, orders, state.RunChunk{First: i * 10, Next: i*10 + 10}))
	}
	must(t, s.PutRuns(ctx, tp("orders", 4), state.RunChunk{First: 100, Next: 110}))
	left := func(what string, want []int64) {
		t.Helper()
		chunks, err := s.Runs(ctx, orders)
		must(t, err)
		var got []int64
		for _, c := range chunks {
			got = append(got, c.First)
		}
		same(t, what, got, want)
	}
	must(t, s.DeleteRuns(ctx, orders, 5, 5))
	left("an empty range", firsts)
	must(t, s.DeleteRuns(ctx, orders, 0, 300))
	left("up to 300", firsts[30:])
	must(t, s.DeleteRuns(ctx, orders, 0, 300))
	must(t, s.DeleteRuns(ctx, orders, 581, math.MaxInt64))
	left("from 581", firsts[30:59])
	must(t, s.DeleteRuns(ctx, orders, math.MinInt64, math.MaxInt64))
	left("all", nil)
	other, err := s.Runs(ctx, tp("orders", 4))
	must(t, err)
	if len(other) != 1 {
		t.Errorf("got %d chunks of the neighbour, want 1", len(other))
	}
}

func leaseExpiry(t *testing.T, s *suite) {
	ctx := t.Context()
	const ttl = 10 * time.Second
	first, err := s.Acquire(ctx, "checkpoint", "one", ttl)
	must(t, err)
	same(t, "Acquire", first, state.Lease{Name: "checkpoint", Owner: "one", Expires: at(s.now().Add(ttl).UnixMilli()), Token: first.Token})

	_, err = s.Acquire(ctx, "checkpoint", "two", ttl)
	wantErr(t, "Acquire of a held lease", err, state.ErrHeld)
	same(t, "holder", *wantAs[*state.HeldError](t, "Acquire", err), state.HeldError{Name: "checkpoint", Owner: "one", Expires: first.Expires})
	_, err = s.Acquire(ctx, "topics", "two", ttl)
	must(t, err)

	s.pass(ttl - time.Millisecond)
	_, err = s.Acquire(ctx, "checkpoint", "two", ttl)
	wantErr(t, "Acquire just before the end", err, state.ErrHeld)
	s.pass(time.Millisecond)
	second, err := s.Acquire(ctx, "checkpoint", "two", ttl)
	must(t, err)
	higher(t, "after the end", second, first)
	again, err := s.Acquire(ctx, "checkpoint", "two", ttl)
	must(t, err)
	higher(t, "of the same owner", again, second)
}

// higher does not ask for one more: a repeated request whose answer was
// lost counts twice.
func higher(t *testing.T, what string, got, than state.Lease) {
	t.Helper()
	if got.Token <= than.Token {
		t.Errorf("%s: got token %d, want more than %d", what, got.Token, than.Token)
	}
}

func leaseOwner(t *testing.T, s *suite) {
	ctx := t.Context()
	const ttl = 10 * time.Second
	_, err := s.Renew(ctx, state.Lease{Name: "checkpoint", Owner: "one", Token: 1}, ttl)
	wantErr(t, "Renew of a lease that never was", err, state.ErrHeld)
	first, err := s.Acquire(ctx, "checkpoint", "one", ttl)
	must(t, err)
	s.pass(2 * ttl) // late, but nobody came
	renewed, err := s.Renew(ctx, first, ttl)
	must(t, err)
	want := first
	want.Expires = at(s.now().Add(ttl).UnixMilli())
	same(t, "Renew", renewed, want)
	_, err = s.Acquire(ctx, "checkpoint", "two", ttl)
	wantErr(t, "Acquire of a renewed lease", err, state.ErrHeld)

	s.pass(2 * ttl)
	second, err := s.Acquire(ctx, "checkpoint", "two", ttl)
	must(t, err)
	_, err = s.Renew(ctx, renewed, ttl)
	wantErr(t, "Renew of a lost lease", err, state.ErrHeld)
	must(t, s.Release(ctx, renewed))
	_, err = s.Acquire(ctx, "checkpoint", "one", ttl)
	wantErr(t, "Acquire after another's release", err, state.ErrHeld)

	must(t, s.Release(ctx, second))
	must(t, s.Release(ctx, second))
	_, err = s.Renew(ctx, second, ttl)
	wantErr(t, "Renew of a released lease", err, state.ErrHeld)
	third, err := s.Acquire(ctx, "checkpoint", "one", ttl)
	must(t, err)
	higher(t, "after a release", third, second)
	must(t, s.Release(ctx, state.Lease{Name: "none", Owner: "one", Token: 1}))
}

func leaseRace(t *testing.T, s *suite) {
	ctx := t.Context()
	var last state.Lease
	for range 5 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var winners []state.Lease
		for racer := range 8 {
			wg.Go(func() {
				owner := fmt.Sprint("owner ", racer)
				lease, err := s.Acquire(ctx, "checkpoint", owner, time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, lease)
				} else {
					wantErr(t, "Acquire", err, state.ErrHeld)
				}
			})
		}
		wg.Wait()
		if len(winners) != 1 {
			t.Fatalf("got winners %v, want one", winners)
		}
		higher(t, "in the next round", winners[0], last)
		last = winners[0]
		s.pass(time.Minute)
	}
}

func checkpoints(t *testing.T, s *suite) {
	ctx := t.Context()
	odd := "a#b/ü %\x00"
	want := []state.Checkpoint{
		{Group: odd, TopicPartition: tp("A.orders", 0), Upstream: 1<<53 + 1, Downstream: 4, Metadata: "m\xff", Written: at(6)},
		{Group: odd + "\xfe", TopicPartition: tp("A.orders", 0), Upstream: 1},
		{Group: "g", TopicPartition: tp("A.clicks", 40), Upstream: 3, Downstream: 2},
		{Group: "g", TopicPartition: tp("A.orders", 2), Upstream: 3, Downstream: 2, Written: at(7)},
		{Group: "g", TopicPartition: tp("A.orders", 10), Upstream: 3, Downstream: 2},
		{Group: "g", TopicPartition: tp("A.orders", 33), Upstream: 3, Downstream: 2},
		{Group: strings.Repeat("h", state.MaxGroup), TopicPartition: tp(strings.Repeat("t", 249), 1_000_000), Downstream: 1},
	}
	must(t, s.PutCheckpoints(ctx, nil))
	must(t, s.PutCheckpoints(ctx, []state.Checkpoint{want[6], want[0], want[5], want[4], want[1]}))
	stale := want[3]
	stale.Upstream = 100 // the group may go back
	must(t, s.PutCheckpoints(ctx, []state.Checkpoint{stale}))
	must(t, s.PutCheckpoints(ctx, []state.Checkpoint{want[2], stale, want[3]}))
	got, err := s.Checkpoints(ctx)
	must(t, err)
	same(t, "Checkpoints", got, want)
}

func checkpointsTooLarge(t *testing.T, s *suite) {
	ctx := t.Context()
	fits := state.Checkpoint{Group: "g", TopicPartition: tp("A.orders", 0), Metadata: strings.Repeat("m", state.MaxMetadata)}
	long := state.Checkpoint{Group: "g", TopicPartition: tp("A.orders", 1), Metadata: fits.Metadata + "m"}
	group := state.Checkpoint{Group: strings.Repeat("g", state.MaxGroup+1), TopicPartition: tp("A.orders", 1)}
	wantAs[*state.TooLargeError](t, "PutCheckpoints", s.PutCheckpoints(ctx, []state.Checkpoint{long, fits}))
	wantAs[*state.TooLargeError](t, "PutCheckpoints", s.PutCheckpoints(ctx, []state.Checkpoint{group}))
	// A whole block of the longest metadata is within an item.
	want := []state.Checkpoint{fits}
	for i := range int32(40) {
		c := fits
		c.Partition = i + 1
		want = append(want, c)
	}
	must(t, s.PutCheckpoints(ctx, want))
	got, err := s.Checkpoints(ctx)
	must(t, err)
	same(t, "Checkpoints", got, want)
}

func flushed(t *testing.T, s *suite) {
	ctx := t.Context()
	want := map[flow.TopicPartition]state.Flushed{
		tp("orders", 0):  {Sync: 1<<53 + 1, Position: state.NotFlushed},
		tp("orders", 63): {Sync: 5, Position: 6},
		tp("orders", 64): {},
		tp("clicks", 7):  {Sync: math.MaxInt64, Position: 1},
	}
	must(t, s.PutFlushed(ctx, nil))
	must(t, s.PutFlushed(ctx, map[flow.TopicPartition]state.Flushed{tp("orders", 63): {Sync: 1}, tp("orders", 0): want[tp("orders", 0)]}))
	delete(want, tp("orders", 0))
	must(t, s.PutFlushed(ctx, want))
	want[tp("orders", 0)] = state.Flushed{Sync: 1<<53 + 1, Position: state.NotFlushed}
	partitions := []flow.TopicPartition{tp("orders", 0), tp("orders", 1), tp("orders", 63), tp("orders", 64), tp("clicks", 7), tp("none", 0)}
	got, err := s.Flushed(ctx, partitions)
	must(t, err)
	same(t, "Flushed", got, want)
}
