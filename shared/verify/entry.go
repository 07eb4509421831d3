package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/maphash"
	"io"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fields is a set of the parts of a record.
type fields uint8

const (
	fieldKey fields = 1 << iota
	fieldValue
	fieldHeaders
	fieldTimestamp

	noFields  fields = 0
	allFields        = fieldKey | fieldValue | fieldHeaders | fieldTimestamp
)

// entry stands for a record: what must be equal on both sides, by digests, and
// what may be said about it. It holds no content, so that a window of records
// takes as much memory whatever their size.
type entry struct {
	offset    int64
	timestamp int64 // nanoseconds since 1970, as kgo has it

	key, value, headers uint64 // digests; null, empty and absent differ by size
	// kept is the digest of the headers without those whose value is null.
	kept uint64
	id   uint64 // of all fields

	keySize, valueSize int32 // bytes; -1 is null
	headersSize        int32 // bytes of names and values
	headerCount        int32
	nullCount          int32 // headers with a null value

	appended bool // the timestamp is that of the append (LogAppendTime)

	// content stands for the record in a kept report; zero where none is wanted.
	content [16]byte
}

// noTimestamp is Kafka's timestamp -1, of records from before 0.10.
const noTimestamp = -1_000_000

func (e *entry) millis() int64 { return e.timestamp / 1_000_000 }

// digester makes entries. Those of digesters with one seed can be compared; the
// seed is random, so that no data can be made to collide.
type digester struct {
	seed maphash.Seed
	hash maphash.Hash
	// lasting, if not nil, is for digests that are the same in every process.
	lasting hash.Hash
}

func newDigester(seed maphash.Seed, lasting bool) *digester {
	d := &digester{seed: seed}
	d.hash.SetSeed(seed)
	if lasting {
		d.lasting = sha256.New()
	}
	return d
}

// entry fills e from r; it keeps nothing of r.
func (d *digester) entry(e *entry, r *kgo.Record) {
	*e = entry{
		offset:    r.Offset,
		timestamp: r.Timestamp.UnixNano(),
		appended:  r.Attrs.TimestampType() == 1,
	}
	e.key, e.keySize = d.bytes(r.Key)
	e.value, e.valueSize = d.bytes(r.Value)
	if len(r.Headers) > 0 {
		d.headers(e, r.Headers)
	}
	e.id = e.project(allFields)
	if d.lasting != nil {
		d.content(e, r)
	}
}

// content digests all fields, each with its size, so that no two records have
// the same bytes.
func (d *digester) content(e *entry, r *kgo.Record) {
	var size [binary.MaxVarintLen64]byte
	part := func(b []byte) {
		n := int64(len(b))
		if b == nil {
			n = -1
		}
		d.lasting.Write(binary.AppendVarint(size[:0], n))
		d.lasting.Write(b)
	}
	d.lasting.Reset()
	d.lasting.Write(binary.AppendVarint(size[:0], e.millis()))
	part(r.Key)
	part(r.Value)
	d.lasting.Write(binary.AppendVarint(size[:0], int64(len(r.Headers))))
	for i := range r.Headers {
		d.lasting.Write(binary.AppendVarint(size[:0], int64(len(r.Headers[i].Key))))
		io.WriteString(d.lasting, r.Headers[i].Key)
		part(r.Headers[i].Value)
	}
	var sum [sha256.Size]byte
	copy(e.content[:], d.lasting.Sum(sum[:0]))
}

func (d *digester) bytes(b []byte) (digest uint64, size int32) {
	if b == nil {
		return 0, -1
	}
	return maphash.Bytes(d.seed, b), int32(len(b))
}

func (d *digester) headers(e *entry, headers []kgo.RecordHeader) {
	e.headerCount = int32(len(headers))
	for i := range headers {
		e.headersSize += int32(len(headers[i].Key) + len(headers[i].Value))
		if headers[i].Value == nil {
			e.nullCount++
		}
	}
	e.headers = d.list(headers, true)
	switch {
	case e.nullCount == 0:
		e.kept = e.headers
	case e.nullCount < e.headerCount:
		e.kept = d.list(headers, false)
	}
}

