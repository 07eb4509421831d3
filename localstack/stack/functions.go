package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mirrorless/localstack/runtimeapi"
	"mirrorless/shared/function"
)

// The functions of a stack, by the names of their packages.
const (
	Topics     = "topics"
	Mirror     = "mirror"
	Heartbeat  = "heartbeat"
	Checkpoint = "checkpoint"
)

var builds = map[string]function.Build{
	Topics: function.Topics, Mirror: function.Mirror, Heartbeat: function.Heartbeat, Checkpoint: function.Checkpoint,
}

// timeouts are those of template.yaml.
var timeouts = map[string]time.Duration{
	Topics: 55 * time.Second, Mirror: time.Minute, Heartbeat: 55 * time.Second, Checkpoint: 55 * time.Second,
}

// Functions invoke the four functions of a flow.
type Functions interface {
	// Invoke runs one of them once. The payload is its to spoil.
	Invoke(ctx context.Context, name string, payload []byte) ([]byte, error)
	// Close ends what the functions run in.
	Close() error
}

// InProcess runs the functions' own code in this process.
func InProcess(parts *function.Parts) (Functions, error) {
	p := &inProcess{parts: parts, handlers: map[string]function.Handler{}}
	var errs []error
	for name, build := range builds {
		h, err := build(parts)
		p.handlers[name] = h
		errs = append(errs, err)
	}
	if once := (setUpError{}).with(errors.Join(errs...)); len(once) > 0 {
		return nil, once
	}
	return p, nil
}

// setUpError is what hinders the functions, on one line. They share the
// clusters, and each finds the same wrong.
type setUpError []error

// with adds the errors that err joins, each text once. An error that wraps
// several has words of its own, and stays whole.
func (e setUpError) with(err error) setUpError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		for _, each := range joined.Unwrap() {
			e = e.with(each)
		}
		return e
	}
	if err == nil || slices.ContainsFunc(e, func(said error) bool { return said.Error() == err.Error() }) {
		return e
	}
	return append(e, err)
}

func (e setUpError) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return strings.Join(texts, "; ")
}

func (e setUpError) Unwrap() []error { return e }

type inProcess struct {
	parts    *function.Parts
	handlers map[string]function.Handler
}

func (p *inProcess) Invoke(ctx context.Context, name string, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeouts[name])
	defer cancel()
	return p.handlers[name].Invoke(ctx, payload)
}

func (p *inProcess) Close() error {
	p.parts.Close()
	return nil
}

// Binaries are bootstrap binaries, as "make build" leaves them and as they are
// deployed.
type Binaries struct {
	// Dir holds <function>/bootstrap.
	Dir string
	// Env are the functions' environment variables.
	Env map[string]string
	// Logs takes what the functions print, but for their metrics.
	Logs io.Writer
}

// Bootstraps runs the functions as processes behind Lambda's Runtime API. Their
// metrics go to metrics, or nowhere if that is nil.
func Bootstraps(b Binaries, metrics io.Writer) (*Processes, error) {
	if metrics == nil {
		metrics = io.Discard
	}
	p := &Processes{functions: map[string]*runtimeapi.Function{}}
	for name, timeout := range timeouts {
		f, err := runtimeapi.Start(runtimeapi.Options{
			Path: filepath.Join(b.Dir, name, "bootstrap"), Name: name, Env: maps.Clone(b.Env), Timeout: timeout,
			MemoryMB: 512, Logs: b.Logs, Metrics: metrics,
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start function %s: %w; build it with make build", name, err), p.Close())
		}
		p.functions[name] = f
	}
	return p, nil
}

// Processes are functions that run as processes.
type Processes struct {
	functions map[string]*runtimeapi.Function
}

// Invoke runs a function in one of its environments.
func (p *Processes) Invoke(ctx context.Context, name string, payload []byte) ([]byte, error) {
	return p.functions[name].Invoke(ctx, payload)
}

// Function is one of the functions, for its environments.
func (p *Processes) Function(name string) *runtimeapi.Function { return p.functions[name] }

// Close ends all processes.
func (p *Processes) Close() error {
	var errs []error
	for _, f := range p.functions {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
