// Package target treats a partition of the target cluster as an append-only
// log with conditional append: a record is written only if exactly the records
// that the caller knows of are there already. That is what makes a retry safe,
// refuses the late request of an invocation that was killed, and keeps two
// invocations from interleaving.
//
// The broker does the comparing. It appends an idempotent batch only if its
// sequence follows the last one of that producer id on that partition, from
// whatever connection it comes (KIP-98; ProducerStateManager in Apache Kafka).
// So one producer id writes a flow's partitions, and the sequence of a record
// is the number of records copied to its partition since the epoch began.
//
//	log := target.New(client, target.Options{})
//	standing, err := log.Standing(ctx, probes)        // once, when cold
//	got, err := log.Append(ctx, partition, cursor, records, upstream)
//	… got.Placed, got.Cursor                          // also with an error: what is on B
//
// The package keeps nothing between two calls but the leaders of partitions and
// the size of batch that a topic has taken. It never starts a new epoch by
// itself: that takes a write to the flow's store first, which is the caller's.
// It does not use kgo's producer, which can set neither producer id nor
// sequence.
package target

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
)

// NoTimestamp is the timestamp of a record that has none (RecordBatch.NO_TIMESTAMP);
// it becomes the time of the append.
const NoTimestamp = -1

// Unknown is the producer id of a cursor behind which anybody may have written
// copies: MirrorMaker 2, or a flow whose state was lost. It can claim what is
// there, by content alone, and cannot append.
const Unknown = -1

// Partition is a partition of the target cluster. The topic's id keeps a topic
// that was deleted and made again from being taken for the old one; it is zero
// on clusters that have no topic ids.
type Partition struct {
	flow.TopicPartition
	TopicID [16]byte
	// Source is the partition of the source that is copied here. Only
	// [Transactions] need it.
	Source flow.TopicPartition
}

// Upstream says the source offset of a record by its index in the call. It is
// what [Transactions] write into the position record; a [Log] does not ask.
type Upstream func(record int) int64

// Cursor says where the next record of a partition belongs.
type Cursor struct {
	// End is the offset after the last record of ours, and where the next one is
	// expected.
	End int64
	// Producer is the identity of the next batch: its sequence is the next one.
	Producer batch.Producer
	// Newest is the greatest timestamp, in milliseconds, of the last batch. The
	// broker forgets a producer by it.
	Newest int64
}

// Placed says where consecutive records are on the target: records First to
// First+Count−1 of the call have the offsets from Base on.
type Placed struct {
	First, Count int
	Base         int64
}

// Appended is what an append has achieved, complete or not.
type Appended struct {
	Placed []Placed
	// Cursor follows the last record that is on the target.
	Cursor Cursor
	// Done is the number of leading records that are on the target.
	Done int
	// Found counts those of them that were there before this call: copies of an
	// earlier attempt that the broker refused to take twice.
	Found int
	// Extra counts records of ours on the target, between the placed ones, that
	// were not among the records of the call: the source has dropped them since.
	Extra int
	// Upstream is the source offset before which everything is on the target,
	// although records of the call are not found there as they are: the position
	// record that was committed with the last copy says so. It is 0 where nothing
	// of the kind is known, and only [Transactions] know it.
	Upstream int64
	// Foreign counts the offsets between ours that something else occupies.
	Foreign int64
	// Second are those of them that hold a second copy: of a late request of this
	// producer, which the broker took after it had forgotten the first.
	Second []SecondCopy
	// Stamped counts records of which the target keeps its own time instead of the
	// record's, as a topic with message.timestamp.type = LogAppendTime does. It
	// misses those whose answer was late.
	Stamped int
	// Stripped are indexes of records whose copy, found on the target, lacks headers
	// with a null value.
	Stripped []int
}

// SecondCopy is a batch of records that are on the target before, by its place.
// Whoever finds it again finds it at the same one.
type SecondCopy struct{ Offset, Records int64 }

// ErrFenced is returned when the target has seen a newer epoch of the producer:
// another invocation took the partition over. Read the store again.
var ErrFenced = errors.New("fenced by a newer epoch")

// ErrForgotten is returned when the target does not know the producer on the
// partition: its records have expired, or their timestamps are older than
// producer.id.expiration.ms. The broker would take any sequence now, so the
// caller must store a new epoch before it appends from sequence 0.
var ErrForgotten = errors.New("producer unknown to the target partition")