// list digests names and values with their sizes, so that no two lists have
// the same bytes.
func (d *digester) list(headers []kgo.RecordHeader, nulls bool) uint64 {
	var size [binary.MaxVarintLen64]byte
	d.hash.Reset()
	for i := range headers {
		h := &headers[i]
		n := int64(len(h.Value))
		if h.Value == nil {
			if !nulls {
				continue
			}
			n = -1
		}
		d.hash.Write(binary.AppendUvarint(size[:0], uint64(len(h.Key))))
		d.hash.WriteString(h.Key)
		d.hash.Write(binary.AppendVarint(size[:0], n))
		d.hash.Write(h.Value)
	}
	return d.hash.Sum64()
}

// project digests the given fields, for looking a record up.
func (e *entry) project(f fields) uint64 {
	return e.projectHeaders(f, e.headers)
}

// projectKept is project of e as it looks without its null headers.
func (e *entry) projectKept(f fields) uint64 {
	return e.projectHeaders(f, e.kept)
}

func (e *entry) projectHeaders(f fields, headers uint64) uint64 {
	h := uint64(f)
	if f&fieldKey != 0 {
		h = mix(h^e.key, uint64(e.keySize))
	}
	if f&fieldValue != 0 {
		h = mix(h^e.value, uint64(e.valueSize))
	}
	if f&fieldHeaders != 0 {
		h = mix(h^headers, 3)
	}
	if f&fieldTimestamp != 0 {
		h = mix(h^uint64(e.timestamp), 5)
	}
	return h
}

// mix spreads what went into h over all its bits (the finalizer of SplitMix64).
func mix(h, n uint64) uint64 {
	h += n*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// differ returns the fields in which b, a record of the target, is not a's
// copy. A timestamp that cannot have been copied is not compared.
func differ(a, b *entry) fields {
	d := noFields
	if a.key != b.key || a.keySize != b.keySize {
		d |= fieldKey
	}
	if a.value != b.value || a.valueSize != b.valueSize {
		d |= fieldValue
	}
	if a.headers != b.headers || a.headerCount != b.headerCount {
		d |= fieldHeaders
	}
	if a.timestamp != b.timestamp && !untimed(a, b) {
		d |= fieldTimestamp
	}
	return d
}

// untimed reports whether the timestamps of a and b say nothing about the copy:
// the target's broker sets its own, or the source's record has none.
func untimed(a, b *entry) bool { return b.appended || a.timestamp == noTimestamp }

// lostHeaders reports whether b is a without its null headers, which is what
// Lambda's event source makes of it.
func lostHeaders(a, b *entry) bool {
	return a.nullCount > 0 && b.headerCount == a.headerCount-a.nullCount && a.kept == b.headers
}

// resembles reports whether b is a in the given fields; lost headers are no
// obstacle.
func resembles(a, b *entry, in fields) bool {
	d := differ(a, b) & in
	return d == 0 || d == fieldHeaders && lostHeaders(a, b)
}

// likeness is how much b looks like an altered a; 0 is not at all. Emptiness in
// common is no likeness, and where timestamps can tell, a key alone is none, nor
// are headers alone: many records have them.
func likeness(a, b *entry) int {
	d, n := differ(a, b), 0
	timed := !untimed(a, b)
	if d&fieldValue == 0 && a.valueSize > 0 {
		n += 4
	}
	if d&fieldTimestamp == 0 && timed {
		n += 4
	}
	alone := n == 0 && timed
	if d&fieldKey == 0 && a.keySize > 0 {
		n += 2
	}
	if d&fieldHeaders == 0 && a.headerCount > 0 || d&fieldHeaders != 0 && lostHeaders(a, b) {
		n++
	}
	if alone && n < 3 {
		return 0
	}
	return n
}
