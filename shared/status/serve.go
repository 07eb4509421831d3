package status

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Endpoint is where a running process serves its reports, over loopback only.
type Endpoint struct {
	Address string `json:"address"` // host:port
	PID     int    `json:"pid"`
	// Token shows that who asks may read the file that this is kept in. It also
	// tells a process from another one that has its port now.
	Token string `json:"token"`
}

// NewToken returns a token that nobody can guess.
func NewToken() string { return rand.Text() }

// The one path of a [Handler], and the scheme of its Authorization header.
const (
	path   = "/status"
	bearer = "Bearer "
)

// Handler serves the reports of all flows of a process as JSON at GET /status, to
// those who know the token.
func Handler(token string, reports func(context.Context) []Report) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), bearer)
		if !ok || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// An error is the asker's, who has gone.
		_ = json.NewEncoder(w).Encode(reports(r.Context()))
	})
	return mux
}

// maxAnswer bounds what Ask reads.
const maxAnswer = 256 << 20

// Ask gets the reports of a running process. An error says that there is none any
// more, or another program in its place, or that it does not answer before ctx
// is done.
func Ask(ctx context.Context, at Endpoint) ([]Report, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Address+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the running mirrorless: %w", err)
	}
	req.Header.Set("Authorization", bearer+at.Token)
	// Not through a proxy, whatever the environment says.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the running mirrorless: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the running mirrorless: %s says %s", at.Address, resp.Status)
	}
	var reports []Report
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&reports); err != nil {
		return nil, fmt.Errorf("ask the running mirrorless: read its answer: %w", err)
	}
	return reports, nil
}
