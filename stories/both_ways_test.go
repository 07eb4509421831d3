package stories_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/realtest"
)

// TestBothDirectionsDoNotFormALoop copies a topic of the same name both ways and
// then waits for echoes.
func TestBothDirectionsDoNotFormALoop(t *testing.T) {
	quiet := 12 * time.Second // more than two refreshes
	if realtest.Full() {
		quiet = time.Minute
	}
	ctx := within(t, 2*time.Minute+quiet)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	onA, onB := connect(t, a), connect(t, b)
	create(ctx, t, onA, 2, nil, "orders")
	create(ctx, t, onB, 2, nil, "orders")
	env, args := bootstraps(t)
	r := run(t, env, properties(t, a, b,
		"clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "B->A.enabled = true", "refresh.topics.interval.seconds = 5",
		"emit.checkpoints.interval.seconds = 1"), args...)
	produce(ctx, t, onA, numbered("orders", "a-%d", 0, 1000)...)
	produce(ctx, t, onB, numbered("orders", "b-%d", 0, 1000)...)
	eventually(ctx, t, "a thousand records each way", func() bool {
		return ends(ctx, t, onB, "A.orders") >= 1000 && ends(ctx, t, onA, "B.orders") >= 1000
	})
	wait(ctx, t, quiet)
	for what, got := range map[string]int64{
		"A.orders on B": ends(ctx, t, onB, "A.orders"), "B.orders on A": ends(ctx, t, onA, "B.orders"),
		"orders on A": ends(ctx, t, onA, "orders"), "orders on B": ends(ctx, t, onB, "orders"),
	} {
		t.Logf("%s: %d records after %v of quiet", what, got, quiet)
		if got != 1000 {
			t.Errorf("%s: got %d records, want 1000", what, got)
		}
	}
	for alias, client := range map[string]*kadm.Client{"A": kadm.NewClient(onA), "B": kadm.NewClient(onB)} {
		topics, err := client.ListTopics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		names := topics.Names()
		t.Logf("topics on %s: %s", alias, strings.Join(names, ", "))
		if slices.ContainsFunc(names, func(name string) bool {
			return strings.HasPrefix(name, "A.B.") || strings.HasPrefix(name, "B.A.") || strings.HasPrefix(name, "A.A.") || strings.HasPrefix(name, "B.B.")
		}) {
			t.Errorf("topics on %s: got %q, want no copy of a copy", alias, names)
		}
	}
	r.stop(t)
}

// wait lets time pass in which something must not happen.
func wait(ctx context.Context, t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
}
