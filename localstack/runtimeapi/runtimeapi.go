// Package runtimeapi runs a function's bootstrap binary, the very file that is
// deployed, as AWS Lambda would: it serves the Runtime API (version 2018-06-01)
// to processes that it starts, reuses and ends.
//
//	f, err := runtimeapi.Start(runtimeapi.Options{Path: "bin/mirror/bootstrap", Timeout: time.Minute})
//	defer f.Close()
//	response, err := f.Invoke(ctx, payload)
//
// As in Lambda, an environment is one process that handles one invocation at a
// time; it sees nothing of this program's environment variables; it is started
// when no idle one is there, and is used again once it asks for the next
// invocation. A time-out kills it. SIGTERM reaches only a process that has
// registered an extension, as aws-lambda-go's WithEnableSIGTERM does; the
// others are killed.
//
// Unlike Lambda, memory and CPU are not limited, an initialization that takes
// too long is not tried again, and an invocation beyond MaxConcurrency waits
// instead of being throttled.
package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"mirrorless/localstack/process"
)

// MaxPayload is the largest request and the largest response of a synchronous
// invocation in bytes: 6 MiB and 100.
const MaxPayload = 6<<20 + 100

const (
	defaultTimeout     = 3 * time.Second // Lambda's own
	defaultMemory      = 128             // Lambda's own, in MiB
	defaultConcurrency = 10
	defaultIdle        = 5 * time.Minute
	// initLimit is Lambda's limit for the time until the first request for an
	// invocation.
	initLimit = 10 * time.Second
	// shutdownGrace is what Lambda gives to a function with an extension.
	shutdownGrace = 2 * time.Second
	// settling is how long an answer waits for its environment to be idle, so
	// that the caller's next invocation finds it there.
	settling = 100 * time.Millisecond
)

var (
	// ErrClosed is returned by Invoke after Close.
	ErrClosed = errors.New("function is closed")
	// ErrRequestTooLarge is returned for a payload above MaxPayload, which
	// Lambda's Invoke refuses with RequestTooLargeException.
	ErrRequestTooLarge = errors.New("request is larger than 6,291,556 bytes")
)

// FunctionError is an invocation that reached the function and failed there.
type FunctionError struct {
	// Type is the error type that the function reported, or one of Lambda's:
	// Sandbox.Timedout, Runtime.ExitError, Runtime.InvalidEntrypoint,
	// Function.ResponseSizeTooLarge.
	Type string `json:"errorType"`
	// Message is the function's or Lambda's own text.
	Message string `json:"errorMessage"`
}

func (e *FunctionError) Error() string { return e.Type + ": " + e.Message }

// Options describe a function. Path has to be set.
type Options struct {
	// Path is the bootstrap binary.
	Path string
	// Name is the function's name; by default that of the folder of Path.
	Name string
	// Handler is what _HANDLER says; "bootstrap" by default.
	Handler string
	// Env are the function's environment variables, beside those that Lambda
	// sets; they win over the latter.
	Env map[string]string
	// Timeout of an invocation; 3 s by default, as in Lambda.
	Timeout time.Duration
	// MemoryMB is what the function is told; 128 by default. No limit.
	MemoryMB int
	// MaxConcurrency is how many environments there are at most; 10 by default.
	MaxConcurrency int
	// IdleTimeout ends an environment that had nothing to do for so long; five
	// minutes by default.
	IdleTimeout time.Duration
	// Freeze stops an idle environment with SIGSTOP until its next invocation.
	// Lambda always does; here it costs a little time.
	Freeze bool
	// Logs gets what the function prints, one line a Write, never two at once.
	// Each line begins with the function's name and the environment's number,
	// inside the object where the line is JSON. nil discards.
	Logs io.Writer
	// Metrics gets those lines that are of CloudWatch's embedded metric format, as
	// they are, in the same way; Logs does if nil.
	Metrics io.Writer
}

func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Path, err = filepath.Abs(o.Path); err != nil {
		return o, err
	}
	info, err := os.Stat(o.Path)
	if err != nil {
		return o, err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return o, fmt.Errorf("%s is not an executable file", o.Path)
	}
	if o.Name == "" {
		o.Name = filepath.Base(filepath.Dir(o.Path))
	}
	if o.Handler == "" {
		o.Handler = "bootstrap"
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.MemoryMB == 0 {
		o.MemoryMB = defaultMemory
	}
	if o.MaxConcurrency == 0 {
		o.MaxConcurrency = defaultConcurrency
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdle
	}
	if o.Logs == nil {
		o.Logs = io.Discard
	}
	o.Logs = &serialWriter{w: o.Logs}
	if o.Metrics != nil {
		o.Metrics = &serialWriter{w: o.Metrics}
	}
	return o, nil
}

// Function is a function with its environments. Its methods may be called from
// several goroutines.
type Function struct {
	options Options
	slots   chan struct{} // one for each environment that is not idle
	closing chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	number int
	all    map[*Environment]struct{}
	idle   []*Environment // the last was used last, and is used next
	ended  process.Usage  // of the environments that have ended
}

// Start checks the options. The first environment starts with the first
// invocation.
func Start(options Options) (*Function, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start function: %w", err)
	}
	return &Function{
		options: options,
		slots:   make(chan struct{}, options.MaxConcurrency),
		closing: make(chan struct{}),
		all:     map[*Environment]struct{}{},
	}, nil
}

