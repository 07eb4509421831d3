package statetest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// full is a position with something in every field.
func full(seed int64) state.Position {
	return state.Position{
		First: 3, Upstream: 1<<53 + seed, Downstream: 1<<53 - seed, ProducerID: 4000 + seed, Epoch: math.MaxInt16,
		Sequence: math.MaxInt32, Newest: 1_700_000_000_000 + seed, Copied: 77,
		SourceTopicID: state.TopicID{1, 15: 2}, TargetTopicID: state.TopicID{3, 15: byte(seed)},
		Runs: []byte{0, 255, byte(seed)},
	}
}

func positionsExact(t *testing.T, s *suite) {
	ctx := t.Context()
	want := map[flow.TopicPartition]state.Position{
		tp("orders", 15): full(15),
		tp("orders", 16): full(16),
		tp("orders", 17): {Upstream: math.MaxInt64, Downstream: math.MaxInt64, First: math.MaxInt64, ProducerID: math.MaxInt64, Newest: math.MinInt64, Copied: math.MaxInt64},
		tp("clicks", 0):  {ProducerID: state.NoProducerID, Newest: -1, Downstream: 5, SourceTopicID: state.TopicID{9}},
		tp("a#b", 2_000): {Epoch: -1, Sequence: -1, TargetTopicID: state.TopicID{8}},
		tp("a#b", 2_001): {},
	}
	// Another topic id in one block: one of the partitions saw the topic re-created.
	other := full(14)
	other.SourceTopicID = state.TopicID{200}
	want[tp("orders", 14)] = other

	stored, err := s.Advance(ctx, want)
	must(t, err)
	var partitions []flow.TopicPartition
	for key, p := range want {
		p.Version = 1
		want[key] = p
		partitions = append(partitions, key)
	}
	same(t, "Advance", stored, want)
	got, err := s.Positions(ctx, partitions)
	must(t, err)
	same(t, "Positions", got, want)

	// From now on by version.
	stored, err = s.Advance(ctx, want)
	must(t, err)
	got, err = s.Positions(ctx, partitions)
	must(t, err)
	same(t, "Positions after a second write", got, stored)
	if v := got[tp("orders", 15)].Version; v != 2 {
		t.Errorf("got version %d, want 2", v)
	}
}

func positionsAbsent(t *testing.T, s *suite) {
	ctx := t.Context()
	_, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{tp("orders", 1): {Upstream: 1}})
	must(t, err)
	var partitions []flow.TopicPartition
	for i := range int32(2_000) {
		partitions = append(partitions, tp("orders", i), tp("clicks", i))
	}
	got, err := s.Positions(ctx, partitions)
	must(t, err)
	same(t, "Positions", got, map[flow.TopicPartition]state.Position{tp("orders", 1): {Version: 1, Upstream: 1}})
	got, err = s.Positions(ctx, nil)
	must(t, err)
	if len(got) != 0 {
		t.Errorf("Positions of none: got %v", got)
	}
	_, err = s.Advance(ctx, nil)
	must(t, err)
}

func advanceConflict(t *testing.T, s *suite) {
	ctx := t.Context()
	one, two, far := tp("orders", 1), tp("orders", 2), tp("orders", 40)
	_, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{one: {Upstream: 10, Copied: 10}})
	must(t, err)

	stored, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{
		one: {Upstream: 12}, two: {Upstream: 20}, far: {Version: 4, Upstream: 30},
	})
	conflict := wantAs[*state.ConflictError](t, "Advance", err)
	wantErr(t, "Advance", err, state.ErrConflict)
	same(t, "Current", conflict.Current, map[flow.TopicPartition]state.Position{
		one: {Version: 1, Upstream: 10, Copied: 10}, far: {},
	})
	same(t, "stored", stored, map[flow.TopicPartition]state.Position{two: {Version: 1, Upstream: 20}})
	got, err := s.Positions(ctx, []flow.TopicPartition{one, two, far})
	must(t, err)
	same(t, "Positions", got, map[flow.TopicPartition]state.Position{
		one: {Version: 1, Upstream: 10, Copied: 10}, two: {Version: 1, Upstream: 20},
	})
}

