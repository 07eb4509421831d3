// Package process runs the servers and functions of the local stack as child
// processes that never outlive the program that started them.
//
//	p, err := process.Start(exec.Command("java", …))
//	defer p.Kill()
//
// A child leads a process group of its own, so that Ctrl-C on the terminal
// reaches only the parent, which then stops its children in its own order, and
// so that a kill also reaches what the child has started. When the child ends,
// what is left of its group is killed. On Linux the kernel kills the child when
// the parent dies, even from SIGKILL.
//
// The package never touches a process that it has not started.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// ErrEnded is returned by [Process.Signal] once the child has ended.
var ErrEnded = errors.New("process has ended")

// Process is a running or ended child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	ended bool // set while the child is still a zombie: its id is not yet free
	err   error
}

// Usage is what a process has used so far.
type Usage struct {
	// CPU is user and system time together.
	CPU time.Duration
	// Memory is the resident set in bytes; 0 once the process has ended.
	Memory int64
	// PeakMemory is the highest resident set in bytes.
	PeakMemory int64
}

// Start starts cmd, which must not have been started, and sets its
// SysProcAttr. The output writers of cmd follow the rules of [exec.Cmd].
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = attributes()
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = 2 * time.Second
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel's parent-death signal belongs to the thread that forked,
		// so this thread has to live as long as the child does.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *Process) wait() {
	if awaitExit(p.cmd.Process.Pid) {
		p.mu.Lock()
		// The child is a zombie until Wait, so its id cannot be another's yet.
		_ = signalGroup(p.cmd.Process.Pid, os.Kill) // nobody left is the usual case
		p.ended = true
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	close(p.done)
}

// PID is the process id, which is also the id of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and its output has been written.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is nil while the process runs and after exit status 0, else an
// *[exec.ExitError] or what went wrong with its output.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// State is nil while the process runs.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.done:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Signal sends s to the whole group. It returns [ErrEnded] where nobody is
// left, and [errors.ErrUnsupported] where the system has no such signal.
func (p *Process) Signal(s os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return ErrEnded
	}
	return signalGroup(p.cmd.Process.Pid, s)
}

// Freeze sends SIGSTOP to the group, which then does nothing until Thaw.
func (p *Process) Freeze() error { return p.Signal(freeze) }

// Thaw sends SIGCONT to the group.
func (p *Process) Thaw() error { return p.Signal(thaw) }

// Terminate sends SIGTERM to the group and does not wait.
func (p *Process) Terminate() error { return p.Signal(terminate) }

// Kill sends SIGKILL to the group and waits until the process has ended. It
// may be called again.
func (p *Process) Kill() {
	_ = p.Signal(os.Kill) // the only failure is that it has ended
	<-p.done
}

// Stop asks the process to end with SIGTERM and waits for it; when ctx ends
// first, it kills the group and returns an error that says so.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Terminate(); err != nil && !errors.Is(err, ErrEnded) {
		return fmt.Errorf("stop process %d: %w", p.PID(), err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("stop process %d: killed after SIGTERM was not followed: %w", p.PID(), context.Cause(ctx))
	}
}

// Usage tells what the process has used, also after its end. Elsewhere than on
// Linux a running process gives [errors.ErrUnsupported].
func (p *Process) Usage() (Usage, error) {
	if p.State() == nil {
		if u, err := usage(p.PID()); err == nil || !p.hasEnded() {
			return u, err
		}
		<-p.done
	}
	state := p.State()
	return Usage{CPU: state.UserTime() + state.SystemTime(), PeakMemory: peakMemory(state)}, nil
}

func (p *Process) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}
