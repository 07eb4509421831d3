package flow

import (
	"fmt"
	"strings"
)

// Class names of the two policies that exist, as replication.policy.class has them.
const (
	DefaultPolicyClass  = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
	IdentityPolicyClass = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
)

// DefaultSeparator stands between alias and topic where nobody set another.
const DefaultSeparator = "."

const (
	heartbeats       = "heartbeats"
	internalSuffix   = "internal"
	checkpoints      = "checkpoints"
	offsetSyncs      = "mm2-offset-syncs"
	internalPrefix   = "mm2"
	kafkaInternal    = "__"
	kafkaInternalDot = "."
)

// UnknownPolicyError is returned by [NewPolicy] for a class that is not one of
// Kafka's own: its code cannot be run here.
type UnknownPolicyError struct{ Class string }

func (e *UnknownPolicyError) Error() string {
	return fmt.Sprintf("replication policy %q is unknown: set replication.policy.class to %s or %s",
		e.Class, DefaultPolicyClass, IdentityPolicyClass)
}

// PolicyOptions are the replication.policy.* settings of a flow.
type PolicyOptions struct {
	// Class is replication.policy.class; empty is the default policy. The name
	// without its Java package is understood too.
	Class string
	// Separator is replication.policy.separator, read only if SeparatorSet: an
	// empty separator that somebody wrote is not the default one.
	Separator    string
	SeparatorSet bool
	// InternalSeparator is replication.policy.internal.topic.separator.enabled
	// (KIP-949): false keeps dots in the names of internal topics. As in Kafka it
	// is read only if SeparatorSet.
	InternalSeparator bool
	// SourceAlias is what the identity policy, whose names carry no alias,
	// answers for the source of a topic; empty means that it does not know.
	SourceAlias string
}

// Policy gives the names of topics on the target and reads them back, as the
// classes DefaultReplicationPolicy and IdentityReplicationPolicy of Apache Kafka
// 4.3.1 do. Make one with [NewPolicy]; it is immutable and comparable.
type Policy struct {
	identity          bool
	separator         string
	internalSeparator string
	sourceAlias       string
}

// NewPolicy returns the policy that o describes, or an [UnknownPolicyError].
func NewPolicy(o PolicyOptions) (Policy, error) {
	p := Policy{separator: DefaultSeparator, internalSeparator: DefaultSeparator}
	switch o.Class {
	case "", DefaultPolicyClass, "DefaultReplicationPolicy":
	case IdentityPolicyClass, "IdentityReplicationPolicy":
		p.identity, p.sourceAlias = true, o.SourceAlias
	default:
		return Policy{}, &UnknownPolicyError{Class: o.Class}
	}
	if o.SeparatorSet {
		p.separator = o.Separator
		if o.InternalSeparator {
			p.internalSeparator = o.Separator
		}
	}
	return p, nil
}

// Identity reports whether topics keep their names. Two enabled directions over
// the same topics then copy every record for ever.
func (p Policy) Identity() bool { return p.identity }

// Separator stands between alias and topic in names of copied topics.
func (p Policy) Separator() string { return p.separator }

// Remote is the name on the target of a topic of the cluster alias.
func (p Policy) Remote(alias, topic string) string {
	if p.keepsName(topic) {
		return topic
	}
	return alias + p.separator + topic
}

// Source is the alias that a topic was copied from, false for a topic that is
// not a copy. The default policy takes the first of at least two tokens, so it
// takes the local topic "eu.orders" for a copy from a cluster "eu"; the identity
// policy answers its own source alias whatever the topic.
func (p Policy) Source(topic string) (string, bool) {
	if p.keepsName(topic) {
		return p.sourceAlias, p.sourceAlias != ""
	}
	return firstToken(topic, p.separator)
}

// Upstream is the name that a copied topic has on the cluster it came from,
// false for a topic that is not a copy.
func (p Policy) Upstream(topic string) (string, bool) {
	if p.keepsName(topic) {
		return topic, true
	}
	source, ok := firstToken(topic, p.separator)
	if !ok {
		return "", false
	}
	return topic[len(source)+len(p.separator):], true
}

// Original is the name of a topic where it was first written: every hop removed.
func (p Policy) Original(topic string) string {
	for {
		upstream, ok := p.Upstream(topic)
		if !ok || upstream == topic {
			return topic
		}
		topic = upstream
	}
}

// CheckpointsTopic holds, on the target, the checkpoints of groups of alias.
func (p Policy) CheckpointsTopic(alias string) string { return alias + p.checkpointsSuffix() }

// OffsetSyncsTopic holds the offset syncs towards alias. It lives on the source
// and names the target, or the other way about with
// offset-syncs.topic.location=target (KIP-716).
func (p Policy) OffsetSyncsTopic(alias string) string {
	return offsetSyncs + p.internalSeparator + alias + p.internalSuffix()
}

// HeartbeatsTopic is the local heartbeats topic; no separator changes it.
func (p Policy) HeartbeatsTopic() string { return heartbeats }

// IsHeartbeats reports whether topic is a heartbeats topic, local or copied over
// any number of hops.
func (p Policy) IsHeartbeats(topic string) bool { return p.Original(topic) == heartbeats }

// IsCheckpoints reports whether topic is the checkpoints topic of some alias.
func (p Policy) IsCheckpoints(topic string) bool {
	return strings.HasSuffix(topic, p.checkpointsSuffix())
}

// IsMM2Internal reports whether topic is one that MirrorMaker 2 keeps for
// itself. With a separator of one's own it does not know mm2-offsets.A.internal
// and its like, which always have dots; [Selector] does.
func (p Policy) IsMM2Internal(topic string) bool {
	return strings.HasPrefix(topic, internalPrefix) && strings.HasSuffix(topic, p.internalSuffix()) ||
		p.IsCheckpoints(topic)
}

// IsInternal reports whether topic is internal to Kafka (it begins with "__" or
// a dot) or to MirrorMaker 2.
func (p Policy) IsInternal(topic string) bool {
	return strings.HasPrefix(topic, kafkaInternal) || strings.HasPrefix(topic, kafkaInternalDot) ||
		p.IsMM2Internal(topic)
}

func (p Policy) internalSuffix() string { return p.internalSeparator + internalSuffix }

func (p Policy) checkpointsSuffix() string {
	return p.internalSeparator + checkpoints + p.internalSuffix()
}

// keepsName: the identity policy renames heartbeats alone, by the look of the name.
func (p Policy) keepsName(topic string) bool {
	return p.identity && !strings.HasSuffix(topic, heartbeats)
}

// firstToken is what Java's split gives as the first of at least two tokens.
// Java drops empty tokens at the end, so "A." and ".." have no first token while
// ".x" has an empty one; and it splits at an empty separator after every
// character.
func firstToken(topic, separator string) (string, bool) {
	tokens := strings.Split(topic, separator)
	for _, later := range tokens[min(1, len(tokens)):] {
		if later != "" {
			return tokens[0], true
		}
	}
	return "", false
}
