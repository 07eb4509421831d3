package runtimeapi

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	runtimePath   = "/2018-06-01/runtime"
	extensionPath = "/2020-01-01/extension"

	errorTypeName = "Lambda-Runtime-Function-Error-Type"
	errorBodyName = "Lambda-Runtime-Function-Error-Body"
)

// invocation is one request on its way through an environment.
type invocation struct {
	id       string
	payload  []byte
	answered chan struct{} // closed once response and err are set
	finished chan struct{} // closed when the environment asks for the next
	over     chan struct{} // closed when the environment is idle or has ended

	mu       sync.Mutex
	claimed  bool
	response []byte
	err      error
}

func newInvocation(payload []byte) *invocation {
	return &invocation{
		id: newUUID(), payload: payload,
		answered: make(chan struct{}), finished: make(chan struct{}), over: make(chan struct{}),
	}
}

// newUUID is a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// claim is true for the first who wants to answer; it then has to settle.
func (i *invocation) claim() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.claimed
	i.claimed = true
	return first
}

func (i *invocation) settle(response []byte, err error) {
	i.response, i.err = response, err
	close(i.answered)
}

// answer settles unless somebody else has claimed to.
func (i *invocation) answer(response []byte, err error) {
	if i.claim() {
		i.settle(response, err)
	}
}

func (e *Environment) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+runtimePath+"/invocation/next", e.serveNext)
	mux.HandleFunc("POST "+runtimePath+"/invocation/{id}/response", e.serveResponse)
	mux.HandleFunc("POST "+runtimePath+"/invocation/{id}/error", e.serveError)
	mux.HandleFunc("POST "+runtimePath+"/init/error", e.serveInitError)
	mux.HandleFunc("POST "+extensionPath+"/register", e.serveRegister)
	mux.HandleFunc("GET "+extensionPath+"/event/next", e.serveEvent)
	return mux
}

// refuse answers as Lambda does where a runtime breaks the order of calls.
func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(FunctionError{Type: kind, Message: message}) // the runtime's end shows elsewhere
}

func accept(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"status":"OK"}`)
}

func (e *Environment) serveNext(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	first := !e.started
	e.started = true
	previous := e.current
	if previous != nil && !previous.isClaimed() {
		e.mu.Unlock()
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the invocation is not answered yet")
		return
	}
	e.current = nil
	e.since = time.Now()
	e.mu.Unlock()
	switch {
	case first:
		close(e.ready) // who started it has it
	case previous != nil:
		if e.function.options.Freeze {
			_ = e.Freeze() // before anybody can take it; its end shows below
		}
		e.function.release(e)
		close(previous.finished)
	}
	select {
	case i := <-e.work:
		e.deliver(w, i)
	case <-e.process.Done():
	case <-r.Context().Done():
	}
}

func (i *invocation) isClaimed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.claimed
}

func (e *Environment) deliver(w http.ResponseWriter, i *invocation) {
	e.mu.Lock()
	e.current = i
	e.mu.Unlock()
	now := time.Now()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(i.payload)))
	h.Set("Lambda-Runtime-Aws-Request-Id", i.id)
	h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(now.Add(e.function.options.Timeout).UnixMilli(), 10))
	h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:000000000000:function:"+e.function.options.Name)
	h.Set("Lambda-Runtime-Trace-Id", newTraceID(now))
	_, _ = w.Write(i.payload) // a process that is gone is reported by its end
}

// newTraceID is an X-Ray trace id that asks for no sampling.
func newTraceID(now time.Time) string {
	var b [20]byte
	rand.Read(b[:])
	return fmt.Sprintf("Root=1-%08x-%x;Parent=%x;Sampled=0", now.Unix(), b[:12], b[12:])
}

// claimFor returns the invocation that the path names, claimed, or refuses.
func (e *Environment) claimFor(w http.ResponseWriter, r *http.Request) *invocation {
	e.mu.Lock()
	current := e.current
	e.mu.Unlock()
	if current == nil || current.id != r.PathValue("id") || !current.claim() {
		refuse(w, http.StatusBadRequest, "InvalidRequestID", "no invocation with this id waits for an answer")
		return nil
	}
	return current
}

func (e *Environment) serveResponse(w http.ResponseWriter, r *http.Request) {
	i := e.claimFor(w, r)
	if i == nil {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxPayload))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		i.settle(nil, &FunctionError{
			Type:    "Function.ResponseSizeTooLarge",
			Message: fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", MaxPayload),
		})
		refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Exceeded maximum allowed payload size.")
		return
	}
	if err != nil {
		i.settle(nil, &FunctionError{Type: "Runtime.TruncatedResponse", Message: err.Error()})
		refuse(w, http.StatusBadRequest, "TruncatedResponse", err.Error())
		return
	}
	// A handler that streams finds out late that it fails, and says so behind
	// the body.
	if kind := r.Trailer.Get(errorTypeName); kind != "" {
		i.settle(nil, trailerError(kind, r.Trailer.Get(errorBodyName)))
	} else {
		i.settle(body, nil)
	}
	accept(w)
}

func trailerError(kind, body string) *FunctionError {
	failure := &FunctionError{Type: kind}
	decoded, err := base64.StdEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(decoded, failure) != nil || failure.Type == "" {
		return &FunctionError{Type: kind, Message: body}
	}
	return failure
}

func (e *Environment) serveError(w http.ResponseWriter, r *http.Request) {
	i := e.claimFor(w, r)
	if i == nil {
		return
	}
	i.settle(nil, readError(w, r))
	accept(w)
}

func (e *Environment) serveInitError(w http.ResponseWriter, r *http.Request) {
	failure := readError(w, r)
	e.mu.Lock()
	started := e.started
	if !started {
		e.initError = failure
	}
	e.mu.Unlock()
	if started {
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "initialization is over")
		return
	}
	accept(w)
}

// readError reads the error that a runtime reports about its function.
func readError(w http.ResponseWriter, r *http.Request) *FunctionError {
	failure := &FunctionError{}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxPayload))
	if err != nil || json.Unmarshal(body, failure) != nil {
		failure = &FunctionError{Message: string(body)}
	}
	if failure.Type == "" {
		failure.Type = r.Header.Get(errorTypeName)
	}
	if failure.Type == "" {
		failure.Type = "Runtime.Unknown"
	}
	return failure
}

// serveRegister takes an extension's registration. That there is one changes
// how the environment ends; events are not sent.
func (e *Environment) serveRegister(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	e.extension = true
	e.mu.Unlock()
	w.Header().Set("Lambda-Extension-Identifier", newUUID())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{
		"functionName": e.function.options.Name, "functionVersion": "$LATEST", "handler": e.function.options.Handler,
	})
}

// serveEvent never answers: an extension in here has registered for nothing.
func (e *Environment) serveEvent(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-e.process.Done():
	case <-r.Context().Done():
	}
}
