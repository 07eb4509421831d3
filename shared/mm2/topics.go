package mm2

import "mirrorless/shared/flow"

// Location is a value of offset-syncs.topic.location (KIP-716).
type Location string

// Where the offset syncs of a flow are kept.
const (
	LocationSource Location = "source"
	LocationTarget Location = "target"
)

// InternalTopic is what MirrorMaker 2 and its Connect workers ask for when they
// create a topic of their own.
type InternalTopic struct {
	Name       string
	Cluster    string // alias of the cluster it lives in
	Partitions int32
	Configs    map[string]string
	// ReplicationFactorKey is the property that sets the replication factor; where
	// the file has no such property it is DefaultReplicationFactor.
	ReplicationFactorKey string
}

// DefaultReplicationFactor is that of every internal topic whose key nobody set.
const DefaultReplicationFactor = 3

// OffsetsPartitions is the number of partitions of the offsets topic where
// offset.storage.partitions is not set.
const OffsetsPartitions = 25

func compacted(name, cluster string, partitions int32, key string) InternalTopic {
	return InternalTopic{
		Name: name, Cluster: cluster, Partitions: partitions,
		Configs:              map[string]string{"cleanup.policy": "compact"},
		ReplicationFactorKey: key,
	}
}

// OffsetSyncsTopic holds [OffsetSync] records, in its only partition. It is named
// after the cluster at the other end of the flow; an empty location is the
// source.
func OffsetSyncsTopic(f flow.Flow, p flow.Policy, at Location) InternalTopic {
	lives, names := f.Source, f.Target
	if at == LocationTarget {
		lives, names = f.Target, f.Source
	}
	return compacted(p.OffsetSyncsTopic(names), lives, 1, "offset-syncs.topic.replication.factor")
}

// CheckpointsTopic holds [Checkpoint] records, in its only partition.
func CheckpointsTopic(f flow.Flow, p flow.Policy) InternalTopic {
	return compacted(p.CheckpointsTopic(f.Source), f.Target, 1, "checkpoints.topic.replication.factor")
}

// HeartbeatsTopic holds [Heartbeat] records, in its only partition.
func HeartbeatsTopic(f flow.Flow, p flow.Policy) InternalTopic {
	return compacted(p.HeartbeatsTopic(), f.Target, 1, "heartbeats.topic.replication.factor")
}

// OffsetsTopic holds [SourcePosition] records; see
// [SourcePosition.RecordPartition]. Its name has dots whatever the separator.
func OffsetsTopic(f flow.Flow) InternalTopic {
	return compacted("mm2-offsets."+f.Source+".internal", f.Target, OffsetsPartitions, "offset.storage.replication.factor")
}

// ConfigsTopic is where a Connect worker keeps the configuration of its
// connectors. It is here to be recognised; nothing of ours needs it.
func ConfigsTopic(f flow.Flow) InternalTopic {
	return compacted("mm2-configs."+f.Source+".internal", f.Target, 1, "config.storage.replication.factor")
}

// StatusTopic is where Connect workers keep the state of their connectors. It is
// here to be recognised; nothing of ours needs it.
func StatusTopic(f flow.Flow) InternalTopic {
	return compacted("mm2-status."+f.Source+".internal", f.Target, 5, "status.storage.replication.factor")
}
