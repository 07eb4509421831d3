package topics

import (
	"fmt"
	"strings"

	"mirrorless/shared/flow"
)

// Plan is what a round has to do, and what it noticed. Topics that a round
// creates count as usable in it.
type Plan struct {
	// Internal are topics of replication's own, on either cluster.
	Internal []NewTopic
	// Create are copies that the target lacks.
	Create []NewTopic
	Grow   []Growth
	// Configs are differences, where config sync is due.
	Configs []ConfigChange
	// Begin are the partitions of the source that have no position yet.
	Begin        []flow.TopicPartition
	EventSources []EventSourceChange
	// ACLs are to be created on the target, where their sync is due.
	ACLs []ACL

	// Copies are all topics that are copied, changed or not.
	Copies   []Copy
	Skipped  []Skipped
	Warnings []Warning
	// Problems keep a part of the above from being planned.
	Problems []error

	bookkeeping bookkeeping
}

// Empty reports that nothing would change on either cluster, in the event
// sources, or in the positions.
func (p Plan) Empty() bool {
	return len(p.Internal)+len(p.Create)+len(p.Grow)+len(p.Configs)+len(p.Begin)+len(p.EventSources)+len(p.ACLs) == 0
}

// Copy is a topic of the source and its copy.
type Copy struct {
	Source, Name string
	Partitions   int32 // of the source
}

// NewTopic is a topic to be created.
type NewTopic struct {
	// Cluster is the alias of the cluster that gets it.
	Cluster, Name string
	// Source is the topic of the source that will be copied into it; empty for an
	// internal topic.
	Source            string
	Partitions        int32
	ReplicationFactor int16
	// Configs go into the create request: a topic that has its cleanup policy a
	// moment later may have lost records by then (KAFKA-12254).
	Configs map[string]string
}

// Growth adds partitions to a copy.
type Growth struct {
	Topic    string // on the target
	Source   string
	From, To int32
}

// ConfigChange changes configs of a copy.
type ConfigChange struct {
	Topic string // on the target
	Ops   []ConfigOp
	// Was has what the copy's brokers tell of the same configs, by name.
	Was map[string]string
}

// Skipped is a topic of the source that something else than the lists keeps from
// being copied.
type Skipped struct {
	Topic  string
	Reason flow.Reason
}

// Warning is worth telling once: nothing fails, and yet somebody should look.
type Warning struct {
	Message string
	// Topic is what it is about, empty for the flow as a whole.
	Topic string
	// Detail holds attributes in slog's form, alternating keys and values.
	Detail []any
}

func (w Warning) key() string { return fmt.Sprint(w.Message, "\x00", w.Topic, "\x00", w.Detail) }

// FactorError is a replication factor that somebody asked for and that a cluster
// cannot give. Topics that exist go on.
type FactorError struct {
	Key     string // of the properties file
	Factor  int16
	Cluster string
	Brokers int
	Topics  []string // that are not created
}

func (e *FactorError) Error() string {
	brokers := "its only broker"
	if e.Brokers != 1 {
		brokers = fmt.Sprintf("its %d brokers", e.Brokers)
	}
	return fmt.Sprintf("create %s on cluster %s: %s = %d is more than %s: set %d or less",
		some(e.Topics), e.Cluster, e.Key, e.Factor, brokers, e.Brokers)
}

// some names the first of many.
func some(names []string) string {
	const most = 5
	list := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
