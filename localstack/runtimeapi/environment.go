package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"mirrorless/localstack/process"
)

// Environment is one process of a function, with a Runtime API of its own. Its
// methods are for tests that do to a function what Lambda or fate may do.
type Environment struct {
	function *Function
	number   int
	process  *process.Process
	server   *http.Server
	work     chan *invocation
	ready    chan struct{} // closed by the first request for an invocation
	ended    chan struct{} // closed after the process has ended
	reaper   *time.Timer   // guarded by the function's mutex

	mu        sync.Mutex
	started   bool // ready is closed
	initError *FunctionError
	current   *invocation
	extension bool // has registered, so gets SIGTERM
	since     time.Time
}

// Number counts a function's environments from 1.
func (e *Environment) Number() int { return e.number }

// PID is the process id.
func (e *Environment) PID() int { return e.process.PID() }

// Busy is true from the moment an environment takes an invocation until it
// asks for the next.
func (e *Environment) Busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current != nil
}

// Usage is what the process has used so far.
func (e *Environment) Usage() (process.Usage, error) { return e.process.Usage() }

// Kill sends SIGKILL and waits for the end of the process. An invocation in it
// fails with Runtime.ExitError.
func (e *Environment) Kill() {
	e.process.Kill()
	<-e.ended
}

// Freeze sends SIGSTOP, as Lambda freezes an environment, here also in the
// middle of an invocation, whose time runs on.
func (e *Environment) Freeze() error { return e.process.Freeze() }

// Thaw sends SIGCONT.
func (e *Environment) Thaw() error { return e.process.Thaw() }

// Terminate sends SIGTERM, which Lambda sends only before it ends an
// environment.
func (e *Environment) Terminate() error { return e.process.Terminate() }

// launch starts a process with a server of its own. The caller holds f.mu.
func (f *Function) launch(number int) (*Environment, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start environment: %w", err)
	}
	e := &Environment{
		function: f, number: number,
		work: make(chan *invocation), ready: make(chan struct{}), ended: make(chan struct{}),
	}
	e.server = &http.Server{Handler: e.routes()}
	logs := newLineWriter(f.options, number)
	cmd := exec.Command(f.options.Path)
	cmd.Dir = filepath.Dir(f.options.Path)
	cmd.Env = f.environ(number, listener.Addr().String())
	cmd.Stdout, cmd.Stderr = logs, logs
	if e.process, err = process.Start(cmd); err != nil {
		listener.Close()
		return nil, &FunctionError{Type: "Runtime.InvalidEntrypoint", Message: err.Error()}
	}
	go func() {
		<-e.process.Done()
		logs.Flush()
	}()
	go e.server.Serve(listener) // until gone closes it; before, connections wait
	return e, nil
}

// environ is what Lambda puts into a function's environment, and the options'.
func (f *Function) environ(number int, api string) []string {
	variables := map[string]string{
		"AWS_LAMBDA_RUNTIME_API":          api,
		"AWS_LAMBDA_FUNCTION_NAME":        f.options.Name,
		"AWS_LAMBDA_FUNCTION_VERSION":     "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.options.MemoryMB),
		"AWS_LAMBDA_INITIALIZATION_TYPE":  "on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME":       "/aws/lambda/" + f.options.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME":      "local/" + strconv.Itoa(number),
		"AWS_REGION":                      "us-east-1",
		"AWS_DEFAULT_REGION":              "us-east-1",
		"AWS_ACCESS_KEY_ID":               "local",
		"AWS_SECRET_ACCESS_KEY":           "local",
		"AWS_SESSION_TOKEN":               "local",
		"LAMBDA_TASK_ROOT":                filepath.Dir(f.options.Path),
		"_HANDLER":                        f.options.Handler,
		"LANG":                            "en_US.UTF-8",
		"PATH":                            "/usr/local/bin:/usr/bin:/bin",
		"TZ":                              ":UTC",
	}
	maps.Copy(variables, f.options.Env)
	environ := make([]string, 0, len(variables))
	for name, value := range variables {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// awaitInit returns when the process has asked for its first invocation.
func (e *Environment) awaitInit() error {
	limit := time.NewTimer(initLimit)
	defer limit.Stop()
	select {
	case <-e.ready:
		return nil
	case <-e.ended:
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.initError != nil {
			return e.initError
		}
		return e.exitError("")
	case <-limit.C:
		e.Kill()
		return &FunctionError{Type: "Sandbox.Timedout", Message: fmt.Sprintf("Init timed out after %.2f seconds", initLimit.Seconds())}
	}
}

// handle gives the invocation to the process, and returns when it is answered
// and the environment is idle again or has ended. False: the process ended
// before it took the invocation.
func (e *Environment) handle(i *invocation) bool {
	if e.function.options.Freeze {
		_ = e.Thaw() // ended: found out below
	}
	select {
	case e.work <- i:
	case <-e.ended:
		return false
	}
	deadline := time.NewTimer(e.function.options.Timeout)
	defer deadline.Stop()
	select {
	case <-i.finished:
	case <-e.ended:
	case <-deadline.C:
		// Claimed before the kill, so that it is no exit; answered after it, so
		// that nothing of this invocation happens once the caller knows.
		claimed := i.claim()
		e.Kill()
		if claimed {
			i.settle(nil, &FunctionError{
				Type:    "Sandbox.Timedout",
				Message: fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", i.id, e.function.options.Timeout.Seconds()),
			})
		}
	}
	return true
}

// gone answers the invocation of a process that has ended.
func (e *Environment) gone() {
	e.server.Close()
	e.mu.Lock()
	current := e.current
	e.current = nil
	e.mu.Unlock()
	if current != nil {
		current.answer(nil, e.exitError(current.id))
	}
	close(e.ended)
}

func (e *Environment) exitError(request string) *FunctionError {
	how := "Runtime exited without providing a reason"
	if err := e.process.Err(); err != nil {
		how = "Runtime exited with error: " + err.Error()
	}
	if request != "" {
		how = "RequestId: " + request + " Error: " + how
	}
	return &FunctionError{Type: "Runtime.ExitError", Message: how}
}

// shutdown ends the process as Lambda ends an environment.
func (e *Environment) shutdown() {
	e.mu.Lock()
	extension := e.extension
	e.mu.Unlock()
	if extension {
		_ = e.Thaw() // a frozen process follows no SIGTERM; an ended one needs none
		ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		if err := e.process.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			e.process.Kill()
		}
	}
	e.Kill()
}

func (e *Environment) idleSince() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since
}
