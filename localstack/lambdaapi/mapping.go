package lambdaapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
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
	e.Time = time.UnixMilli(int64(seconds * 1000))
	return nil
}

// The values of fields that the package itself reads.
const (
	endpoints  = "KAFKA_BOOTSTRAP_SERVERS"
	partial    = "ReportBatchItemFailures"
	mostTopic  = 249
	mostGroup  = 200
	mostServer = 10
	mostAccess = 23
	mostWindow = 300
	mostBatch  = 10_000
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

// Servers are the bootstrap servers of a self-managed cluster.
func (m Mapping) Servers() []string {
	if m.SelfManagedEventSource == nil {
		return nil
	}
	return m.SelfManagedEventSource.Endpoints[endpoints]
}

// Window is how long a batch may wait to become full.
func (m Mapping) Window() time.Duration {
	if m.MaximumBatchingWindowInSeconds == nil {
		return 500 * time.Millisecond
	}
	return time.Duration(*m.MaximumBatchingWindowInSeconds) * time.Second
}

// PartialFailures says whether answers of the function may name failed records.
func (m Mapping) PartialFailures() bool { return slices.Contains(m.FunctionResponseTypes, partial) }

// source is the cluster, as one string.
func (m Mapping) source() string {
	if m.EventSourceArn != "" {
		return m.EventSourceArn
	}
	return strings.Join(m.Servers(), ",")
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

// check refuses what Lambda's documentation says that it refuses.
func check(m Mapping) error {
	switch {
	case (m.EventSourceArn == "") == (m.SelfManagedEventSource == nil):
		return invalid("Exactly one of EventSourceArn and SelfManagedEventSource is required.")
	case m.EventSourceArn != "" && !strings.Contains(m.EventSourceArn, ":kafka:"):
		return invalid("Unsupported event source ARN: %s. There are Kafka event sources only.", m.EventSourceArn)
	case len(m.Topics) != 1:
		return invalid("Topics must have exactly one member, not %d.", len(m.Topics))
	case len(m.Topics[0]) < 1 || len(m.Topics[0]) > mostTopic || m.Topics[0][0] == '.':
		return invalid("%q is not a valid topic.", m.Topics[0])
	case len(m.Group()) > mostGroup:
		return invalid("ConsumerGroupId has %d characters, more than %d.", len(m.Group()), mostGroup)
	case m.BatchSize < 1 || m.BatchSize > mostBatch:
		return invalid("BatchSize %d is not within 1 and %d.", m.BatchSize, mostBatch)
	}
	if w := m.MaximumBatchingWindowInSeconds; w != nil && (*w < 0 || *w > mostWindow) {
		return invalid("MaximumBatchingWindowInSeconds %d is not within 0 and %d.", *w, mostWindow)
	}
	for _, t := range m.FunctionResponseTypes {
		if t != partial {
			return invalid("%q is not a valid FunctionResponseType.", t)
		}
	}
	if p := m.ProvisionedPollerConfig; p != nil && p.MinimumPollers != nil && p.MaximumPollers != nil && *p.MinimumPollers > *p.MaximumPollers {
		return invalid("MinimumPollers %d is more than MaximumPollers %d.", *p.MinimumPollers, *p.MaximumPollers)
	}
	if err := checkStart(m); err != nil {
		return err
	}
	return checkAccess(m)
}

func checkStart(m Mapping) error {
	at := m.StartingPosition == "AT_TIMESTAMP"
	switch {
	case !at && m.StartingPosition != "TRIM_HORIZON" && m.StartingPosition != "LATEST":
		return invalid("StartingPosition %q is not TRIM_HORIZON, LATEST or AT_TIMESTAMP.", m.StartingPosition)
	case at != (m.StartingPositionTimestamp != nil):
		return invalid("StartingPositionTimestamp goes with AT_TIMESTAMP, and only with it.")
	case at && m.StartingPositionTimestamp.After(time.Now()):
		return invalid("StartingPositionTimestamp is in the future.")
	}
	return nil
}

func checkAccess(m Mapping) error {
	count := map[string]int{}
	logins := 0
	for _, a := range m.SourceAccessConfigurations {
		count[a.Type]++
		switch a.Type {
		case "BASIC_AUTH", "SASL_SCRAM_256_AUTH", "SASL_SCRAM_512_AUTH", "CLIENT_CERTIFICATE_TLS_AUTH", "OAUTHBEARER_AUTH":
			logins++
			if !strings.HasPrefix(a.URI, "arn:") {
				return invalid("%s needs the ARN of a secret.", a.Type)
			}
		case "IAM_AUTH", "IAM_OAUTHBEARER_AUTH":
			logins++
		case "VPC_SUBNET":
			if !strings.HasPrefix(a.URI, "subnet:subnet-") {
				return invalid("%q is not a valid subnet.", a.URI)
			}
		case "VPC_SECURITY_GROUP":
			if !strings.HasPrefix(a.URI, "security_group:sg-") {
				return invalid("%q is not a valid security group.", a.URI)
			}
		}
	}
	switch {
	case logins > 1:
		return invalid("SourceAccessConfigurations has more than one authentication type.")
	case len(m.SourceAccessConfigurations) > mostAccess:
		return invalid("SourceAccessConfigurations has more than %d members.", mostAccess)
	case (count["VPC_SUBNET"] > 0) != (count["VPC_SECURITY_GROUP"] > 0):
		return invalid("VPC_SUBNET and VPC_SECURITY_GROUP go together.")
	}
	if m.EventSourceArn != "" {
		if count["VPC_SUBNET"]+count["BASIC_AUTH"]+count["SASL_SCRAM_256_AUTH"] > 0 {
			return invalid("SourceAccessConfigurations has a type that Amazon MSK does not take.")
		}
		return nil
	}
	switch {
	case len(m.Servers()) < 1 || len(m.Servers()) > mostServer:
		return invalid("%s has %d members, not 1 to %d.", endpoints, len(m.Servers()), mostServer)
	case len(m.SourceAccessConfigurations) == 0:
		return invalid("A self-managed event source needs SourceAccessConfigurations.")
	}
	return nil
}
