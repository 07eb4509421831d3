package cache_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"mirrorless/localstack/cache"
)

func TestFillFillsOnceForAllCallers(t *testing.T) {
	root := t.TempDir()
	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := cache.Fill(t.Context(), root, "thing-1", func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := fills.Load(); got != 1 {
		t.Errorf("got %d fills, want 1", got)
	}
}

func TestFillStartsAfreshAfterAFailure(t *testing.T) {
	root := t.TempDir()
	broken := errors.New("no network")
	_, err := cache.Fill(t.Context(), root, "thing-1", func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	dir, err := cache.Fill(t.Context(), root, "thing-1", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "half")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a file of the failed attempt, want none", err)
	}
}

func TestRootIsInTheRepository(t *testing.T) {
	root, err := cache.Root()
	if err != nil {
		t.Fatal(err)
	}
	want, err := filepath.Abs("../../.cache")
	if err != nil {
		t.Fatal(err)
	}
	if root != want {
		t.Errorf("got %s, want %s", root, want)
	}
}
