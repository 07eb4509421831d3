package checkpoint

import (
	"math/rand/v2"
	"testing"

	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
)

// A run taken at once leads to the same syncs as its records one by one.
func TestSamplingARunEqualsSamplingItsRecords(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		lag := rng.Int64N(30) - 1
		p := &partition{}
		rule := offsets.SyncRule{MaxLag: lag}
		var one offsets.Store64
		one.ReadToEnd()
		up, down := rng.Int64N(10), int64(0)
		for range 20 {
			for range rng.IntN(4) {
				run := offsets.Run{Upstream: up, Downstream: down, Length: 1 + rng.Int64N(100)}
				for i := range run.Length {
					sync := offsets.Sync{Upstream: run.Upstream + i, Downstream: run.Downstream + i}
					if rule.Update(sync) {
						one.Add(sync)
						rule.Sent()
					}
				}
				p.runs.Add(run)
				up += run.Length + rng.Int64N(2)*rng.Int64N(9)
				down += run.Length + rng.Int64N(2)*rng.Int64N(9)
				p.pos = state.Position{Upstream: run.Upstream + run.Length, Downstream: run.Downstream + run.Length}
			}
			p.sample(lag)
			if s := p.sampled; s.begun && s.previous.Downstream != s.synced {
				one.Add(s.previous)
			}
			for range 20 {
				group := rng.Int64N(up + 5)
				want, wantOK := one.Translate(group)
				got, gotOK := p.sampled.store.Translate(group)
				if got != want || gotOK != wantOK {
					t.Fatalf("seed %d, group at %d: got %d %v, want %d %v", seed, group, got, gotOK, want, wantOK)
				}
			}
		}
	}
}
