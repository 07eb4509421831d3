package flow

import (
	"slices"
	"strings"
)

// Reason says why a topic is not copied; it is also a fixed word for logs.
type Reason string

// The reasons of a [Verdict]. Those after ReasonExcluded are not the user's
// lists' doing, so the topic is worth one line in the log; see [Reason.ByPolicy].
const (
	// ReasonNotIncluded: no pattern of topics matches.
	ReasonNotIncluded Reason = "not-included"
	// ReasonExcluded: a pattern of topics.exclude matches.
	ReasonExcluded Reason = "excluded"
	// ReasonInternal: a topic of Kafka's or of replication's own. No list lets it
	// through.
	ReasonInternal Reason = "internal"
	// ReasonCycle: the name says that the topic came from the target, over one
	// hop or several. A local topic "B.orders" is taken for one too.
	ReasonCycle Reason = "cycle"
	// ReasonOwnAlias: the name begins with the source's own alias, so it looks
	// like a copy that another deployment with swapped aliases brought here.
	ReasonOwnAlias Reason = "own-alias"
	// ReasonTimeout: a pattern took too long over this name.
	ReasonTimeout Reason = "pattern-timeout"
)

// ByPolicy reports whether something else than the include and exclude lists
// keeps the topic from being copied.
func (r Reason) ByPolicy() bool {
	return r != "" && r != ReasonNotIncluded && r != ReasonExcluded
}

// Explain is a sentence for people who wonder where the topic is.
func (r Reason) Explain() string {
	switch r {
	case "":
		return "the topic is copied"
	case ReasonNotIncluded:
		return "no pattern of topics matches the name"
	case ReasonExcluded:
		return "a pattern of topics.exclude matches the name"
	case ReasonInternal:
		return "the replication policy, not a list, excludes the topic: its name is internal to Kafka or to replication"
	case ReasonCycle:
		return "the replication policy, not a list, excludes the topic: by its name it came from the target cluster"
	case ReasonOwnAlias:
		return "the replication policy, not a list, excludes the topic: by its name it is a copy of this very source cluster (mirrorless.compat = mm2 copies it)"
	case ReasonTimeout:
		return "a pattern takes too long over the name: write a simpler one"
	}
	return string(r)
}

// Verdict is what a [Selector] says of a topic.
type Verdict struct {
	Copy   bool
	Reason Reason // why not; empty where Copy
}

// Selector decides which topics of a flow's source are copied. It is a value to
// fill in and use; nothing in it changes.
//
// The rule is MirrorMaker 2's (MirrorSourceConnector.shouldReplicateTopic): the
// lists let the topic through or it is a heartbeats topic, and it is neither
// internal nor a cycle. It is stricter in three things. Names of internal topics
// with dots are internal whatever the separator. Declared aliases are matched as
// whole prefixes, so that an alias with a separator in it (dc.east) cannot hide
// a cycle. And a topic that bears the source's own alias is not copied.
type Selector struct {
	Flow   Flow
	Policy Policy
	// Topics are the lists topics and topics.exclude.
	Topics Filter
	// ReplicateHeartbeats is heartbeats.replication.enabled: heartbeats topics are
	// copied whatever the lists say (KIP-1089).
	ReplicateHeartbeats bool
	// Aliases are all aliases that the configuration declares.
	Aliases []string
	// Compat is mirrorless.compat=mm2: aliases are single tokens, and a topic with
	// the source's own alias is copied once more.
	Compat bool
}

// Select says whether topic, a topic of the source, is copied. Where several
// reasons hold, the lists come first: what the user left out needs no telling.
func (s Selector) Select(topic string) Verdict {
	if !s.ReplicateHeartbeats || !s.Policy.IsHeartbeats(topic) {
		if reason := s.Topics.reason(topic); reason != "" {
			return Verdict{Reason: reason}
		}
	}
	switch {
	case s.IsInternal(topic):
		return Verdict{Reason: ReasonInternal}
	case s.IsCycle(topic):
		return Verdict{Reason: ReasonCycle}
	case s.hasOwnAlias(topic):
		return Verdict{Reason: ReasonOwnAlias}
	}
	return Verdict{Copy: true}
}

