package embedded_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/state/statetest"
)

var ab = flow.Flow{Source: "A", Target: "B"}

// fileStore closes its file with it.
type fileStore struct {
	*embedded.Store
	file *embedded.File
	path string
}

func (s *fileStore) Close() error { return s.file.Close() }

func open(t *testing.T, path string, options embedded.Options) *fileStore {
	t.Helper()
	file, err := embedded.Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	store, err := file.Store(ab)
	if err != nil {
		t.Fatal(err)
	}
	return &fileStore{store, file, path}
}

func TestContract(t *testing.T) {
	statetest.Run(t, statetest.Harness{
		Open: func(t *testing.T, now func() time.Time) state.Store {
			return open(t, filepath.Join(t.TempDir(), "state.db"), embedded.Options{Now: now})
		},
		Upgrade: upgrade,
	})
}

// upgrade raises the schema of every row behind the store's back.
func upgrade(t *testing.T, store state.Store) {
	s := store.(*fileStore)
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(s.path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		top := tx.Bucket([]byte("flow " + ab.String()))
		return top.ForEachBucket(func(kind []byte) error {
			b := top.Bucket(kind)
			rows := make(map[string][]byte)
			err := b.ForEach(func(k, v []byte) error {
				v = bytes.Clone(v)
				if v[0] == 1 {
					v[0] = 2
				}
				rows[string(k)] = bytes.Replace(v, []byte(`"schema":1`), []byte(`"schema":2`), 1)
				return nil
			})
			for k, v := range rows {
				if err := b.Put([]byte(k), v); err != nil {
					return err
				}
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	*s = *open(t, s.path, embedded.Options{})
}