func advanceRepeated(t *testing.T, s *suite) {
	ctx := t.Context()
	next := map[flow.TopicPartition]state.Position{tp("orders", 1): full(1), tp("orders", 2): full(2)}
	first, err := s.Advance(ctx, next)
	must(t, err)
	again, err := s.Advance(ctx, next)
	must(t, err)
	same(t, "Advance repeated", again, first)
	// With a new one beside the old ones, the new one is written.
	next[tp("orders", 3)] = full(3)
	all, err := s.Advance(ctx, next)
	must(t, err)
	if len(all) != 3 || all[tp("orders", 3)].Version != 1 || all[tp("orders", 1)].Version != 1 {
		t.Errorf("got %v, want three of version 1", all)
	}
}

func advanceBackwards(t *testing.T, s *suite) {
	ctx := t.Context()
	one, two := tp("orders", 1), tp("orders", 2)
	stored, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{one: {Upstream: 10}, two: {Upstream: 10}})
	must(t, err)
	back := stored[one]
	back.Upstream = 9
	next := map[flow.TopicPartition]state.Position{one: back, two: stored[two]}
	got, err := s.Advance(ctx, next)
	refused := wantAs[*state.BackwardsError](t, "Advance", err)
	same(t, "refusal", *refused, state.BackwardsError{TopicPartition: one, Stored: 10, Asked: 9})
	same(t, "stored", got, map[flow.TopicPartition]state.Position{two: {Version: 2, Upstream: 10}})

	got, err = s.Rewind(ctx, map[flow.TopicPartition]state.Position{one: back})
	must(t, err)
	same(t, "Rewind", got, map[flow.TopicPartition]state.Position{one: {Version: 2, Upstream: 9}})
	_, err = s.Rewind(ctx, map[flow.TopicPartition]state.Position{one: {Version: 1, Upstream: 3}})
	wantAs[*state.ConflictError](t, "Rewind of an old version", err)
}

func advanceTooLarge(t *testing.T, s *suite) {
	ctx := t.Context()
	one, two := tp("orders", 1), tp("orders", 2)
	got, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{
		one: {Upstream: 1, Runs: make([]byte, state.MaxRuns+1)}, two: {Upstream: 2},
	})
	refused := wantAs[*state.TooLargeError](t, "Advance", err)
	if refused.Size != state.MaxRuns+1 || refused.Limit != state.MaxRuns {
		t.Errorf("got %v", refused)
	}
	same(t, "stored", got, map[flow.TopicPartition]state.Position{two: {Version: 1, Upstream: 2}})
	err = s.PutRuns(ctx, one, state.RunChunk{Data: make([]byte, state.MaxChunk+1)})
	wantAs[*state.TooLargeError](t, "PutRuns", err)
	must(t, s.PutRuns(ctx, one, state.RunChunk{Next: 1, Data: make([]byte, state.MaxChunk)}))
}

func advanceFull(t *testing.T, s *suite) {
	ctx := t.Context()
	next := make(map[flow.TopicPartition]state.Position)
	var partitions []flow.TopicPartition
	for i := range int32(32) {
		p := full(int64(i))
		p.Runs = make([]byte, state.MaxRuns)
		for j := range p.Runs {
			p.Runs[j] = byte(rand.Uint32())
		}
		next[tp("orders", i)] = p
		partitions = append(partitions, tp("orders", i))
	}
	stored, err := s.Advance(ctx, next)
	must(t, err)
	got, err := s.Positions(ctx, partitions)
	must(t, err)
	if !reflect.DeepEqual(got, stored) { // go-cmp takes seconds over half a megabyte
		t.Error("the positions that were read are not those that were written")
	}
}

