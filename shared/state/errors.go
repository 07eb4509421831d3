package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mirrorless/shared/flow"
)

var (
	// ErrNotFound is returned by Flow and EventSource when there is no such row.
	ErrNotFound = errors.New("not stored")
	// ErrConflict is returned by a conditional write when the stored row has
	// another version: read again. A *ConflictError is one.
	ErrConflict = errors.New("changed by another writer")
	// ErrHeld is what a *HeldError is.
	ErrHeld = errors.New("lease is held by another owner")
)

// A ConflictError is returned by Advance and Rewind when another writer was
// first. It is not fatal: the loser goes on from Current.
type ConflictError struct {
	// Current holds the stored position of each partition that was refused, the
	// zero Position where nothing is stored.
	Current map[flow.TopicPartition]Position
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("advance %s: %v", list(slices.Collect(maps.Keys(e.Current))), ErrConflict)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// A BackwardsError is returned by Advance for a position whose Upstream is lower
// than the stored one of the same version. It is a programmer's mistake or a case
// for Rewind.
type BackwardsError struct {
	flow.TopicPartition
	// Stored is the upstream offset in the store, Asked the lower one.
	Stored, Asked int64
}

func (e *BackwardsError) Error() string {
	return fmt.Sprintf("advance %s: upstream offset would go back from %d to %d", e.TopicPartition, e.Stored, e.Asked)
}

// A HeldError is returned by Acquire and Renew when the lease is another's.
type HeldError struct {
	Name string
	// Owner holds the lease until Expires. Empty and zero when the lease was
	// released meanwhile (Renew only).
	Owner   string
	Expires time.Time
}

func (e *HeldError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("lease %s: it was released", e.Name)
	}
	return fmt.Sprintf("lease %s: %v: %s until %s", e.Name, ErrHeld, e.Owner, e.Expires.UTC().Format(time.RFC3339))
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A SchemaError is returned by any call that meets a row which a newer version of
// mirrorless has written.
type SchemaError struct {
	// Kind is the row's kind, Key says which row.
	Kind, Key string
	// Schema is the row's schema version, Known the newest one of this program.
	Schema, Known int
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("read %s %s: its schema is %d, this mirrorless knows up to %d: upgrade mirrorless", e.Kind, e.Key, e.Schema, e.Known)
}

// A TooLargeError is returned for a value over one of the limits of this package,
// before anything is written.
type TooLargeError struct {
	// What names the value, Size and Limit are in bytes.
	What        string
	Size, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("store %s: %d bytes are more than the limit of %d", e.What, e.Size, e.Limit)
}

// list names partitions in order, the first few of many.
func list(partitions []flow.TopicPartition) string {
	slices.SortFunc(partitions, flow.TopicPartition.Compare)
	const most = 5
	var names []string
	for _, tp := range partitions[:min(most, len(partitions))] {
		names = append(names, tp.String())
	}
	if more := len(partitions) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
