package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
)

// childVariable makes the test binary a process that writes to the named file until
// it is killed.
const childVariable = "MIRRORLESS_TEST_STATE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		if err := writeForever(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeForever goes on from what is stored and prints each upstream offset after it
// is stored.
func writeForever(path string) error {
	file, err := embedded.Open(path, embedded.Options{})
	if err != nil {
		return err
	}
	store, err := file.Store(ab)
	if err != nil {
		return err
	}
	tp := flow.TopicPartition{Topic: "orders", Partition: 1}
	next, err := store.Positions(context.Background(), []flow.TopicPartition{tp})
	if err != nil {
		return err
	}
	if len(next) == 0 {
		next[tp] = state.Position{Runs: make([]byte, 500)}
	}
	for {
		stored, err := store.Advance(context.Background(), next)
		if err != nil {
			return err
		}
		p := stored[tp]
		fmt.Println(p.Upstream)
		p.Upstream++
		next[tp] = p
	}
}

func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for round := range 3 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+path)
		child.Stderr = t.Output()
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var last int64
		for range 50 + 31*round {
			if _, err := fmt.Fscan(out, &last); err != nil {
				t.Fatal(err)
			}
		}
		// While it lives the file is its own.
		_, err = embedded.Open(path, embedded.Options{Wait: time.Millisecond})
		if !errors.Is(err, embedded.ErrInUse) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open beside another process: got error %v, want ErrInUse with the path", err)
		}
		_, err = embedded.Open(path, embedded.Options{Wait: time.Millisecond, ReadOnly: true})
		if !errors.Is(err, embedded.ErrInUse) {
			t.Errorf("Open to read beside another process: got error %v, want ErrInUse", err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for { // what it said before it died
			if _, err := fmt.Fscan(out, &last); err != nil {
				break
			}
		}
		_ = child.Wait() // killed
		s := open(t, path, embedded.Options{})
		tp := flow.TopicPartition{Topic: "orders", Partition: 1}
		got, err := s.Positions(t.Context(), []flow.TopicPartition{tp})
		if err != nil {
			t.Fatal(err)
		}
		if p := got[tp]; p.Upstream < last || p.Upstream > last+1 {
			t.Errorf("round %d: got upstream offset %d, the process had stored %d", round, p.Upstream, last)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFlowsShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".mirrorless", "state.db")
	file, err := embedded.Open(path, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	flows := []flow.Flow{ab, ab.Reverse()}
	tp := flow.TopicPartition{Topic: "orders"}
	for i, f := range flows {
		store, err := file.Store(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Advance(ctx, map[flow.TopicPartition]state.Position{tp: {Upstream: int64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := file.Flows()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(flows, got); diff != "" {
		t.Errorf("Flows (-want +got):\n%s", diff)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	// Two may read what a run has left, and nobody may write then.
	for range 2 {
		reader, err := embedded.Open(path, embedded.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		store, err := reader.Store(ab.Reverse())
		if err != nil {
			t.Fatal(err)
		}
		positions, err := store.Positions(ctx, []flow.TopicPartition{tp})
		if err != nil || positions[tp].Upstream != 1 {
			t.Errorf("got %v and error %v, want upstream offset 1", positions, err)
		}
		if _, err := store.Acquire(ctx, "l", "me", time.Second); !errors.Is(err, embedded.ErrReadOnly) {
			t.Errorf("Acquire: got error %v, want ErrReadOnly", err)
		}
		none, err := reader.Store(flow.Flow{Source: "A", Target: "C"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := none.Flow(ctx); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Flow of a flow that never ran: got error %v, want ErrNotFound", err)
		}
		if holes, err := none.Holes(ctx); err != nil || len(holes) != 0 {
			t.Errorf("Holes of a flow that never ran: got %v and error %v", holes, err)
		}
		if runs, err := none.Runs(ctx, tp); err != nil || len(runs) != 0 {
			t.Errorf("Runs of a flow that never ran: got %v and error %v", runs, err)
		}
	}
	if _, err := embedded.Open(path, embedded.Options{Wait: time.Millisecond}); !errors.Is(err, embedded.ErrInUse) {
		t.Errorf("Open beside readers: got error %v, want ErrInUse", err)
	}
}

func TestReadingNeedsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if _, err := embedded.Open(path, embedded.Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("opening to read made the file")
	}
}

func TestBrokenFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a state file", 4000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(path, embedded.Options{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v, want it to name the file", err)
	}
}

func TestNewerFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := open(t, path, embedded.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("file")).Put([]byte("layout"), []byte{2})
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = embedded.Open(path, embedded.Options{})
	if _, ok := errors.AsType[*state.SchemaError](err); !ok {
		t.Errorf("got error %v, want a SchemaError", err)
	}
}

func TestClosedFileRefusesWrites(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), embedded.Options{})
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range int32(8) { // writers that are under way end one way or the other
		wg.Go(func() {
			tp := flow.TopicPartition{Topic: "orders", Partition: i}
			next := map[flow.TopicPartition]state.Position{tp: {}}
			for {
				stored, err := s.Advance(ctx, next)
				if errors.Is(err, embedded.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				next = stored
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// BenchmarkAdvance is one invocation's write of four partitions, from as many
// invocations at a time as the name says.
func BenchmarkAdvance(b *testing.B) {
	for _, writers := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			file, err := embedded.Open(filepath.Join(b.TempDir(), "state.db"), embedded.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer file.Close()
			store, err := file.Store(ab)
			if err != nil {
				b.Fatal(err)
			}
			ctx := b.Context()
			todo := make(chan struct{})
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					next := make(map[flow.TopicPartition]state.Position)
					for i := range 4 {
						next[flow.TopicPartition{Topic: "orders", Partition: int32(4*w + i)}] = state.Position{Runs: make([]byte, 100)}
					}
					for range todo {
						stored, err := store.Advance(ctx, next)
						if err != nil {
							b.Error(err)
						}
						next = stored
					}
				})
			}
			for b.Loop() {
				todo <- struct{}{}
			}
			close(todo)
			wg.Wait()
		})
	}
}
