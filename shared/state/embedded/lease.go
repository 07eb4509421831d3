package embedded

import (
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// Acquire implements state.Store.
func (s *Store) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (state.Lease, error) {
	var lease state.Lease
	err := s.file.update(ctx, func(tx *bolt.Tx) error {
		stored, err := s.lease(tx, name)
		if err != nil {
			return err
		}
		now := s.file.now()
		if stored.Owner != "" && stored.Owner != owner && stored.Expires.After(now) {
			return &state.HeldError{Name: name, Owner: stored.Owner, Expires: stored.Expires}
		}
		lease = state.Lease{Name: name, Owner: owner, Expires: expiry(now, ttl), Token: stored.Token + 1}
		return s.putLease(tx, lease)
	})
	if err != nil {
		return state.Lease{}, err
	}
	return lease, nil
}

// Renew implements state.Store.
func (s *Store) Renew(ctx context.Context, lease state.Lease, ttl time.Duration) (state.Lease, error) {
	err := s.file.update(ctx, func(tx *bolt.Tx) error {
		stored, err := s.lease(tx, lease.Name)
		if err != nil {
			return err
		}
		if stored.Owner != lease.Owner || stored.Token != lease.Token {
			return &state.HeldError{Name: lease.Name, Owner: stored.Owner, Expires: stored.Expires}
		}
		lease.Expires = expiry(s.file.now(), ttl)
		return s.putLease(tx, lease)
	})
	if err != nil {
		return state.Lease{}, err
	}
	return lease, nil
}

// Release implements state.Store.
func (s *Store) Release(ctx context.Context, lease state.Lease) error {
	return s.file.update(ctx, func(tx *bolt.Tx) error {
		stored, err := s.lease(tx, lease.Name)
		if err != nil || stored.Owner != lease.Owner || stored.Token != lease.Token {
			return err
		}
		return s.putLease(tx, state.Lease{Name: lease.Name, Token: lease.Token})
	})
}

// lease returns the stored lease of a name, the zero Lease if there is none.
func (s *Store) lease(tx *bolt.Tx, name string) (state.Lease, error) {
	data := s.get(tx, row.KindLease, []byte(name))
	if data == nil {
		return state.Lease{}, nil
	}
	return row.Lease(name, data)
}

func (s *Store) putLease(tx *bolt.Tx, lease state.Lease) error {
	if lease.Name == "" {
		return fmt.Errorf("acquire lease: the name is empty")
	}
	return s.put(tx, row.KindLease, []byte(lease.Name), row.MarshalLease(lease))
}

// expiry is in the milliseconds that are stored.
func expiry(now time.Time, ttl time.Duration) time.Time {
	return row.Time(row.Millis(now.Add(ttl)))
}
