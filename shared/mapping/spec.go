package mapping

import (
	"cmp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"mirrorless/shared/config"
	"mirrorless/shared/topics"
)

// defaultWindow is that of a Kafka mapping that was created without one. It
// cannot be asked for, nor restored once it was changed, so it is not used here.
const defaultWindow = 500 * time.Millisecond

// seconds rounds a window up.
func seconds(window time.Duration) int32 {
	return int32((window + time.Second - 1) / time.Second)
}

func responses(spec topics.EventSourceSpec) []types.FunctionResponseType {
	if spec.PartialFailures {
		return []types.FunctionResponseType{types.FunctionResponseTypeReportBatchItemFailures}
	}
	return []types.FunctionResponseType{} // nil would leave what is there
}

// creation is the request that makes a mapping of spec.
func (e *EventSources) creation(spec topics.EventSourceSpec) *lambda.CreateEventSourceMappingInput {
	in := &lambda.CreateEventSourceMappingInput{
		FunctionName:                   &e.o.Function,
		Topics:                         []string{spec.Topic},
		BatchSize:                      &spec.BatchSize,
		MaximumBatchingWindowInSeconds: aws.Int32(seconds(spec.Window)),
		FunctionResponseTypes:          responses(spec),
		Enabled:                        &spec.Enabled,
		StartingPosition:               types.EventSourcePositionTrimHorizon,
		SourceAccessConfigurations:     e.source.access,
		MetricsConfig:                  e.metrics(),
		ProvisionedPollerConfig:        e.pollers(),
	}
	if !spec.Start.At.IsZero() {
		in.StartingPosition = types.EventSourcePositionAtTimestamp
		in.StartingPositionTimestamp = &spec.Start.At
	}
	if e.source.arn != "" {
		in.EventSourceArn = &e.source.arn
		in.AmazonManagedKafkaEventSourceConfig = &types.AmazonManagedKafkaEventSourceConfig{ConsumerGroupId: &spec.Group}
	} else {
		in.SelfManagedEventSource = &types.SelfManagedEventSource{Endpoints: map[string][]string{
			string(types.EndPointTypeKafkaBootstrapServers): e.source.servers,
		}}
		in.SelfManagedKafkaEventSourceConfig = &types.SelfManagedKafkaEventSourceConfig{ConsumerGroupId: &spec.Group}
	}
	return in
}

// change is the request that makes a mapping what spec says, as far as that can
// be changed.
func (e *EventSources) change(id string, spec topics.EventSourceSpec) *lambda.UpdateEventSourceMappingInput {
	return &lambda.UpdateEventSourceMappingInput{
		UUID:                           &id,
		BatchSize:                      &spec.BatchSize,
		MaximumBatchingWindowInSeconds: aws.Int32(seconds(spec.Window)),
		FunctionResponseTypes:          responses(spec),
		Enabled:                        &spec.Enabled,
		SourceAccessConfigurations:     e.source.access,
		MetricsConfig:                  e.metrics(),
		ProvisionedPollerConfig:        e.pollers(),
	}
}

func (e *EventSources) metrics() *types.EventSourceMappingMetricsConfig {
	if !e.o.Metrics {
		return nil
	}
	return &types.EventSourceMappingMetricsConfig{Metrics: []types.EventSourceMappingMetric{
		types.EventSourceMappingMetricEventCount,
		types.EventSourceMappingMetricErrorCount,
		types.EventSourceMappingMetricKafkaMetrics,
	}}
}

func (e *EventSources) pollers() *types.ProvisionedPollerConfig {
	p := e.o.Pollers
	if p == (config.Pollers{}) {
		return nil
	}
	c := &types.ProvisionedPollerConfig{}
	if p.Minimum > 0 {
		c.MinimumPollers = &p.Minimum
	}
	if p.Maximum > 0 {
		c.MaximumPollers = &p.Maximum
	}
	if p.Group != "" {
		c.PollerGroupName = &p.Group
	}
	return c
}

// read is a mapping as topics knows it.
func (e *EventSources) read(c types.EventSourceMappingConfiguration) topics.EventSource {
	s := topics.EventSource{
		EventSourceSpec: topics.EventSourceSpec{
			BatchSize:       aws.ToInt32(c.BatchSize),
			Window:          e.window(c.MaximumBatchingWindowInSeconds),
			PartialFailures: slices.Contains(c.FunctionResponseTypes, types.FunctionResponseTypeReportBatchItemFailures),
			Enabled:         enabled(aws.ToString(c.State)),
		},
		ID:         aws.ToString(c.UUID),
		State:      aws.ToString(c.State),
		LastResult: aws.ToString(c.LastProcessingResult),
	}
	if len(c.Topics) > 0 {
		s.Topic = c.Topics[0]
	}
	switch {
	case c.AmazonManagedKafkaEventSourceConfig != nil:
		s.Group = aws.ToString(c.AmazonManagedKafkaEventSourceConfig.ConsumerGroupId)
	case c.SelfManagedKafkaEventSourceConfig != nil:
		s.Group = aws.ToString(c.SelfManagedKafkaEventSourceConfig.ConsumerGroupId)
	}
	if c.StartingPosition == types.EventSourcePositionAtTimestamp {
		s.Start.At = aws.ToTime(c.StartingPositionTimestamp)
	}
	s.Outdated = e.outdated(c)
	return s
}

