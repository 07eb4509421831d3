// Package mapping keeps event sources as Lambda's event source mappings: it is
// topics.EventSources over Lambda's API.
//
//	sources, err := mapping.New(lambda.NewFromConfig(sdk), mapping.Options{
//		Function: "stack-mirror", Cluster: a, Window: settings.BatchDelay,
//	})
//	topics.New(topics.Options{EventSources: sources, …})
//
// What a mapping is made of, and who says so (the pages are those of
// docs.aws.amazon.com/lambda/latest):
//
//	EventSourceArn                      <alias>.mirrorless.msk.arn               dg/with-msk.html
//	SelfManagedEventSource              <alias>.bootstrap.servers, ten of them   dg/with-kafka.html
//	SourceAccessConfigurations          see [Options], Cluster                   dg/kafka-cluster-auth.html
//	Topics                              the topic: Lambda takes one              api/API_CreateEventSourceMapping.html
//	ConsumerGroupId (of …Config)        the group: set once, never changed       dg/kafka-consumer-group-id.html
//	StartingPosition, …Timestamp        TRIM_HORIZON or AT_TIMESTAMP             dg/kafka-starting-positions.html
//	BatchSize                           as asked                                 dg/with-kafka-configure.html
//	MaximumBatchingWindowInSeconds      as asked, rounded up to whole seconds    dg/with-kafka-configure.html
//	FunctionResponseTypes               ReportBatchItemFailures, where asked     dg/kafka-retry-configurations.html
//	MetricsConfig                       [Options], Metrics                       dg/monitoring-metrics-types.html
//	ProvisionedPollerConfig             [Options], Pollers                       dg/kafka-scaling-modes.html
//	State, LastProcessingResult         what List tells                          api/API_EventSourceMappingConfiguration.html
//
// What a mirror must not have stays unset: a schema registry would change the
// bytes, a filter knows only values, an on-failure destination turns endless
// retries into ten.
//
// Lambda's control plane takes 15 requests a second of an account and Region, of
// all its clients together and not to be raised (dg/gettingstarted-limits.html).
// An EventSources makes five, and fewer when it is told that these are too many.
package mapping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"mirrorless/shared/config"
	"mirrorless/shared/topics"
)

// Options of New. Function and Cluster are needed.
type Options struct {
	// Function is the name or ARN of mirror, with an alias or version where the
	// mappings are to invoke that one.
	Function string
	// Cluster is the source. With an MSK ARN the event source finds brokers and
	// network by it; otherwise the cluster is self-managed, reached in its subnets
	// with its security groups, or over the internet where it has none. How it
	// logs in follows the security protocol and SASL mechanism of the cluster's
	// consumers; all but AWS_MSK_IAM need the secret's ARN. A self-managed one may
	// have a private authority, whose certificates are in another secret.
	Cluster config.Cluster
	// Window is the batching window as the configuration has it. A mapping's is
	// in whole seconds, so that one of 500ms is there as a second; List reads what
	// Window became as Window, or it would differ in every round. Other windows
	// should be whole seconds, and another one than that.
	Window time.Duration
	// Metrics asks for EventCount, ErrorCount and KafkaMetrics, which CloudWatch
	// charges for by mapping.
	Metrics bool
	// Pollers asks for provisioned mode, which costs while idle; on-demand if zero.
	Pollers config.Pollers
	// Logger discards if nil.
	Logger *slog.Logger
}

// EventSources are the mappings of one function.
type EventSources struct {
	client *lambda.Client
	o      Options
	source source
	pace   pacer
}

var _ topics.EventSources = (*EventSources)(nil)

// ErrInUse is in the error of Update and Delete when Lambda is still busy with
// the mapping's last change: the next round may do it.
var ErrInUse = errors.New("the mapping is still being changed")

// New returns the event sources. It makes no request. The error names the keys
// that are to be set before a mapping can be made of the cluster, all at once.
// EventSources retries by itself, whatever the client's retry settings are.
func New(client *lambda.Client, o Options) (*EventSources, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Function == "" {
		return nil, errors.New("set up event source mappings: the function that they invoke has no name")
	}
	s, err := sourceOf(o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("set up event source mappings of cluster %s: %w", o.Cluster.Alias, err)
	}
	return &EventSources{client: client, o: o, source: s}, nil
}

