package runtimeapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mirrorless/localstack/runtimeapi"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "runtimeapi-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "teapot", "bootstrap")
	cmd := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", path, "./testdata/function")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(filepath.Dir(path)))
	}
	os.Exit(code)
}

// logs is a writer that tests can wait on.
type logs struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func newLogs() *logs { return &logs{more: make(chan struct{}, 1)} }

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.lines = append(l.lines, string(p))
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *logs) await(t *testing.T, part string) string {
	t.Helper()
	for {
		l.mu.Lock()
		at := slices.IndexFunc(l.lines, func(line string) bool { return strings.Contains(line, part) })
		all := strings.Join(l.lines, "")
		l.mu.Unlock()
		if at >= 0 {
			return strings.SplitAfter(all, "\n")[at]
		}
		select {
		case <-l.more:
		case <-time.After(20 * time.Second):
			t.Fatalf("got logs\n%swant a line with %q", all, part)
		}
	}
}

func start(t *testing.T, options runtimeapi.Options) *runtimeapi.Function {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	options.Path = path
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	if options.Logs == nil {
		options.Logs = t.Output()
	}
	f, err := runtimeapi.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

type event struct {
	Do   string
	Text string
	N    int
}

type answer struct {
	PID       int
	Invoked   int
	RequestID string
	ARN       string
	Left      time.Duration
	Text      string
}

func (e event) payload(t *testing.T) []byte {
	t.Helper()
	payload, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func invoke(t *testing.T, f *runtimeapi.Function, e event) (answer, error) {
	t.Helper()
	var a answer
	response, err := f.Invoke(t.Context(), e.payload(t))
	if err == nil {
		err = json.Unmarshal(response, &a)
	}
	return a, err
}

func mustInvoke(t *testing.T, f *runtimeapi.Function, e event) answer {
	t.Helper()
	a, err := invoke(t, f, e)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantError(t *testing.T, err error, kind, message string) {
	t.Helper()
	failure, ok := errors.AsType[*runtimeapi.FunctionError](err)
	if !ok || failure.Type != kind || !strings.Contains(failure.Message, message) {
		t.Errorf("got error %v, want %s with %q", err, kind, message)
	}
}

func TestInvocationCarriesLambdasContext(t *testing.T) {
	f := start(t, runtimeapi.Options{Timeout: 30 * time.Second})
	a := mustInvoke(t, f, event{Text: "grüße"})
	if a.Text != "grüße" {
		t.Errorf("got text %q, want grüße", a.Text)
	}
	if a.Left <= 20*time.Second || a.Left > 30*time.Second {
		t.Errorf("got %s until the deadline, want up to 30s", a.Left)
	}
	if want := "arn:aws:lambda:us-east-1:000000000000:function:teapot"; a.ARN != want {
		t.Errorf("got ARN %s, want %s", a.ARN, want)
	}
	if len(a.RequestID) != 36 {
		t.Errorf("got request id %q, want a UUID", a.RequestID)
	}
}

func TestIdleEnvironmentIsUsedAgain(t *testing.T) {
	for _, freeze := range []bool{false, true} {
		f := start(t, runtimeapi.Options{MaxConcurrency: 1, Freeze: freeze})
		first := mustInvoke(t, f, event{})
		for want := 2; want <= 20; want++ {
			a := mustInvoke(t, f, event{})
			if a.PID != first.PID || a.Invoked != want {
				t.Fatalf("got invocation %d in process %d, want %d in %d", a.Invoked, a.PID, want, first.PID)
			}
		}
	}
}

func TestEnvironmentSeesOnlyItsOwnVariables(t *testing.T) {
	t.Setenv("MIRRORLESS_OF_THE_PARENT", "x")
	f := start(t, runtimeapi.Options{MemoryMB: 512, Env: map[string]string{"MIRRORLESS_FLOW": "A->B", "AWS_REGION": "eu-central-1"}})
	response, err := f.Invoke(t.Context(), event{Do: "env"}.payload(t))
	if err != nil {
		t.Fatal(err)
	}
	var environ []string
	if err := json.Unmarshal(response, &environ); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"MIRRORLESS_FLOW=A->B", "AWS_REGION=eu-central-1", "AWS_DEFAULT_REGION=us-east-1",
		"AWS_LAMBDA_FUNCTION_NAME=teapot", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512", "_HANDLER=bootstrap",
	} {
		if !slices.Contains(environ, want) {
			t.Errorf("got no %s in %q", want, environ)
		}
	}
	if slices.Contains(environ, "MIRRORLESS_OF_THE_PARENT=x") {
		t.Error("got a variable of the parent")
	}
}

func TestFunctionErrorsAreTyped(t *testing.T) {
	tests := map[string]struct {
		event         event
		kind, message string
		survives      bool
	}{
		"returned error":       {event{Do: "fail"}, "teapotError", "short and stout", true},
		"panic":                {event{Do: "panic"}, "string", "no more", false},
		"exit with a status":   {event{Do: "exit", N: 3}, "Runtime.ExitError", "exit status 3", false},
		"exit without one":     {event{Do: "exit"}, "Runtime.ExitError", "without providing a reason", false},
		"error after a stream": {event{Do: "stream"}, "errorString", "pipe burst", true},
		"too large a response": {event{Do: "large", N: runtimeapi.MaxPayload + 1}, "Function.ResponseSizeTooLarge", "6291556", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := start(t, runtimeapi.Options{MaxConcurrency: 1})
			before := mustInvoke(t, f, event{})
			_, err := invoke(t, f, test.event)
			wantError(t, err, test.kind, test.message)
			after := mustInvoke(t, f, event{})
			if got := after.PID == before.PID; got != test.survives {
				t.Errorf("got the same process afterwards: %t, want %t", got, test.survives)
			}
		})
	}
}

func TestPayloadsGoUpToTheLimit(t *testing.T) {
	f := start(t, runtimeapi.Options{})
	payload := slices.Concat([]byte(`{"Do":"large","N":6291556,"Text":"`), bytes.Repeat([]byte("x"), runtimeapi.MaxPayload-36), []byte(`"}`))
	if len(payload) != runtimeapi.MaxPayload {
		t.Fatalf("got a payload of %d bytes", len(payload))
	}
	response, err := f.Invoke(t.Context(), payload)
	if err != nil {
		t.Fatal(err)
	}
	if len(response) != runtimeapi.MaxPayload {
		t.Errorf("got %d bytes, want %d", len(response), runtimeapi.MaxPayload)
	}
	_, err = f.Invoke(t.Context(), append(payload, ' '))
	if !errors.Is(err, runtimeapi.ErrRequestTooLarge) {
		t.Errorf("got %v, want %v", err, runtimeapi.ErrRequestTooLarge)
	}
}

func TestTimeoutKillsTheEnvironment(t *testing.T) {
	f := start(t, runtimeapi.Options{MaxConcurrency: 1, Timeout: 500 * time.Millisecond})
	before := mustInvoke(t, f, event{})
	_, err := invoke(t, f, event{Do: "hang"})
	wantError(t, err, "Sandbox.Timedout", "Task timed out after 0.50 seconds")
	if left := f.Environments(); len(left) != 0 {
		t.Errorf("got %d environments, want none", len(left))
	}
	if after := mustInvoke(t, f, event{}); after.PID == before.PID {
		t.Error("got the process that had timed out")
	}
}

func TestFailedInitializationIsReported(t *testing.T) {
	l := newLogs()
	f := start(t, runtimeapi.Options{Env: map[string]string{"INIT": "exit"}, Logs: l})
	_, err := invoke(t, f, event{})
	wantError(t, err, "Runtime.ExitError", "exit status 7")
	if got, want := l.await(t, "cannot go on"), "function=teapot environment=1 cannot go on\n"; got != want {
		t.Errorf("got line %q, want %q", got, want)
	}
}

func TestConcurrentInvocationsHaveEnvironmentsOfTheirOwn(t *testing.T) {
	f := start(t, runtimeapi.Options{MaxConcurrency: 3})
	folder := t.TempDir()
	var wg sync.WaitGroup
	pids := make([]int, 3)
	for i := range pids {
		wg.Go(func() {
			a, err := invoke(t, f, event{Do: "meet", Text: folder, N: len(pids)})
			if err != nil {
				t.Error(err)
			}
			pids[i] = a.PID
		})
	}
	wg.Wait()
	slices.Sort(pids)
	if len(slices.Compact(pids)) != 3 {
		t.Errorf("got processes %v, want three", pids)
	}
}

func TestInvocationsBeyondTheConcurrencyWait(t *testing.T) {
	f := start(t, runtimeapi.Options{MaxConcurrency: 2})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := invoke(t, f, event{}); err != nil {
				t.Error(err)
			}
			if got := len(f.Environments()); got > 2 {
				t.Errorf("got %d environments, want at most 2", got)
			}
		})
	}
	wg.Wait()
}

