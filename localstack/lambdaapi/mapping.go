package lambdaapi

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"mirrorless/localstack/eventsource"
)

// Mapping is an event source mapping, as the API shows it
// (EventSourceMappingConfiguration).
type Mapping struct {
	UUID                  string
	EventSourceMappingArn string
	FunctionArn           string

	// EventSourceArn is that of an MSK cluster, or empty.
	EventSourceArn                      string                  `json:",omitempty"`
	AmazonManagedKafkaEventSourceConfig *KafkaConfig            `json:",omitempty"`
	SelfManagedEventSource              *SelfManagedEventSource `json:",omitempty"`
	SelfManagedKafkaEventSourceConfig   *KafkaConfig            `json:",omitempty"`
	SourceAccessConfigurations          []SourceAccess          `json:",omitempty"`
	Topics                              []string

	StartingPosition          string
	StartingPositionTimestamp *Epoch `json:",omitempty"`

	BatchSize int32
	// MaximumBatchingWindowInSeconds is nil for the default, half a second.
	MaximumBatchingWindowInSeconds *int32           `json:",omitempty"`
	FunctionResponseTypes          []string         `json:",omitempty"`
	MetricsConfig                  *MetricsConfig   `json:",omitempty"`
	ProvisionedPollerConfig        *ProvisionedMode `json:",omitempty"`

	State                 string
	StateTransitionReason string
	LastProcessingResult  string
	LastModified          Epoch
}

// KafkaConfig has what one kind of Kafka and the other have in common.
type KafkaConfig struct {
	ConsumerGroupID string `json:"ConsumerGroupId,omitempty"`
}

// SelfManagedEventSource is a Kafka cluster by its servers.
type SelfManagedEventSource struct {
	Endpoints map[string][]string
}

// SourceAccess is a login, a trusted certificate, or a part of the network.
type SourceAccess struct {
	Type string
	URI  string `json:",omitempty"`
}

// MetricsConfig names the metrics that are to be produced.
type MetricsConfig struct {
	Metrics []string `json:",omitempty"`
}

// ProvisionedMode is how many pollers there are to be.
type ProvisionedMode struct {
	MinimumPollers, MaximumPollers *int32 `json:",omitempty"`
	PollerGroupName                string `json:",omitempty"`
}

// Epoch is a time as the API has it: a number of seconds.
type Epoch struct{ time.Time }

// MarshalJSON writes seconds, to the millisecond.
func (e Epoch) MarshalJSON() ([]byte, error) {
	ms := e.UnixMilli()
	if ms%1000 == 0 {
		return fmt.Appendf(nil, "%d", ms/1000), nil
	}
	return fmt.Appendf(nil, "%.3f", float64(ms)/1000), nil
}

// UnmarshalJSON reads seconds with or without a fraction.
func (e *Epoch) UnmarshalJSON(text []byte) error {
	var seconds float64
	if err := json.Unmarshal(text, &seconds); err != nil {
		return fmt.Errorf("read a time: %w", err)
	}
	e.Time = time.UnixMilli(int64(math.Round(seconds * 1000)))
	return nil
}

// The values of fields that the package itself reads.
const (
	endpoints   = "KAFKA_BOOTSTRAP_SERVERS"
	partial     = "ReportBatchItemFailures"
	trimHorizon = "TRIM_HORIZON"
	latest      = "LATEST"
	atTimestamp = "AT_TIMESTAMP"
)

// Topic is the topic that is read.
func (m Mapping) Topic() string { return m.Topics[0] }

// Group is the consumer group.
func (m Mapping) Group() string {
	if c := m.AmazonManagedKafkaEventSourceConfig; c != nil {
		return c.ConsumerGroupID
	}
	if c := m.SelfManagedKafkaEventSourceConfig; c != nil {
		return c.ConsumerGroupID
	}
	return ""
}

// Window is how long a batch may wait to become full.
func (m Mapping) Window() time.Duration {
	if m.MaximumBatchingWindowInSeconds == nil {
		return eventsource.DefaultWindow
	}
	return time.Duration(*m.MaximumBatchingWindowInSeconds) * time.Second
}

// PartialFailures says whether answers of the function may name failed records.
func (m Mapping) PartialFailures() bool { return slices.Contains(m.FunctionResponseTypes, partial) }

// servers are the bootstrap servers of a self-managed cluster.
func (m Mapping) servers() []string {
	if m.SelfManagedEventSource == nil {
		return nil
	}
	return m.SelfManagedEventSource.Endpoints[endpoints]
}

// source is the cluster, as one string.
func (m Mapping) source() string {
	if m.EventSourceArn != "" {
		return m.EventSourceArn
	}
	return strings.Join(m.servers(), ",")
}

// clone shares nothing with m that a change would write to.
func (m Mapping) clone() Mapping {
	m.Topics = slices.Clone(m.Topics)
	m.SourceAccessConfigurations = slices.Clone(m.SourceAccessConfigurations)
	m.FunctionResponseTypes = slices.Clone(m.FunctionResponseTypes)
	return m
}

// settings are the fields of a request that creates or updates.
type settings struct {
	FunctionName                        string
	EventSourceArn                      string
	AmazonManagedKafkaEventSourceConfig *KafkaConfig
	SelfManagedEventSource              *SelfManagedEventSource
	SelfManagedKafkaEventSourceConfig   *KafkaConfig
	SourceAccessConfigurations          []SourceAccess
	Topics                              []string
	StartingPosition                    string
	StartingPositionTimestamp           *Epoch
	BatchSize                           *int32
	MaximumBatchingWindowInSeconds      *int32
	FunctionResponseTypes               []string
	MetricsConfig                       *MetricsConfig
	ProvisionedPollerConfig             *ProvisionedMode
	Enabled                             *bool
}

// apply changes what a request may change of a mapping that is there.
func (s settings) apply(m *Mapping) {
	if s.BatchSize != nil {
		m.BatchSize = *s.BatchSize
	}
	if s.MaximumBatchingWindowInSeconds != nil {
		m.MaximumBatchingWindowInSeconds = s.MaximumBatchingWindowInSeconds
	}
	if s.FunctionResponseTypes != nil {
		m.FunctionResponseTypes = s.FunctionResponseTypes
	}
	if s.SourceAccessConfigurations != nil {
		m.SourceAccessConfigurations = s.SourceAccessConfigurations
	}
	if s.MetricsConfig != nil {
		m.MetricsConfig = s.MetricsConfig
	}
	if s.ProvisionedPollerConfig != nil {
		m.ProvisionedPollerConfig = s.ProvisionedPollerConfig
	}
}
