package stories_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/ministack/ministacktest"
	"mirrorless/localstack/runtimeapi"
	"mirrorless/shared/cost"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state/dynamo"
)

// BenchmarkInvocation measures what an invocation takes of each function's real
// bootstrap binary, beside real Kafka and a DynamoDB: processor time, which Lambda
// bills as time at 1,769 MB for one processor, and the most memory. mirror gets
// events as full as Lambda makes them, and such of ten records.
//
//	MIRRORLESS_REAL=1 go test -run '^$' -bench Invocation -benchtime 30x ./stories
//
// Its figures are those of shared/cost, and of docs/cost.md.
func BenchmarkInvocation(b *testing.B) {
	ctx := within(b, 4*time.Minute)
	mirrorless(b) // builds the binaries
	from, to := startBoth(b, kafka.Options{}, kafka.Options{})
	const topic, partitions = "load", 4
	create(ctx, b, connect(b, from), partitions, nil, topic)
	emulator := ministacktest.Start(b)
	client := dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: new(emulator.Endpoint()), Credentials: credentials.NewStaticCredentialsProvider("local", "local", "local"),
	})
	if err := dynamo.New(client, "invocations", dynamo.Options{}).CreateTable(ctx); err != nil {
		b.Fatal(err)
	}
	file := properties(b, from, to, "clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = "+topic, "A->B.sync.group.offsets.enabled = true", "replication.factor = 1",
		"A.mirrorless.subnets = subnet-0a", "A.mirrorless.security.groups = sg-0a")
	bench := func(of, name string, megabytes int, event func() []byte) {
		b.Run(of, func(b *testing.B) {
			env := map[string]string{"MIRRORLESS_CONFIG": file, "MIRRORLESS_TABLE": "invocations", "MIRRORLESS_FLOW": "A->B", "AWS_ENDPOINT_URL": emulator.Endpoint()}
			f, err := runtimeapi.Start(runtimeapi.Options{
				Path: filepath.Join(bin, name, "bootstrap"), Env: env, Timeout: time.Minute, MemoryMB: megabytes, Logs: io.Discard,
			})
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			cold := processorTime(ctx, b, f, event)
			var warm time.Duration
			for b.Loop() {
				warm += processorTime(ctx, b, f, event)
			}
			warm /= time.Duration(b.N)
			u, err := f.Usage()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(cold.Milliseconds()), "cold-cpu-ms")
			b.ReportMetric(warm.Seconds()*1000, "cpu-ms")
			b.ReportMetric(float64(cost.Duration(warm, megabytes).Milliseconds()), "billed-ms")
			b.ReportMetric(float64(u.PeakMemory)/1e6, "peak-MB")
			b.ReportMetric(0, "ns/op")
		})
	}
	schedule := func() []byte { return []byte(`{"eventSources":"none"}`) }
	bench("topics/256MB", "topics", 256, schedule)
	bench("heartbeat/128MB", "heartbeat", 128, schedule)
	bench("checkpoint/256MB", "checkpoint", 256, schedule)
	next := make([]int64, partitions) // offsets
	for _, megabytes := range []int{128, 256, 512, 1024, cost.MegabytesOfProcessor} {
		for _, most := range []int64{10, math.MaxInt64} {
			payload, records := eventOf(topic, make([]int64, partitions), most)
			of := fmt.Sprintf("mirror/%dMB/%d_records_in_%d_bytes", megabytes, records, len(payload))
			bench(of, "mirror", megabytes, func() []byte {
				payload, _ := eventOf(topic, next, most)
				return payload
			})
		}
	}
}

// processorTime is that of one invocation.
func processorTime(ctx context.Context, b *testing.B, f *runtimeapi.Function, event func() []byte) time.Duration {
	b.Helper()
	payload := event()
	before, err := f.Usage()
	if err == nil {
		_, err = f.Invoke(ctx, payload)
	}
	after, usageErr := f.Usage()
	if err = errors.Join(err, usageErr); err != nil {
		b.Fatal(err)
	}
	return after.CPU - before.CPU
}

// eventValue is the size of a value, of text that is as random as text is.
const eventValue = 1000

// eventOf is an event with as many records as one carries, or most, spread over the
// partitions, and their number.
func eventOf(topic string, next []int64, most int64) (payload []byte, records int64) {
	envelope := kafkaevent.Envelope{Source: "SelfManagedKafka", BootstrapServers: "127.0.0.1:9092"}
	size := envelope.Size() + len(next)*kafkaevent.ListSize(topic, 0)
	event := kafkaevent.Event{Source: envelope.Source, BootstrapServers: envelope.BootstrapServers}
	noise := rand.New(rand.NewPCG(1, 2))
	for now := time.Now().UnixMilli(); ; {
		p := int(records) % len(next)
		value := make([]byte, eventValue)
		for i := range value {
			value[i] = "0123456789abcdef"[noise.IntN(16)]
		}
		r := kafkaevent.Record{
			Topic: topic, Partition: int32(p), Offset: next[p], Timestamp: now, TimestampType: "CREATE_TIME",
			Key: fmt.Appendf(nil, "key-%08d", next[p]), Value: value,
		}
		if size += kafkaevent.RecordSize(&r); size > runtimeapi.MaxPayload || records == most {
			return kafkaevent.Encode(event), records
		}
		event.Records = append(event.Records, r)
		next[p]++
		records++
	}
}
