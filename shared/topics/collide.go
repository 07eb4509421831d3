package topics

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"mirrorless/shared/flow"
)

// CollisionError is a name on the target that cannot be given to one topic alone.
// Nothing new is begun with the topics it names; what was copied before goes on.
type CollisionError struct {
	Cluster string // alias of the target
	Name    string // on the target
	// Topics are those of the source that would be copied into it.
	Topics []string
	// Internal: it is a topic of replication's own.
	Internal bool
}

func (e *CollisionError) Error() string {
	what := strings.Join(e.Topics, " and ")
	if e.Internal {
		return fmt.Sprintf("copy %s into %s of cluster %s: that name is taken by replication itself; exclude the topic (topics.exclude) or set another replication.policy", what, e.Name, e.Cluster)
	}
	return fmt.Sprintf("copy %s into %s of cluster %s: each needs a topic of its own; exclude all but one (topics.exclude) or set another replication.policy", what, e.Name, e.Cluster)
}

// NameError is a copy's name that is longer than Kafka allows.
type NameError struct {
	Cluster, Name, Topic string
}

// mostName is the length that Kafka allows a topic's name to have
// (org.apache.kafka.common.internals.Topic).
const mostName = 249

func (e *NameError) Error() string {
	return fmt.Sprintf("copy %s: its copy's name on cluster %s, %s, has %d characters, and Kafka allows %d; exclude the topic (topics.exclude)", e.Topic, e.Cluster, e.Name, len(e.Name), mostName)
}

// diffCollisions finds the topics whose copies cannot have their names.
// Topics that differ in a dot and an underscore only are the broker's business:
// Kafka refuses the second of them, others do not.
func (r rules) diffCollisions(o observation, p *Plan) {
	internal := map[string]bool{}
	for _, name := range r.internalNames(false) {
		internal[name] = true
	}
	byName := map[string][]topic{}
	for _, t := range o.topics {
		byName[t.remote] = append(byName[t.remote], t)
	}
	for _, t := range o.topics {
		rivals := byName[t.remote]
		var problem error
		switch {
		case len(t.remote) > mostName:
			problem = &NameError{Cluster: r.settings.Target, Name: t.remote, Topic: t.name}
		case len(rivals) > 1 || internal[t.remote]:
			e := &CollisionError{Cluster: r.settings.Target, Name: t.remote, Internal: internal[t.remote]}
			for _, rival := range rivals {
				e.Topics = append(e.Topics, rival.name)
			}
			problem = e
		default:
			continue
		}
		if t.name == rivals[0].name { // each once
			p.Problems = append(p.Problems, problem)
		}
		p.bookkeeping.blocked[t.name] = true
	}
}

// FlowPlan is the plan of a flow, beside those of others.
type FlowPlan struct {
	flow.Flow
	Plan
}

// Mixed is a topic of a target that several flows copy into, as they may under the
// identity policy: each does its work, and the topic holds the records of all.
type Mixed struct {
	Cluster, Topic string
	Flows          []flow.Flow
}

func (m Mixed) String() string {
	var flows []string
	for _, f := range m.Flows {
		flows = append(flows, f.String())
	}
	return fmt.Sprintf("%s of cluster %s is copied into by %s: their records are mixed there", m.Topic, m.Cluster, strings.Join(flows, " and "))
}

// MixedTopics finds the topics that more than one flow copies into.
func MixedTopics(plans []FlowPlan) []Mixed {
	type key struct{ cluster, topic string }
	flows := map[key][]flow.Flow{}
	for _, p := range plans {
		for _, c := range p.Copies {
			k := key{p.Target, c.Name}
			flows[k] = append(flows[k], p.Flow)
		}
	}
	var mixed []Mixed
	for k, f := range flows {
		if len(f) > 1 {
			mixed = append(mixed, Mixed{Cluster: k.cluster, Topic: k.topic, Flows: f})
		}
	}
	slices.SortFunc(mixed, func(a, b Mixed) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Topic, b.Topic))
	})
	return mixed
}
