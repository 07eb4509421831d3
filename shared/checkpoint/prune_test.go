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
	// Upstream 0-9, 20-29, 40-49, 60-69, 80-89 are downstream 0-49.
	w.copied(orders, upTo(0, 10)...)
	w.copied(orders, upTo(20, 30)...)
	w.spill(orders)
	w.copied(orders, upTo(40, 50)...)
	w.copied(orders, upTo(60, 70)...)
	w.spill(orders)
	w.copied(orders, upTo(80, 90)...)
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
	if diff := cmp.Diff([]int64{0, 20}, firsts()); diff != "" {
		t.Fatalf("chunks while B holds all (-want +got):\n%s", diff)
	}

	w.b.expire(t, w.remote(orders), 15) // within 20-29
	w.pass(time.Hour)
	w.a.commit(t, "expired", orders, 3, "")
	w.a.commit(t, "held", orders, 27, "")
	w.mustRound()
	if diff := cmp.Diff([]int64{20}, firsts()); diff != "" {
		t.Errorf("chunks after B's log start moved to 15 (-want +got):\n%s", diff)
	}
	w.restart() // forgets what it has read
	w.a.commit(t, "expired", orders, 4, "")
	w.a.commit(t, "held", orders, 28, "")
	w.mustRound()
	want := append(one("expired", 3, 15), one("held", 27, 17)...)
	want = append(want, append(one("expired", 4, 15), one("held", 28, 18)...)...)
	if diff := cmp.Diff(want, w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}