func TestInvocationOutlivesItsCaller(t *testing.T) {
	f := start(t, runtimeapi.Options{MaxConcurrency: 1})
	l := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := f.Invoke(ctx, event{Do: "meet", Text: l, N: 2}.payload(t))
		done <- err
	}()
	awaitFiles(t, l, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if !f.Environments()[0].Busy() {
		t.Error("got an idle environment, want it busy with the invocation")
	}
	if err := os.WriteFile(filepath.Join(l, "second"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a := mustInvoke(t, f, event{}); a.Invoked != 2 {
		t.Errorf("got invocation %d, want 2 in the same process", a.Invoked)
	}
}

func awaitFiles(t *testing.T, folder string, n int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) >= n {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("got %d files in %s, want %d", len(entries), folder, n)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestKilledEnvironmentFailsItsInvocationOnly(t *testing.T) {
	l := newLogs()
	f := start(t, runtimeapi.Options{Logs: l})
	done := make(chan error)
	go func() {
		_, err := f.Invoke(t.Context(), event{Do: "hang"}.payload(t))
		done <- err
	}()
	l.await(t, "hanging")
	f.Environments()[0].Kill()
	wantError(t, <-done, "Runtime.ExitError", "signal: killed")
	mustInvoke(t, f, event{})
	f.Environments()[0].Kill() // idle
	mustInvoke(t, f, event{})
}

func TestFrozenEnvironmentRunsOnWhenThawed(t *testing.T) {
	f := start(t, runtimeapi.Options{MaxConcurrency: 1})
	mustInvoke(t, f, event{})
	e := f.Environments()[0]
	if err := e.Freeze(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := f.Invoke(t.Context(), event{}.payload(t))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("got an answer of a frozen process (%v)", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := e.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestIdleEnvironmentIsEnded(t *testing.T) {
	f := start(t, runtimeapi.Options{IdleTimeout: 50 * time.Millisecond})
	mustInvoke(t, f, event{})
	deadline := time.After(20 * time.Second)
	for len(f.Environments()) > 0 {
		select {
		case <-deadline:
			t.Fatal("got an environment that is still there")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if a := mustInvoke(t, f, event{}); a.Invoked != 1 {
		t.Errorf("got invocation %d of a process, want a new process", a.Invoked)
	}
}

func TestCloseSendsSIGTERMToThoseWhoAskedForIt(t *testing.T) {
	for _, freeze := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "bye")
		f := start(t, runtimeapi.Options{Env: map[string]string{"ON_SIGTERM": file}, Freeze: freeze})
		mustInvoke(t, f, event{})
		mustInvoke(t, f, event{})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "bye" {
			t.Errorf("got %q and %v from the SIGTERM handler, want bye", got, err)
		}
		if left := f.Environments(); len(left) != 0 {
			t.Errorf("got %d environments after Close, want none", len(left))
		}
		if _, err := invoke(t, f, event{}); !errors.Is(err, runtimeapi.ErrClosed) {
			t.Errorf("got %v, want %v", err, runtimeapi.ErrClosed)
		}
	}
}

func TestCloseEndsARunningInvocation(t *testing.T) {
	l := newLogs()
	f := start(t, runtimeapi.Options{Logs: l})
	done := make(chan error)
	go func() {
		_, err := f.Invoke(t.Context(), event{Do: "hang"}.payload(t))
		done <- err
	}()
	l.await(t, "hanging")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-done, "Runtime.ExitError", "killed")
}

func TestLogLinesNameTheirEnvironment(t *testing.T) {
	l := newLogs()
	f := start(t, runtimeapi.Options{Logs: l})
	mustInvoke(t, f, event{Do: "print", Text: "{\"level\":\"INFO\"}\nplain\n{}\nwithout an end"})
	for part, want := range map[string]string{
		"INFO":  `{"function":"teapot","environment":1,"level":"INFO"}` + "\n",
		"plain": "function=teapot environment=1 plain\n",
		`":1}`:  `{"function":"teapot","environment":1}` + "\n",
	} {
		if got := l.await(t, part); got != want {
			t.Errorf("got line %q, want %q", got, want)
		}
	}
	f.Close()
	l.await(t, "without an end")
}

func TestMetricsArePartedFromLogs(t *testing.T) {
	const line = `{"_aws":{"Timestamp":1},"source":"A"}`
	l, m := newLogs(), newLogs()
	f := start(t, runtimeapi.Options{Logs: l, Metrics: m})
	mustInvoke(t, f, event{Do: "print", Text: line + "\nplain\n"})
	if got := m.await(t, "_aws"); got != line+"\n" {
		t.Errorf("got metrics %q, want %q", got, line)
	}
	if got := l.await(t, ""); got != "function=teapot environment=1 plain\n" {
		t.Errorf("got log %q, want the other line alone", got)
	}
}

func TestUsageCountsEndedEnvironments(t *testing.T) {
	f := start(t, runtimeapi.Options{})
	mustInvoke(t, f, event{})
	during, err := f.Usage()
	if err != nil || during.Memory == 0 {
		t.Fatalf("got usage %+v and %v, want memory", during, err)
	}
	f.Environments()[0].Kill()
	after, err := f.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if after.CPU == 0 || after.PeakMemory == 0 || after.Memory != 0 {
		t.Errorf("got usage %+v, want CPU and a peak, and no memory", after)
	}
}

func TestStartRefusesWhatCannotRun(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(plain, []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "nothing"), t.TempDir(), plain} {
		if _, err := runtimeapi.Start(runtimeapi.Options{Path: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want an error with %s", err, path)
		}
	}
	if err := os.Chmod(plain, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := runtimeapi.Start(runtimeapi.Options{Path: plain, Logs: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Invoke(t.Context(), []byte("{}"))
	wantError(t, err, "Runtime.InvalidEntrypoint", "exec format error")
}

func BenchmarkInvokeSmall(b *testing.B) {
	path, err := build()
	if err != nil {
		b.Fatal(err)
	}
	f, err := runtimeapi.Start(runtimeapi.Options{Path: path, Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if _, err := f.Invoke(b.Context(), []byte(`{}`)); err != nil {
			b.Fatal(err)
		}
	}
}
