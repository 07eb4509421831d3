package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/mapping"
	"mirrorless/shared/topics"
)

// where CloudFormation waits for the answer.
const responseURL = "https://cloudformation-custom-resource-response-useast1.s3.amazonaws.com/stack?X-Amz-Signature=secret"

// told collects what CloudFormation is told.
type told struct {
	mu      sync.Mutex
	answers []map[string]any
	// fail says how the attempt with a number from 1 fails; never if nil.
	fail     func(n int) (status int, err error)
	attempts int
}

func (a *told) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts++
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if a.fail != nil {
		if status, err = a.fail(a.attempts); err != nil {
			return nil, err
		}
	}
	if status == http.StatusOK {
		if r.Method != http.MethodPut || r.URL.String() != responseURL || r.Header.Get("Content-Type") != "" || r.ContentLength < 1 {
			return nil, fmt.Errorf("got %s %s of type %q and length %d", r.Method, r.URL, r.Header.Get("Content-Type"), r.ContentLength)
		}
		var answer map[string]any
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, err
		}
		a.answers = append(a.answers, answer)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: http.NoBody, Request: r}, nil
}

// the only answer.
func (a *told) the(t *testing.T) map[string]any {
	t.Helper()
	if len(a.answers) != 1 {
		t.Fatalf("got %d answers, want one: %v", len(a.answers), a.answers)
	}
	return a.answers[0]
}

func event(kind string, properties map[string]string) []byte {
	text, err := json.Marshal(map[string]any{
		"RequestType": kind, "ResponseURL": responseURL, "StackId": "arn:stack/dev", "RequestId": "request-1",
		"ResourceType": "Custom::EventSources", "LogicalResourceId": "EventSources", "ResourceProperties": properties,
	})
	if err != nil {
		panic(err)
	}
	return text
}

// resourceOf is a resource whose topics is h, and whose mappings are those of an API.
func resourceOf(h HandlerFunc, api *lambdaapi.API, a *told) *resource {
	r := &resource{logger: slog.New(slog.DiscardHandler), transport: a}
	r.settings.Flow = flow.Flow{Source: "A", Target: "B"}
	r.settings.EmitHeartbeats.Enabled = true
	r.build = func(context.Context) (Handler, error) { return h, nil }
	r.sources = func(_ context.Context, function string) (remover, error) {
		client := lambda.New(lambda.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://lambda.test"),
			Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: &http.Client{Transport: api},
		})
		return mapping.New(client, mapping.Options{Function: function, Cluster: anyCluster})
	}
	return r
}

func works(context.Context, []byte) ([]byte, error) { return nil, nil }

func TestOtherEventsAreRounds(t *testing.T) {
	for _, payload := range []string{`{}`, ``, `null`, `{"eventSources":"none"}`, `{"RequestType":"Create"}`, `[]`} {
		var got string
		var limit time.Duration
		a := &told{}
		r := resourceOf(func(ctx context.Context, payload []byte) ([]byte, error) {
			got = string(payload)
			deadline, _ := ctx.Deadline()
			limit = time.Until(deadline)
			return nil, nil
		}, nil, a)
		if _, err := r.Invoke(t.Context(), []byte(payload)); err != nil {
			t.Fatal(err)
		}
		if got != payload || limit <= 0 || limit > roundLimit {
			t.Errorf("got a round with %q in %v, want %q within %v", got, limit, payload, roundLimit)
		}
		if a.attempts != 0 {
			t.Errorf("got %d answers to %q, want none", a.attempts, payload)
		}
	}
}

