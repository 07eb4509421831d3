package embedded

import (
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// EventSource implements state.Store.
func (s *Store) EventSource(ctx context.Context, topic string) (state.EventSource, error) {
	var stored state.EventSource
	err := s.file.view(ctx, func(tx *bolt.Tx) (err error) {
		stored, err = s.eventSource(tx, topic)
		return err
	})
	switch {
	case err != nil:
		return state.EventSource{}, err
	case stored.Version == 0:
		return state.EventSource{}, fmt.Errorf("read event source of %s: %w", topic, state.ErrNotFound)
	}
	return stored, nil
}

// EventSources implements state.Store.
func (s *Store) EventSources(ctx context.Context) ([]state.EventSource, error) {
	var all []state.EventSource
	err := s.file.view(ctx, func(tx *bolt.Tx) error {
		return s.each(tx, row.KindEventSource, func(key, data []byte) error {
			one, err := row.EventSource(string(key), data)
			all = append(all, one)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// PutEventSource implements state.Store.
func (s *Store) PutEventSource(ctx context.Context, next state.EventSource) (state.EventSource, error) {
	expected := next.Version
	next.Version++
	next.Updated = row.Time(row.Millis(next.Updated))
	next.Window = next.Window.Truncate(time.Millisecond)
	err := s.file.update(ctx, func(tx *bolt.Tx) error {
		stored, err := s.eventSource(tx, next.Topic)
		switch {
		case err != nil:
			return err
		case row.SameEventSource(stored, next):
			return nil
		case stored.Version != expected:
			return fmt.Errorf("write event source of %s: %w", next.Topic, state.ErrConflict)
		}
		return s.put(tx, row.KindEventSource, []byte(next.Topic), row.MarshalEventSource(next))
	})
	if err != nil {
		return state.EventSource{}, err
	}
	return next, nil
}

// DeleteEventSource implements state.Store.
func (s *Store) DeleteEventSource(ctx context.Context, source state.EventSource) error {
	return s.file.update(ctx, func(tx *bolt.Tx) error {
		stored, err := s.eventSource(tx, source.Topic)
		switch {
		case err != nil || stored.Version == 0:
			return err
		case stored.Version != source.Version:
			return fmt.Errorf("delete event source of %s: %w", source.Topic, state.ErrConflict)
		}
		if err := s.bucket(tx, row.KindEventSource).Delete([]byte(source.Topic)); err != nil {
			return fmt.Errorf("delete event source of %s: %w", source.Topic, err)
		}
		return nil
	})
}

// eventSource returns the row of a topic, the zero row if there is none.
func (s *Store) eventSource(tx *bolt.Tx, topic string) (state.EventSource, error) {
	data := s.get(tx, row.KindEventSource, []byte(topic))
	if data == nil {
		return state.EventSource{}, nil
	}
	return row.EventSource(topic, data)
}