// outdated compares what topics does not know of: access, metrics and pollers. It
// compares what is asked for only, since Lambda may add to it; and access only where
// there is a cluster, which those who only look have not.
func (e *EventSources) outdated(c types.EventSourceMappingConfiguration) bool {
	if len(e.source.access) > 0 && !slices.Equal(accessOf(e.source.access), accessOf(c.SourceAccessConfigurations)) {
		return true
	}
	if want := e.metrics(); want != nil {
		var got []types.EventSourceMappingMetric
		if c.MetricsConfig != nil {
			got = c.MetricsConfig.Metrics
		}
		if slices.ContainsFunc(want.Metrics, func(m types.EventSourceMappingMetric) bool { return !slices.Contains(got, m) }) {
			return true
		}
	}
	if want := e.pollers(); want != nil {
		got := cmp.Or(c.ProvisionedPollerConfig, &types.ProvisionedPollerConfig{})
		return want.MinimumPollers != nil && aws.ToInt32(want.MinimumPollers) != aws.ToInt32(got.MinimumPollers) ||
			want.MaximumPollers != nil && aws.ToInt32(want.MaximumPollers) != aws.ToInt32(got.MaximumPollers) ||
			want.PollerGroupName != nil && aws.ToString(want.PollerGroupName) != aws.ToString(got.PollerGroupName)
	}
	return false
}

// accessOf makes access comparable: its order says nothing.
func accessOf(access []types.SourceAccessConfiguration) []string {
	var all []string
	for _, a := range access {
		all = append(all, string(a.Type)+" "+aws.ToString(a.URI))
	}
	slices.Sort(all)
	return all
}

// window reads what seconds wrote.
func (e *EventSources) window(n *int32) time.Duration {
	switch {
	case n == nil:
		return defaultWindow
	case *n == seconds(e.o.Window):
		return e.o.Window
	default:
		return time.Duration(*n) * time.Second
	}
}

// enabled reads off a state whether the mapping is on or on its way to it; the
// API tells it in no other way. A mapping that is being created or updated may
// turn out to be off.
func enabled(state string) bool {
	switch state {
	case topics.StateDisabled, "Disabling", "Deleting":
		return false
	}
	return true
}

// The API has three types for the same thing.

func ofCreate(o *lambda.CreateEventSourceMappingOutput) types.EventSourceMappingConfiguration {
	return types.EventSourceMappingConfiguration{
		UUID: o.UUID, State: o.State, LastProcessingResult: o.LastProcessingResult,
		Topics:                              o.Topics,
		AmazonManagedKafkaEventSourceConfig: o.AmazonManagedKafkaEventSourceConfig,
		SelfManagedKafkaEventSourceConfig:   o.SelfManagedKafkaEventSourceConfig,
		StartingPosition:                    o.StartingPosition,
		StartingPositionTimestamp:           o.StartingPositionTimestamp,
		BatchSize:                           o.BatchSize,
		MaximumBatchingWindowInSeconds:      o.MaximumBatchingWindowInSeconds,
		FunctionResponseTypes:               o.FunctionResponseTypes,
		SourceAccessConfigurations:          o.SourceAccessConfigurations,
		MetricsConfig:                       o.MetricsConfig,
		ProvisionedPollerConfig:             o.ProvisionedPollerConfig,
	}
}

func ofUpdate(o *lambda.UpdateEventSourceMappingOutput) types.EventSourceMappingConfiguration {
	return types.EventSourceMappingConfiguration{
		UUID: o.UUID, State: o.State, LastProcessingResult: o.LastProcessingResult,
		Topics:                              o.Topics,
		AmazonManagedKafkaEventSourceConfig: o.AmazonManagedKafkaEventSourceConfig,
		SelfManagedKafkaEventSourceConfig:   o.SelfManagedKafkaEventSourceConfig,
		StartingPosition:                    o.StartingPosition,
		StartingPositionTimestamp:           o.StartingPositionTimestamp,
		BatchSize:                           o.BatchSize,
		MaximumBatchingWindowInSeconds:      o.MaximumBatchingWindowInSeconds,
		FunctionResponseTypes:               o.FunctionResponseTypes,
		SourceAccessConfigurations:          o.SourceAccessConfigurations,
		MetricsConfig:                       o.MetricsConfig,
		ProvisionedPollerConfig:             o.ProvisionedPollerConfig,
	}
}
