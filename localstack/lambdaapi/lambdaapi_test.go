package lambdaapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/go-cmp/cmp"

	"mirrorless/localstack/lambdaapi"
)

// clientOf is the SDK's client, which does not retry.
func clientOf(api *lambdaapi.API) *lambda.Client {
	return lambda.New(lambda.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://lambda.test"),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:  &http.Client{Transport: api},
		Retryer:     aws.NopRetryer{},
	})
}

func selfManaged(topic string) *lambda.CreateEventSourceMappingInput {
	return &lambda.CreateEventSourceMappingInput{
		FunctionName: aws.String("mirror"), Topics: []string{topic},
		SelfManagedEventSource:            &types.SelfManagedEventSource{Endpoints: map[string][]string{"KAFKA_BOOTSTRAP_SERVERS": {"b:9092", "a:9092"}}},
		SelfManagedKafkaEventSourceConfig: &types.SelfManagedKafkaEventSourceConfig{ConsumerGroupId: aws.String("group/" + topic)},
		SourceAccessConfigurations: []types.SourceAccessConfiguration{
			{Type: types.SourceAccessTypeVpcSubnet, URI: aws.String("subnet:subnet-1")},
			{Type: types.SourceAccessTypeVpcSecurityGroup, URI: aws.String("security_group:sg-1")},
		},
		StartingPosition: types.EventSourcePositionTrimHorizon,
	}
}

func msk(topic string) *lambda.CreateEventSourceMappingInput {
	return &lambda.CreateEventSourceMappingInput{
		FunctionName: aws.String("mirror"), Topics: []string{topic},
		EventSourceArn:                      aws.String("arn:aws:kafka:us-east-1:123456789012:cluster/a/1"),
		AmazonManagedKafkaEventSourceConfig: &types.AmazonManagedKafkaEventSourceConfig{ConsumerGroupId: aws.String("group/" + topic)},
		StartingPosition:                    types.EventSourcePositionTrimHorizon,
	}
}

func TestAMappingGoesThroughLambdasStates(t *testing.T) {
	for name, create := range map[string]*lambda.CreateEventSourceMappingInput{"self-managed": selfManaged("orders"), "msk": msk("orders")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := lambdaapi.New(lambdaapi.Options{Delay: 10 * time.Second})
				defer api.Close()
				client := clientOf(api)
				made, err := client.CreateEventSourceMapping(t.Context(), create)
				if err != nil {
					t.Fatal(err)
				}
				id := made.UUID
				expect := func(want string) {
					t.Helper()
					got, err := client.GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: id})
					switch {
					case want == "":
						if _, ok := errors.AsType[*types.ResourceNotFoundException](err); !ok {
							t.Fatalf("got error %v, want it gone", err)
						}
					case err != nil:
						t.Fatal(err)
					case *got.State != want:
						t.Fatalf("got state %s, want %s", *got.State, want)
					}
				}
				settle := func(state string) {
					t.Helper()
					time.Sleep(9 * time.Second)
					expect(state)
					time.Sleep(2 * time.Second)
				}
				expect("Creating")
				settle("Creating")
				expect("Enabled")
				steps := []struct {
					change        lambda.UpdateEventSourceMappingInput
					passing, then string
				}{
					{lambda.UpdateEventSourceMappingInput{BatchSize: aws.Int32(7)}, "Updating", "Enabled"},
					{lambda.UpdateEventSourceMappingInput{Enabled: aws.Bool(false)}, "Disabling", "Disabled"},
					{lambda.UpdateEventSourceMappingInput{BatchSize: aws.Int32(8)}, "Updating", "Disabled"},
					{lambda.UpdateEventSourceMappingInput{Enabled: aws.Bool(true)}, "Enabling", "Enabled"},
				}
				for _, step := range steps {
					step.change.UUID = id
					got, err := client.UpdateEventSourceMapping(t.Context(), &step.change)
					if err != nil {
						t.Fatal(err)
					}
					if *got.State != step.passing {
						t.Errorf("got answer %s, want %s", *got.State, step.passing)
					}
					_, err = client.UpdateEventSourceMapping(t.Context(), &step.change)
					if _, ok := errors.AsType[*types.ResourceInUseException](err); !ok {
						t.Errorf("got error %v from an update while %s, want it in use", err, step.passing)
					}
					_, err = client.DeleteEventSourceMapping(t.Context(), &lambda.DeleteEventSourceMappingInput{UUID: id})
					if _, ok := errors.AsType[*types.ResourceInUseException](err); !ok {
						t.Errorf("got error %v from a delete while %s, want it in use", err, step.passing)
					}
					settle(step.passing)
					expect(step.then)
				}
				if _, err := client.DeleteEventSourceMapping(t.Context(), &lambda.DeleteEventSourceMappingInput{UUID: id}); err != nil {
					t.Fatal(err)
				}
				settle("Deleting")
				expect("")
			})
		})
	}
}

func TestAnAnswerHasLambdasForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(250 * time.Millisecond)
		api := lambdaapi.New(lambdaapi.Options{})
		request := func(method, path, body string) (*http.Response, map[string]any) {
			t.Helper()
			r, err := http.NewRequest(method, "http://lambda.test/2015-03-31/event-source-mappings"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			response, err := api.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			var answer map[string]any
			if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
			return response, answer
		}
		response, made := request("POST", "/", `{"FunctionName":"mirror","Topics":["orders"],"EventSourceArn":"arn:aws:kafka:us-east-1:1:cluster/a/1","StartingPosition":"AT_TIMESTAMP","StartingPositionTimestamp":946684800.125,"MaximumBatchingWindowInSeconds":0}`)
		if response.StatusCode != 202 {
			t.Errorf("got status %d, want 202", response.StatusCode)
		}
		id := made["UUID"].(string)
		want := map[string]any{
			"UUID":                  id,
			"EventSourceMappingArn": "arn:aws:lambda:us-east-1:000000000000:event-source-mapping:" + id,
			"FunctionArn":           "arn:aws:lambda:us-east-1:000000000000:function:mirror",
			"EventSourceArn":        "arn:aws:kafka:us-east-1:1:cluster/a/1",
			// A mapping without a group has its UUID for one.
			"AmazonManagedKafkaEventSourceConfig": map[string]any{"ConsumerGroupId": id},
			"Topics":                              []any{"orders"},
			"StartingPosition":                    "AT_TIMESTAMP",
			"StartingPositionTimestamp":           946684800.125,
			"BatchSize":                           100.0,
			"MaximumBatchingWindowInSeconds":      0.0,
			"State":                               "Creating",
			"StateTransitionReason":               "USER_INITIATED",
			"LastProcessingResult":                "No records processed",
			"LastModified":                        946684800.25,
		}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Errorf("answer differs (-want +got):\n%s", diff)
		}
		response, answer := request("GET", "/nobody", "")
		if got := response.Header.Get("X-Amzn-Errortype"); response.StatusCode != 404 || got != "ResourceNotFoundException" || answer["message"] == "" {
			t.Errorf("got %d %s %v, want a ResourceNotFoundException", response.StatusCode, got, answer)
		}
		response, _ = request("PATCH", "/"+id, "")
		if response.StatusCode != 404 {
			t.Errorf("got status %d for another method, want 404", response.StatusCode)
		}
	})
}

