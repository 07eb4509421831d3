package offsets_test

import (
	"math/rand/v2"
	"testing"

	"mirrorless/shared/offsets"
)

// distinct are the syncs that a store holds.
func distinct(s *offsets.Store64) map[int64]bool {
	held := map[int64]bool{}
	for _, slot := range offsets.Slots(s) {
		held[slot[1]] = true
	}
	return held
}

// The bounds that MirrorMaker 2's own property tests assert: how many syncs a new
// one may push out.
func TestStoreForgetsSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		steps func(r *rand.Rand) int64
		lost  int
	}{
		"constant step 1":     {func(*rand.Rand) int64 { return 1 }, 1},
		"constant step 10":    {func(*rand.Rand) int64 { return 10 }, 1},
		"constant step 12345": {func(*rand.Rand) int64 { return 12345 }, 1},
		"random 3 bits":       {func(r *rand.Rand) int64 { return 1 + r.Int64N(1<<3) }, 5},
		"random 10 bits":      {func(r *rand.Rand) int64 { return 1 + r.Int64N(1<<10) }, 12},
		"dropped at random":   {func(r *rand.Rand) int64 { return r.Int64N(2) }, 2},
	} {
		r := rand.New(rand.NewPCG(1, 3))
		var s offsets.Store64
		s.ReadToEnd()
		var up int64
		s.Add(offsets.Sync{})
		for range 5000 {
			before := distinct(&s)
			up += c.steps(r)
			s.Add(offsets.Sync{Upstream: up, Downstream: up})
			after := distinct(&s)
			lost := 0
			for sync := range before {
				if !after[sync] {
					lost++
				}
			}
			if lost > c.lost {
				t.Fatalf("%s: at %d %d syncs were lost, want at most %d", name, up, lost, c.lost)
			}
			if !after[0] || !after[up] {
				t.Fatalf("%s: at %d the first or the last sync is gone", name, up)
			}
		}
	}
}

func TestStoreForgetsAllOnARewind(t *testing.T) {
	for _, onlyLast := range []bool{false, true} {
		s := offsets.Store64{OnlyLast: onlyLast}
		for i := int64(0); i <= 1000; i += 10 {
			s.Add(offsets.Sync{Upstream: i, Downstream: i})
		}
		s.ReadToEnd()
		for i := int64(1000); i <= 10_000; i += 10 {
			s.Add(offsets.Sync{Upstream: i, Downstream: i})
		}
		s.Add(offsets.Sync{Upstream: 1500, Downstream: 11_000})
		for group, want := range map[int64]int64{1499: offsets.TooOld, 1500: 11_000, 2000: 11_001} {
			if got, ok := s.Translate(group); got != want || !ok {
				t.Errorf("translate %d: got %d, %v, want %d", group, got, ok, want)
			}
		}
	}
}

// Offsets of a poisoned sync must not break what comes after.
func TestStoreSurvivesAnyOffsets(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var s offsets.Store64
	s.ReadToEnd()
	for range 2000 {
		s.Add(offsets.Sync{Upstream: int64(r.Uint64()), Downstream: int64(r.Uint64())})
		s.Translate(int64(r.Uint64()))
	}
}
