package verify

import (
	"hash/maphash"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTheMarkerOfAnEmptyTransactionEndsNoOther(t *testing.T) {
	const transactional, control = 0x10, 0x20
	frame := func(offset int64, attributes int16, record ...byte) []byte {
		batch := kmsg.RecordBatch{Magic: 2, NumRecords: 1, FirstOffset: offset, Length: int32(49 + len(record)), ProducerID: 5, Attributes: attributes}
		batch.Records = record
		return batch.AppendTo(nil)
	}
	data := []byte{14, 0, 0, 0, 1, 1, 0, 0}               // a record of nulls
	abort := []byte{22, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0}  // a key of version 0, type 0
	commit := []byte{22, 0, 0, 0, 8, 0, 0, 0, 1, 1, 0, 0} // type 1
	d := newDecoder(&brokerLog{reader: &reader{committed: true, seed: maphash.MakeSeed()}, last: math.MaxInt64})
	d.opts.DisableCRCValidation = true
	answer := kmsg.NewFetchResponseTopicPartition()
	answer.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 5, FirstOffset: 13}}
	d.begin(&answer)
	var got []int64
	for _, f := range [][]byte{
		frame(10, transactional, data...), frame(11, transactional|control, commit...),
		frame(12, transactional|control, abort...), // of nothing
		frame(13, transactional, data...), frame(14, transactional|control, abort...),
		frame(15, transactional, data...), frame(16, transactional|control, commit...),
	} {
		entries, err := d.batch(nil, f, d.at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			got = append(got, e.offset)
		}
	}
	if want := []int64{10, 15}; !slices.Equal(got, want) {
		t.Errorf("got records at offsets %v, want those that were committed: %v", got, want)
	}
}

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
