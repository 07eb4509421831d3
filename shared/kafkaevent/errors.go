package kafkaevent

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The kinds of error that [Decode] returns, to be asked for with [errors.Is].
var (
	// ErrSyntax: the payload is not valid JSON, or is cut off.
	ErrSyntax = errors.New("not valid JSON")
	// ErrNotKafka: the payload is not the event of a Kafka event source. The
	// error says what it looks like instead.
	ErrNotKafka = errors.New("not a Kafka event")
	// ErrRecord: a part of a Kafka event has a shape that Lambda does not send.
	ErrRecord = errors.New("not what a Kafka event source sends")
	// ErrRewritten: a schema registry set on the event source has changed the
	// bytes of the records, so that a copy would not be one.
	ErrRewritten = errors.New("rewritten by a schema registry")
)

// Error says why an event was refused, and where, as far as that was known. It
// holds no key, value or header value.
type Error struct {
	// Kind is ErrSyntax, ErrNotKafka, ErrRecord or ErrRewritten.
	Kind error
	// Reason says what was found and, where there is something to do, what to
	// do about it.
	Reason string
	// Byte is the offset into the payload at which reading stopped.
	Byte int
	// Path is the place in the event, as in records["orders-3"][7].headers[0],
	// empty outside of the records.
	Path string
	// Topic is empty, Partition and Offset are -1 where they are unknown.
	Topic     string
	Partition int32
	Offset    int64
	// Header is the name of the header at fault, if one is.
	Header string
}

// Error begins with the kind and ends with the place.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "decode event: %v: %s", e.Kind, e.Reason)
	var at []string
	if e.Path != "" {
		at = append(at, e.Path)
	}
	if e.Topic != "" {
		at = append(at, "topic "+bounded(e.Topic))
	}
	if e.Partition >= 0 {
		at = append(at, fmt.Sprintf("partition %d", e.Partition))
	}
	if e.Offset >= 0 {
		at = append(at, fmt.Sprintf("offset %d", e.Offset))
	}
	if e.Header != "" {
		at = append(at, "header "+strconv.Quote(bounded(e.Header)))
	}
	if e.Kind != ErrNotKafka {
		at = append(at, fmt.Sprintf("byte %d", e.Byte))
	}
	if len(at) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(at, ", "))
	}
	return b.String()
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// bounded keeps a name from flooding a log line: no legal topic is longer.
func bounded(name string) string {
	if len(name) <= 249 {
		return name
	}
	return strings.ToValidUTF8(name[:249], "") + "…"
}
