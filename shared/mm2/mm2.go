// Package mm2 knows the records that MirrorMaker 2 writes and the topics it
// writes them to, byte for byte: whatever reads MirrorMaker 2's offset syncs,
// checkpoints, heartbeats and positions reads ours, and a MirrorMaker 2 can take
// over from us, or we from it, at any time.
//
//	sync := mm2.OffsetSync{Topic: "orders", Partition: 3, Upstream: 41, Downstream: 40}
//	key, value := sync.Key(), sync.Value()
//	back, err := mm2.ParseOffsetSync(key, value)
//
// The formats are those of Apache Kafka 4.3.1: Kafka's protocol primitives, big
// endian, a string being its length as INT16 and UTF-8. As there, a reader does
// not look at the version of a record and ignores what follows it.
//
// A reader of such a topic must expect anything in it. Every Parse function
// returns a [ParseError] for what it cannot read, and none panics.
package mm2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// What is wrong with a record, inside a [ParseError].
var (
	// ErrNull: the key or the value is null. A null value is a tombstone; the
	// record it deletes is void, and nothing else is wrong.
	ErrNull = errors.New("it is null")
	// ErrTruncated: the bytes end early, or a length is negative.
	ErrTruncated = errors.New("it is truncated")
	// ErrNegativePartition: no partition has such a number.
	ErrNegativePartition = errors.New("the partition is negative")
	// ErrOtherConnector: the key of a Connect offset that is not a source
	// connector's position. The checkpoint and heartbeat connectors leave such.
	ErrOtherConnector = errors.New("it belongs to another kind of connector")
	// ErrMalformed: the JSON of a Connect offset is not what Connect writes.
	ErrMalformed = errors.New("it is malformed")
)

// ParseError is returned by every Parse function of this package.
type ParseError struct {
	Record string // such as "offset sync"
	Part   string // "key" or "value"
	Err    error  // one of the Err values of this package
}

func (e *ParseError) Error() string { return fmt.Sprintf("parse %s %s: %v", e.Record, e.Part, e.Err) }

// Unwrap gives the Err values of this package to errors.Is.
func (e *ParseError) Unwrap() error { return e.Err }

// version is the INT16 that begins a checkpoint's and a heartbeat's value. The
// offset sync has none.
const version = 0

// appendString writes a STRING. Kafka's own records (those of __consumer_offsets
// among them) cannot hold more than 32,767 bytes either; what is longer is cut.
func appendString(b []byte, s string) []byte {
	s = s[:min(len(s), math.MaxInt16)]
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func appendInt32(b []byte, n int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }
func appendInt64(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

// reader reads primitives; after the first error it reads zeros.
type reader struct {
	rest []byte
	err  error
}

// read runs f over data and names what went wrong.
func read(record, part string, data []byte, f func(*reader)) error {
	r := reader{rest: data}
	if data == nil {
		r.err = ErrNull
	} else {
		f(&r)
	}
	if r.err != nil {
		return &ParseError{Record: record, Part: part, Err: r.err}
	}
	return nil
}

func (r *reader) take(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.rest)) {
		r.err = ErrTruncated
	}
	if r.err != nil {
		return make([]byte, 8) // enough for every integer
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) string() string {
	s := r.take(int(r.int16()))
	if r.err != nil {
		return ""
	}
	return string(s)
}

func (r *reader) partition() int32 {
	p := r.int32()
	if r.err == nil && p < 0 {
		r.err = ErrNegativePartition
	}
	return p
}
