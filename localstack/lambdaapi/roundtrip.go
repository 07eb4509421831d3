package lambdaapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// RoundTrip answers a request of a client in the same process. It needs no
// socket, and so works in a testing/synctest bubble.
func (a *API) RoundTrip(r *http.Request) (response *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	served := r.Clone(r.Context())
	if r.Body != nil {
		defer r.Body.Close()
	} else {
		served.Body = http.NoBody
	}
	w := &answer{header: http.Header{}}
	defer func() {
		if reason := recover(); reason == http.ErrAbortHandler {
			response, err = nil, fmt.Errorf("%s %s: connection closed: %w", r.Method, r.URL.Path, io.ErrUnexpectedEOF)
		} else if reason != nil {
			panic(reason)
		}
	}()
	a.ServeHTTP(w, served)
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// answer is a response while it is written.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *answer) Header() http.Header { return w.header }

func (w *answer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *answer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