func TestAListComesInPages(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	client := clientOf(api)
	var want []string
	for i := range 250 {
		in := selfManaged(fmt.Sprintf("topic-%03d", i))
		if i%50 == 7 {
			in.FunctionName = aws.String("other")
		} else {
			want = append(want, in.Topics[0])
		}
		if _, err := client.CreateEventSourceMapping(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	var pages []int
	for marker := (*string)(nil); ; {
		out, err := client.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{
			FunctionName: aws.String("arn:aws:lambda:us-east-1:000000000000:function:mirror"), Marker: marker, MaxItems: aws.Int32(10_000),
		})
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, len(out.EventSourceMappings))
		for _, m := range out.EventSourceMappings {
			got = append(got, m.Topics[0])
		}
		if marker = out.NextMarker; marker == nil {
			break
		}
		// One that goes between two pages moves none of the others.
		if len(pages) == 1 {
			if _, err := client.DeleteEventSourceMapping(t.Context(), &lambda.DeleteEventSourceMappingInput{UUID: out.EventSourceMappings[0].UUID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]int{100, 100, 45}, pages); diff != "" {
		t.Errorf("pages differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topics differ (-want +got):\n%s", diff)
	}
}

func TestASecondMappingIsAConflict(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	client := clientOf(api)
	first, err := client.CreateEventSourceMapping(t.Context(), msk("orders"))
	if err != nil {
		t.Fatal(err)
	}
	sameGroup := msk("clicks")
	sameGroup.AmazonManagedKafkaEventSourceConfig.ConsumerGroupId = aws.String("group/orders")
	sameGroup.FunctionName = aws.String("other")
	sameTopic := msk("orders")
	sameTopic.AmazonManagedKafkaEventSourceConfig.ConsumerGroupId = aws.String("another")
	for name, in := range map[string]*lambda.CreateEventSourceMappingInput{"of a group": sameGroup, "of a topic": sameTopic} {
		t.Run(name, func(t *testing.T) {
			_, err := client.CreateEventSourceMapping(t.Context(), in)
			e, ok := errors.AsType[*types.ResourceConflictException](err)
			if !ok || !strings.Contains(e.ErrorMessage(), *first.UUID) {
				t.Errorf("got %v, want a conflict that names %s", err, *first.UUID)
			}
		})
	}
	other := msk("orders")
	other.FunctionName = aws.String("other")
	other.AmazonManagedKafkaEventSourceConfig.ConsumerGroupId = aws.String("another")
	if _, err := client.CreateEventSourceMapping(t.Context(), other); err != nil {
		t.Errorf("got %v for another function and group, want no error", err)
	}
}

func TestWhatLambdaRefusesIsRefused(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	client := clientOf(api)
	access := func(pairs ...string) []types.SourceAccessConfiguration {
		var out []types.SourceAccessConfiguration
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, types.SourceAccessConfiguration{Type: types.SourceAccessType(pairs[i]), URI: &pairs[i+1]})
		}
		return out
	}
	for name, spoil := range map[string]func(*lambda.CreateEventSourceMappingInput){
		"neither cluster": func(in *lambda.CreateEventSourceMappingInput) { in.SelfManagedEventSource = nil },
		"both clusters":   func(in *lambda.CreateEventSourceMappingInput) { in.EventSourceArn = aws.String("arn:aws:kafka:x") },
		"no topic":        func(in *lambda.CreateEventSourceMappingInput) { in.Topics = nil },
		"two topics":      func(in *lambda.CreateEventSourceMappingInput) { in.Topics = []string{"a", "b"} },
		"dotted topic":    func(in *lambda.CreateEventSourceMappingInput) { in.Topics = []string{".a"} },
		"long topic":      func(in *lambda.CreateEventSourceMappingInput) { in.Topics = []string{strings.Repeat("a", 250)} },
		"no start":        func(in *lambda.CreateEventSourceMappingInput) { in.StartingPosition = "" },
		"no time":         func(in *lambda.CreateEventSourceMappingInput) { in.StartingPosition = "AT_TIMESTAMP" },
		"large batch":     func(in *lambda.CreateEventSourceMappingInput) { in.BatchSize = aws.Int32(10_001) },
		"empty batch":     func(in *lambda.CreateEventSourceMappingInput) { in.BatchSize = aws.Int32(0) },
		"long window":     func(in *lambda.CreateEventSourceMappingInput) { in.MaximumBatchingWindowInSeconds = aws.Int32(301) },
		"other responses": func(in *lambda.CreateEventSourceMappingInput) {
			in.FunctionResponseTypes = []types.FunctionResponseType{"X"}
		},
		"no access": func(in *lambda.CreateEventSourceMappingInput) { in.SourceAccessConfigurations = nil },
		"subnets only": func(in *lambda.CreateEventSourceMappingInput) {
			in.SourceAccessConfigurations = access("VPC_SUBNET", "subnet:subnet-1")
		},
		"subnet without prefix": func(in *lambda.CreateEventSourceMappingInput) {
			in.SourceAccessConfigurations = access("VPC_SUBNET", "subnet-1")
		},
		"group without prefix": func(in *lambda.CreateEventSourceMappingInput) {
			in.SourceAccessConfigurations = access("VPC_SECURITY_GROUP", "sg-1")
		},
		"two logins": func(in *lambda.CreateEventSourceMappingInput) {
			in.SourceAccessConfigurations = access("BASIC_AUTH", "arn:aws:secretsmanager:x", "SASL_SCRAM_512_AUTH", "arn:aws:secretsmanager:x")
		},
		"password in place of an ARN": func(in *lambda.CreateEventSourceMappingInput) {
			in.SourceAccessConfigurations = access("BASIC_AUTH", "x")
		},
		"long group": func(in *lambda.CreateEventSourceMappingInput) {
			in.SelfManagedKafkaEventSourceConfig.ConsumerGroupId = aws.String(strings.Repeat("g", 201))
		},
		"many servers": func(in *lambda.CreateEventSourceMappingInput) {
			in.SelfManagedEventSource.Endpoints["KAFKA_BOOTSTRAP_SERVERS"] = slices.Repeat([]string{"a:1"}, 11)
		},
		"pollers": func(in *lambda.CreateEventSourceMappingInput) {
			in.ProvisionedPollerConfig = &types.ProvisionedPollerConfig{MinimumPollers: aws.Int32(2), MaximumPollers: aws.Int32(1)}
		},
		"the future": func(in *lambda.CreateEventSourceMappingInput) {
			in.StartingPosition, in.StartingPositionTimestamp = "AT_TIMESTAMP", aws.Time(time.Now().Add(time.Hour))
		},
		"not a function": func(in *lambda.CreateEventSourceMappingInput) {
			in.FunctionName = aws.String("arn:aws:sqs:us-east-1:1:q")
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := selfManaged("orders")
			spoil(in)
			_, err := client.CreateEventSourceMapping(t.Context(), in)
			if _, ok := errors.AsType[*types.InvalidParameterValueException](err); !ok {
				t.Errorf("got %v, want an invalid parameter", err)
			}
		})
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(lambdaapi.New(lambdaapi.Options{Rate: 2, Burst: 3}))
		answered := func(n int) (ok int) {
			for range n {
				_, err := client.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{})
				if err == nil {
					ok++
				} else if _, throttled := errors.AsType[*types.TooManyRequestsException](err); !throttled {
					t.Fatal(err)
				}
			}
			return ok
		}
		if got := answered(10); got != 3 {
			t.Errorf("got %d answers at once, want the burst of 3", got)
		}
		time.Sleep(time.Second)
		if got := answered(10); got != 2 {
			t.Errorf("got %d answers a second later, want 2", got)
		}
	})
}

