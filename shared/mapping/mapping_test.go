package mapping_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/config"
	"mirrorless/shared/mapping"
	"mirrorless/shared/topics"
)

func TestAMappingIsMadeOfItsSpec(t *testing.T) {
	type made = lambda.GetEventSourceMappingOutput
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	access := func(pairs ...string) []types.SourceAccessConfiguration {
		var out []types.SourceAccessConfiguration
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, types.SourceAccessConfiguration{Type: types.SourceAccessType(pairs[i]), URI: aws.String(pairs[i+1])})
		}
		return out
	}
	for name, test := range map[string]struct {
		lines  string
		change func(*mapping.Options)
		spec   func(*topics.EventSourceSpec)
		want   made
	}{
		"of MSK": {
			lines: mskFile,
			want: made{
				EventSourceArn:                      aws.String("arn:aws:kafka:us-east-1:123456789012:cluster/a/1-2"),
				AmazonManagedKafkaEventSourceConfig: &types.AmazonManagedKafkaEventSourceConfig{ConsumerGroupId: aws.String("mirrorless/test/A/B/orders")},
				BatchSize:                           aws.Int32(10_000), MaximumBatchingWindowInSeconds: aws.Int32(1),
				StartingPosition: types.EventSourcePositionTrimHorizon,
			},
		},
		"of a cluster of one's own": {
			lines: selfManagedFile,
			want: made{
				SelfManagedEventSource:            &types.SelfManagedEventSource{Endpoints: map[string][]string{"KAFKA_BOOTSTRAP_SERVERS": {"a1:9096", "a2:9096"}}},
				SelfManagedKafkaEventSourceConfig: &types.SelfManagedKafkaEventSourceConfig{ConsumerGroupId: aws.String("mirrorless/test/A/B/orders")},
				SourceAccessConfigurations: access(
					"SASL_SCRAM_256_AUTH", "arn:aws:secretsmanager:us-east-1:123456789012:secret:a",
					"VPC_SUBNET", "subnet:subnet-1", "VPC_SUBNET", "subnet:subnet-2", "VPC_SECURITY_GROUP", "security_group:sg-1"),
				BatchSize: aws.Int32(10_000), MaximumBatchingWindowInSeconds: aws.Int32(1),
				StartingPosition: types.EventSourcePositionTrimHorizon,
			},
		},
		"with everything": {
			lines: mskFile,
			change: func(o *mapping.Options) {
				o.Metrics = true
				o.Pollers = config.Pollers{Minimum: 1, Maximum: 4, Group: "a-b"}
			},
			spec: func(s *topics.EventSourceSpec) {
				s.Start.At, s.Window, s.BatchSize, s.PartialFailures = start, 0, 1, true
			},
			want: made{
				EventSourceArn:                      aws.String("arn:aws:kafka:us-east-1:123456789012:cluster/a/1-2"),
				AmazonManagedKafkaEventSourceConfig: &types.AmazonManagedKafkaEventSourceConfig{ConsumerGroupId: aws.String("mirrorless/test/A/B/orders")},
				BatchSize:                           aws.Int32(1), MaximumBatchingWindowInSeconds: aws.Int32(0),
				StartingPosition: types.EventSourcePositionAtTimestamp, StartingPositionTimestamp: &start,
				FunctionResponseTypes:   []types.FunctionResponseType{"ReportBatchItemFailures"},
				MetricsConfig:           &types.EventSourceMappingMetricsConfig{Metrics: []types.EventSourceMappingMetric{"EventCount", "ErrorCount", "KafkaMetrics"}},
				ProvisionedPollerConfig: &types.ProvisionedPollerConfig{MinimumPollers: aws.Int32(1), MaximumPollers: aws.Int32(4), PollerGroupName: aws.String("a-b")},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := lambdaapi.New(lambdaapi.Options{})
			change := test.change
			if change == nil {
				change = func(*mapping.Options) {}
			}
			s := sourcesOf(t, api, test.lines, change)
			spec := specOf("orders")
			if test.spec != nil {
				test.spec(&spec)
			}
			created := must[topics.EventSource](t)(s.Create(t.Context(), spec))
			if created.State != "Creating" || created.Topic != "orders" || !created.Enabled {
				t.Errorf("got %+v, want orders on its way to Enabled", created)
			}
			test.want.UUID, test.want.State = aws.String(created.ID), aws.String("Enabled")
			test.want.Topics = []string{"orders"}
			test.want.FunctionArn = aws.String("arn:aws:lambda:us-east-1:000000000000:function:mirror")
			if diff := cmp.Diff(&test.want, get(t, api, created.ID),
				cmpopts.IgnoreFields(made{}, "ResultMetadata", "EventSourceMappingArn", "LastModified", "LastProcessingResult", "StateTransitionReason"),
				cmpopts.IgnoreUnexported(made{}, types.AmazonManagedKafkaEventSourceConfig{}, types.SelfManagedEventSource{}, types.SelfManagedKafkaEventSourceConfig{},
					types.SourceAccessConfiguration{}, types.EventSourceMappingMetricsConfig{}, types.ProvisionedPollerConfig{}),
			); diff != "" {
				t.Errorf("mapping differs (-want +got):\n%s", diff)
			}
			// What was asked for is read back, or it would be asked for again.
			want := topics.EventSource{EventSourceSpec: spec, ID: created.ID, State: topics.StateEnabled, LastResult: "No records processed"}
			if diff := cmp.Diff(want, list(t, s)["orders"], cmpopts.EquateApproxTime(0)); diff != "" {
				t.Errorf("event source differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnUpdateChangesWhatCanBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := lambdaapi.New(lambdaapi.Options{})
		s := sourcesOf(t, api, selfManagedFile)
		spec := specOf("orders")
		spec.PartialFailures = true
		id := must[topics.EventSource](t)(s.Create(t.Context(), spec)).ID
		for _, step := range []struct {
			name   string
			change func(*topics.EventSourceSpec)
			state  string
		}{
			{"batch", func(s *topics.EventSourceSpec) { s.BatchSize, s.Window = 5, 7*time.Second }, "Updating"},
			{"no answers any more", func(s *topics.EventSourceSpec) { s.PartialFailures = false }, "Updating"},
			{"no window", func(s *topics.EventSourceSpec) { s.Window = 0 }, "Updating"},
			{"the window of the file", func(s *topics.EventSourceSpec) { s.Window = 500 * time.Millisecond }, "Updating"},
			{"off", func(s *topics.EventSourceSpec) { s.Enabled = false }, "Disabling"},
			{"on", func(s *topics.EventSourceSpec) { s.Enabled = true }, "Enabling"},
			{"what is there", func(*topics.EventSourceSpec) {}, "Updating"},
		} {
			step.change(&spec)
			got := must[topics.EventSource](t)(s.Update(t.Context(), id, spec))
			if got.State != step.state {
				t.Errorf("%s: got state %s, want %s", step.name, got.State, step.state)
			}
			if diff := cmp.Diff(spec, list(t, s)["orders"].EventSourceSpec); diff != "" {
				t.Errorf("%s: event source differs (-want +got):\n%s", step.name, diff)
			}
		}
		if _, err := s.Update(t.Context(), "nobody", spec); !isNotFound(err) {
			t.Errorf("got %v for a mapping that is gone, want it not found", err)
		}
	})
}

func TestAnUpdateBringsTheLoginUpToDate(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	id := must[topics.EventSource](t)(sourcesOf(t, api, selfManagedFile).Create(t.Context(), specOf("orders"))).ID
	s := sourcesOf(t, api, strings.ReplaceAll(selfManagedFile, "secret:a", "secret:b"))
	must[topics.EventSource](t)(s.Update(t.Context(), id, specOf("orders")))
	if got := *get(t, api, id).SourceAccessConfigurations[0].URI; !strings.HasSuffix(got, "secret:b") {
		t.Errorf("got %s, want the new secret", got)
	}
}

func TestOnlyTheFunctionsMappingsAreListed(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	mine := sourcesOf(t, api, mskFile)
	alias := sourcesOf(t, api, mskFile, func(o *mapping.Options) {
		o.Function = "arn:aws:lambda:us-east-1:000000000000:function:mirror:live"
	})
	must[topics.EventSource](t)(mine.Create(t.Context(), specOf("orders")))
	must[topics.EventSource](t)(alias.Create(t.Context(), specOf("clicks")))
	if got := list(t, mine); len(got) != 1 || got["orders"].ID == "" {
		t.Errorf("got %v, want orders alone", got)
	}
	if got := list(t, alias); len(got) != 1 || got["clicks"].ID == "" {
		t.Errorf("got %v, want clicks alone", got)
	}
}

func TestAMappingOfTheDefaultWindowIsReadAsHalfASecond(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	_, err := clientOf(api).CreateEventSourceMapping(t.Context(), &lambda.CreateEventSourceMappingInput{
		FunctionName: aws.String("mirror"), Topics: []string{"orders"}, StartingPosition: types.EventSourcePositionLatest,
		EventSourceArn: aws.String("arn:aws:kafka:us-east-1:123456789012:cluster/a/1-2"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := sourcesOf(t, api, mskFile, func(o *mapping.Options) { o.Window = 2 * time.Second })
	if got := list(t, s)["orders"].Window; got != 500*time.Millisecond {
		t.Errorf("got window %v, want 500ms", got)
	}
}

func TestACreateWhoseAnswerWasLostFindsItsMapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The answers to the first create and to those that follow from it are lost;
		// the second round, which does not know, creates again.
		w := &watch{after: map[int]error{1: errors.New("lost")}}
		api := lambdaapi.New(lambdaapi.Options{Delay: time.Minute, Faults: w.faults()})
		defer api.Close()
		s := sourcesOf(t, api, mskFile)
		first := must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders")))
		again := must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders")))
		if first.ID == "" || again.ID != first.ID || again.State != "Creating" {
			t.Errorf("got %+v, then %+v, want the same mapping", first, again)
		}
		if got := list(t, s); len(got) != 1 {
			t.Errorf("got %d mappings, want 1", len(got))
		}
	})
}

func TestAMappingOfSomebodyElseIsNotTakenOver(t *testing.T) {
	api := lambdaapi.New(lambdaapi.Options{})
	s := sourcesOf(t, api, mskFile)
	made := must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders")))

	spec := specOf("orders")
	spec.Group = "mirrorless/other/A/B/orders"
	if _, err := s.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), made.ID) || !strings.Contains(err.Error(), made.Group) {
		t.Errorf("got %v for another group, want an error that names mapping and group", err)
	}
	other := sourcesOf(t, api, mskFile, func(o *mapping.Options) { o.Function = "other" })
	if _, err := other.Create(t.Context(), specOf("orders")); err == nil || !strings.Contains(err.Error(), "another function") {
		t.Errorf("got %v for another function, want an error that says so", err)
	}
}

func TestADeleteCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := lambdaapi.New(lambdaapi.Options{Delay: 30 * time.Second})
		defer api.Close()
		s := sourcesOf(t, api, mskFile)
		id := must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders"))).ID
		if err := s.Delete(t.Context(), id); !errors.Is(err, mapping.ErrInUse) {
			t.Errorf("got %v while Creating, want ErrInUse", err)
		}
		if _, err := s.Update(t.Context(), id, specOf("orders")); !errors.Is(err, mapping.ErrInUse) {
			t.Errorf("got %v while Creating, want ErrInUse", err)
		}
		time.Sleep(time.Minute)
		if err := s.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := list(t, s)["orders"]; got.State != "Deleting" || got.Enabled {
			t.Errorf("got %+v, want it on its way", got)
		}
		// A create in the meantime is told what is there, and waits.
		if got := must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders"))); got.ID != id || got.State != "Deleting" {
			t.Errorf("got %+v, want the mapping that goes", got)
		}
		time.Sleep(time.Minute)
		if err := s.Delete(t.Context(), id); err != nil {
			t.Errorf("got %v for one that is gone, want no error", err)
		}
	})
}

func TestATopicWithADotInFrontIsRefused(t *testing.T) {
	w := &watch{}
	s := sourcesOf(t, lambdaapi.New(lambdaapi.Options{Faults: w.faults()}), mskFile)
	if _, err := s.Create(t.Context(), specOf(".hidden")); err == nil || !strings.Contains(err.Error(), "dot") || w.total() > 0 {
		t.Errorf("got %v after %d calls, want an error without any", err, w.total())
	}
}
