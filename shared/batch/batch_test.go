package batch_test

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
)

// odd holds what a mirror must not confuse: null beside empty, repeated and
// empty header names, binary bytes, timestamps that go back.
var odd = []batch.Record{
	{Timestamp: 1700000000000, Key: []byte("k"), Value: []byte("v")},
	{Timestamp: 1600000000000, Key: nil, Value: nil},
	{Timestamp: 0, Key: []byte{}, Value: []byte{}},
	{Timestamp: 1800000000000, Key: []byte{0xff, 0, 0xfe}, Headers: []batch.Header{
		{Name: "a", Value: []byte{1}}, {Name: "a", Value: []byte{2}}, {Name: "", Value: []byte{}}, {Name: "null", Value: nil},
	}},
	{Timestamp: 1700000000001, Value: bytes.Repeat([]byte("x"), 100_000)},
}

func TestAppendIsWhatKafkaReads(t *testing.T) {
	p := batch.Producer{ID: 1 << 40, Epoch: 7, Sequence: math.MaxInt32 - 1}
	raw := batch.Append(nil, p, odd, nil)

	var got kmsg.RecordBatch
	if err := got.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	want := kmsg.RecordBatch{
		Length: int32(len(raw) - 12), PartitionLeaderEpoch: -1, Magic: 2,
		CRC:             int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))),
		LastOffsetDelta: 4, FirstTimestamp: 1700000000000, MaxTimestamp: 1800000000000,
		ProducerID: 1 << 40, ProducerEpoch: 7, FirstSequence: math.MaxInt32 - 1, NumRecords: 5,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(kmsg.RecordBatch{}, "Records")); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	for i, rest := 0, got.Records; len(rest) > 0; i++ {
		var r kmsg.Record
		if err := r.ReadFrom(rest); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if !bytes.Equal(r.Key, odd[i].Key) || (r.Key == nil) != (odd[i].Key == nil) || r.OffsetDelta != int32(i) {
			t.Errorf("record %d: got key %x at %d, want %x", i, r.Key, r.OffsetDelta, odd[i].Key)
		}
		rest = rest[len(r.AppendTo(nil)):]
	}
}

func TestRecordsReturnsWhatAppendTook(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"plain": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			packer, err := kgo.DefaultCompressor(codec)
			if err != nil {
				t.Fatal(err)
			}
			compress := func(dst, src []byte) ([]byte, batch.Codec) {
				if packer == nil {
					return src, batch.None
				}
				packed, used := packer.Compress(new(bytes.Buffer), src)
				return append(dst, packed...), batch.Codec(used)
			}
			decompress := func(c batch.Codec, src []byte) ([]byte, error) {
				return kgo.DefaultDecompressor().Decompress(src, kgo.CompressionCodecType(c))
			}
			raw := batch.Append([]byte("before"), batch.Producer{ID: 3}, odd, compress)
			var got []batch.Record
			for b, err := range batch.All(raw[len("before"):]) {
				if err != nil {
					t.Fatal(err)
				}
				placed, err := b.Records(decompress)
				if err != nil {
					t.Fatal(err)
				}
				for i, p := range placed {
					if p.Offset != int64(i) {
						t.Errorf("record %d: got offset %d", i, p.Offset)
					}
					got = append(got, p.Record)
				}
			}
			if diff := cmp.Diff(odd, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFitCountsExactlyWhatAppendWrites(t *testing.T) {
	for n := 1; n <= len(odd); n++ {
		size := len(batch.Append(nil, batch.Producer{}, odd[:n], nil))
		if got := batch.Size(odd[:n]); got != size {
			t.Errorf("Size of %d records: got %d, want %d", n, got, size)
		}
		if got := batch.Fit(odd, size); got != n {
			t.Errorf("limit %d: got %d records, want %d", size, got, n)
		}
		if got := batch.Fit(odd, size-1); got != max(n-1, 1) {
			t.Errorf("limit %d: got %d records, want %d", size-1, got, max(n-1, 1))
		}
	}
}

func TestSequencesWrapAfterMaxInt32(t *testing.T) {
	for range 1000 {
		s, n := rand.Int32(), int(rand.Int32N(1<<29))
		end := batch.Advance(s, n)
		if end < 0 {
			t.Fatalf("Advance(%d, %d): got %d, below zero", s, n, end)
		}
		if got := batch.Distance(s, end); got != int32(n) {
			t.Errorf("Distance(%d, %d): got %d, want %d", s, end, got, n)
		}
		if got := batch.Distance(end, s); got != int32(-n) {
			t.Errorf("Distance(%d, %d): got %d, want %d", end, s, got, -n)
		}
	}
	if got := batch.Advance(math.MaxInt32, 1); got != 0 {
		t.Errorf("Advance(MaxInt32, 1): got %d, want 0", got)
	}
}

func TestAllStopsQuietlyAtACutBatchAndLoudlyAtABrokenOne(t *testing.T) {
	one := batch.Append(nil, batch.Producer{}, odd[:2], nil)
	read := func(raw []byte) (n int, err error) {
		for _, err := range batch.All(raw) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	two := append(bytes.Clone(one), one...)
	for cut := len(one); cut < len(two); cut++ {
		if n, err := read(two[:cut]); n != 1 || err != nil {
			t.Fatalf("cut at %d: got %d batches, %v; want 1, no error", cut, n, err)
		}
	}
	two[len(two)-1] ^= 1
	if n, err := read(two); n != 1 || !errors.Is(err, batch.ErrCorrupt) {
		t.Errorf("flipped bit: got %d batches, %v; want 1, ErrCorrupt", n, err)
	}
}

func FuzzAll(f *testing.F) {
	f.Add(batch.Append(nil, batch.Producer{ID: 1, Sequence: 2}, odd[:4], nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		// A fuzzer cannot guess a checksum, so it is set right for it.
		if len(raw) >= batch.Overhead {
			n := min(len(raw), batch.Overhead+int(raw[60]))
			raw[8], raw[9], raw[10], raw[11], raw[16] = 0, 0, byte((n-12)>>8), byte(n-12), 2
			sum := crc32.Checksum(raw[21:n], crc32.MakeTable(crc32.Castagnoli))
			raw[17], raw[18], raw[19], raw[20] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		}
		for b, err := range batch.All(raw) {
			if err != nil {
				return
			}
			if placed, err := b.Records(nil); err == nil && len(placed) != b.Count() {
				t.Errorf("got %d records, header says %d", len(placed), b.Count())
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	records := make([]batch.Record, 900)
	for i := range records {
		records[i] = batch.Record{Timestamp: int64(i), Key: []byte("key"), Value: make([]byte, 1024)}
	}
	var dst []byte
	for b.Loop() {
		dst = batch.Append(dst[:0], batch.Producer{}, records, nil)
		b.SetBytes(int64(len(dst)))
	}
}