func advanceRace(t *testing.T, s *suite) {
	ctx := t.Context()
	const racers, rounds = 8, 10
	partitions := []flow.TopicPartition{tp("orders", 0), tp("orders", 5), tp("orders", 16)}
	current := make(map[flow.TopicPartition]state.Position)
	for round := range rounds {
		type result struct {
			stored   map[flow.TopicPartition]state.Position
			conflict *state.ConflictError
		}
		results := make([]result, racers)
		var wg sync.WaitGroup
		for racer := range racers {
			wg.Go(func() {
				next := make(map[flow.TopicPartition]state.Position)
				for _, key := range partitions {
					next[key] = state.Position{Version: current[key].Version, Upstream: int64(round), ProducerID: int64(racer)}
				}
				stored, err := s.Advance(ctx, next)
				results[racer].stored = stored
				if err != nil {
					var ok bool
					if results[racer].conflict, ok = errors.AsType[*state.ConflictError](err); !ok {
						t.Errorf("racer %d: got error %v, want a conflict", racer, err)
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		winners := make(map[flow.TopicPartition]state.Position)
		for racer, r := range results {
			for key, p := range r.stored {
				if other, two := winners[key]; two {
					t.Fatalf("round %d, %s: racers %d and %d both won", round, key, other.ProducerID, p.ProducerID)
				}
				if p.ProducerID != int64(racer) {
					t.Fatalf("racer %d was told of %v", racer, p)
				}
				winners[key] = p
			}
		}
		got, err := s.Positions(ctx, partitions)
		must(t, err)
		same(t, "Positions and winners", got, winners)
		for racer, r := range results {
			for _, key := range partitions {
				if _, won := r.stored[key]; won {
					continue
				}
				if r.conflict == nil || r.conflict.Current[key].Version != winners[key].Version || r.conflict.Current[key].ProducerID != winners[key].ProducerID {
					t.Errorf("racer %d lost %s: got conflict %v, want the winner %v", racer, key, r.conflict, winners[key])
				}
			}
		}
		current = got
	}
}

func advanceNeighbours(t *testing.T, s *suite) {
	ctx := t.Context()
	const partitions, steps = 16, 10
	var wg sync.WaitGroup
	for i := range int32(partitions) {
		wg.Go(func() {
			p := state.Position{SourceTopicID: state.TopicID{1}, TargetTopicID: state.TopicID{byte(i / 8)}}
			for range steps {
				p.Upstream++
				p.Copied += 2
				stored, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{tp("orders", i): p})
				if err != nil {
					t.Errorf("partition %d: %v", i, err)
					return
				}
				p = stored[tp("orders", i)]
			}
			got, err := s.Positions(ctx, []flow.TopicPartition{tp("orders", i)})
			want := state.Position{
				Version: steps, Upstream: steps, Copied: 2 * steps,
				SourceTopicID: state.TopicID{1}, TargetTopicID: state.TopicID{byte(i / 8)},
			}
			if err != nil {
				t.Errorf("partition %d: %v", i, err)
			}
			same(t, "position", got[tp("orders", i)], want)
		})
	}
	wg.Wait()
}

func advanceMixed(t *testing.T, s *suite) {
	ctx := t.Context()
	const workers, rounds, partitions = 6, 15, 20
	var mu sync.Mutex
	want := make(map[flow.TopicPartition]int64) // steps won
	var wg sync.WaitGroup
	for worker := range workers {
		random := rand.New(rand.NewPCG(uint64(worker), 1))
		wg.Go(func() {
			for range rounds {
				var some []flow.TopicPartition
				for i := range int32(partitions) {
					if random.IntN(3) == 0 {
						some = append(some, tp("orders", i))
					}
				}
				if err := stepAll(ctx, s, some, func(won flow.TopicPartition) {
					mu.Lock()
					want[won]++
					mu.Unlock()
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for key, steps := range want {
		got, err := s.Positions(ctx, []flow.TopicPartition{key})
		must(t, err)
		// More where an answer was lost and another writer then came first.
		if p := got[key]; p.Copied < steps || p.Version != p.Copied {
			t.Errorf("%s: got %d copied at version %d, want at least %d of both", key, p.Copied, p.Version, steps)
		}
	}
}

// stepAll adds one to Copied of each partition, going on from the winner where it
// loses.
func stepAll(ctx context.Context, s *suite, partitions []flow.TopicPartition, won func(flow.TopicPartition)) error {
	read, err := s.Positions(ctx, partitions)
	if err != nil {
		return err
	}
	next := make(map[flow.TopicPartition]state.Position)
	for _, key := range partitions {
		next[key] = read[key]
	}
	for len(next) > 0 {
		for key, p := range next {
			p.Copied++
			p.ProducerID = rand.Int64() // never equal to another's write
			next[key] = p
		}
		stored, err := s.Advance(ctx, next)
		for key := range stored {
			won(key)
		}
		if err == nil {
			return nil
		}
		conflict, ok := errors.AsType[*state.ConflictError](err)
		if !ok || len(stored)+len(conflict.Current) != len(next) {
			return err
		}
		next = conflict.Current
	}
	return nil
}
