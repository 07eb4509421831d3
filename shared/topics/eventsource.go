package topics

import (
	"context"
	"strings"
	"time"

	"mirrorless/shared/flow"
)

// EventSources are the event source mappings that invoke mirror: one for each
// topic that is copied. Implementations pace themselves to what their control
// plane takes.
//
// Each call must be safe to repeat after a crash that hid its outcome: Create of
// a topic and group that has a mapping returns that mapping; Update to what is
// there, and Delete of what is not there, succeed.
type EventSources interface {
	// List returns every mapping of this stack, whatever its state.
	List(ctx context.Context) ([]EventSource, error)
	// Create makes the mapping of a topic, and returns it as it is now. A group
	// that has committed offsets goes on from them; Start is for the others.
	Create(ctx context.Context, spec EventSourceSpec) (EventSource, error)
	// Update changes BatchSize, Window, PartialFailures and Enabled of a mapping, and
	// what makes it Outdated; the other fields of spec are its own.
	Update(ctx context.Context, id string, spec EventSourceSpec) (EventSource, error)
	// Delete removes a mapping, and leaves its group's commits alone.
	Delete(ctx context.Context, id string) error
}

// EventSourceSpec is how a mapping should be.
type EventSourceSpec struct {
	Topic string
	// Group is the consumer group on the source; see [Group].
	Group string
	// Start is where a group without commits begins.
	Start Start
	// BatchSize is the most records in one invocation, Window how long a batch may
	// wait to become full.
	BatchSize int32
	Window    time.Duration
	// PartialFailures is ReportBatchItemFailures.
	PartialFailures bool
	Enabled         bool
}

// Start is the starting position of a mapping: AT_TIMESTAMP, or TRIM_HORIZON for
// the zero Start. LATEST is not among them, because records that arrive while a
// mapping is made would be lost.
type Start struct{ At time.Time }

// EventSource is a mapping as it is.
type EventSource struct {
	EventSourceSpec
	// ID is Lambda's UUID of the mapping.
	ID string
	// State is Lambda's word: Creating, Enabling, Enabled, Disabling, Disabled,
	// Updating, Deleting.
	State string
	// LastResult is Lambda's LastProcessingResult.
	LastResult string
	// Outdated says that the mapping is not as asked for in what its spec does not
	// tell, such as its login or its pollers. Update brings that up to date.
	Outdated bool
}

// The states in which a mapping can be changed, by Lambda's API.
const (
	StateEnabled  = "Enabled"
	StateDisabled = "Disabled"
)

// settled reports that a mapping is not on its way to another state.
func (s EventSource) settled() bool { return s.State == StateEnabled || s.State == StateDisabled }

// mostGroup is the length that Lambda allows a consumer group id to have.
const mostGroup = 200

// Group is the consumer group of a topic's mapping:
// mirrorless/<stack>/<A>/<B>/<topic>, with a hash in the place of a topic that
// makes it longer than 200 characters.
func Group(stack string, f flow.Flow, topic string) string {
	group := groupOf(stack, f) + topic
	if len(group) <= mostGroup {
		return group
	}
	return groupOf(stack, f) + hashOf(topic)
}

func groupOf(stack string, f flow.Flow) string {
	return flow.OwnGroups + stack + "/" + f.Source + "/" + f.Target + "/"
}

// ours reports whether a mapping is one of this flow's.
func (r rules) ours(s EventSource) bool {
	return strings.HasPrefix(s.Group, groupOf(r.stack, r.settings.Flow))
}

// spec is how the mapping of a topic should be, but for its start.
func (r rules) spec(topic string) EventSourceSpec {
	window := r.settings.BatchDelay
	if r.selector.Policy.IsHeartbeats(topic) {
		window = max(window, r.heartbeatWindow)
	}
	return EventSourceSpec{
		Topic: topic, Group: Group(r.stack, r.settings.Flow, topic),
		BatchSize: int32(r.settings.BatchSize), Window: window,
		PartialFailures: r.partialFailures, Enabled: true,
	}
}
