package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	bolt "go.etcd.io/bbolt"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// A Store is the state of one flow in a File.
type Store struct {
	file *File
	name []byte // of the flow's bucket
}

var _ state.Store = (*Store)(nil)

// Close does nothing: the File is closed by whoever opened it.
func (s *Store) Close() error { return nil }

// bucket returns the flow's rows of one kind, nil where a file that is read has
// none.
func (s *Store) bucket(tx *bolt.Tx, kind string) *bolt.Bucket {
	top := tx.Bucket(s.name)
	if top == nil {
		return nil
	}
	return top.Bucket([]byte(kind))
}

// get returns a row, nil if it is not there; valid until the transaction ends.
func (s *Store) get(tx *bolt.Tx, kind string, key []byte) []byte {
	b := s.bucket(tx, kind)
	if b == nil {
		return nil
	}
	return b.Get(key)
}

// each calls do for every row of a kind, in the order of keys.
func (s *Store) each(tx *bolt.Tx, kind string, do func(key, data []byte) error) error {
	b := s.bucket(tx, kind)
	if b == nil {
		return nil
	}
	return b.ForEach(do)
}

func (s *Store) put(tx *bolt.Tx, kind string, key, data []byte) error {
	if err := s.bucket(tx, kind).Put(key, data); err != nil {
		return fmt.Errorf("write state %s: %s: %w", s.file.path, kind, err)
	}
	return nil
}

// Flow implements state.Store.
func (s *Store) Flow(ctx context.Context) (state.FlowRow, error) {
	var stored state.FlowRow
	err := s.file.view(ctx, func(tx *bolt.Tx) (err error) {
		stored, err = s.flow(tx)
		return err
	})
	switch {
	case err != nil:
		return state.FlowRow{}, err
	case stored.Version == 0:
		return state.FlowRow{}, fmt.Errorf("read flow: %w", state.ErrNotFound)
	}
	return stored, nil
}

// flow returns the row, the zero row if there is none.
func (s *Store) flow(tx *bolt.Tx) (state.FlowRow, error) {
	data := s.get(tx, row.KindFlow, []byte(row.KindFlow))
	if data == nil {
		return state.FlowRow{}, nil
	}
	return row.Flow(data)
}

// PutFlow implements state.Store.
func (s *Store) PutFlow(ctx context.Context, next state.FlowRow) (state.FlowRow, error) {
	expected := next.Version
	next.Version++
	next.Created = row.Time(row.Millis(next.Created))
	err := s.file.update(ctx, func(tx *bolt.Tx) error {
		stored, err := s.flow(tx)
		switch {
		case err != nil:
			return err
		case row.SameFlow(stored, next):
			return nil
		case stored.Version != expected:
			return fmt.Errorf("write flow: %w", state.ErrConflict)
		}
		return s.put(tx, row.KindFlow, []byte(row.KindFlow), row.MarshalFlow(next))
	})
	if err != nil {
		return state.FlowRow{}, err
	}
	return next, nil
}

// Positions implements state.Store.
func (s *Store) Positions(ctx context.Context, partitions []flow.TopicPartition) (map[flow.TopicPartition]state.Position, error) {
	return readAll(ctx, s, row.KindPosition, partitions, row.Position)
}

// Flushed implements state.Store.
func (s *Store) Flushed(ctx context.Context, partitions []flow.TopicPartition) (map[flow.TopicPartition]state.Flushed, error) {
	return readAll(ctx, s, row.KindFlushed, partitions, row.Flushed)
}

