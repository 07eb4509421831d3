package checkpoint_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The run map lives as long as B holds the copies, and no longer.
func TestRunsWhoseCopiesHaveExpiredAreDeletedAndTheRestStillTranslates(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	// Upstream 0-9, 20-29, 40-49, 60-69 are downstream 0-39, a chunk each.
	for from := int64(0); from < 80; from += 20 {
		w.copied(orders, upTo(from, from+10)...)
		w.spill(orders)
	}
	w.mustRound()
	firsts := func() (got []int64) {
		t.Helper()
		chunks, err := w.store.Runs(t.Context(), orders)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			got = append(got, c.First)
		}
		return got
	}
	if diff := cmp.Diff([]int64{0, 20, 40}, firsts()); diff != "" {
		t.Fatalf("chunks while B holds all (-want +got):\n%s", diff)
	}

	w.b.expire(t, w.remote(orders), 25) // within 40-49
	w.pass(time.Hour)
	w.a.commit(t, "expired", orders, 3, "")
	w.a.commit(t, "held", orders, 47, "")
	w.mustRound()
	if diff := cmp.Diff([]int64{20, 40}, firsts()); diff != "" {
		t.Errorf("chunks after B's log start moved to 25 (-want +got):\n%s", diff)
	}
	w.restart() // forgets what it has read
	w.a.commit(t, "expired", orders, 4, "")
	w.a.commit(t, "held", orders, 48, "")
	w.mustRound()
	want := append(one("expired", 3, 25), one("held", 47, 27)...)
	want = append(want, append(one("expired", 4, 25), one("held", 48, 28)...)...)
	if diff := cmp.Diff(want, w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}
