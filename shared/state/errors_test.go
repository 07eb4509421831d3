package state_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

func TestErrorsSayWhatHappened(t *testing.T) {
	current := make(map[flow.TopicPartition]state.Position)
	for i := range int32(7) {
		current[flow.TopicPartition{Topic: "orders", Partition: i}] = state.Position{}
	}
	until := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		err  error
		is   error // nil for none
		want string
	}{
		{
			&state.ConflictError{Current: current}, state.ErrConflict,
			"advance orders-0, orders-1, orders-2, orders-3, orders-4, and 2 more: changed by another writer",
		},
		{
			&state.BackwardsError{TopicPartition: flow.TopicPartition{Topic: "orders", Partition: 3}, Stored: 9, Asked: 8}, nil,
			"advance orders-3: upstream offset would go back from 9 to 8",
		},
		{
			&state.HeldError{Name: "topics", Owner: "env-1", Expires: until}, state.ErrHeld,
			"lease topics: lease is held by another owner: env-1 until 2026-11-30T12:00:00Z",
		},
		{
			&state.HeldError{Name: "topics"}, state.ErrHeld,
			"lease topics: it was released",
		},
		{
			&state.SchemaError{Kind: "position", Key: "orders-3", Schema: 2, Known: 1}, nil,
			"read position orders-3: its schema is 2, this mirrorless knows up to 1: upgrade mirrorless",
		},
		{
			&state.TooLargeError{What: "runs of orders-3", Size: 20_000, Limit: 16_384}, nil,
			"store runs of orders-3: 20000 bytes are more than the limit of 16384",
		},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
		wrapped := fmt.Errorf("append: %w", errors.Join(test.err, errors.New("another")))
		for _, sentinel := range []error{state.ErrConflict, state.ErrHeld, state.ErrNotFound} {
			if got := errors.Is(wrapped, sentinel); got != (sentinel == test.is) {
				t.Errorf("%v: got %v for %v", test.err, got, sentinel)
			}
		}
	}
}
