package stories_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
)

// load writes records to a topic, each with its number within its partition in
// the first eight bytes of its value.
type load struct {
	client     *kgo.Client
	topic      string
	partitions int32
	size       int      // of a value
	next       []uint64 // by partition
	noise      *rand.ChaCha8
}

func newLoad(t testing.TB, c *kafka.Cluster, topic string, partitions int32, size int) *load {
	t.Helper()
	client := connect(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.MaxBufferedRecords(20_000))
	return &load{client: client, topic: topic, partitions: partitions, size: size, next: make([]uint64, partitions), noise: rand.NewChaCha8([32]byte{})}
}

// write adds n records, spread over the partitions, and waits until they are
// there.
func (l *load) write(ctx context.Context, t testing.TB, n int) {
	t.Helper()
	for range n {
		p := int32(0)
		for q := range l.partitions {
			if l.next[q] < l.next[p] {
				p = q
			}
		}
		// Text of hexadecimal digits compresses to about half, as real records do.
		noise := make([]byte, l.size/2)
		l.noise.Read(noise)
		value := hex.AppendEncode(binary.BigEndian.AppendUint64(nil, l.next[p]), noise)[:l.size]
		l.next[p]++
		l.client.Produce(ctx, &kgo.Record{Topic: l.topic, Partition: p, Value: value}, nil)
	}
	if err := l.client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	listed, err := kadm.NewClient(l.client).ListEndOffsets(ctx, l.topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range l.next {
		if got, _ := listed.Lookup(l.topic, int32(p)); got.Offset != int64(want) {
			t.Fatalf("load of %s-%d: got %d records, want %d", l.topic, p, got.Offset, want)
		}
	}
}

// written is the number of records in all.
func (l *load) written() (n int64) {
	for _, x := range l.next {
		n += int64(x)
	}
	return n
}

// verdict is what a reader finds of a load on the other side.
type verdict struct{ Records, Missing, Duplicated, Reordered int64 }

// judge reads the copy of a load and counts what is wrong with it.
func (l *load) judge(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string) verdict {
	t.Helper()
	var v verdict
	seen := map[int32][]bool{}
	last := map[int32]uint64{}
	for p := range l.partitions {
		seen[p] = make([]bool, l.next[p])
	}
	everyRecord(ctx, t, c, topic, false, func(r *kgo.Record) {
		v.Records++
		n := binary.BigEndian.Uint64(r.Value)
		switch {
		case seen[r.Partition][n]:
			v.Duplicated++
		case n < last[r.Partition]:
			v.Reordered++
		}
		seen[r.Partition][n] = true
		last[r.Partition] = max(last[r.Partition], n)
	})
	for _, s := range seen {
		for _, ok := range s {
			if !ok {
				v.Missing++
			}
		}
	}
	return v
}

// wantWhole fails unless the copy of a load is complete, each record once and in
// order.
func (l *load) wantWhole(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string) {
	t.Helper()
	got := l.judge(ctx, t, c, topic)
	t.Logf("%s: records %d, missing %d, duplicated %d, reordered %d", topic, got.Records, got.Missing, got.Duplicated, got.Reordered)
	if want := (verdict{Records: l.written()}); got != want {
		t.Errorf("%s: got %+v, want %+v", topic, got, want)
	}
}
