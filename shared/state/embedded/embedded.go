// Package embedded keeps the state of flows in one file, for runs in one process:
// `mirrorless run`, the demo, tests.
//
//	file, err := embedded.Open(path, embedded.Options{})
//	defer file.Close()
//	store, err := file.Store(flow.Flow{Source: "A", Target: "B"})
//
// The file is a bbolt database with a bucket per flow. One process holds it at a
// time; Open says ErrInUse when it is another.
//
// # Durability
//
// Every write is on disk (fdatasync) when its call returns, and writes that come
// together share one commit, so that many callers get thousands a second. Less
// would do for a position: one that is older than the target costs a comparison.
// But without the sync bbolt may write its pages in any order, and a power failure
// would then leave not an older file but a broken one: the producer id is gone, and
// with it the broker's refusal of a second copy. A killed process loses nothing
// either way.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

var (
	// ErrInUse is returned by Open when another process holds the file, for
	// writing, or for reading if this one wants to write.
	ErrInUse = errors.New("in use by another process")
	// ErrReadOnly is returned by a write to a file that was opened to be read.
	ErrReadOnly = errors.New("opened to be read only")
	// ErrClosed is returned by a write to a closed file.
	ErrClosed = errors.New("closed")
)

// layout is the version of the file's buckets and keys. Rows have their own.
const layout = 1

// Top-level buckets: one of the file itself and one for each flow.
const (
	fileBucket = "file"
	flowPrefix = "flow "
)

var layoutKey = []byte("layout")

// Options of Open. The zero value is what a run wants.
type Options struct {
	// ReadOnly opens an existing file to be read, beside other readers.
	ReadOnly bool
	// Wait is how long to wait for another process to let the file go, a second
	// unless set.
	Wait time.Duration
	// Now is the clock of leases, time.Now unless set.
	Now func() time.Time
}

// A File is an open state file.
type File struct {
	db     *bolt.DB
	path   string
	now    func() time.Time
	writes chan *write
	closed chan struct{} // closed by Close: no more writes
	ended  chan struct{} // closed when the last write is committed
	close  sync.Once
}

// Open opens the file at path and makes it, and its folder, where it is missing.
// To be read it must exist; otherwise the error is fs.ErrNotExist.
func Open(path string, options Options) (*File, error) {
	if options.Wait <= 0 {
		options.Wait = time.Second
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.ReadOnly {
		// bbolt's own error for an empty path names nothing.
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("open state: %w", err)
		}
	} else if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout:      options.Wait,
		ReadOnly:     options.ReadOnly,
		FreelistType: bolt.FreelistMapType,
		NoStatistics: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("open state %s: %w", path, ErrInUse)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("open state: %w", err)
	case err != nil:
		return nil, fmt.Errorf("open state %s: %w", path, err)
	}
	f := &File{
		db:     db,
		path:   path,
		now:    options.Now,
		writes: make(chan *write),
		closed: make(chan struct{}),
		ended:  make(chan struct{}),
	}
	if err := f.checkLayout(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	go f.commit()
	return f, nil
}

// checkLayout refuses the file of a newer mirrorless and signs a new one.
func (f *File) checkLayout() error {
	var stored []byte
	read := func(tx *bolt.Tx) error {
		if b := tx.Bucket([]byte(fileBucket)); b != nil {
			stored = append(stored, b.Get(layoutKey)...)
		}
		return nil
	}
	if err := f.db.View(read); err != nil {
		return fmt.Errorf("open state %s: %w", f.path, err)
	}
	switch {
	case len(stored) == 0 && f.db.IsReadOnly():
		return nil // a file whose maker was stopped before its first write
	case len(stored) == 0:
		return f.db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(fileBucket))
			if err != nil {
				return err
			}
			return b.Put(layoutKey, []byte{layout})
		})
	case stored[0] > layout:
		return &state.SchemaError{Kind: "state file", Key: f.path, Schema: int(stored[0]), Known: layout}
	}
	return nil
}

// Flows returns the flows that have state in the file.
func (f *File) Flows() ([]flow.Flow, error) {
	var flows []flow.Flow
	err := f.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
			text, ok := strings.CutPrefix(string(name), flowPrefix)
			if !ok {
				return nil
			}
			one, err := flow.Parse(text)
			if err != nil {
				return err
			}
			flows = append(flows, one)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read state %s: %w", f.path, err)
	}
	return flows, nil
}

// Store returns the store of one flow. Stores of one file are independent; two of
// one flow are the same state.
func (f *File) Store(of flow.Flow) (*Store, error) {
	s := &Store{file: f, name: []byte(flowPrefix + of.String())}
	if f.db.IsReadOnly() {
		return s, nil
	}
	err := f.db.Update(func(tx *bolt.Tx) error {
		top, err := tx.CreateBucketIfNotExists(s.name)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			if _, err := top.CreateBucketIfNotExists([]byte(kind)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open state %s for %s: %w", f.path, of, err)
	}
	return s, nil
}

// Close waits for the writes that were begun and lets the file go.
func (f *File) Close() error {
	f.close.Do(func() { close(f.closed) })
	<-f.ended
	if err := f.db.Close(); err != nil {
		return fmt.Errorf("close state %s: %w", f.path, err)
	}
	return nil
}

// A write is one caller's part of a commit. What do has written before it returns
// an error stays.
type write struct {
	do   func(*bolt.Tx) error
	done chan error
}

// update runs do in a transaction, together with the writes of other callers. A
// context counts until the write has its turn.
func (f *File) update(ctx context.Context, do func(*bolt.Tx) error) error {
	if f.db.IsReadOnly() {
		return fmt.Errorf("write state %s: %w", f.path, ErrReadOnly)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w := &write{do: do, done: make(chan error, 1)}
	select {
	case f.writes <- w:
	case <-f.closed:
		return fmt.Errorf("write state %s: %w", f.path, ErrClosed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Not given up here, whatever the context says: do reads what the caller owns.
	return <-w.done
}

// commit runs what has come in since the last commit as one transaction: nobody
// waits for company, and company is there as soon as the disk is the bottleneck.
func (f *File) commit() {
	defer close(f.ended)
	for {
		var group []*write
		select {
		case w := <-f.writes:
			group = append(group, w)
		case <-f.closed:
			return
		}
		for more := true; more && len(group) < 1000; {
			select {
			case w := <-f.writes:
				group = append(group, w)
			default:
				more = false
			}
		}
		f.commitGroup(group)
	}
}

func (f *File) commitGroup(group []*write) {
	errs := make([]error, len(group))
	err := f.db.Update(func(tx *bolt.Tx) error {
		for i, w := range group {
			errs[i] = w.do(tx)
		}
		return nil
	})
	for i, w := range group {
		if err != nil {
			errs[i] = errors.Join(errs[i], fmt.Errorf("write state %s: %w", f.path, err))
		}
		w.done <- errs[i]
	}
}

// view runs do in a read transaction.
func (f *File) view(ctx context.Context, do func(*bolt.Tx) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.db.View(do)
}
