package account

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The whole account, with MiniStack, is what the story of the deploy guide is about.
// These are the parts that are ours, before an emulator that does as told.

// emulator stands for MiniStack: it takes down what it is asked.
type emulator struct {
	*httptest.Server
	answer func(w http.ResponseWriter, path string, body []byte)

	mu    sync.Mutex
	asked []string
}

func newEmulator(t *testing.T, answer func(w http.ResponseWriter, path string, body []byte)) *emulator {
	e := &emulator{answer: answer}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		e.asked = append(e.asked, r.Method+" "+r.URL.Path+" "+string(body))
		e.mu.Unlock()
		e.answer(w, r.URL.Path, body)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *emulator) requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// serve is an account in front of an emulator.
func serve(t *testing.T, e *emulator) *Account {
	t.Helper()
	a := &Account{}
	if err := a.serve(e.URL, Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// cloudFormation makes a request as the SDKs do, and returns the answer.
func cloudFormation(t *testing.T, a *Account, action, stack string) string {
	t.Helper()
	answer, err := http.PostForm(a.LambdaEndpoint()+"/", url.Values{"Action": {action}, "StackName": {stack}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestInnerTemplatesHaveURLsAsAWSGivesThem(t *testing.T) {
	var e *emulator
	e = newEmulator(t, func(w http.ResponseWriter, _ string, body []byte) {
		form, _ := url.ParseQuery(string(body))
		fmt.Fprintf(w, "<%[1]sResult>TemplateURL: %[2]s/bucket/key</%[1]sResult>", form.Get("Action"), e.URL)
	})
	a := serve(t, e)
	if got, want := cloudFormation(t, a, "GetTemplate", "s"), "<GetTemplateResult>TemplateURL: https://s3.us-east-1.amazonaws.com/bucket/key</GetTemplateResult>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := cloudFormation(t, a, "DescribeStacks", "s"), "<DescribeStacksResult>TemplateURL: "+e.URL+"/bucket/key</DescribeStacksResult>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheDeletionOfAStackIsAnsweredWhenItIsGone(t *testing.T) {
	const deletion = "POST / Action=DeleteStack&StackName=s"
	const look = "POST / Action=DescribeStacks&StackName=s"
	for name, c := range map[string]struct {
		states []string // that a look finds, "" for none
		want   []string
	}{
		"after some looks":        {[]string{"CREATE_COMPLETE", "DELETE_IN_PROGRESS", ""}, []string{deletion, look, look, look}},
		"or at once":              {[]string{""}, []string{deletion, look}},
		"or when it cannot be":    {[]string{"DELETE_IN_PROGRESS", "DELETE_FAILED"}, []string{deletion, look, look}},
		"and not if it's refused": {nil, []string{deletion}},
	} {
		t.Run(name, func(t *testing.T) {
			left := c.states
			e := newEmulator(t, func(w http.ResponseWriter, _ string, body []byte) {
				switch {
				case strings.Contains(string(body), "DeleteStack") && len(c.states) > 0:
					io.WriteString(w, "deleting")
				case strings.Contains(string(body), "DeleteStack"):
					http.Error(w, "no such stack", http.StatusBadRequest)
				case left[0] == "":
					http.Error(w, "it does not exist", http.StatusBadRequest)
				default:
					io.WriteString(w, "<StackStatus>"+left[0]+"</StackStatus>")
					left = left[1:]
				}
			})
			got := strings.TrimSpace(cloudFormation(t, serve(t, e), "DeleteStack", "s"))
			if want := map[bool]string{true: "deleting", false: "no such stack"}[len(c.states) > 0]; got != want {
				t.Errorf("got answer %q, want %q", got, want)
			}
			if diff := cmp.Diff(c.want, e.requests()); diff != "" {
				t.Errorf("what the emulator was asked (-want +got):\n%s", diff)
			}
		})
	}
}

// mirror is an emulator with a function that keeps what it is invoked with, and
// fails while broken says so.
type mirror struct {
	*emulator
	mu     sync.Mutex
	broken bool
	events [][]byte
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{}
	m.emulator = newEmulator(t, func(w http.ResponseWriter, path string, body []byte) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if path != "/2015-03-31/functions/arn:aws:lambda:us-east-1:000000000000:function:mirror/invocations" {
			http.Error(w, "not expected: "+path, http.StatusNotFound)
			return
		}
		if m.broken {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
			io.WriteString(w, `{"errorMessage": "no such table"}`)
			return
		}
		m.events = append(m.events, body)
		io.WriteString(w, "null")
	})
	return m
}

// values are the values of the records that the function got.
func (m *mirror) values(t *testing.T) (values []string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, event := range m.events {
		var e struct {
			EventSource string
			Records     map[string][]struct{ Value []byte }
		}
		if err := json.Unmarshal(event, &e); err != nil {
			t.Fatal(err)
		}
		if e.EventSource != "SelfManagedKafka" {
			t.Errorf("got an event of %q, want SelfManagedKafka", e.EventSource)
		}
		for _, records := range e.Records {
			for _, r := range records {
				values = append(values, string(r.Value))
			}
		}
	}
	return values
}

func (m *mirror) set(broken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = broken
}

// eventually waits until yes.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); !yes(); {
		select {
		case <-limit:
			t.Fatalf("%s: not within 20 seconds", what)
		case <-tick.C:
		}
	}
}

// create makes a mapping of the topic orders through the Lambda API.
func create(t *testing.T, a *Account, change func(*lambda.CreateEventSourceMappingInput)) (uuid string) {
	t.Helper()
	in := &lambda.CreateEventSourceMappingInput{
		FunctionName: aws.String("mirror"), Topics: []string{"orders"}, StartingPosition: types.EventSourcePositionTrimHorizon,
		MaximumBatchingWindowInSeconds: aws.Int32(0),
		SourceAccessConfigurations: []types.SourceAccessConfiguration{
			{Type: "VPC_SUBNET", URI: aws.String("subnet:subnet-0a")}, {Type: "VPC_SECURITY_GROUP", URI: aws.String("security_group:sg-0a")},
		},
		SelfManagedKafkaEventSourceConfig: &types.SelfManagedKafkaEventSourceConfig{ConsumerGroupId: aws.String("g")},
	}
	change(in)
	out, err := a.LambdaClient().CreateEventSourceMapping(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return *out.UUID
}

// result is a mapping's LastProcessingResult.
func result(t *testing.T, a *Account, uuid string) string {
	t.Helper()
	out, err := a.LambdaClient().GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: &uuid})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.LastProcessingResult)
}

// orders is a cluster with the topic orders, and a client of it.
func orders(t *testing.T) (servers []string, client *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return c.ListenAddrs(), client
}

func produce(t *testing.T, client *kgo.Client, values ...string) {
	t.Helper()
	for _, value := range values {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func committed(t *testing.T, client *kgo.Client) int64 {
	t.Helper()
	offsets, err := kadm.NewClient(client).FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	o, ok := offsets.Lookup("orders", 0)
	if !ok {
		return -1
	}
	return o.At
}

func TestAMappingInvokesTheFunctionThroughTheLambdaAPI(t *testing.T) {
	m := newMirror(t)
	a := serve(t, m.emulator)
	servers, client := orders(t)
	produce(t, client, "1", "2")

	m.set(true)
	id := create(t, a, func(in *lambda.CreateEventSourceMappingInput) {
		in.SelfManagedEventSource = &types.SelfManagedEventSource{Endpoints: map[string][]string{"KAFKA_BOOTSTRAP_SERVERS": servers}}
	})
	eventually(t, "the failure shows", func() bool { return result(t, a, id) == "PROBLEM: Function call failed" })
	if at := committed(t, client); at > 0 {
		t.Errorf("got offset %d committed while the function fails, want none", at)
	}
	m.set(false)
	eventually(t, "the failure is gone", func() bool { return result(t, a, id) == "OK" })
	eventually(t, "the offset is committed", func() bool { return committed(t, client) == 2 })

	if _, err := a.LambdaClient().DeleteEventSourceMapping(t.Context(), &lambda.DeleteEventSourceMappingInput{UUID: &id}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1", "2"}, m.values(t)); diff != "" {
		t.Errorf("values that the function got (-want +got):\n%s", diff)
	}
	a.runner.mu.Lock()
	defer a.runner.mu.Unlock()
	if n := len(a.runner.running); n != 0 {
		t.Errorf("got %d event sources after the deletion, want none", n)
	}
}

func TestAMappingOfAClusterThatNobodyKnowsSaysSo(t *testing.T) {
	a := serve(t, newMirror(t).emulator)
	id := create(t, a, func(in *lambda.CreateEventSourceMappingInput) {
		in.EventSourceArn = aws.String("arn:aws:kafka:us-east-1:000000000000:cluster/a/1-2")
		in.SourceAccessConfigurations, in.SelfManagedKafkaEventSourceConfig = nil, nil
	})
	if got := result(t, a, id); !strings.HasPrefix(got, "PROBLEM: ") || !strings.Contains(got, "has no servers that this machine could know") {
		t.Errorf("got %q, want the reason", got)
	}
}

func TestTheEndOfTheAccountIsTheEndOfItsEventSources(t *testing.T) {
	m := newMirror(t)
	a := &Account{}
	if err := a.serve(m.URL, Options{}); err != nil {
		t.Fatal(err)
	}
	servers, client := orders(t)
	id := create(t, a, func(in *lambda.CreateEventSourceMappingInput) {
		in.SelfManagedEventSource = &types.SelfManagedEventSource{Endpoints: map[string][]string{"KAFKA_BOOTSTRAP_SERVERS": servers}}
	})
	produce(t, client, "1")
	eventually(t, "the record is there", func() bool { return result(t, a, id) == "OK" })
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	groups, err := kadm.NewClient(client).DescribeGroups(context.WithoutCancel(t.Context()), "g")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(groups["g"].Members); n != 0 {
		t.Errorf("got %d members of the group after the end, want none", n)
	}
	if at := committed(t, client); at != 1 {
		t.Errorf("got offset %d committed, want 1", at)
	}
}

func TestAWSsToolsFindTheAccount(t *testing.T) {
	e := newEmulator(t, func(http.ResponseWriter, string, []byte) {})
	a := serve(t, e)
	want := []string{
		"AWS_ENDPOINT_URL=" + e.URL, "AWS_ENDPOINT_URL_LAMBDA=" + a.LambdaEndpoint(), "AWS_ENDPOINT_URL_CLOUDFORMATION=" + a.LambdaEndpoint(),
		"AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
	}
	if diff := cmp.Diff(want, a.Env()); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(a.LambdaEndpoint(), "http://127.0.0.1:") {
		t.Errorf("got the Lambda API at %s, want it on this machine only", a.LambdaEndpoint())
	}
}