// ErrRecreated is returned when the target topic bears another topic id than
// the caller knows: it was deleted and made again.
var ErrRecreated = errors.New("target topic was re-created")

// LostError is returned when the target holds fewer records of ours than it
// had acknowledged, as after an unclean leader election.
type LostError struct {
	// Records is how many are missing at the end.
	Records int64
	// End is the target's end offset as seen.
	End int64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("target lost %d acknowledged records, its log ends at %d", e.Records, e.End)
}

// AlteredError is returned when a record that the target holds from an earlier
// attempt is not the one that the source shows now: that attempt knew nothing of
// a record before it, which cannot be put in order any more.
type AlteredError struct {
	// Record is the index in the call of the record that the target lacks, Next that
	// of a later one, which it has at Offset.
	Record, Next int
	Offset       int64
}

func (e *AlteredError) Error() string {
	return fmt.Sprintf("target holds another record at offset %d", e.Offset)
}

// RejectedError is returned when the broker will not take a record, however
// often it is sent.
type RejectedError struct {
	// Record is the index of the record in the call; -1 where the topic as a
	// whole is refused.
	Record int
	// Code is Kafka's error code, Detail the broker's own words, if any.
	Code   int16
	Detail string
	// Size is the size in bytes of the batch that was refused, which holds nothing but
	// the record unless Record is -1; Plain is its size before compression.
	Size, Plain int
	// Limits are the configs of the topic that a broker judges records by, as the
	// target tells them ([LimitConfigs]); nil where it does not.
	Limits map[string]string
}

// OfRecord says whether it is this record that is refused, so that another one may
// be taken. Where it is not, nothing can be appended to the topic as things are.
func (e *RejectedError) OfRecord() bool { return e.Record >= 0 && judges(e.Code) }

func (e *RejectedError) Error() string {
	msg := fmt.Sprintf("broker answered %s", kerrName(e.Code))
	if e.Detail != "" {
		msg += ": " + e.Detail
	}
	return msg
}

// Unwrap returns Kafka's error, for errors.Is with a value of package kerr.
func (e *RejectedError) Unwrap() error { return kerr.ErrorForCode(e.Code) }

func kerrName(code int16) string {
	if err, ok := kerr.ErrorForCode(code).(*kerr.Error); ok {
		return err.Message
	}
	return fmt.Sprintf("error code %d", code)
}

// DefaultBatchBytes is the size in bytes, before compression, up to which
// records share a batch: just below the brokers' message.max.bytes of
// 1,048,588.
const DefaultBatchBytes = 1_000_000

// Options tune a Log. The zero value is ready to use.
type Options struct {
	// BatchBytes bounds a batch before compression; DefaultBatchBytes if zero. A
	// record that is larger makes a batch of its own, and the broker judges it.
	BatchBytes int
	// Compress packs batches; nil sends them plain.
	Compress batch.Compressor
	// Now is the clock that stamps records without a timestamp; time.Now if nil.
	Now func() time.Time
}

// Log appends to partitions of one cluster. It is safe for concurrent use.
type Log struct {
	brokers    brokers
	batchBytes int
	compress   batch.Compressor
	now        func() time.Time

	mu     sync.Mutex
	limits map[string]int // of batches, where a topic takes less than batchBytes
}

// limit is the size up to which the topic's records share a batch.
func (l *Log) limit(topic string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok := l.limits[topic]; ok {
		return n
	}
	return l.batchBytes
}

// lower remembers that a topic takes less: its max.message.bytes may be hidden
// from us, and every batch would be sent in vain until it is halved enough.
func (l *Log) lower(topic string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits[topic] = n
}

// New returns a Log that sends through the client's connections. The client
// must not be limited to other acks than all.
func New(client *kgo.Client, o Options) *Log {
	return newLog(newWire(client), o)
}

func newLog(b brokers, o Options) *Log {
	l := &Log{brokers: b, batchBytes: o.BatchBytes, compress: o.Compress, now: o.Now, limits: map[string]int{}}
	if l.batchBytes == 0 {
		l.batchBytes = DefaultBatchBytes
	}
	if l.now == nil {
		l.now = time.Now
	}
	return l
}
