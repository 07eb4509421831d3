// Package flow is the vocabulary of replication: which cluster is copied to
// which, under what names, and which topics, groups and topic configs belong
// to it.
//
// A [Flow] names a direction, A->B. A [Policy] gives names on B (A.orders) and
// reads them back; it answers exactly as Apache Kafka's DefaultReplicationPolicy
// and IdentityReplicationPolicy do. [Patterns] are the Java regular expressions
// of an mm2.properties file, [Filter] an include and an exclude list of them.
// A [Selector] puts these together and says of each topic of A whether it is
// copied, and if not, why:
//
//	policy, err := flow.NewPolicy(flow.PolicyOptions{SourceAlias: "A"})
//	topics, err := flow.ParseFilter(".*", flow.DefaultTopicsExclude)
//	s := flow.Selector{
//		Flow: flow.Flow{Source: "A", Target: "B"}, Policy: policy, Topics: topics,
//		ReplicateHeartbeats: true, Aliases: []string{"A", "B"},
//	}
//	s.Select("B.orders") // {Copy: false, Reason: "cycle"}
//
// The package knows no cluster and reads no configuration file.
package flow

import (
	"fmt"
	"strconv"
	"strings"
)

// arrow stands between the aliases of a flow, in property keys and in logs.
const arrow = "->"

// OwnGroups begins the consumer groups of event sources: they are replication's own,
// and no application's.
const OwnGroups = "mirrorless/"

// Flow is a direction of replication between two cluster aliases.
type Flow struct {
	Source string // alias of the cluster that is read
	Target string // alias of the cluster that is written
}

// Parse reads "A->B". Both aliases must be there, without blanks around them;
// trimming is the configuration's business.
func Parse(s string) (Flow, error) {
	source, target, ok := strings.Cut(s, arrow)
	switch {
	case !ok, source == "", target == "", strings.Contains(target, arrow):
		return Flow{}, fmt.Errorf("parse flow %q: want two aliases as in A->B", s)
	case strings.TrimSpace(source) != source, strings.TrimSpace(target) != target:
		return Flow{}, fmt.Errorf("parse flow %q: blanks around an alias", s)
	case source == target:
		return Flow{}, fmt.Errorf("parse flow %q: source and target are the same", s)
	}
	return Flow{Source: source, Target: target}, nil
}

// String is the form of property keys and logs: "A->B".
func (f Flow) String() string { return f.Source + arrow + f.Target }

// Reverse is the flow from f's target to f's source.
func (f Flow) Reverse() Flow { return Flow{Source: f.Target, Target: f.Source} }

// TopicPartition names one partition; it is comparable, so it serves as a map key.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is Kafka's form, "orders-3".
func (p TopicPartition) String() string {
	return p.Topic + "-" + strconv.FormatInt(int64(p.Partition), 10)
}

// Compare orders by topic, then by partition number.
func (p TopicPartition) Compare(q TopicPartition) int {
	if c := strings.Compare(p.Topic, q.Topic); c != 0 {
		return c
	}
	return int(p.Partition) - int(q.Partition)
}
