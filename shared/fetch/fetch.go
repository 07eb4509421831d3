// Package fetch reads record batches as they lie in a partition's log: one Fetch
// request to one broker, outside any session, from an offset on.
//
//	got, err := fetch.Read(ctx, client.Broker(leader), fetch.Request{
//		TopicPartition: tp, TopicID: id, Offset: 500, MaxBytes: 4 << 20,
//	})
//	for b, err := range got.Batches() { … b.NextOffset() … }
//
// A consumer hands out records; what it passes over (transaction markers, what
// compaction left, aborted records) it does not tell. Whoever has to know what
// became of an offset reads here.
//
// The package keeps no leader, tries nothing twice and decides nothing.
package fetch

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
)

// Request asks for the batches of a partition from the one that holds Offset on.
type Request struct {
	flow.TopicPartition
	// TopicID is needed by brokers since 3.1, where the topic has one.
	TopicID [16]byte
	Offset  int64
	// MaxBytes bounds the answer. One batch comes whatever its size.
	MaxBytes int32
	// MaxWait is how long the broker may wait for a first batch; 100 ms if zero.
	MaxWait time.Duration
	// Committed reads up to the last stable offset only, and is told of aborted
	// transactions (isolation.level = read_committed, KIP-98).
	Committed bool
}

// Response is what the broker has.
type Response struct {
	// Raw is whole batches, the last of which may be cut off. The first may begin
	// before the offset that was asked for.
	Raw []byte
	// Start is the log start offset, End the high watermark, Stable the last stable
	// offset, before which every transaction is decided.
	Start, End, Stable int64
	// Aborted are the aborted transactions that overlap Raw, of a Committed read.
	Aborted []Aborted
}

// Aborted is an aborted transaction: the records of a producer from an offset on,
// up to the producer's next marker.
type Aborted struct{ Producer, First int64 }

// ErrNoPartition is returned for an answer without the partition, which a broker
// gives that throttles the client (KIP-219). Ask again.
var ErrNoPartition = errors.New("broker's answer lacks the partition")

// Read makes the request. A broker's refusal is an error of package kerr:
// kerr.OffsetOutOfRange where the log begins after the offset, or ends before it.
func Read(ctx context.Context, broker *kgo.Broker, q Request) (Response, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(cmp.Or(q.MaxWait, 100*time.Millisecond) / time.Millisecond)
	req.MinBytes = 1
	req.MaxBytes = math.MaxInt32 // there is one partition, and its limit counts
	req.SessionEpoch = -1        // outside any session
	if q.Committed {
		req.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = q.Topic, q.TopicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = q.Partition, q.Offset, q.MaxBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	answer, err := broker.RetriableRequest(ctx, req)
	if err != nil {
		return Response{}, err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return Response{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return Response{}, ErrNoPartition
	}
	got := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return Response{}, err
	}
	out := Response{Raw: got.RecordBatches, Start: got.LogStartOffset, End: got.HighWatermark, Stable: got.LastStableOffset}
	for _, a := range got.AbortedTransactions {
		out.Aborted = append(out.Aborted, Aborted{Producer: a.ProducerID, First: a.FirstOffset})
	}
	return out, nil
}

// Batch is a batch of a response.
type Batch struct {
	batch.Batch
	// Aborted says that the batch's transaction was aborted. Only a Committed read
	// knows.
	Aborted bool
}

// Batches iterates over the whole batches. One that is not intact ends it with an
// error.
func (r Response) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		// As FetchedRecords in Kafka's consumer: a transaction is aborted from its
		// first offset to its marker.
		waiting := slices.SortedFunc(slices.Values(r.Aborted), func(a, b Aborted) int { return cmp.Compare(a.First, b.First) })
		aborted := map[int64]bool{}
		for b, err := range batch.All(r.Raw) {
			if err != nil {
				yield(Batch{}, err)
				return
			}
			for len(waiting) > 0 && waiting[0].First < b.NextOffset() {
				aborted[waiting[0].Producer] = true
				waiting = waiting[1:]
			}
			id := b.Producer().ID
			if b.Control() && endsAborted(b) {
				delete(aborted, id)
			}
			if !yield(Batch{b, b.Transactional() && !b.Control() && aborted[id]}, nil) {
				return
			}
		}
	}
}

// endsAborted says whether a control batch is an abort marker. Its record's key is
// a version and a type, which is 0 for abort (ControlRecordType in Apache Kafka).
func endsAborted(b batch.Batch) bool {
	records, err := b.Records(Decompress)
	return err == nil && len(records) > 0 && len(records[0].Key) >= 4 && binary.BigEndian.Uint16(records[0].Key[2:]) == 0
}

// Decompress is a [batch.Decompressor]; the codecs are franz-go's.
func Decompress(codec batch.Codec, src []byte) ([]byte, error) {
	return kgo.DefaultDecompressor().Decompress(src, kgo.CompressionCodecType(codec))
}