// List implements topics.EventSources: it returns the function's mappings of
// Kafka topics.
func (e *EventSources) List(ctx context.Context) ([]topics.EventSource, error) {
	const most = 100 // of a page, for Lambda
	var all []topics.EventSource
	in := &lambda.ListEventSourceMappingsInput{FunctionName: &e.o.Function, MaxItems: aws.Int32(most)}
	for {
		out, err := request(ctx, e, e.client.ListEventSourceMappings, in)
		if err != nil {
			return nil, fmt.Errorf("list the event source mappings of %s: %w", e.o.Function, err)
		}
		for _, c := range out.EventSourceMappings {
			if len(c.Topics) == 1 {
				all = append(all, e.read(c))
			}
		}
		if aws.ToString(out.NextMarker) == "" {
			return all, nil
		}
		in.Marker = out.NextMarker
	}
}

// List returns the mappings of Kafka topics that a function has, for those who
// only look: it needs no cluster. A window is in Lambda's whole seconds.
func List(ctx context.Context, client *lambda.Client, function string) ([]topics.EventSource, error) {
	e := &EventSources{client: client, o: Options{Function: function, Logger: slog.New(slog.DiscardHandler)}}
	return e.List(ctx)
}

// Create implements topics.EventSources.
func (e *EventSources) Create(ctx context.Context, spec topics.EventSourceSpec) (topics.EventSource, error) {
	if strings.HasPrefix(spec.Topic, ".") {
		return topics.EventSource{}, fmt.Errorf("create event source mapping of %s: Lambda takes no topic whose name begins with a dot", spec.Topic)
	}
	out, err := request(ctx, e, e.client.CreateEventSourceMapping, e.creation(spec))
	switch {
	case err == nil:
		return e.read(ofCreate(out)), nil
	case isA[*types.ResourceConflictException](err):
		return e.existing(ctx, spec, err)
	default:
		return topics.EventSource{}, fmt.Errorf("create event source mapping of %s: %w", spec.Topic, err)
	}
}

// existing finds the mapping that another one cannot be made beside. It is ours
// where the answer to an earlier create was lost.
func (e *EventSources) existing(ctx context.Context, spec topics.EventSourceSpec, conflict error) (topics.EventSource, error) {
	all, err := e.List(ctx)
	if err != nil {
		return topics.EventSource{}, fmt.Errorf("create event source mapping of %s: there is one, but: %w", spec.Topic, err)
	}
	for _, s := range all {
		if s.Topic == spec.Topic && s.Group == spec.Group {
			e.o.Logger.InfoContext(ctx, "event source mapping was there", "topic", s.Topic, "id", s.ID)
			return s, nil
		}
	}
	for _, s := range all {
		if s.Topic == spec.Topic {
			return topics.EventSource{}, fmt.Errorf("create event source mapping of %s: the function has %s for it, whose group is %s: delete it", spec.Topic, s.ID, s.Group)
		}
	}
	return topics.EventSource{}, fmt.Errorf("create event source mapping of %s: another function has one with its group: %w", spec.Topic, conflict)
}

// Update implements topics.EventSources. Beside what spec says, it brings access,
// metrics and pollers up to Options.
func (e *EventSources) Update(ctx context.Context, id string, spec topics.EventSourceSpec) (topics.EventSource, error) {
	out, err := request(ctx, e, e.client.UpdateEventSourceMapping, e.change(id, spec))
	if err != nil {
		return topics.EventSource{}, fmt.Errorf("update event source mapping %s: %w", id, busy(err))
	}
	return e.read(ofUpdate(out)), nil
}

// Delete implements topics.EventSources. Lambda lists the mapping as Deleting for
// a while.
func (e *EventSources) Delete(ctx context.Context, id string) error {
	_, err := request(ctx, e, e.client.DeleteEventSourceMapping, &lambda.DeleteEventSourceMappingInput{UUID: &id})
	if err != nil && !isA[*types.ResourceNotFoundException](err) {
		return fmt.Errorf("delete event source mapping %s: %w", id, busy(err))
	}
	return nil
}

// busy adds ErrInUse to Lambda's way of saying so.
func busy(err error) error {
	if isA[*types.ResourceInUseException](err) {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err
}
