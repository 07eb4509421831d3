package batch

import (
	"encoding/binary"
	"fmt"
)

// Placed is a record together with its offset in the log it was read from.
type Placed struct {
	Offset int64
	Record
}

// Records decodes all records of the batch. They point into the batch, or
// into what decompress returned, which may be nil where only plain batches
// are expected. Every length is checked against the bytes that are there: a
// batch that is intact by its checksum may still have been written wrongly.
func (b Batch) Records(decompress Decompressor) ([]Placed, error) {
	body := []byte(b[Overhead:])
	if c := b.Codec(); c != None {
		if decompress == nil {
			return nil, fmt.Errorf("read batch at offset %d: compressed with codec %d and no decompressor", b.BaseOffset(), c)
		}
		var err error
		if body, err = decompress(c, body); err != nil {
			return nil, fmt.Errorf("read batch at offset %d: decompress: %w", b.BaseOffset(), err)
		}
	}
	count := b.Count()
	// A record takes at least seven bytes, so a count beyond the bytes is a
	// lie that must not be believed by an allocation.
	if count < 0 || count > len(body)/7 {
		return nil, fmt.Errorf("read batch at offset %d: %d records in %d bytes: %w", b.BaseOffset(), count, len(body), ErrCorrupt)
	}
	first := int64(binary.BigEndian.Uint64(b[offFirstTimestamp:]))
	out := make([]Placed, 0, count)
	r := reader{b: body}
	for range count {
		p, delta := r.record()
		if r.bad {
			return nil, fmt.Errorf("read batch at offset %d: record %d: %w", b.BaseOffset(), len(out), ErrCorrupt)
		}
		p.Offset += b.BaseOffset()
		p.Timestamp = first + delta
		if b.LogAppendTime() {
			p.Timestamp = b.MaxTimestamp()
		}
		out = append(out, p)
	}
	if len(r.b) != 0 {
		return nil, fmt.Errorf("read batch at offset %d: %d bytes after the last record: %w", b.BaseOffset(), len(r.b), ErrCorrupt)
	}
	return out, nil
}

// reader consumes bytes from the front; the first fault makes it bad and
// empty.
type reader struct {
	b   []byte
	bad bool
}

// record reads one record; its offset and the returned timestamp are deltas.
func (r *reader) record() (p Placed, timestampDelta int64) {
	n := r.varint()
	if n < 0 || n > int64(len(r.b)) {
		r.fail()
		return p, 0
	}
	body := reader{b: r.b[:n:n]}
	r.b = r.b[n:]
	body.take(1)
	timestampDelta = body.varint()
	p.Offset = body.varint()
	p.Key = body.bytes()
	p.Value = body.bytes()
	headers := body.varint()
	if headers < 0 || headers > int64(len(body.b)/2) {
		body.fail()
	}
	if headers > 0 && !body.bad {
		p.Headers = make([]Header, 0, headers)
		for range headers {
			name := body.bytes()
			if name == nil {
				body.fail()
			}
			p.Headers = append(p.Headers, Header{Name: string(name), Value: body.bytes()})
		}
	}
	if body.bad || len(body.b) != 0 {
		r.fail()
	}
	return p, timestampDelta
}

func (r *reader) fail() { r.bad, r.b = true, nil }

func (r *reader) take(n int64) []byte {
	if n > int64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes reads a length and as many bytes; −1 is null.
func (r *reader) bytes() []byte {
	n := r.varint()
	if n == -1 || r.bad {
		return nil
	}
	if n < 0 {
		r.fail()
		return nil
	}
	return r.take(n)
}
