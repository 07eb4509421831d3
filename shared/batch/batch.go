// Package batch builds and reads Kafka's record batches, magic 2, the only
// format that brokers since Kafka 4.0 take. It writes them itself because a
// conditional append needs what no producer library lets a caller set: the
// producer id, the epoch and the sequence of every batch.
//
//	raw, err := batch.Append(nil, batch.Producer{ID: 7, Sequence: 40}, records, nil)
//	for b, err := range batch.All(fetched) { … b.Records(decompress) … }
//
// The layout is the one of Apache Kafka's DefaultRecordBatch and
// DefaultRecord (KIP-98, KIP-82). The package knows no compression algorithm
// and no network: a [Compressor] and a [Decompressor] are handed in.
package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
)

// Record is one record of a Kafka topic without its place in the log. A nil
// Key or Value is Kafka's null; an empty one is zero bytes. Timestamp is in
// milliseconds since 1970.
type Record struct {
	Timestamp  int64
	Key, Value []byte
	Headers    []Header
}

// Header is one record header. Names may repeat and may be empty; a nil
// Value is Kafka's null.
type Header struct {
	Name  string
	Value []byte
}

// Producer is the idempotent identity of a batch: a broker appends it only if
// Sequence follows the last sequence of ID and Epoch on that partition
// (KIP-98; ProducerAppendInfo in Apache Kafka).
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32
	// Transactional makes the batch a part of the transaction that the producer
	// has under way.
	Transactional bool
}

// Advance returns the sequence that follows n records after sequence s, or lies n
// before it where n is negative. Sequences wrap at 2³¹ (DefaultRecordBatch.incrementSequence).
func Advance(s int32, n int) int32 {
	return int32((int64(s) + int64(n)) & math.MaxInt32)
}

// Distance returns how far sequence to lies ahead of sequence from, negative
// where it lies behind, with the wrap at 2³¹ taken into account. It is in
// [−2³⁰, 2³⁰).
func Distance(from, to int32) int32 {
	d := (int64(to) - int64(from)) & math.MaxInt32
	if d >= 1<<30 {
		d -= 1 << 31
	}
	return int32(d)
}

// Codec is the compression of a batch, as in the low three bits of its
// attributes (CompressionType in Apache Kafka).
type Codec int8

// The codecs of magic 2.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Compressor appends the compressed form of src to dst and says which codec
// it used. Returning src's own bytes with [None] is allowed.
type Compressor func(dst, src []byte) ([]byte, Codec)

// Decompressor returns the plain form of src.
type Decompressor func(codec Codec, src []byte) ([]byte, error)

// Overhead is the size in bytes of a batch's header, that is of a batch
// without records.
const Overhead = 61

