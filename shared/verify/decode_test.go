package verify

import (
	"hash/maphash"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whatever a broker sends, reading it ends, forwards, without a panic.
func FuzzDecode(f *testing.F) {
	batch := kmsg.RecordBatch{Magic: 2, NumRecords: 1, LastOffsetDelta: 0, FirstOffset: 7, Length: 49 + 8}
	batch.Records = []byte{14, 0, 0, 0, 1, 1, 0, 0} // a record of nulls
	raw := batch.AppendTo(nil)
	f.Add(raw, int64(7), true)
	f.Add(append(raw, raw...), int64(0), false)
	f.Add(raw[:20], int64(0), false)
	message := kmsg.MessageV1{Offset: 3, Magic: 1, MessageSize: 22 + 1, Value: []byte("v")}
	f.Add(message.AppendTo(nil), int64(0), false)
	f.Fuzz(func(t *testing.T, log []byte, at int64, committed bool) {
		l := &brokerLog{reader: &reader{committed: committed, seed: maphash.MakeSeed()}, last: math.MaxInt64}
		d := newDecoder(l)
		d.opts.DisableCRCValidation = true // no fuzzer guesses it
		answer := kmsg.NewFetchResponseTopicPartition()
		answer.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 0, FirstOffset: 0}}
		d.begin(&answer)
		for frame, _, ok := cutBatch(log); ok; frame, _, ok = cutBatch(log) {
			log = log[len(frame):]
			if _, err := d.batch(nil, frame, at); err != nil {
				return
			}
			if d.at < at {
				t.Fatalf("got position %d after %d, want no step back", d.at, at)
			}
			at = d.at
		}
	})
}
