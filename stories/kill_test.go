package stories_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/realtest"
)

// TestAKillInTheMiddleLosesAndDoublesNothing ends the run, or one of its
// functions, in the middle of a backlog, and lets another run go on.
func TestAKillInTheMiddleLosesAndDoublesNothing(t *testing.T) {
	n := 250_000
	if realtest.Full() {
		n = 1_000_000
	}
	ctx := within(t, 12*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	env, bootstrap := bootstraps(t)
	onB := connect(t, b, kgo.MetadataMinAge(20*time.Millisecond))
	for name, round := range map[string]struct {
		args []string
		end  func(r *running)
		goes bool // the run goes on by itself
	}{
		"SIGKILL to run in process":      {nil, func(r *running) { r.Kill() }, false},
		"SIGTERM to run in process":      {nil, func(r *running) { _ = r.Terminate() }, false},
		"SIGKILL to run with bootstraps": {bootstrap, func(r *running) { r.Kill() }, false},
		"SIGKILL to a bootstrap":         {bootstrap, func(r *running) { killOne(t, "mirror") }, true},
		"SIGTERM to run with bootstraps": {bootstrap, func(r *running) { _ = r.Terminate() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "load-" + strings.ReplaceAll(strings.ToLower(name), " ", "-")
			create(ctx, t, connect(t, a), 4, nil, topic)
			l := newLoad(t, a, topic, 4, 1000)
			l.write(ctx, t, n)
			file := properties(t, a, b, "clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
				"A->B.enabled = true", "A->B.topics = "+topic, "refresh.topics.interval.seconds = 2")
			copied := func() int64 {
				if !exists(ctx, t, onB, "A."+topic) {
					return 0
				}
				return ends(ctx, t, onB, "A."+topic)
			}
			r := run(t, env, file, round.args...)
			eventually(ctx, t, "a tenth of the records on B", func() bool { return copied() > int64(n)/10 })
			at := copied()
			round.end(r)
			if !round.goes {
				<-r.Done()
				if left := processes(filepath.Join(bin, "mirror")); len(left) > 0 {
					t.Errorf("got processes %v after the end of the run, want none", left)
				}
				r = run(t, env, file, round.args...)
			}
			t.Logf("ended at %d of %d records", at, n)
			if at >= int64(n) {
				t.Error("the end came too late to be in the middle")
			}
			eventually(ctx, t, "all records on B", func() bool { return copied() >= int64(n) })
			r.stop(t)
			l.wantWhole(ctx, t, b, "A."+topic)
		})
	}
}

// processes are the ids of the processes whose program begins with a path.
func processes(program string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range dirs {
		if target, err := os.Readlink(exe); err == nil && strings.HasPrefix(target, program) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(exe)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// killOne kills one process of a function.
func killOne(t *testing.T, function string) {
	t.Helper()
	pids := processes(filepath.Join(bin, function, "bootstrap"))
	if len(pids) == 0 {
		t.Fatalf("no process of %s runs", function)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(fmt.Errorf("kill %s: %w", function, err))
	}
}