// Invoke sends payload, JSON, to an idle environment or to a new one, and
// returns the function's response. What fails inside the function is a
// *[FunctionError]. When ctx ends first, Invoke returns, but the invocation
// goes on, as in Lambda; payload must not be changed afterwards.
func (f *Function) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if len(payload) > MaxPayload {
		return nil, fmt.Errorf("invoke %s with %d bytes: %w", f.options.Name, len(payload), ErrRequestTooLarge)
	}
	select {
	case f.slots <- struct{}{}:
	case <-f.closing:
		return nil, fmt.Errorf("invoke %s: %w", f.options.Name, ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("invoke %s: %w", f.options.Name, context.Cause(ctx))
	}
	i := newInvocation(payload)
	if !f.begin(i) {
		return nil, fmt.Errorf("invoke %s: %w", f.options.Name, ErrClosed)
	}
	select {
	case <-i.answered:
	case <-ctx.Done():
		return nil, fmt.Errorf("invoke %s: %w", f.options.Name, context.Cause(ctx))
	}
	settled := time.NewTimer(settling)
	defer settled.Stop()
	select {
	case <-i.over:
	case <-settled.C:
	}
	if i.err != nil {
		return nil, fmt.Errorf("invoke %s: %w", f.options.Name, i.err)
	}
	return i.response, nil
}

// begin runs an invocation in the background. It gives the slot back when the
// environment is idle again or has ended.
func (f *Function) begin(i *invocation) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		<-f.slots
		return false
	}
	f.running.Go(func() {
		f.run(i)
		<-f.slots
		close(i.over)
	})
	return true
}

func (f *Function) run(i *invocation) {
	for {
		e, err := f.take()
		if err != nil {
			i.answer(nil, err)
			return
		}
		if e.handle(i) {
			return
		}
		// It ended before it took the invocation: another one does.
	}
}

// take returns the idle environment that was used last, or a new one.
func (f *Function) take() (*Environment, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, ErrClosed
	}
	if last := len(f.idle) - 1; last >= 0 {
		e := f.idle[last]
		f.idle = f.idle[:last]
		f.mu.Unlock()
		return e, nil
	}
	f.number++
	e, err := f.launch(f.number)
	if err != nil {
		f.mu.Unlock()
		return nil, err
	}
	f.all[e] = struct{}{}
	f.running.Go(func() { f.watch(e) })
	f.mu.Unlock()
	return e, e.awaitInit()
}

// release puts an environment that asks for its next invocation among the idle.
func (f *Function) release(e *Environment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, alive := f.all[e]; !alive {
		return
	}
	f.idle = append(f.idle, e)
	if e.reaper == nil {
		e.reaper = time.AfterFunc(f.options.IdleTimeout, func() { f.reap(e) })
	} else {
		e.reaper.Reset(f.options.IdleTimeout)
	}
}

// reap ends an environment that is idle, unless it has just been taken.
func (f *Function) reap(e *Environment) {
	f.mu.Lock()
	at := slices.Index(f.idle, e)
	// A timer that fired before a Reset finds the environment idle again.
	expired := at >= 0 && time.Since(e.idleSince()) >= f.options.IdleTimeout
	if expired {
		f.idle = slices.Delete(f.idle, at, at+1)
	}
	f.mu.Unlock()
	if expired {
		e.shutdown()
	}
}

// watch clears away an environment when its process has ended.
func (f *Function) watch(e *Environment) {
	<-e.process.Done()
	used, _ := e.process.Usage() // known for every ended process
	f.mu.Lock()
	delete(f.all, e)
	if at := slices.Index(f.idle, e); at >= 0 {
		f.idle = slices.Delete(f.idle, at, at+1)
	}
	if e.reaper != nil {
		e.reaper.Stop()
	}
	f.ended.CPU += used.CPU
	f.ended.PeakMemory = max(f.ended.PeakMemory, used.PeakMemory)
	f.mu.Unlock()
	e.gone()
}

// Environments are those that have a process now, the oldest first.
func (f *Function) Environments() []*Environment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.environments()
}

func (f *Function) environments() []*Environment {
	return slices.SortedFunc(maps.Keys(f.all), func(a, b *Environment) int { return a.number - b.number })
}

// Usage is the CPU time of all environments so far, the memory of those that
// are there now, and the peak of the one that took most.
func (f *Function) Usage() (process.Usage, error) {
	f.mu.Lock()
	sum, alive := f.ended, f.environments()
	f.mu.Unlock()
	for _, e := range alive {
		u, err := e.process.Usage()
		if err != nil {
			return sum, fmt.Errorf("measure %s: %w", f.options.Name, err)
		}
		sum.CPU += u.CPU
		sum.Memory += u.Memory
		sum.PeakMemory = max(sum.PeakMemory, u.PeakMemory)
	}
	return sum, nil
}

// Close ends all environments, also in the middle of an invocation, and
// returns when no process is left. It may be called again.
func (f *Function) Close() error {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.closing)
	}
	f.idle = nil
	f.mu.Unlock()
	var ending sync.WaitGroup
	for _, e := range f.Environments() {
		ending.Go(e.shutdown)
	}
	ending.Wait()
	f.running.Wait()
	return nil
}
