package mm2

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// SourceConnector is the name of the source connector where nobody chose
// another, as in MirrorMaker 2's dedicated mode. Under plain Connect or Strimzi
// it is the connector's name property, and a position under another name is not
// found.
const SourceConnector = "MirrorSourceConnector"

// NoOffset is the offset of a position that says nothing.
const NoOffset = -1

// SourcePosition is how far a partition of the source is copied, as Kafka Connect
// stores it in mm2-offsets.<source>.internal on the target. It is what
// MirrorMaker 2 resumes from.
type SourcePosition struct {
	Connector string // name of the source connector, mostly SourceConnector
	Cluster   string // alias of the source
	Topic     string // name on the source
	Partition int32
	Offset    int64 // upstream offset of the last record copied, or NoOffset
}

const position = "source position"

// Key is the record's key. It is JSON text to be met byte for byte, members in
// this order: another spelling is another key to compaction and to Connect.
func (p SourcePosition) Key() []byte {
	b := appendJSON([]byte("["), p.Connector)
	b = appendJSON(append(b, `,{"cluster":`...), p.Cluster)
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(p.Partition), 10)
	b = appendJSON(append(b, `,"topic":`...), p.Topic)
	return append(b, "}]"...)
}

// Value is the record's value; nil, a tombstone, for a position that says
// nothing, as Connect deletes an offset.
func (p SourcePosition) Value() []byte {
	if p.Offset <= NoOffset {
		return nil
	}
	return append(strconv.AppendInt([]byte(`{"offset":`), p.Offset, 10), '}')
}

// RecordPartition is the partition of the offsets topic that the record belongs
// to, of n in all, as Kafka's default partitioner chooses it. n is at least 1.
func (p SourcePosition) RecordPartition(n int32) int32 {
	return int32(murmur2(p.Key())&math.MaxInt32) % n
}

// Next is the upstream offset to go on from; false where the position says
// nothing and auto.offset.reset decides.
func (p SourcePosition) Next() (int64, bool) {
	if p.Offset <= NoOffset || p.Offset == math.MaxInt64 {
		return 0, false
	}
	return p.Offset + 1, true
}

// ParseSourcePosition reads a record of an offsets topic. A null value, and a
// value without an offset, are a position that says nothing. The error is
// ErrOtherConnector for an entry of another kind of connector, of which every
// such topic holds some.
func ParseSourcePosition(key, value []byte) (SourcePosition, error) {
	p, err := parsePositionKey(key)
	if err != nil {
		return SourcePosition{}, &ParseError{Record: position, Part: "key", Err: err}
	}
	if p.Offset, err = parsePositionValue(value); err != nil {
		return SourcePosition{}, &ParseError{Record: position, Part: "value", Err: err}
	}
	return p, nil
}

func parsePositionKey(key []byte) (SourcePosition, error) {
	if key == nil {
		return SourcePosition{}, ErrNull
	}
	var pair []json.RawMessage
	if err := json.Unmarshal(key, &pair); err != nil {
		return SourcePosition{}, malformed(err)
	}
	if len(pair) != 2 {
		return SourcePosition{}, malformed(fmt.Errorf("%d elements, want a connector and a partition", len(pair)))
	}
	var p SourcePosition
	var members map[string]json.RawMessage
	if err := json.Unmarshal(pair[0], &p.Connector); err != nil {
		return SourcePosition{}, malformed(err)
	}
	if err := json.Unmarshal(pair[1], &members); err != nil {
		return SourcePosition{}, malformed(err)
	}
	for name, to := range map[string]any{"cluster": &p.Cluster, "partition": &p.Partition, "topic": &p.Topic} {
		member, ok := members[name]
		if !ok || len(members) != 3 {
			return SourcePosition{}, ErrOtherConnector
		}
		if string(member) == "null" {
			return SourcePosition{}, malformed(fmt.Errorf("%s is null", name))
		}
		if err := json.Unmarshal(member, to); err != nil {
			return SourcePosition{}, malformed(err)
		}
	}
	if p.Partition < 0 {
		return SourcePosition{}, ErrNegativePartition
	}
	return p, nil
}

func parsePositionValue(value []byte) (int64, error) {
	if value == nil {
		return NoOffset, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err != nil {
		return 0, malformed(err)
	}
	member, ok := members["offset"]
	if !ok || string(member) == "null" {
		return NoOffset, nil
	}
	var offset int64
	if err := json.Unmarshal(member, &offset); err != nil {
		return 0, malformed(err)
	}
	if offset < NoOffset {
		return 0, malformed(fmt.Errorf("the offset %d is negative", offset))
	}
	return offset, nil
}

func malformed(err error) error { return fmt.Errorf("%w: %w", ErrMalformed, err) }

// appendJSON writes a string as Jackson does: only quotes, backslashes and
// control characters are escaped, the latter in upper-case hexadecimal digits.
// encoding/json escapes <, > and & as well, and so makes another key.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b = append(b, '\\', byte(r))
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			if r < 0x20 {
				b = fmt.Appendf(b, `\u%04X`, r)
				continue
			}
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		h = h*m ^ k*m
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
