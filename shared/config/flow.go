package config

import (
	"time"

	"mirrorless/shared/flow"
)

// Flow is one ordered pair of clusters with its effective settings, defaults
// filled in. Intervals keep the precision they are written with.
type Flow struct {
	flow.Flow
	// Enabled is `A->B.enabled`; only "true" in any case counts.
	Enabled bool
	// SourceAlias and TargetAlias are source.cluster.alias and
	// target.cluster.alias: Source and Target unless the file overrides them,
	// possibly with "". Topic names are made of them; record contents too.
	SourceAlias, TargetAlias string
	// Connector is `name`: the first element of the position records' keys.
	Connector string
	// TasksMax is tasks.max. Nothing here depends on it: functions scale with
	// the partitions.
	TasksMax int

	Topics                  []string // patterns, as written
	TopicsExclude           []string
	Groups                  []string
	GroupsExclude           []string
	ConfigPropertiesExclude []string
	UseDefaultsFromSource   bool // use.defaults.from = source
	TopicFilter             flow.Filter
	GroupFilter             flow.Filter
	ConfigFilter            flow.ConfigFilter

	PolicyClass string // replication.policy.class, fully qualified
	Separator   string // replication.policy.separator
	Policy      flow.Policy

	// ReplicationFactor is for the topics that are created to be copied into.
	ReplicationFactor ReplicationFactor

	RefreshTopics      Periodic // find new topics and partitions
	RefreshGroups      Periodic // find new groups
	SyncTopicConfigs   Periodic
	SyncTopicACLs      Periodic
	EmitHeartbeats     Periodic
	EmitCheckpoints    Periodic
	SyncGroupOffsets   Periodic
	HeartbeatsReplicas ReplicationFactor // heartbeats.topic.replication.factor
	// ReplicateHeartbeats is heartbeats.replication.enabled.
	ReplicateHeartbeats bool
	CheckpointsReplicas ReplicationFactor // checkpoints.topic.replication.factor

	// EmitOffsetSyncs is emit.offset-syncs.enabled.
	EmitOffsetSyncs bool
	// OffsetSyncsOnTarget is offset-syncs.topic.location = target.
	OffsetSyncsOnTarget bool
	OffsetSyncsReplicas ReplicationFactor // offset-syncs.topic.replication.factor
	OffsetLagMax        int64             // offset.lag.max, in records

	// PositionsTopic is offset.storage.topic, mm2-offsets.A.internal unless the
	// file says otherwise; it has dots whatever the separator.
	PositionsTopic      string
	PositionsPartitions int32 // where it has to be created
	// The factors of mm2-configs, mm2-offsets and mm2-status, which Connect's
	// worker makes; of the three only mm2-offsets is ours.
	ConfigStorageReplicas ReplicationFactor
	OffsetStorageReplicas ReplicationFactor
	StatusStorageReplicas ReplicationFactor
	// OffsetFlushInterval is `<target>.offset.flush.interval.ms`.
	OffsetFlushInterval time.Duration

	AdminTimeout time.Duration
	// AutoOffsetReset is "earliest", "latest" or "none": where a partition
	// starts that has no position yet.
	AutoOffsetReset string
	// IsolationLevel is "read_committed", "read_uncommitted", or "" where nobody
	// wrote it.
	IsolationLevel string
	// Compression is the codec of the batches that copied records are written in:
	// "none", "gzip", "snappy", "lz4" or "zstd" (B.producer.compression.type).
	Compression string
	// MaxRequestSize bounds them, in bytes (B.producer.max.request.size).
	MaxRequestSize int32
	// ExactlyOnce is `<target>.exactly.once.source.support` = enabled.
	ExactlyOnce bool

	// TolerateErrors is errors.tolerance = all: a record that the target refuses goes
	// to DeadLettersTopic, on the target, with Connect's headers if DeadLettersContext
	// is set.
	TolerateErrors      bool
	DeadLettersTopic    string            // errors.deadletterqueue.topic.name
	DeadLettersReplicas ReplicationFactor // errors.deadletterqueue.topic.replication.factor
	DeadLettersContext  bool              // errors.deadletterqueue.context.headers.enable

	Compat     bool // mirrorless.compat = mm2
	Read       Read
	Holes      OnHole
	Recreated  OnRecreated
	BatchSize  int           // records in one invocation at most
	BatchDelay time.Duration // mirrorless.batch.window
	Metrics    Metrics       // mirrorless.metrics
	Mapping    Mapping       // mirrorless.mapping.

	aliases        []string
	source, target map[Role]map[string]string
	offsetSyncs    map[string]string
}

// Periodic is work that can be switched off and has an interval.
type Periodic struct {
	Enabled  bool
	Interval time.Duration
}

// Read is how mirror reads the records it copies (mirrorless.read).
type Read string

// The ways to read. ReadAuto leaves the choice to mirror.
const (
	ReadEvent  Read = "event"
	ReadSource Read = "source"
	ReadAuto   Read = "auto"
)

// OnHole is what mirror does when records of the source are gone for good
// (mirrorless.holes).
type OnHole string

// The answers to a hole; both record it.
const (
	HoleContinue OnHole = "continue"
	HoleStop     OnHole = "stop"
)

// OnRecreated is what happens when a topic turns out to be a new one under its
// old name (mirrorless.recreated). RecreatedDefault stops where the topic on B
// is new and copies where the topic on A is.
type OnRecreated string

// The answers to a topic that was created again.
const (
	RecreatedDefault OnRecreated = ""
	RecreatedStop    OnRecreated = "stop"
	RecreatedCopy    OnRecreated = "copy"
)

// Metrics is what the functions' metrics are of (mirrorless.metrics). Each of
// MetricsTopics and MetricsPartitions has those of the ones before it, too.
type Metrics string

// What metrics are of.
const (
	MetricsOff        Metrics = "off"
	MetricsFlow       Metrics = "flow"
	MetricsTopics     Metrics = "topics"
	MetricsPartitions Metrics = "partitions"
)

// Mapping is what event sources are asked for beside batches.
type Mapping struct {
	Metrics         bool // of Lambda itself
	PartialFailures bool // ReportBatchItemFailures
	Pollers         Pollers
}

// Pollers are those of provisioned mode; the zero Pollers come on demand.
type Pollers struct {
	Minimum, Maximum int32 // 0 for Lambda's default
	Group            string
}

// ReplicationFactor is a number of replicas, and whether somebody asked for it:
// a default gives way to a small cluster, a wish does not.
type ReplicationFactor struct {
	Key     string // the key it comes from
	Value   int16  // -1 leaves the number to the broker
	Written bool
}
