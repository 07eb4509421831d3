package lambdaapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/kafkaevent"
)

func TestAMappingIsAnEventSource(t *testing.T) {
	at := time.UnixMilli(1_760_000_000_123)
	group := &lambdaapi.KafkaConfig{ConsumerGroupID: "g"}
	for name, test := range map[string]struct {
		mapping lambdaapi.Mapping
		want    eventsource.Options
	}{
		"self-managed": {
			lambdaapi.Mapping{
				Topics: []string{"orders"}, SelfManagedKafkaEventSourceConfig: group, BatchSize: 7, StartingPosition: "TRIM_HORIZON",
				SelfManagedEventSource: &lambdaapi.SelfManagedEventSource{Endpoints: map[string][]string{"KAFKA_BOOTSTRAP_SERVERS": {"a:1", "b:2"}}},
			},
			eventsource.Options{Source: "SelfManagedKafka", BootstrapServers: "a:1,b:2", Topic: "orders", Group: "g", BatchSize: 7, Window: 500 * time.Millisecond},
		},
		"msk": {
			lambdaapi.Mapping{
				Topics: []string{"orders"}, AmazonManagedKafkaEventSourceConfig: group, BatchSize: 7, StartingPosition: "AT_TIMESTAMP",
				StartingPositionTimestamp: &lambdaapi.Epoch{Time: at}, EventSourceArn: "arn:aws:kafka:x",
				MaximumBatchingWindowInSeconds: aws.Int32(0), FunctionResponseTypes: []string{"ReportBatchItemFailures"},
			},
			eventsource.Options{
				Source: "aws:kafka", SourceARN: "arn:aws:kafka:x", Topic: "orders", Group: "g", BatchSize: 7,
				Window: eventsource.NoWindow, Start: eventsource.AtTimestamp(at), Failures: true,
			},
		},
		"latest": {
			lambdaapi.Mapping{Topics: []string{"orders"}, StartingPosition: "LATEST", MaximumBatchingWindowInSeconds: aws.Int32(3), EventSourceArn: "arn:aws:kafka:x"},
			eventsource.Options{Source: "aws:kafka", SourceARN: "arn:aws:kafka:x", Topic: "orders", Window: 3 * time.Second, Start: eventsource.Latest()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.mapping.EventSource(),
				cmp.AllowUnexported(eventsource.StartingPosition{}), cmpopts.IgnoreFields(eventsource.Options{}, "Log")); diff != "" {
				t.Errorf("options differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATimeIsANumberOfSeconds(t *testing.T) {
	for text, want := range map[string]int64{
		"946684800":         946684800000,
		"946684800.5":       946684800500,
		"1760000000.123":    1760000000123,
		"1.760000000123e+9": 1760000000123,
	} {
		var e lambdaapi.Epoch
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.UnixMilli() != want {
			t.Errorf("got %d for %s (%v), want %d", e.UnixMilli(), text, err, want)
		}
		again, err := json.Marshal(e)
		var back lambdaapi.Epoch
		if err != nil || json.Unmarshal(again, &back) != nil || !back.Equal(e.Time) {
			t.Errorf("got %s for %s (%v), want it to be read as the same", again, text, err)
		}
	}
}

// local is a runner of event sources on this machine.
type local struct {
	client  []kgo.Opt
	invoker eventsource.Invoker

	mu      sync.Mutex
	running map[string]*eventsource.Mapping
}

func (l *local) Run(m lambdaapi.Mapping) error {
	if err := l.Stop(m.UUID); err != nil {
		return err
	}
	o := m.EventSource()
	o.Client, o.Invoker, o.InstanceID = l.client, l.invoker, m.UUID
	source, err := eventsource.Start(o)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[m.UUID] = source
	return nil
}

func (l *local) Stop(uuid string) error {
	l.mu.Lock()
	source := l.running[uuid]
	delete(l.running, uuid)
	l.mu.Unlock()
	if source == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return source.Stop(ctx)
}

// Through changes of its mapping, a topic is delivered once.
func TestAnEnabledMappingInvokesTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		opts := []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(network.DialContext)}
		producer, err := kgo.NewClient(append(opts, kgo.DefaultProduceTopic("orders"))...)
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()

		var mu sync.Mutex
		var got []string
		runner := &local{client: opts, running: map[string]*eventsource.Mapping{}, invoker: eventsource.InvokerFunc(func(_ context.Context, payload []byte) ([]byte, error) {
			event, err := kafkaevent.Decode(payload)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range event.Records {
				got = append(got, string(r.Value))
			}
			return nil, nil
		})}
		api := lambdaapi.New(lambdaapi.Options{Runner: runner, Delay: 10 * time.Second})
		defer api.Close()
		client := clientOf(api)
		n := 0
		expect := func(delivered int) {
			t.Helper()
			for range 10 {
				if err := producer.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(n))).FirstErr(); err != nil {
					t.Fatal(err)
				}
				n++
			}
			time.Sleep(time.Minute)
			var want []string
			for i := range delivered {
				want = append(want, fmt.Sprint(i))
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("records differ (-want +got):\n%s", diff)
			}
		}
		made, err := client.CreateEventSourceMapping(t.Context(), selfManaged("orders"))
		if err != nil {
			t.Fatal(err)
		}
		update := func(in lambda.UpdateEventSourceMappingInput) {
			t.Helper()
			in.UUID = made.UUID
			if _, err := client.UpdateEventSourceMapping(t.Context(), &in); err != nil {
				t.Fatal(err)
			}
		}
		expect(10)
		update(lambda.UpdateEventSourceMappingInput{BatchSize: aws.Int32(3)})
		expect(20)
		update(lambda.UpdateEventSourceMappingInput{Enabled: aws.Bool(false)})
		time.Sleep(time.Minute)
		expect(20)
		update(lambda.UpdateEventSourceMappingInput{Enabled: aws.Bool(true)})
		expect(40)
		if _, err := client.DeleteEventSourceMapping(t.Context(), &lambda.DeleteEventSourceMappingInput{UUID: made.UUID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		expect(40)
		if len(runner.running) != 0 {
			t.Errorf("got %d event sources running, want none", len(runner.running))
		}
	})
}