// readAll reads the rows of partitions that are there. A row that cannot be read
// does not keep the others back.
func readAll[T any](ctx context.Context, s *Store, kind string, partitions []flow.TopicPartition, decode func(string, []byte) (T, error)) (map[flow.TopicPartition]T, error) {
	read := make(map[flow.TopicPartition]T, len(partitions))
	var errs []error
	err := s.file.view(ctx, func(tx *bolt.Tx) error {
		for _, tp := range partitions {
			data := s.get(tx, kind, partitionKey(tp))
			if data == nil {
				continue
			}
			value, err := decode(tp.String(), data)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			read[tp] = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return read, errors.Join(errs...)
}

// Advance implements state.Store.
func (s *Store) Advance(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	return s.advance(ctx, next, false)
}

// Rewind implements state.Store.
func (s *Store) Rewind(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	return s.advance(ctx, next, true)
}

func (s *Store) advance(ctx context.Context, next map[flow.TopicPartition]state.Position, rewind bool) (map[flow.TopicPartition]state.Position, error) {
	o := row.NewOutcome(rewind)
	err := s.file.update(ctx, func(tx *bolt.Tx) error {
		for _, tp := range o.Admit(next) {
			if err := s.advanceOne(tx, o, tp, next[tp]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o.Result()
}

// advanceOne returns an error only where the transaction cannot go on.
func (s *Store) advanceOne(tx *bolt.Tx, o *row.Outcome, tp flow.TopicPartition, next state.Position) error {
	key := partitionKey(tp)
	var stored state.Position
	if data := s.get(tx, row.KindPosition, key); data != nil {
		var err error
		if stored, err = row.Position(tp.String(), data); err != nil {
			o.Fail(err)
			return nil
		}
	}
	if !o.Decide(tp, stored, next) {
		return nil
	}
	o.Store(tp, next)
	next.Version++
	return s.put(tx, row.KindPosition, key, row.AppendPosition(nil, next))
}

// PutRuns implements state.Store.
func (s *Store) PutRuns(ctx context.Context, tp flow.TopicPartition, chunk state.RunChunk) error {
	if err := row.CheckChunk(tp, chunk); err != nil {
		return err
	}
	key, data := runKey(tp, chunk.First), row.AppendChunk(nil, chunk)
	return s.file.update(ctx, func(tx *bolt.Tx) error {
		if old := s.get(tx, row.KindRuns, key); old != nil {
			stored, err := row.Chunk(tp.String(), chunk.First, old)
			if err != nil {
				return err
			}
			if stored.Next >= chunk.Next {
				return nil
			}
		}
		return s.put(tx, row.KindRuns, key, data)
	})
}

// Runs implements state.Store.
func (s *Store) Runs(ctx context.Context, tp flow.TopicPartition) ([]state.RunChunk, error) {
	var chunks []state.RunChunk
	err := s.file.view(ctx, func(tx *bolt.Tx) error {
		return s.eachRun(tx, tp, 0, math.MaxInt64, func(key []byte, first int64, data []byte) error {
			chunk, err := row.Chunk(tp.String(), first, data)
			if err != nil {
				return err
			}
			chunks = append(chunks, chunk)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return chunks, nil
}

// DeleteRuns implements state.Store.
func (s *Store) DeleteRuns(ctx context.Context, tp flow.TopicPartition, from, to int64) error {
	return s.file.update(ctx, func(tx *bolt.Tx) error {
		var keys [][]byte
		err := s.eachRun(tx, tp, from, to, func(key []byte, _ int64, data []byte) error {
			keys = append(keys, bytes.Clone(key))
			return row.CheckPacked(row.KindRuns, tp.String(), data)
		})
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := s.bucket(tx, row.KindRuns).Delete(key); err != nil {
				return fmt.Errorf("delete runs of %s: %w", tp, err)
			}
		}
		return nil
	})
}

// eachRun calls do for the chunks with from ≤ First < to, in order; the greatest to
// has no end.
func (s *Store) eachRun(tx *bolt.Tx, tp flow.TopicPartition, from, to int64, do func(key []byte, first int64, data []byte) error) error {
	b := s.bucket(tx, row.KindRuns)
	if b == nil {
		return nil
	}
	prefix := partitionKey(tp)
	c := b.Cursor()
	for key, data := c.Seek(runKey(tp, max(from, 0))); bytes.HasPrefix(key, prefix); key, data = c.Next() {
		first := int64(binary.BigEndian.Uint64(key[len(prefix):]))
		if first >= to && to != math.MaxInt64 {
			break
		}
		if err := do(key, first, data); err != nil {
			return err
		}
	}
	return nil
}

// PutFlushed implements state.Store.
func (s *Store) PutFlushed(ctx context.Context, flushed map[flow.TopicPartition]state.Flushed) error {
	partitions := slices.SortedFunc(maps.Keys(flushed), flow.TopicPartition.Compare)
	return s.putEach(ctx, len(partitions), func(tx *bolt.Tx, i int) error {
		tp := partitions[i]
		return s.putPacked(tx, row.KindFlushed, tp.String(), partitionKey(tp), row.AppendFlushed(nil, flushed[tp]))
	})
}

// Checkpoints implements state.Store.
func (s *Store) Checkpoints(ctx context.Context) ([]state.Checkpoint, error) {
	var all []state.Checkpoint
	err := s.file.view(ctx, func(tx *bolt.Tx) error {
		return s.each(tx, row.KindCheckpoint, func(key, data []byte) error {
			group, tp, err := splitCheckpointKey(key)
			if err != nil {
				return fmt.Errorf("read checkpoint %x: %w", key, err)
			}
			c, err := row.Checkpoint(group+" "+tp.String(), data)
			if err != nil {
				return err
			}
			c.Group, c.TopicPartition = group, tp
			all = append(all, c)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, row.CompareCheckpoints)
	return all, nil
}

// PutCheckpoints implements state.Store.
func (s *Store) PutCheckpoints(ctx context.Context, checkpoints []state.Checkpoint) error {
	return s.putEach(ctx, len(checkpoints), func(tx *bolt.Tx, i int) error {
		c := checkpoints[i]
		if err := row.CheckCheckpoint(c); err != nil {
			return err
		}
		name := c.Group + " " + c.TopicPartition.String()
		return s.putPacked(tx, row.KindCheckpoint, name, checkpointKey(c.Group, c.TopicPartition), row.AppendCheckpoint(nil, c))
	})
}

// Holes implements state.Store.
func (s *Store) Holes(ctx context.Context) ([]state.Hole, error) {
	var all []state.Hole
	err := s.file.view(ctx, func(tx *bolt.Tx) error {
		return s.each(tx, row.KindHole, func(key, data []byte) error {
			hole, err := row.Hole(fmt.Sprintf("%q", key), data)
			all = append(all, hole)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, row.CompareHoles)
	return all, nil
}

// PutHoles implements state.Store.
func (s *Store) PutHoles(ctx context.Context, holes []state.Hole) error {
	return s.putEach(ctx, len(holes), func(tx *bolt.Tx, i int) error {
		h := holes[i]
		key := holeKey(h.TopicPartition, h.From, h.Kind)
		if old := s.get(tx, row.KindHole, key); old != nil {
			if err := row.CheckJSON(row.KindHole, h.TopicPartition.String(), old); err != nil {
				return err
			}
		}
		return s.put(tx, row.KindHole, key, row.MarshalHole(h))
	})
}

// putEach writes n independent rows in one transaction: one that is refused does
// not keep the others back.
func (s *Store) putEach(ctx context.Context, n int, put func(tx *bolt.Tx, i int) error) error {
	if n == 0 {
		return nil
	}
	var refused []error
	err := s.file.update(ctx, func(tx *bolt.Tx) error {
		for i := range n {
			refused = append(refused, put(tx, i))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(refused...)
}

// putPacked writes a packed row unless a newer program wrote the stored one.
func (s *Store) putPacked(tx *bolt.Tx, kind, name string, key, data []byte) error {
	if old := s.get(tx, kind, key); old != nil {
		if err := row.CheckPacked(kind, name, old); err != nil {
			return err
		}
	}
	return s.put(tx, kind, key, data)
}
