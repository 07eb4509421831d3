// Package lambdaapi is the part of Lambda's API that keeps event source mappings
// of Kafka topics: the five routes below /2015-03-31/event-source-mappings, as
// the AWS SDKs call them.
//
//	api := lambdaapi.New(lambdaapi.Options{Runner: runner, Forward: emulator})
//	defer api.Close()
//	err := http.Serve(listener, api) // AWS_ENDPOINT_URL_LAMBDA leads here
//
// In a test, it needs no socket:
//
//	client := lambda.NewFromConfig(sdk, func(o *lambda.Options) {
//		o.HTTPClient = &http.Client{Transport: api}
//	})
//
// A mapping goes through Lambda's states, and one that is Enabled is run by a
// [Runner]. What else is asked of Lambda goes to Options.Forward, for there are
// emulators that run functions, and none that can make a mapping of a Kafka
// topic.
//
// It checks what Lambda's API documentation says of the fields, and the limits of
// Kafka event sources. It does not check who asks, nor whether the function,
// cluster, network or secrets exist, and it keeps nothing when it ends.
package lambdaapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Options of New. The zero value is an API whose mappings are in their new state
// at the next request, and do nothing.
type Options struct {
	// Runner runs the mappings that are enabled; nobody if nil.
	Runner Runner
	// Delay is how long a mapping takes from one settled state to the next.
	Delay time.Duration
	// Rate is how many requests a second are answered, 0 for any number, and Burst
	// how many at once, Rate if 0. The others get a TooManyRequestsException.
	Rate, Burst int
	// Forward is where all other requests go; they are refused if nil.
	Forward *url.URL
	// Region and Account are parts of the ARNs, us-east-1 and 000000000000 if
	// empty.
	Region, Account string
	Faults          Faults
	// Logger discards if nil.
	Logger *slog.Logger
}

// API is an http.Handler, and the http.RoundTripper of a client of its own.
type API struct {
	o      Options
	mux    *http.ServeMux
	ctx    context.Context // done when the API is closed
	cancel context.CancelFunc
	work   sync.WaitGroup // transitions

	mu       sync.Mutex
	mappings map[string]*entry // by UUID
	made     int               // mappings, ever
	calls    int
	bucket   bucket
}

// New returns an API without mappings.
func New(o Options) *API {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Account == "" {
		o.Account = "000000000000"
	}
	if o.Burst == 0 {
		o.Burst = o.Rate
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{o: o, mux: http.NewServeMux(), mappings: map[string]*entry{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	const path = "/2015-03-31/event-source-mappings"
	for _, slash := range []string{"", "/{$}"} {
		a.mux.HandleFunc("POST "+path+slash, a.route(Create, a.create))
		a.mux.HandleFunc("GET "+path+slash, a.route(List, a.list))
	}
	a.mux.HandleFunc("GET "+path+"/{uuid}", a.route(Get, a.get))
	a.mux.HandleFunc("PUT "+path+"/{uuid}", a.route(Update, a.update))
	a.mux.HandleFunc("DELETE "+path+"/{uuid}", a.route(Delete, a.delete))
	a.mux.Handle("/", a.others())
	return a
}

// others answers what is not about mappings.
func (a *API) others() http.Handler {
	if a.o.Forward == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(&Error{Status: http.StatusNotFound, Code: "ResourceNotFoundException", Message: fmt.Sprintf("%s %s is not here: there are event source mappings only", r.Method, r.URL.Path)}).write(w)
		})
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(a.o.Forward)
		r.SetXForwarded()
	}}
}

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Close ends the transitions that are under way, and leaves mappings running that
// the Runner runs.
func (a *API) Close() {
	a.cancel()
	a.work.Wait()
}

// Operation is one of the routes, by the name of its action in Lambda's API.
type Operation string

// The operations.
const (
	Create Operation = "CreateEventSourceMapping"
	List   Operation = "ListEventSourceMappings"
	Get    Operation = "GetEventSourceMapping"
	Update Operation = "UpdateEventSourceMapping"
	Delete Operation = "DeleteEventSourceMapping"
)

// Faults make the API misbehave, where they are set. An [*Error] that they return
// is the answer; any other error closes the connection without one.
type Faults struct {
	// Before is asked before a call does anything, and stops it. It sees every
	// call, so that it can count them.
	Before func(Call) error
	// After is asked when a call has succeeded, whose answer is then lost.
	After func(Call) error
}

// Call is a request to one of the routes.
type Call struct {
	// N counts the calls from 1.
	N         int
	Operation Operation
	// UUID is the mapping's in the path, empty for Create and List.
	UUID string
}

// route does what all operations have in common.
func (a *API) route(op Operation, do func(*http.Request) (status int, body any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.calls++
		call := Call{N: a.calls, Operation: op, UUID: r.PathValue("uuid")}
		refused := !a.bucket.take(a.o.Rate, a.o.Burst)
		a.mu.Unlock()
		if f := a.o.Faults.Before; f != nil {
			if err := f(call); err != nil {
				fail(w, err)
				return
			}
		}
		if refused {
			fail(w, &Error{Status: http.StatusTooManyRequests, Code: "TooManyRequestsException", Message: "Rate exceeded"})
			return
		}
		status, body, err := do(r)
		if err == nil && a.o.Faults.After != nil {
			err = a.o.Faults.After(call)
		}
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, status, body)
	}
}

// bucket holds the requests that may come now.
type bucket struct {
	tokens float64
	filled time.Time
}

func (b *bucket) take(rate, burst int) bool {
	if rate <= 0 {
		return true
	}
	now := time.Now()
	if b.filled.IsZero() {
		b.tokens = float64(burst)
	} else {
		b.tokens = min(float64(burst), b.tokens+now.Sub(b.filled).Seconds()*float64(rate))
	}
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
