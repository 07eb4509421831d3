package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mirrorless/localstack/process"
)

// parentOf, in the environment of this test binary, makes it a parent that
// starts the shell command it holds, prints the child's id and waits.
const parentOf = "PROCESS_TEST_PARENT_OF"

func TestMain(m *testing.M) {
	if command := os.Getenv(parentOf); command != "" {
		p, err := process.Start(exec.Command("sh", "-c", command))
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		<-p.Done()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func start(t *testing.T, script string) (*process.Process, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = w
	p, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		p.Kill()
		r.Close()
	})
	return p, bufio.NewReader(r)
}

func readPID(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// awaitGone waits for the end of a process that is not a child of this one.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("process %d still runs: %s", pid, stat)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentOf+"=exec sleep 600")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	child := readPID(t, bufio.NewReader(out))
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("got a clean end of a killed parent")
	}
	awaitGone(t, child)
}

func TestKillReachesGrandchildren(t *testing.T) {
	p, out := start(t, "sleep 600 & echo $!; wait")
	grandchild := readPID(t, out)
	p.Kill()
	awaitGone(t, grandchild)
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, process.ErrEnded) {
		t.Errorf("got %v, want %v", err, process.ErrEnded)
	}
}

func TestGrandchildrenDoNotOutliveAChildThatEnds(t *testing.T) {
	p, out := start(t, "sleep 600 & echo $!")
	grandchild := readPID(t, out)
	<-p.Done()
	awaitGone(t, grandchild)
	if err := p.Err(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestStopWaitsForTheChildToFinish(t *testing.T) {
	p, out := start(t, `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last, _ := io.ReadAll(out); string(last) != "bye\n" {
		t.Errorf("got output %q, want bye", last)
	}
	exit, ok := errors.AsType[*exec.ExitError](p.Err())
	if !ok || exit.ExitCode() != 3 {
		t.Errorf("got %v, want exit status 3", p.Err())
	}
}

func TestStopKillsAChildThatDoesNotFollow(t *testing.T) {
	p, out := start(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if got := p.State().String(); got != "signal: killed" {
		t.Errorf("got state %q, want killed", got)
	}
}

func TestUsageIsKnownDuringAndAfterTheRun(t *testing.T) {
	p, out := start(t, `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; read x`)
	_ = out
	deadline := time.After(20 * time.Second)
	for {
		u, err := p.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if u.CPU > 0 && u.Memory > 0 && u.PeakMemory >= u.Memory {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("got usage %+v, want all of it above zero", u)
		case <-time.After(5 * time.Millisecond):
		}
	}
	p.Kill()
	u, err := p.Usage()
	if err != nil || u.CPU == 0 || u.PeakMemory == 0 {
		t.Errorf("got usage %+v and error %v after the end", u, err)
	}
}

func TestStartNamesTheProgramThatIsMissing(t *testing.T) {
	_, err := process.Start(exec.Command("/nowhere/kafka"))
	if err == nil || !strings.Contains(err.Error(), "/nowhere/kafka") {
		t.Errorf("got %v, want an error with the path", err)
	}
}

func TestFreePortsAreDifferentAndOutsideTheEphemeralRange(t *testing.T) {
	ports, err := process.FreePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if seen[port] || port < 20000 || port >= 32000 {
			t.Errorf("got port %d among %v", port, ports)
		}
		seen[port] = true
	}
	if len(seen) != 50 {
		t.Errorf("got %d ports, want 50", len(seen))
	}
}
