package verify

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// decoder makes entries of fetched batches. Records and what they are unpacked
// into are used again for the next batch.
type decoder struct {
	digester     *digester
	opts         kgo.ProcessFetchPartitionOpts
	decompressor kgo.Decompressor
	end          int64
	at           int64 // the offset that follows what was decoded

	partition kmsg.FetchResponseTopicPartition // with one batch at a time
}

// pool is of one decoder, which holds one batch at a time.
type pool struct {
	records []kgo.Record
	bytes   []byte
}

func (p *pool) GetRecords(n int) []kgo.Record { return slices.Grow(p.records[:0], n) }
func (p *pool) PutRecords(r []kgo.Record)     { p.records = r }
func (p *pool) PutDecompressBytes(b []byte)   { p.bytes = b }
func (p *pool) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	b := p.bytes
	p.bytes = nil
	return b
}

func newDecoder(l *brokerLog) *decoder {
	p := &pool{}
	d := &decoder{
		digester:     newDigester(l.seed, l.lasting),
		decompressor: kgo.DefaultDecompressor(p),
		end:          l.last,
		opts: kgo.ProcessFetchPartitionOpts{
			// Markers are left out here, for some of them end an aborted transaction.
			KeepControlRecords: true,
			Topic:              l.topic,
			Partition:          l.partition,
			Pools:              []kgo.Pool{p},
		},
	}
	if l.committed {
		d.opts.IsolationLevel = kgo.ReadCommitted()
	}
	return d
}

// begin takes the answer whose batches follow.
func (d *decoder) begin(p *kmsg.FetchResponseTopicPartition) {
	d.partition = *p
	d.partition.RecordBatches = nil
	d.partition.AbortedTransactions = slices.Clone(p.AbortedTransactions)
}

// batch appends the data records of a batch to out, from the offset at on.
func (d *decoder) batch(out []entry, frame []byte, at int64) ([]entry, error) {
	_, next, _ := cutBatch(frame)
	d.at = max(at, next)
	d.opts.Offset = at
	d.partition.RecordBatches = frame
	got, after := kgo.ProcessFetchPartition(d.opts, &d.partition, d.decompressor, nil)
	if got.Err != nil {
		return nil, fmt.Errorf("decode: %w", got.Err)
	}
	// What franz-go cannot decode to its end it leaves to the next fetch.
	if after < d.at {
		return nil, fmt.Errorf("decode: the batch is not intact: %w", kerr.CorruptMessage)
	}
	for _, r := range got.Records {
		switch {
		case r.Attrs.IsControl():
			d.endTransaction(r)
		case r.Offset < d.end:
			out = append(out, entry{})
			d.digester.entry(&out[len(out)-1], r)
		}
		r.Recycle()
	}
	return out, nil
}

// endTransaction drops an aborted transaction of which this is the marker, so
// that the producer's next one is not taken for it. A transaction without a batch
// in this partition has a marker too, and is not among those that are aborted.
func (d *decoder) endTransaction(r *kgo.Record) {
	const abort = 0
	if len(r.Key) < 4 || binary.BigEndian.Uint16(r.Key[2:]) != abort {
		return
	}
	first := -1
	for i, t := range d.partition.AbortedTransactions {
		if t.ProducerID == r.ProducerID && t.FirstOffset <= r.Offset && (first < 0 || t.FirstOffset < d.partition.AbortedTransactions[first].FirstOffset) {
			first = i
		}
	}
	if first >= 0 {
		d.partition.AbortedTransactions = slices.Delete(d.partition.AbortedTransactions, first, first+1)
	}
}
