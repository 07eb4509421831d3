package lambdaapi

import (
	"strings"
	"time"

	"mirrorless/localstack/eventsource"
)

// Lambda's limits of a Kafka event source, beside those of eventsource.
const (
	mostTopic  = 249
	mostGroup  = 200
	mostServer = 10
	mostAccess = 23
)

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
	case m.BatchSize < 1 || m.BatchSize > eventsource.MaxBatchSize:
		return invalid("BatchSize %d is not within 1 and %d.", m.BatchSize, eventsource.MaxBatchSize)
	}
	if w := m.MaximumBatchingWindowInSeconds; w != nil && (*w < 0 || time.Duration(*w)*time.Second > eventsource.MaxWindow) {
		return invalid("MaximumBatchingWindowInSeconds %d is not within 0 and %.0f.", *w, eventsource.MaxWindow.Seconds())
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
	at := m.StartingPosition == atTimestamp
	switch {
	case !at && m.StartingPosition != trimHorizon && m.StartingPosition != latest:
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
	case len(m.servers()) < 1 || len(m.servers()) > mostServer:
		return invalid("%s has %d members, not 1 to %d.", endpoints, len(m.servers()), mostServer)
	case len(m.SourceAccessConfigurations) == 0:
		return invalid("A self-managed event source needs SourceAccessConfigurations.")
	}
	return nil
}
