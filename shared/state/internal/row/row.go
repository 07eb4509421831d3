// Package row is how both stores write their rows down, and the rules of a
// conditional write that both keep.
//
// Every row says its schema version first: a byte in the packed rows (position,
// chunk, checkpoint, flushed), which are written often and paid for by size, and
// the field "schema" in the JSON ones (flow, event source, hole, lease), which a
// person may want to read in a console. A decoder refuses a newer schema with a
// *state.SchemaError and never panics on bytes it did not write.
package row

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"mirrorless/shared/state"
)

// Schema is the newest schema of every row kind so far. When one kind changes, it
// gets a number of its own.
const Schema = 1

// Kinds as they are named in keys and errors.
const (
	KindFlow        = "flow"
	KindPosition    = "position"
	KindRuns        = "runs"
	KindLease       = "lease"
	KindCheckpoint  = "checkpoint"
	KindEventSource = "eventsource"
	KindHole        = "hole"
	KindFlushed     = "flushed"
)

var (
	errShort    = errors.New("row ends early")
	errTrailed  = errors.New("row has bytes after its end")
	errNumber   = errors.New("row has a number out of range")
	errTopicIDs = errors.New("row lacks its topic ids")
	errSchema   = errors.New("row has no schema version")
)

// CheckSchema refuses a schema that this program does not know.
func CheckSchema(kind, key string, schema int) error {
	switch {
	case schema > Schema:
		return &state.SchemaError{Kind: kind, Key: key, Schema: schema, Known: Schema}
	case schema < 1:
		return corrupt(kind, key, errSchema)
	}
	return nil
}

// CheckPacked refuses the bytes of a packed row by their schema alone.
func CheckPacked(kind, key string, data []byte) error {
	if len(data) == 0 {
		return corrupt(kind, key, errSchema)
	}
	return CheckSchema(kind, key, int(data[0]))
}

// CheckSize refuses a value over one of the limits of package state.
func CheckSize(what, key string, size, limit int) error {
	if size > limit {
		return &state.TooLargeError{What: what + " of " + key, Size: size, Limit: limit}
	}
	return nil
}

func corrupt(kind, key string, err error) error {
	return fmt.Errorf("decode %s %s: %w", kind, key, err)
}

// Millis is a time as it is stored, 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Time is the inverse of Millis, in UTC.
func Time(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// A reader takes a packed row apart; the first error stays.
type reader struct {
	rest []byte
	err  error
}

// open checks the schema byte of a packed row.
func open(kind, key string, data []byte) (*reader, error) {
	if err := CheckPacked(kind, key, data); err != nil {
		return nil, err
	}
	return &reader{rest: data[1:]}, nil
}

func (r *reader) int64() int64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Varint(r.rest)
	switch {
	case n == 0:
		r.err = errShort
		return 0
	case n < 0:
		r.err = errNumber
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// within is an int64 that must lie in [low, high].
func (r *reader) within(low, high int64) int64 {
	v := r.int64()
	if r.err == nil && (v < low || v > high) {
		r.err = errNumber
		return 0
	}
	return v
}

// bytes fills dst.
func (r *reader) bytes(dst []byte) {
	switch {
	case r.err != nil:
	case len(r.rest) < len(dst):
		r.err = errShort
	default:
		r.rest = r.rest[copy(dst, r.rest):]
	}
}

func (r *reader) topicID() (id state.TopicID) {
	r.bytes(id[:])
	return id
}

func (r *reader) ref() (ref TopicRef) {
	r.bytes(ref[:])
	return ref
}

// tail takes the rest, a copy: the caller keeps it longer than its buffer.
func (r *reader) tail() []byte {
	if r.err != nil || len(r.rest) == 0 {
		return nil
	}
	tail := append([]byte(nil), r.rest...)
	r.rest = nil
	return tail
}

// done returns what went wrong.
func (r *reader) done(kind, key string) error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = errTrailed
	}
	if r.err != nil {
		return corrupt(kind, key, r.err)
	}
	return nil
}
