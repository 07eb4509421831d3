package stories_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/process"
)

// bin is the folder of the binaries that the stories run, those of "make build".
var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "mirrorless-stories-"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	os.RemoveAll(bin)
	os.Exit(code)
}

var buildOnce = sync.OnceValue(func() error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	build := func(out, pkg string, flags ...string) error {
		cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-o", filepath.Join(bin, out)}, flags...), pkg)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", pkg, err, said)
		}
		return nil
	}
	if err := build("mirrorless", "./cmd/mirrorless"); err != nil {
		return err
	}
	for _, name := range []string{"topics", "mirror", "heartbeat", "checkpoint"} {
		if err := build(filepath.Join(name, "bootstrap"), "./functions/"+name, "-tags", "lambda.norpc", "-ldflags", "-s -w"); err != nil {
			return err
		}
	}
	return nil
})

// mirrorless is a command line of the built program.
func mirrorless(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return exec.Command(filepath.Join(bin, "mirrorless"), args...)
}

// properties writes an mm2.properties file for two clusters, whose aliases come
// first, and returns its path.
func properties(t testing.TB, a, b *kafka.Cluster, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mm2.properties")
	text := strings.Join(lines, "\n") + "\n"
	text = strings.NewReplacer("$A", a.Bootstrap(), "$B", b.Bootstrap()).Replace(text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// seed1 and seed2 are the two configurations that people start with. Intervals
// are cut so that a test need not wait for minutes.
func seed1(t testing.TB, a, b *kafka.Cluster, more ...string) string {
	return properties(t, a, b, append([]string{
		"clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = mm2-source-topic", "B->A.enabled = false",
		"refresh.topics.interval.seconds = 2", "emit.checkpoints.interval.seconds = 1",
	}, more...)...)
}

func seed2(t testing.TB, a, b *kafka.Cluster) string {
	return properties(t, a, b,
		"clusters = source, target", "source.bootstrap.servers = $A", "target.bootstrap.servers = $B",
		"source->target.enabled = true", "source->target.topics = .*", "source->target.groups = .*",
		"source->target.sync.group.offsets.enabled = true", "source->target.sync.group.offsets.interval.seconds = 1",
		"replication.factor = 1", "tasks.max = 4",
		"refresh.topics.interval.seconds = 2", "emit.checkpoints.interval.seconds = 1")
}

// running is "mirrorless run" under way.
type running struct {
	*process.Process
	out *lockedBuffer
}

// lockedBuffer takes a process's output while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run starts "mirrorless run" with a file; it is killed with the test at the
// latest, and what it printed is in the log of a test that fails.
func run(t testing.TB, env []string, file string, args ...string) *running {
	t.Helper()
	cmd := mirrorless(t, append([]string{"run", file}, args...)...)
	out := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	p, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			lines := strings.SplitAfter(out.String(), "\n")
			t.Logf("mirrorless run printed, at the end:\n%s", strings.Join(lines[max(0, len(lines)-25):], ""))
		}
	})
	return &running{p, out}
}

// stop asks the run to end, as Ctrl-C does, and wants it to end well.
func (r *running) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	eventually(ctx, t, "the run's first words", func() bool { return strings.Contains(r.out.String(), "Ctrl-C stops") })
	if err := r.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Done():
		if err := r.Err(); err != nil {
			t.Errorf("run ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("run did not end within 30 s of Ctrl-C")
	}
}

// ends is the number of records of a topic, by its partitions' end offsets.
func ends(ctx context.Context, t testing.TB, client *kgo.Client, topic string) (total int64) {
	t.Helper()
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			total += o.Offset
		}
	})
	return total
}

// eventually asks until the answer is yes, and fails with the context.
func eventually(ctx context.Context, t testing.TB, what string, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// exists says whether a cluster has a topic.
func exists(ctx context.Context, t testing.TB, client *kgo.Client, topic string) bool {
	t.Helper()
	listed, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	return listed.Has(topic)
}