const (
	offLength         = 8
	offLeaderEpoch    = 12
	offMagic          = 16
	offCRC            = 17
	offAttributes     = 21
	offLastDelta      = 23
	offFirstTimestamp = 27
	offMaxTimestamp   = 35
	offProducerID     = 43
	offProducerEpoch  = 51
	offSequence       = 53
	offCount          = 57

	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends one batch of all records to dst. Its base offset is 0 and
// its leader epoch −1, which the broker replaces. A nil Compressor leaves the
// records plain. There must be at least one record: an empty batch has no
// meaning to a broker.
func Append(dst []byte, p Producer, records []Record, compress Compressor) []byte {
	if len(records) == 0 {
		panic("batch: no records")
	}
	start := len(dst)
	dst = append(dst, make([]byte, Overhead)...)
	first, newest := records[0].Timestamp, records[0].Timestamp
	for i := range records {
		newest = max(newest, records[i].Timestamp)
		dst = appendRecord(dst, &records[i], records[i].Timestamp-first, int64(i))
	}
	var codec Codec
	if compress != nil {
		plain := dst[start+Overhead:]
		packed, used := compress(nil, plain)
		if used != None {
			codec = used
			dst = append(dst[:start+Overhead], packed...)
		}
	}
	h := dst[start:]
	be := binary.BigEndian
	be.PutUint32(h[offLength:], uint32(len(h)-offLeaderEpoch))
	be.PutUint32(h[offLeaderEpoch:], math.MaxUint32)
	h[offMagic] = 2
	attributes := uint16(codec)
	if p.Transactional {
		attributes |= attrTransactional
	}
	be.PutUint16(h[offAttributes:], attributes)
	be.PutUint32(h[offLastDelta:], uint32(len(records)-1))
	be.PutUint64(h[offFirstTimestamp:], uint64(first))
	be.PutUint64(h[offMaxTimestamp:], uint64(newest))
	be.PutUint64(h[offProducerID:], uint64(p.ID))
	be.PutUint16(h[offProducerEpoch:], uint16(p.Epoch))
	be.PutUint32(h[offSequence:], uint32(p.Sequence))
	be.PutUint32(h[offCount:], uint32(len(records)))
	be.PutUint32(h[offCRC:], crc32.Checksum(h[offAttributes:], castagnoli))
	return dst
}

// Fit returns how many of the first records make a batch of at most limit bytes
// before compression; at least one, however large it is, because a record
// cannot be divided and the broker is the judge of its size.
func Fit(records []Record, limit int) int {
	size := Overhead
	for i := range records {
		size += recordSize(&records[i], records[i].Timestamp-records[0].Timestamp, int64(i))
		if size > limit {
			return max(i, 1)
		}
	}
	return len(records)
}

// Size is the size in bytes of a batch of all records before compression.
func Size(records []Record) int {
	size := Overhead
	for i := range records {
		size += recordSize(&records[i], records[i].Timestamp-records[0].Timestamp, int64(i))
	}
	return size
}

func appendRecord(dst []byte, r *Record, timestampDelta, offsetDelta int64) []byte {
	dst = binary.AppendVarint(dst, int64(bodySize(r, timestampDelta, offsetDelta)))
	dst = append(dst, 0) // attributes, unused
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(h.Name)))
		dst = append(dst, h.Name...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func recordSize(r *Record, timestampDelta, offsetDelta int64) int {
	n := bodySize(r, timestampDelta, offsetDelta)
	return varintSize(int64(n)) + n
}

func bodySize(r *Record, timestampDelta, offsetDelta int64) int {
	n := 1 + varintSize(timestampDelta) + varintSize(offsetDelta) +
		bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for _, h := range r.Headers {
		n += varintSize(int64(len(h.Name))) + len(h.Name) + bytesSize(h.Value)
	}
	return n
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func varintSize(v int64) int {
	n := 1
	for u := uint64(v<<1) ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

// ErrCorrupt is returned, wrapped, for bytes that are not a whole and intact
// batch of magic 2.
var ErrCorrupt = errors.New("corrupt record batch")

// Batch is one whole batch as it lies in a log. Only [All] makes one, after
// its length, magic and checksum were verified.
type Batch []byte

// All iterates over the batches of a Fetch response's record bytes. A batch
// cut off at the end, which brokers send when the size limit is reached, ends
// the iteration without an error; a batch that is not intact ends it with
// one.
func All(raw []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(raw) >= offMagic+1 {
			n := int64(int32(binary.BigEndian.Uint32(raw[offLength:]))) + offLeaderEpoch
			if raw[offMagic] != 2 {
				yield(nil, fmt.Errorf("read batch: magic %d: %w", raw[offMagic], ErrCorrupt))
				return
			}
			if n < Overhead {
				yield(nil, fmt.Errorf("read batch: length %d: %w", n, ErrCorrupt))
				return
			}
			if n > int64(len(raw)) {
				return
			}
			b := Batch(raw[:n:n])
			if got, want := crc32.Checksum(b[offAttributes:], castagnoli), binary.BigEndian.Uint32(b[offCRC:]); got != want {
				yield(nil, fmt.Errorf("read batch at offset %d: checksum %08x, header says %08x: %w", b.BaseOffset(), got, want, ErrCorrupt))
				return
			}
			if !yield(b, nil) {
				return
			}
			raw = raw[n:]
		}
	}
}

// BaseOffset is the offset of the batch's first record.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b)) }

// NextOffset is the offset after the batch's last record.
func (b Batch) NextOffset() int64 {
	return b.BaseOffset() + int64(int32(binary.BigEndian.Uint32(b[offLastDelta:]))) + 1
}

// Producer is the identity that the batch was written with; ID is −1 where it
// was not idempotent.
func (b Batch) Producer() Producer {
	return Producer{
		ID:       int64(binary.BigEndian.Uint64(b[offProducerID:])),
		Epoch:    int16(binary.BigEndian.Uint16(b[offProducerEpoch:])),
		Sequence: int32(binary.BigEndian.Uint32(b[offSequence:])),

		Transactional: b.Transactional(),
	}
}

// Count is the number of records in the batch.
func (b Batch) Count() int { return int(int32(binary.BigEndian.Uint32(b[offCount:]))) }

// MaxTimestamp is the newest timestamp of the batch, in milliseconds.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[offMaxTimestamp:])) }

// LogAppendTime says that the broker stamped the batch itself, so that all
// its records bear [Batch.MaxTimestamp].
func (b Batch) LogAppendTime() bool { return b.attributes()&attrLogAppendTime != 0 }

// Control says that the batch holds a transaction marker and no record of a
// user.
func (b Batch) Control() bool { return b.attributes()&attrControl != 0 }

// Marker says how a control batch ends the transaction of its producer; ok is
// false for a batch that is no transaction marker (ControlRecordType and
// EndTransactionMarker in Apache Kafka).
func (b Batch) Marker() (committed, ok bool) {
	if !b.Control() {
		return false, false
	}
	records, err := b.Records(nil)
	if err != nil || len(records) != 1 || len(records[0].Key) < 4 {
		return false, false
	}
	kind := binary.BigEndian.Uint16(records[0].Key[2:])
	return kind == 1, kind <= 1
}

// Transactional says that the batch is part of a transaction.
func (b Batch) Transactional() bool { return b.attributes()&attrTransactional != 0 }

// Codec is the compression of the batch's records.
func (b Batch) Codec() Codec { return Codec(b.attributes() & attrCodec) }

func (b Batch) attributes() uint16 { return binary.BigEndian.Uint16(b[offAttributes:]) }