// Remote is the name of a topic of the source on the target.
func (s Selector) Remote(topic string) string { return s.Policy.Remote(s.Flow.Source, topic) }

// CheckpointTopic is the name on the target under which a group that reads topic
// on the source goes on: the copy's, or, where the topic itself is a copy of a
// topic of the target, that one's. So a group that fails back finds its place.
//
// One hop is taken off a copy, whatever is behind it. MirrorMaker 2 takes off
// all of them and names a topic that is not there; so does Compat.
func (s Selector) CheckpointTopic(topic string) string {
	for _, h := range s.hops(topic) {
		switch {
		case h.source != s.Flow.Target:
		case s.Compat:
			return s.Policy.Original(topic)
		default:
			return h.upstream
		}
	}
	return s.Remote(topic)
}

// IsInternal reports whether topic is internal by the policy, or has a name that
// replication gives its own topics although the policy's separator hides it:
// mm2-offsets.A.internal is written with dots always.
func (s Selector) IsInternal(topic string) bool {
	return s.Policy.IsInternal(topic) || s.isDottedInternal(topic)
}

func (s Selector) isDottedInternal(topic string) bool {
	name, ok := strings.CutSuffix(topic, ".internal")
	if !ok {
		return false
	}
	if alias, ok := strings.CutSuffix(name, ".checkpoints"); ok {
		return s.isDeclared(alias)
	}
	kind, alias, ok := strings.Cut(name, ".")
	if !ok || alias == "" {
		return false
	}
	switch kind {
	case "mm2-configs", "mm2-offsets", "mm2-status", offsetSyncs:
		return true
	}
	return false
}

func (s Selector) isDeclared(alias string) bool {
	return alias == s.Flow.Source || alias == s.Flow.Target || slices.Contains(s.Aliases, alias)
}

// IsCycle reports whether the name of topic leads back to the target: some hop
// of it is the target's alias.
func (s Selector) IsCycle(topic string) bool {
	// A hop is a suffix of the name, so its length tells hops apart. Two aliases of
	// which one begins with the other lead to several readings of one name; each
	// suffix is looked at once.
	seen := make(map[int]bool)
	names := []string{topic}
	for len(names) > 0 {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		if seen[len(name)] {
			continue
		}
		seen[len(name)] = true
		for _, h := range s.hops(name) {
			if h.source == s.Flow.Target {
				return true
			}
			if len(h.upstream) < len(name) {
				names = append(names, h.upstream)
			}
		}
	}
	return false
}

type hop struct{ source, upstream string }

// hops are the readings of a name as a copy of something: every declared alias
// that is a whole prefix, else the policy's first token.
func (s Selector) hops(name string) []hop {
	var found []hop
	if !s.Compat && !s.Policy.keepsName(name) {
		add := func(alias string) {
			upstream, ok := strings.CutPrefix(name, alias+s.Policy.separator)
			if ok && upstream != "" {
				found = append(found, hop{alias, upstream})
			}
		}
		add(s.Flow.Source)
		add(s.Flow.Target)
		for _, alias := range s.Aliases {
			add(alias)
		}
		if len(found) > 0 {
			return found
		}
	}
	source, ok := s.Policy.Source(name)
	if !ok {
		return nil
	}
	upstream, ok := s.Policy.Upstream(name)
	if !ok {
		upstream = name
	}
	return []hop{{source, upstream}}
}

// hasOwnAlias: under the identity policy only heartbeats carry an alias.
func (s Selector) hasOwnAlias(topic string) bool {
	if s.Compat || s.Policy.keepsName(topic) {
		return false
	}
	upstream, ok := strings.CutPrefix(topic, s.Flow.Source+s.Policy.separator)
	return ok && upstream != ""
}
