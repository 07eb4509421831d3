package stories_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/localstack/process"
)

// copier is a process that copies.
type copier interface {
	Done() <-chan struct{}
	Usage() (process.Usage, error)
}

// figures are what one copier needed for one copy.
type figures struct {
	copy time.Duration // from the first record on B to the last
	all  time.Duration // from the start of the process to the last record
	used process.Usage
}

// BenchmarkAgainstMirrorMaker2 lets run and a real MirrorMaker 2 with default
// settings copy the same million records of 1 KB (lz4, four partitions), in turn,
// between the same brokers. It prints each round, and the medians as metrics.
func BenchmarkAgainstMirrorMaker2(b *testing.B) {
	const (
		records, size, partitions = 1_000_000, 1000, 4
		rounds                    = 3
		topic                     = "load"
	)
	ctx := within(b, 50*time.Minute)
	from, to := startBoth(b, kafka.Options{Production: true}, kafka.Options{Production: true})
	in := kafkatest.Find(b)
	create(ctx, b, connect(b, from), partitions, nil, topic)
	l := newLoad(b, from, topic, partitions, size)
	l.write(ctx, b, records)
	onB := connect(b, to, kgo.MetadataMinAge(20*time.Millisecond))

	results := map[string][]figures{}
	for b.Loop() {
		for round := range rounds {
			for _, name := range []string{"mirrorless", "MirrorMaker 2"} {
				alias := fmt.Sprintf("%s%d", map[string]string{"mirrorless": "L", "MirrorMaker 2": "M"}[name], round)
				file := properties(b, from, to, "clusters = "+alias+", B", alias+".bootstrap.servers = $A", "B.bootstrap.servers = $B",
					alias+"->B.enabled = true", alias+"->B.topics = "+topic, alias+"->B.emit.heartbeats.enabled = false",
					"B->"+alias+".emit.heartbeats.enabled = false", "replication.factor = 1", "checkpoints.topic.replication.factor = 1",
					"heartbeats.topic.replication.factor = 1", "offset-syncs.topic.replication.factor = 1",
					"offset.storage.replication.factor = 1", "status.storage.replication.factor = 1", "config.storage.replication.factor = 1")
				f := measure(ctx, b, onB, alias+"."+topic, records, func() (copier, func()) {
					if name == "mirrorless" {
						r := run(b, nil, file)
						return r.Process, func() { r.stop(b) }
					}
					mm2, err := in.MirrorMaker(file, filepath.Join(b.TempDir(), "mm2.log"))
					if err != nil {
						b.Fatal(err)
					}
					return mm2, mm2.Close
				})
				results[name] = append(results[name], f)
				b.Logf("round %d, %s: %.0f MB/s, %.1f CPU-seconds a GB, %d MB of memory, %.1f s from its start", round+1, name,
					float64(records*size)/f.copy.Seconds()/1e6, f.used.CPU.Seconds()/(records*size/1e9), f.used.PeakMemory>>20, f.all.Seconds())
				if v := l.judge(ctx, b, to, alias+"."+topic); name == "mirrorless" && v != (verdict{Records: records}) {
					b.Errorf("got %+v, want %d records once and in order", v, records)
				}
				if _, err := kadm.NewClient(onB).DeleteTopics(ctx, alias+"."+topic); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for name, all := range results {
		if name != "mirrorless" {
			name = "mm2"
		}
		b.ReportMetric(median(all, func(f figures) float64 { return records * size / f.copy.Seconds() / 1e6 }), name+"-MB/s")
		b.ReportMetric(median(all, func(f figures) float64 { return f.used.CPU.Seconds() / (records * size / 1e9) }), name+"-CPU-s/GB")
		b.ReportMetric(median(all, func(f figures) float64 { return float64(f.used.PeakMemory >> 20) }), name+"-MB")
	}
	b.ReportMetric(0, "ns/op")
}

func median(all []figures, of func(figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// measure starts a copier and waits until a topic of B has n records.
func measure(ctx context.Context, b *testing.B, onB *kgo.Client, topic string, n int64, start func() (copier, func())) figures {
	b.Helper()
	began := time.Now()
	p, stop := start()
	defer stop()
	var first time.Time
	adm := kadm.NewClient(onB)
	eventually(ctx, b, "the copy of "+topic, func() bool {
		select {
		case <-p.Done():
			b.Fatal("the copier ended")
		default:
		}
		listed, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return false
		}
		var got int64
		listed.Each(func(o kadm.ListedOffset) { got += max(o.Offset, 0) })
		if got > 0 && first.IsZero() {
			first = time.Now()
		}
		return got >= n
	})
	f := figures{copy: time.Since(first), all: time.Since(began)}
	var err error
	if f.used, err = p.Usage(); err != nil {
		b.Fatal(err)
	}
	return f
}
