package topics

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
)

// internalTopic is a topic that MirrorMaker 2 would make for itself and whose
// records we write as well.
type internalTopic struct {
	mm2.InternalTopic
	onSource bool
	factor   config.ReplicationFactor
}

// internal lists the internal topics of the flow. Connect's mm2-configs and
// mm2-status are not among them: nothing of ours reads or writes them.
func (r rules) internal() []internalTopic {
	s := r.settings
	f := flow.Flow{Source: s.SourceAlias, Target: s.TargetAlias}
	var topics []internalTopic
	if s.EmitOffsetSyncs {
		at := mm2.LocationSource
		if s.OffsetSyncsOnTarget {
			at = mm2.LocationTarget
		}
		topics = append(topics, internalTopic{mm2.OffsetSyncsTopic(f, s.Policy, at), !s.OffsetSyncsOnTarget, s.OffsetSyncsReplicas})
	}
	if s.EmitCheckpoints.Enabled {
		topics = append(topics, internalTopic{mm2.CheckpointsTopic(f, s.Policy), false, s.CheckpointsReplicas})
	}
	if s.EmitHeartbeats.Enabled {
		topics = append(topics, internalTopic{mm2.HeartbeatsTopic(f, s.Policy), false, s.HeartbeatsReplicas})
	}
	positions := mm2.OffsetsTopic(s.Flow)
	positions.Name, positions.Partitions = s.PositionsTopic, s.PositionsPartitions
	topics = append(topics, internalTopic{positions, false, s.OffsetStorageReplicas})
	if s.TolerateErrors {
		topics = append(topics, internalTopic{deadLetters(s), false, s.DeadLettersReplicas})
	}
	// Where the file leaves B->A off, its heartbeats on A are this deployment's
	// (MirrorMaker 2 starts the reverse pair for them too).
	if rev := r.reverse; rev != nil && !rev.Enabled && rev.EmitHeartbeats.Enabled {
		topics = append(topics, internalTopic{mm2.HeartbeatsTopic(f.Reverse(), rev.Policy), true, rev.HeartbeatsReplicas})
	}
	return topics
}

// deadLetters is the topic of records that the target has refused elsewhere. It
// takes what another topic does not: the size is the most that a broker's
// socket.request.max.bytes allows by default, any timestamp is good, and an old one
// does not let a dead letter expire.
func deadLetters(s config.Flow) mm2.InternalTopic {
	return mm2.InternalTopic{
		Name: s.DeadLettersTopic, Cluster: s.Target, Partitions: 1,
		Configs: map[string]string{
			"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
			"max.message.bytes":               "104857600",
			"message.timestamp.type":          "CreateTime",
			"message.timestamp.before.max.ms": "9223372036854775807",
			"message.timestamp.after.max.ms":  "9223372036854775807",
		},
	}
}

// names of the internal topics on one of the clusters.
func (r rules) internalNames(onSource bool) []string {
	var names []string
	for _, t := range r.internal() {
		if t.onSource == onSource {
			names = append(names, t.Name)
		}
	}
	return names
}

func (r rules) diffInternal(o observation, p *Plan) {
	for _, t := range r.internal() {
		cluster, alias := o.target, r.settings.Target
		if t.onSource {
			cluster, alias = o.source, r.settings.Source
		}
		there, ok := cluster.topics[t.Name]
		if !ok {
			p.Internal = append(p.Internal, r.withFactor([]NewTopic{{
				Cluster: alias, Name: t.Name, Partitions: t.Partitions, Configs: maps.Clone(t.Configs),
			}}, t.factor, cluster.brokers, p)...)
			continue
		}
		if isAuthorization(there.err) {
			p.Warnings = append(p.Warnings, assumedThere(NewTopic{Cluster: alias, Name: t.Name}, there.err))
			continue
		}
		p.Warnings = append(p.Warnings, oddInternal(t, alias, there, o.internalConfigs[alias][t.Name])...)
	}
}

// oddInternal finds an internal topic that somebody else has made, a broker that
// creates topics by itself for one (KAFKA-13465).
func oddInternal(t internalTopic, alias string, there topicView, configs described) []Warning {
	var odd []Warning
	if t.Partitions == 1 && there.err == nil && there.partitions() > 1 {
		odd = append(odd, Warning{
			Message: "internal topic has more than one partition: only partition 0 is used",
			Topic:   t.Name, Detail: []any{"cluster", alias, "partitions", there.partitions()},
		})
	}
	for _, e := range configs.entries {
		if t.Configs["cleanup.policy"] == "compact" && e.name == "cleanup.policy" && !slices.Contains(strings.Split(e.value, ","), "compact") {
			odd = append(odd, Warning{
				Message: "internal topic is not compacted, so its records are lost after a while: set cleanup.policy = compact",
				Topic:   t.Name, Detail: []any{"cluster", alias, "cleanup.policy", e.value},
			})
		}
	}
	return odd
}

// created judges the answer to the creation of an internal topic as MirrorMaker 2
// does (MirrorUtils.createCompactedTopic). Where the topic may well exist, it is
// assumed to: somebody without the right to create, or to see, has had it made
// by somebody else (KAFKA-15465). assumed is the reason to.
func created(err error) (assumed, failed error) {
	switch {
	case err == nil, is(err, kerr.TopicAlreadyExists):
		return nil, nil
	case isAuthorization(err), is(err, kerr.UnsupportedVersion):
		return err, nil
	}
	return nil, err
}

func assumedThere(n NewTopic, reason error) Warning {
	return Warning{
		Message: "internal topic is not visible, or cannot be created; it is assumed to exist: grant CREATE and DESCRIBE, or create it",
		Topic:   n.Name, Detail: []any{"cluster", n.Cluster, "error", reason.Error()},
	}
}

// createInternal creates internal topics. A right that is missing on the source
// must not keep data from flowing, so it is told once and is no error. copied
// reports that one was made that is itself to be copied: heartbeats on the source.
func (t *Topics) createInternal(ctx context.Context, topics []NewTopic) (copied bool, errs []error) {
	failed := map[string]error{}
	for _, c := range []cluster{t.source, t.target} {
		var mine []NewTopic
		for _, n := range topics {
			if n.Cluster == c.alias {
				mine = append(mine, n)
			}
		}
		if len(mine) == 0 {
			continue
		}
		answers := t.send(ctx, c, mine, false)
		for _, n := range mine {
			assumed, err := created(answers[n.Name])
			switch {
			case is(err, kerr.ThrottlingQuotaExceeded):
				t.tellThrottled(ctx, c.alias)
			case err != nil:
				failed[fmt.Sprintf("%s on cluster %s", n.Name, c.alias)] = err
			case assumed != nil:
				t.warn(ctx, assumedThere(n, assumed))
			case answers[n.Name] == nil:
				t.tellCreated(ctx, n)
				copied = copied || c.alias == t.source.alias && t.rules.selector.Select(n.Name).Copy
			}
		}
	}
	return copied, together("create internal topic", failed)
}
