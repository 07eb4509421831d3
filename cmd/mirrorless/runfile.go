package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"mirrorless/shared/status"
)

// runFileName is the file in a state folder that says where the mirrorless that
// runs with it serves its status.
const runFileName = "run.json"

// serveStatus serves reports and plans over loopback until stop is called, and
// tells `mirrorless status` and `mirrorless plan` by a file in the state folder
// where. After a SIGKILL the file stays; whoever reads it finds nobody there, or
// another who knows no such token.
func serveStatus(dir string, reports func(context.Context) []status.Report, plans http.Handler) (stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the status: %w", err)
	}
	at := status.Endpoint{Address: listener.Addr().String(), PID: os.Getpid(), Token: status.NewToken()}
	if err := writeRunFile(dir, at); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/", status.Handler(at.Token, reports))
	mux.Handle("GET "+planPath, withToken(at.Token, plans))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // its error says that it was closed
	return func() {
		_ = removeRunFile(dir, at) // a file that stays is recognised as stale
		_ = server.Close()
	}, nil
}

// withToken hands requests on that bear the token.
func withToken(token string, next http.Handler) http.Handler {
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// askRun gets what a running process has at a path.
func askRun(ctx context.Context, at status.Endpoint, path string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Address+path, nil)
	if err != nil {
		return fmt.Errorf("ask the running mirrorless: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+at.Token)
	// Not through a proxy, whatever the environment says.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("ask the running mirrorless: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return fmt.Errorf("ask the running mirrorless: it says %s: %s", resp.Status, bytes.TrimSpace(why))
	}
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		return fmt.Errorf("ask the running mirrorless: read its answer: %w", err)
	}
	return nil
}

// writeRunFile replaces the file as a whole, so that no one reads a half of it.
func writeRunFile(dir string, at status.Endpoint) error {
	text, err := json.Marshal(at)
	if err != nil {
		return fmt.Errorf("write %s: %w", runFileName, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write %s: %w", runFileName, err)
	}
	// Only its owner may read a file that CreateTemp makes.
	f, err := os.CreateTemp(dir, runFileName+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", runFileName, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, runFileName))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", runFileName, err), os.Remove(f.Name()))
	}
	return nil
}

// readRunFile returns where a running process serves its status. Without a file
// ok is false; it is no error.
func readRunFile(dir string) (at status.Endpoint, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, runFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return at, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		return at, false, fmt.Errorf("read %s: %w", filepath.Join(dir, runFileName), err)
	}
	return at, true, nil
}

// removeRunFile removes the file if it is still the one of at.
func removeRunFile(dir string, at status.Endpoint) error {
	if now, ok, err := readRunFile(dir); err != nil || !ok || now != at {
		return err
	}
	if err := os.Remove(filepath.Join(dir, runFileName)); err != nil {
		return fmt.Errorf("remove %s: %w", runFileName, err)
	}
	return nil
}