func TestACreatedResourceRunsARoundAndSaysWhatItFound(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nothing":      {nil, "ok"},
		"a problem":    {errors.New("connect to A: refused"), "connect to A: refused"},
		"a long story": {errors.New(long), long[:mostText] + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"Create", "Update"} {
				a := &told{}
				var rounds []string
				r := resourceOf(func(_ context.Context, payload []byte) ([]byte, error) {
					rounds = append(rounds, string(payload))
					return nil, c.err
				}, nil, a)
				if _, err := r.Invoke(t.Context(), event(kind, map[string]string{"EventSources": "none"})); err != nil {
					t.Fatal(err)
				}
				want := map[string]any{
					"Status": "SUCCESS", "PhysicalResourceId": "arn:stack/dev/EventSources", "StackId": "arn:stack/dev",
					"RequestId": "request-1", "LogicalResourceId": "EventSources",
					"Data": map[string]any{"Source": "A", "Target": "B", "Heartbeats": "true", "HeartbeatMetric": "true", "FirstRound": c.want},
				}
				if diff := cmp.Diff(want, a.the(t)); diff != "" {
					t.Errorf("answer to %s (-want +got):\n%s", kind, diff)
				}
				if diff := cmp.Diff([]string{`{"eventSources":"none"}`}, rounds); diff != "" {
					t.Errorf("rounds (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestTheHeartbeatsAlarmIsThereOnlyWhereTheirAgeIsTold(t *testing.T) {
	for _, c := range []struct {
		heartbeats bool
		metrics    config.Metrics
		want       string
	}{
		{true, config.MetricsFlow, "true"},
		{true, config.MetricsPartitions, "true"},
		{true, config.MetricsOff, "false"},
		{false, config.MetricsFlow, "false"},
	} {
		a := &told{}
		r := resourceOf(works, nil, a)
		r.settings.EmitHeartbeats.Enabled, r.settings.Metrics = c.heartbeats, c.metrics
		if _, err := r.Invoke(t.Context(), event("Create", nil)); err != nil {
			t.Fatal(err)
		}
		data, _ := a.the(t)["Data"].(map[string]any)
		if got := data["HeartbeatMetric"]; got != c.want || data["Heartbeats"] != fmt.Sprint(c.heartbeats) {
			t.Errorf("heartbeats %t, metrics %s: got %v, want HeartbeatMetric %s", c.heartbeats, c.metrics, data, c.want)
		}
	}
}

func TestCloudFormationIsAlwaysAnswered(t *testing.T) {
	broken := func(r *resource) {
		r.build = func(context.Context) (Handler, error) { return nil, errors.New("mm2.properties:3: no such key") }
	}
	for name, c := range map[string]struct {
		kind   string
		change func(*resource)
		want   string // in the reason of a failure; empty for success
	}{
		"a file that cannot be used, on creation": {create, broken, "no such key"},
		"a file that cannot be used, on update":   {update, broken, "no such key"},
		"a file that cannot be used, on deletion": {remove, broken, ""},
		"a panic": {create, func(r *resource) {
			r.build = func(context.Context) (Handler, error) { panic("at the disco") }
		}, "panic: at the disco"},
		"a panic in a round": {create, func(r *resource) {
			r.build = func(context.Context) (Handler, error) {
				return HandlerFunc(func(context.Context, []byte) ([]byte, error) { panic("round") }), nil
			}
		}, "panic: round"},
		"no AWS": {remove, func(r *resource) {
			r.sources = func(context.Context, string) (remover, error) { return nil, errors.New("no region") }
		}, "no region"},
		"no function": {remove, func(r *resource) {
			r.sources = func(context.Context, string) (remover, error) {
				return mapping.New(nil, mapping.Options{Cluster: anyCluster})
			}
		}, "has no name"},
		"a request of another kind": {"Replace", func(*resource) {}, `"Replace"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &told{}
				r := resourceOf(works, lambdaapi.New(lambdaapi.Options{}), a)
				c.change(r)
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
				defer cancel()
				if _, err := r.Invoke(ctx, event(c.kind, map[string]string{"Function": "dev-mirror"})); err != nil {
					t.Error(err)
				}
				answer := a.the(t)
				reason, _ := answer["Reason"].(string)
				if failed := answer["Status"] == "FAILED"; failed != (c.want != "") || !strings.Contains(reason, c.want) {
					t.Errorf("got %v, want %q", answer, c.want)
				}
			})
		})
	}
}

func TestARoundThatHangsLeavesTimeForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &told{}
		r := resourceOf(func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, nil, a)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.Invoke(ctx, event(create, nil)); err != nil || ctx.Err() != nil {
			t.Errorf("got %v and %v, want an answer in time", err, ctx.Err())
		}
		if got := a.the(t)["Status"]; got != "SUCCESS" {
			t.Errorf("got %v, want SUCCESS", got)
		}
	})
}

func TestAnAnswerIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(n int) (int, error)
		want int // attempts
		err  string
	}{
		"after a lost connection": {func(n int) (int, error) {
			if n == 1 {
				return 0, io.ErrUnexpectedEOF
			}
			return http.StatusOK, nil
		}, 2, ""},
		"after a server's error": {func(n int) (int, error) { return map[bool]int{true: 503, false: 200}[n < 3], nil }, 3, ""},
		"and given up":           {func(int) (int, error) { return http.StatusForbidden, nil }, answerAttempts, "answer CloudFormation: got 403"},
		"and says no URL":        {func(int) (int, error) { return 0, errors.New("no route") }, answerAttempts, "answer CloudFormation: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &told{fail: c.fail}
				_, err := resourceOf(works, nil, a).Invoke(t.Context(), event(create, nil))
				if got := fmt.Sprint(err); c.err == "" && err != nil || c.err != "" && got != c.err {
					t.Errorf("got error %v, want %q", err, c.err)
				}
				if a.attempts != c.want {
					t.Errorf("got %d attempts, want %d", a.attempts, c.want)
				}
			})
		})
	}
}

// with is an API with mappings of the mirror of dev, and one of another stack.
func with(t *testing.T, n int, o lambdaapi.Options) *lambdaapi.API {
	t.Helper()
	api := lambdaapi.New(o)
	t.Cleanup(api.Close)
	for i := range n {
		make1(t, api, "dev-mirror", fmt.Sprintf("topic-%d", i))
	}
	make1(t, api, "prod-mirror", "topic-0")
	return api
}

func make1(t *testing.T, api *lambdaapi.API, function, topic string) {
	t.Helper()
	client := lambda.New(lambda.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://lambda.test"),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: &http.Client{Transport: api},
	})
	_, err := client.CreateEventSourceMapping(t.Context(), &lambda.CreateEventSourceMappingInput{
		FunctionName: &function, Topics: []string{topic}, EventSourceArn: aws.String("arn:aws:kafka:us-east-1:1:cluster/a/1"),
		AmazonManagedKafkaEventSourceConfig: &types.AmazonManagedKafkaEventSourceConfig{ConsumerGroupId: aws.String(function + "/" + topic)},
		StartingPosition:                    types.EventSourcePositionTrimHorizon,
	})
	if err != nil {
		t.Error(err)
	}
}

// remaining are the functions of the mappings that an API has.
func remaining(t *testing.T, api *lambdaapi.API) (functions []string) {
	t.Helper()
	client := lambda.New(lambda.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://lambda.test"),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: &http.Client{Transport: api},
	})
	out, err := client.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range out.EventSourceMappings {
		functions = append(functions, (*m.FunctionArn)[strings.LastIndexByte(*m.FunctionArn, ':')+1:])
	}
	return functions
}

func TestDeletionRemovesThisStacksMappings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := with(t, 5, lambdaapi.Options{Delay: 5 * time.Second}) // still Creating
		a := &told{}
		r := resourceOf(works, api, a)
		// A round that began before goes on elsewhere.
		late := time.AfterFunc(45*time.Second, func() { make1(t, api, "dev-mirror", "late") })
		defer late.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		if _, err := r.Invoke(ctx, event(remove, map[string]string{"Function": "dev-mirror"})); err != nil {
			t.Fatal(err)
		}
		if answer := a.the(t); answer["Status"] != "SUCCESS" {
			t.Errorf("got %v, want SUCCESS", answer)
		}
		if diff := cmp.Diff([]string{"prod-mirror"}, remaining(t, api)); diff != "" {
			t.Errorf("functions of the mappings (-want +got):\n%s", diff)
		}
	})
}

func TestDeletionLeavesTheMappingsOfTheTemplate(t *testing.T) {
	a := &told{}
	r := resourceOf(works, nil, a)
	r.sources = func(context.Context, string) (remover, error) { return nil, errors.New("not to be asked") }
	if _, err := r.Invoke(t.Context(), event(remove, map[string]string{"Function": "dev-mirror", "EventSources": "none"})); err != nil {
		t.Fatal(err)
	}
	if answer := a.the(t); answer["Status"] != "SUCCESS" {
		t.Errorf("got %v, want SUCCESS", answer)
	}
}

func TestADeletionThatRunsOutOfTimeIsDoneByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := with(t, 300, lambdaapi.Options{Delay: 10 * time.Second, Rate: 15, Burst: 400})
		properties := map[string]string{"Function": "dev-mirror", "Settle": "0"}
		var reasons []string
		for len(reasons) < 10 && (len(reasons) == 0 || reasons[len(reasons)-1] != "SUCCESS <nil>") {
			a := &told{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := resourceOf(works, api, a).Invoke(ctx, event(remove, properties)); err != nil || ctx.Err() != nil {
				t.Fatalf("got %v and %v, want an answer in time", err, ctx.Err())
			}
			cancel()
			answer := a.the(t)
			reasons = append(reasons, strings.TrimSpace(fmt.Sprint(answer["Status"], " ", answer["Reason"])))
		}
		if len(reasons) < 2 || !strings.Contains(reasons[0], "delete the stack again") || len(remaining(t, api)) != 1 {
			t.Errorf("got %q and %d mappings, want a deletion in several turns", reasons, len(remaining(t, api)))
		}
	})
}

func TestASetUpThatFailedIsTriedAgain(t *testing.T) {
	r := resourceOf(works, nil, &told{})
	n := 0
	r.build = func(context.Context) (Handler, error) {
		if n++; n < 3 {
			return nil, errors.New("throttled")
		}
		return HandlerFunc(works), nil
	}
	for i, want := range []string{"set up topics: throttled", "set up topics: throttled", "<nil>", "<nil>"} {
		if _, err := r.Invoke(t.Context(), nil); fmt.Sprint(err) != want {
			t.Errorf("invocation %d: got %v, want %s", i, err, want)
		}
	}
	if n != 3 {
		t.Errorf("got %d set-ups, want 3", n)
	}
}

var _ remover = topics.EventSources(nil)