// runner keeps a diary.
type runner struct {
	mu    sync.Mutex
	diary []string
	err   error
}

func (r *runner) note(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.diary = append(r.diary, fmt.Sprintf(format, args...))
	return r.err
}

func (r *runner) Run(m lambdaapi.Mapping) error {
	return r.note("run %s as %s: %d in %v, %t", m.Topic(), m.Group(), m.BatchSize, m.Window(), m.PartialFailures())
}
func (r *runner) Stop(string) error { return r.note("stop") }

func TestWhatIsEnabledRuns(t *testing.T) {
	r := &runner{}
	api := lambdaapi.New(lambdaapi.Options{Runner: r})
	client := clientOf(api)
	made, err := client.CreateEventSourceMapping(t.Context(), selfManaged("orders"))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []*lambda.UpdateEventSourceMappingInput{
		{BatchSize: aws.Int32(7), MaximumBatchingWindowInSeconds: aws.Int32(3), FunctionResponseTypes: []types.FunctionResponseType{"ReportBatchItemFailures"}},
		{Enabled: aws.Bool(false)},
		{Enabled: aws.Bool(true), FunctionResponseTypes: []types.FunctionResponseType{}},
	} {
		change.UUID = made.UUID
		if _, err := client.UpdateEventSourceMapping(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	api.Report(*made.UUID, "OK")
	got, err := client.GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: made.UUID})
	if err != nil || *got.LastProcessingResult != "OK" {
		t.Errorf("got result %q (%v), want OK", aws.ToString(got.LastProcessingResult), err)
	}
	if _, err := client.DeleteEventSourceMapping(t.Context(), &lambda.DeleteEventSourceMappingInput{UUID: made.UUID}); err != nil {
		t.Fatal(err)
	}
	api.Report(*made.UUID, "OK")
	want := []string{
		"run orders as group/orders: 100 in 500ms, false",
		"run orders as group/orders: 7 in 3s, true",
		"stop",
		"run orders as group/orders: 7 in 3s, false",
		"stop",
	}
	if diff := cmp.Diff(want, r.diary); diff != "" {
		t.Errorf("diary differs (-want +got):\n%s", diff)
	}
}

