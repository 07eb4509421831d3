package lambdaapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/kafkaevent"
)

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
	source, err := eventsource.Start(eventsource.Options{
		Client: l.client, Invoker: l.invoker, InstanceID: m.UUID,
		Topic: m.Topic(), Group: m.Group(), BatchSize: int(m.BatchSize), Window: m.Window(), Failures: m.PartialFailures(),
	})
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

// Whatever is asked for is made or refused, with an answer.
func FuzzCreate(f *testing.F) {
	f.Add([]byte(`{"FunctionName":"f","Topics":["t"],"EventSourceArn":"arn:aws:kafka:x","StartingPosition":"AT_TIMESTAMP","StartingPositionTimestamp":1.5}`))
	f.Add([]byte(`{"FunctionName":"f","Topics":["t"],"SelfManagedEventSource":{"Endpoints":{"KAFKA_BOOTSTRAP_SERVERS":["a:1"]}},"StartingPosition":"LATEST","SourceAccessConfigurations":[{"Type":"IAM_AUTH"}],"Enabled":false}`))
	f.Add([]byte(`{"FunctionName":"f","Topics":[null],"SelfManagedEventSource":null,"ProvisionedPollerConfig":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		api := lambdaapi.New(lambdaapi.Options{Runner: &runner{}})
		defer api.Close()
		r, err := http.NewRequest("POST", "http://lambda.test/2015-03-31/event-source-mappings", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := api.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var answer map[string]any
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatalf("got an answer that is no JSON: %v", err)
		}
		switch {
		case response.StatusCode == 202 && answer["UUID"] != "":
		case response.StatusCode == 400 && response.Header.Get("X-Amzn-Errortype") != "":
		default:
			t.Errorf("got %d: %v, want a mapping or a reason", response.StatusCode, answer)
		}
	})
}
