package mapping_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/config"
	"mirrorless/shared/mapping"
	"mirrorless/shared/topics"
)

// Two clusters as they are written in a file.
const (
	mskFile = `
		A.security.protocol = SASL_SSL
		A.sasl.mechanism = AWS_MSK_IAM
		A.mirrorless.msk.arn = arn:aws:kafka:us-east-1:123456789012:cluster/a/1-2`
	selfManagedFile = `
		A.security.protocol = SASL_SSL
		A.sasl.mechanism = SCRAM-SHA-256
		A.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";
		A.mirrorless.secret.arn = arn:aws:secretsmanager:us-east-1:123456789012:secret:a
		A.mirrorless.subnets = subnet-1, subnet-2
		A.mirrorless.security.groups = sg-1`
)

// clusterOf reads cluster A of a file with these lines.
func clusterOf(t *testing.T, lines string) config.Cluster {
	t.Helper()
	c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = a2:9096, a1:9096\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"+lines), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	a, _ := c.Cluster("A")
	return a
}

func clientOf(api *lambdaapi.API) *lambda.Client {
	return lambda.New(lambda.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://lambda.test"),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:  &http.Client{Transport: api},
	})
}

// sourcesOf are event sources of the function mirror.
func sourcesOf(t *testing.T, api *lambdaapi.API, lines string, change ...func(*mapping.Options)) *mapping.EventSources {
	t.Helper()
	o := mapping.Options{Function: "mirror", Cluster: clusterOf(t, lines), Window: 500 * time.Millisecond}
	for _, c := range change {
		c(&o)
	}
	s, err := mapping.New(clientOf(api), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func specOf(topic string) topics.EventSourceSpec {
	return topics.EventSourceSpec{Topic: topic, Group: "mirrorless/test/A/B/" + topic, BatchSize: 10_000, Window: 500 * time.Millisecond, Enabled: true}
}

// watch counts the calls of an API, and makes them fail as told.
type watch struct {
	mu    sync.Mutex
	calls []lambdaapi.Call
	times []time.Time
	// before and after are faults of the n-th call, from 1.
	before, after map[int]error
	// die ends the client's process at call dieAt, with the fault of that call.
	die   func()
	dieAt int
}

func (w *watch) faults() lambdaapi.Faults {
	return lambdaapi.Faults{
		Before: func(c lambdaapi.Call) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls = append(w.calls, c)
			w.times = append(w.times, time.Now())
			w.perhapsDie(c.N, w.before)
			return w.before[c.N]
		},
		After: func(c lambdaapi.Call) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.perhapsDie(c.N, w.after)
			return w.after[c.N]
		},
	}
}

func (w *watch) perhapsDie(n int, faults map[int]error) {
	if n == w.dieAt && faults[n] != nil {
		w.die()
	}
}

// count is how many calls of some operations came since the first n.
func (w *watch) count(since int, ops ...lambdaapi.Operation) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls[since:] {
		for _, op := range ops {
			if c.Operation == op {
				n++
			}
		}
	}
	return n
}

func (w *watch) writes(since int) int {
	return w.count(since, lambdaapi.Create, lambdaapi.Update, lambdaapi.Delete)
}

func (w *watch) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

// expectRate fails where more calls came in some second than Lambda takes.
func (w *watch) expectRate(t *testing.T, most int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.times {
		n := 0
		for _, at := range w.times[i:] {
			if at.Sub(w.times[i]) >= time.Second {
				break
			}
			n++
		}
		if n > most {
			t.Fatalf("got %d calls within a second, want at most %d", n, most)
		}
	}
}

// list is the function's mappings, by topic.
func list(t *testing.T, s *mapping.EventSources) map[string]topics.EventSource {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byTopic := map[string]topics.EventSource{}
	for _, m := range all {
		if _, twice := byTopic[m.Topic]; twice {
			t.Errorf("got two mappings of %s, want one", m.Topic)
		}
		byTopic[m.Topic] = m
	}
	return byTopic
}

// get is a mapping in the API's own words.
func get(t *testing.T, api *lambdaapi.API, id string) *lambda.GetEventSourceMappingOutput {
	t.Helper()
	out, err := clientOf(api).GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: &id})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func isNotFound(err error) bool {
	_, ok := errors.AsType[*types.ResourceNotFoundException](err)
	return ok
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