func TestAProblemShows(t *testing.T) {
	client := clientOf(lambdaapi.New(lambdaapi.Options{Runner: &runner{err: errors.New("no brokers")}}))
	made, err := client.CreateEventSourceMapping(t.Context(), selfManaged("orders"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: made.UUID})
	if err != nil || *got.State != "Enabled" || *got.LastProcessingResult != "PROBLEM: no brokers" {
		t.Errorf("got %s, %q (%v), want Enabled with a problem", *got.State, *got.LastProcessingResult, err)
	}
}

func TestTheRestIsForwarded(t *testing.T) {
	emulator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
	}))
	defer emulator.Close()
	to, err := url.Parse(emulator.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(lambdaapi.New(lambdaapi.Options{Forward: to}))
	defer front.Close()
	const path = "/2015-03-31/functions/mirror/invocations"
	response, err := http.Post(front.URL+path, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if want := "POST " + path + " {}"; err != nil || string(got) != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

func TestFaultsComeBeforeOrAfter(t *testing.T) {
	calls := 0
	api := lambdaapi.New(lambdaapi.Options{Faults: lambdaapi.Faults{
		Before: func(c lambdaapi.Call) error {
			calls = c.N
			if c.N == 1 {
				return &lambdaapi.Error{Status: 500, Code: "ServiceException", Message: "try again"}
			}
			return nil
		},
		After: func(c lambdaapi.Call) error {
			if c.N == 2 && c.Operation == lambdaapi.Create {
				return errors.New("lost")
			}
			return nil
		},
	}})
	// Once more through a real connection.
	server := httptest.NewServer(api)
	defer server.Close()
	client := lambda.New(lambda.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		Retryer:     aws.NopRetryer{},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := client.CreateEventSourceMapping(ctx, msk("orders"))
	if _, ok := errors.AsType[*types.ServiceException](err); !ok {
		t.Errorf("got %v, want the fault", err)
	}
	_, err = client.CreateEventSourceMapping(ctx, msk("orders"))
	if err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("got %v, want a closed connection", err)
	}
	_, err = client.CreateEventSourceMapping(ctx, msk("orders"))
	if _, ok := errors.AsType[*types.ResourceConflictException](err); !ok {
		t.Errorf("got %v, want the second to have acted", err)
	}
	if calls != 3 {
		t.Errorf("got %d calls, want 3", calls)
	}
}
