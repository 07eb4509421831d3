package eventsource_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/shared/kafkaevent"
)

// How fast records of 1 KB come through, from a broker that makes them up
// without end, to a function that does nothing, or decodes them.
func BenchmarkDelivery(b *testing.B) {
	for name, invoke := range map[string]func([]byte) (int, error){
		"to nobody": func(payload []byte) (int, error) { return len(payload) / 1500, nil },
		"decoded": func(payload []byte) (int, error) {
			event, err := kafkaevent.Decode(payload)
			return len(event.Records), err
		},
	} {
		for _, size := range []int{eventsource.DefaultBatchSize, eventsource.MaxBatchSize} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, size), func(b *testing.B) {
				benchmarkDelivery(b, size, invoke)
			})
		}
	}
}

func benchmarkDelivery(b *testing.B, size int, invoke func([]byte) (int, error)) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topic),
		kfake.SyntheticFetch(kfake.SyntheticBatch{RecordBytes: 1024, RandomFrac: 0.5, Compression: kgo.Lz4Compression()}))
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	var delivered atomic.Int64
	enough := make(chan struct{})
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	m, err := eventsource.Start(eventsource.Options{
		Client: []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}, Topic: topic, Group: group, BatchSize: size,
		Invoker: eventsource.InvokerFunc(func(_ context.Context, payload []byte) ([]byte, error) {
			n, err := invoke(payload)
			if total := delivered.Add(int64(n)); total >= int64(b.N) && total-int64(n) < int64(b.N) {
				close(enough)
			}
			return nil, err
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	<-enough
	b.StopTimer()
	m.Kill()
}
