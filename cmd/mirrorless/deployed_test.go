package main

import (
	"context"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/go-cmp/cmp"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/status"
)

// The stories of stacks that are deployed need an account; they are in package
// stories. These are the parts that need none.

// deployedOf is a stack whose state is in a file and whose Lambda is an API.
func deployedOf(t *testing.T, api http.Handler) deployedStack {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	file, err := embedded.Open(filepath.Join(t.TempDir(), stateFile), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	store, err := file.Store(flow.Flow{Source: "B", Target: "A"})
	if err != nil {
		t.Fatal(err)
	}
	return deployedStack{name: "dev", store: store, sdk: aws.Config{
		Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}}
}

func TestAStackServesTheFlowOfItsTable(t *testing.T) {
	c := config.Parse("mm2.properties", []byte("clusters = A, B, C\nA->B.enabled = true\nB->A.enabled = true\nA->C.enabled = true\n"), config.Sources{})
	there, other, back := c.Enabled()[0], c.Enabled()[1], c.Enabled()[2]
	s := deployedOf(t, http.NotFoundHandler())
	for _, step := range []struct {
		name  string
		flows []config.Flow
		want  string // a flow, or in the error
	}{
		{"before its first round", []config.Flow{there}, "A->B"},
		{"before its first round, with two", []config.Flow{there, back}, "--stack: dev serves one of A->B, B->A: say which with --flow"},
		{"after it", []config.Flow{there, other, back}, "B->A"},
		{"after it, with others", []config.Flow{there, other}, "--stack: dev serves B->A, and not A->B, A->C"},
	} {
		if step.name == "after it" {
			if _, err := s.store.PutFlow(t.Context(), state.FlowRow{Flow: back.Flow, ProducerID: state.NoProducerID}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.serves(t.Context(), step.flows)
		if err != nil {
			if err.Error() != step.want {
				t.Errorf("%s: got error %v, want %s", step.name, err, step.want)
			}
			continue
		}
		if len(got) != 1 || got[0].String() != step.want {
			t.Errorf("%s: got %s, want %s", step.name, names(got), step.want)
		}
	}
}

func TestTheEventSourcesOfAStackAreLambdas(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	t.Cleanup(api.Close)
	s := deployedOf(t, api)
	client := lambda.NewFromConfig(s.sdk)
	for function, topic := range map[string]string{"dev-mirror": "orders", "other-mirror": "users"} {
		if _, err := client.CreateEventSourceMapping(t.Context(), &lambda.CreateEventSourceMappingInput{
			FunctionName: &function, Topics: []string{topic}, StartingPosition: "TRIM_HORIZON",
			EventSourceArn: aws.String("arn:aws:kafka:us-east-1:000000000000:cluster/a/1-2"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.eventSources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := got["orders"].ID
	want := map[string]status.EventSource{"orders": {ID: id, Group: id, State: "Enabled", LastResult: "No records processed"}}
	if diff := cmp.Diff(want, got); diff != "" || id == "" {
		t.Errorf("event sources (-want +got):\n%s", diff)
	}
}

func TestAStackThatIsNotThereIsSaidToBeSo(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body := []byte(`{"__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "message": "Requested resource not found"}`)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
		w.WriteHeader(http.StatusBadRequest)
		w.Write(body)
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
	} {
		t.Setenv(name, value)
	}
	c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = "+closedAddress(t)+"\nB.bootstrap.servers = "+closedAddress(t)+"\nA->B.enabled = true\n"), config.Sources{})
	_, err := stackStatus(context.Background(), statusFlags{stack: "dev", timeout: status.DefaultTimeout}, c.Enabled())
	if err == nil || !strings.Contains(err.Error(), "there is no table dev in us-east-1") {
		t.Errorf("got %v, want that there is no table dev", err)
	}
}
