// Package state is the contract of the store in which a flow keeps what it must
// remember between two invocations: the flow itself, how far each source
// partition is copied, the run map, leases, checkpoints, event sources, holes.
//
// One Store serves one flow. Two packages implement it: dynamo (a DynamoDB table
// per flow) and embedded (a file, for local runs in one process). The same suite,
// statetest, runs against both.
//
// The common call is one Positions on a cold start and one Advance per batch:
//
//	read, err := store.Positions(ctx, partitions) // absent: never stored
//	…                                             // append to the target
//	stored, err := store.Advance(ctx, next)       // next[tp].Version = read[tp].Version
//	if conflict, ok := errors.AsType[*state.ConflictError](err); ok {
//		… conflict.Current                    // someone was here: go on from there
//	}
//
// The store is not what keeps a record from being copied twice: that is the
// target's sequence check. A position that is older than the target costs a read
// and a comparison, never a record. Hence a write whose outcome is unknown (a
// time-out, a cancelled context) may be dropped or repeated; what is on the target
// stays there.
//
// Every method is safe for concurrent use, by several processes too where the
// implementation allows several (dynamo does, embedded does not). Errors of each
// call are listed with it; besides these any call returns the errors of its
// technology and of its context. Times in rows are the caller's, kept in whole
// milliseconds and returned in UTC; only leases are measured by the store's clock.
package state

import (
	"context"
	"time"

	"mirrorless/shared/flow"
)

// TopicID is Kafka's topic id. Zero means unknown.
type TopicID = [16]byte

const (
	// MaxRuns is the most bytes of Position.Runs. Sixteen positions of this size
	// fit one DynamoDB item (400 KB).
	MaxRuns = 16 << 10
	// SpillRuns is about where it is cheapest to close the open chunk with
	// PutRuns: every Advance pays for the open chunks of sixteen partitions, a
	// put only for its own.
	SpillRuns = 200
	// MaxChunk is the most bytes of RunChunk.Data.
	MaxChunk = 256 << 10
	// MaxGroup is the most bytes of Checkpoint.Group: it is part of a DynamoDB key.
	MaxGroup = 700
	// MaxMetadata is the most bytes of Checkpoint.Metadata. Kafka's brokers accept
	// 4,096 unless offset.metadata.max.bytes says otherwise.
	MaxMetadata = 8 << 10
)

// A Position says how far one source partition has been copied.
type Position struct {
	// Version is the optimistic lock: the version that was read, 0 when the
	// position is not stored yet. Every write stores Version+1.
	Version int64
	// First is the first upstream offset that this flow copies.
	First int64
	// Upstream is the next upstream offset to copy (U).
	Upstream int64
	// Downstream is the expected end offset of the target partition (D).
	Downstream int64
	// ProducerID is the producer id under which the partition is written. It is
	// the flow's until a partition has used up its epochs.
	ProducerID int64
	// Epoch is the producer epoch (E), 0…32767.
	Epoch int16
	// Sequence is the next sequence (S): the records copied since the epoch began,
	// modulo 2³¹.
	Sequence int32
	// Newest is the greatest timestamp, in milliseconds, of the last batch that
	// was appended (T). A broker forgets a producer by it.
	Newest int64
	// Copied counts the records copied in all.
	Copied int64
	// SourceTopicID and TargetTopicID show a topic that was re-created.
	SourceTopicID, TargetTopicID TopicID
	// Runs is the open chunk of the run map, packed by package offsets; opaque
	// here. At most MaxRuns bytes; nil and empty are the same.
	Runs []byte
}

// A FlowRow is what a flow knows of itself.
type FlowRow struct {
	// Version is the optimistic lock, as in Position.
	Version int64
	// Flow is whose row this is. A function compares it with its own flow: a
	// table serves one.
	Flow flow.Flow
	// SourceClusterID and TargetClusterID are Kafka's cluster ids, empty when
	// unknown. Another target id than the stored one means that the target was
	// rebuilt and that the positions do not describe it.
	SourceClusterID, TargetClusterID string
	// ProducerID is the flow's producer id, NoProducerID until one is allocated.
	ProducerID int64
	// Created is when the row was first written.
	Created time.Time
}

// NoProducerID is the ProducerID of a flow that has none yet, as in Kafka.
const NoProducerID = -1

// A RunChunk is a closed part of a partition's run map.
type RunChunk struct {
	// First is the first upstream offset that Data covers. It is the chunk's key.
	First int64
	// Next is the upstream offset after the last that Data covers.
	Next int64
	// Data is packed by package offsets; opaque here. At most MaxChunk bytes.
	Data []byte
}

// A Lease makes its owner the only one at a name until it expires.
type Lease struct {
	// Name is what is leased.
	Name string
	// Owner names one process (or one Lambda environment), never two.
	Owner string
	// Expires is by the clock of the one who acquired it.
	Expires time.Time
	// Token rises with every acquisition of the name and stays through renewals.
	Token int64
}

// A Checkpoint is the last translated offset of a group that was written for a
// remote topic's partition.
type Checkpoint struct {
	Group string
	// TopicPartition is of the remote topic, as the target names it.
	flow.TopicPartition
	// Upstream is the group's committed offset on the source, Downstream its
	// translation.
	Upstream, Downstream int64
	// Metadata is the commit's. At most MaxMetadata bytes.
	Metadata string
	// Written is when the checkpoint was last emitted.
	Written time.Time
}

// An EventSource is the event source mapping of one source topic.
type EventSource struct {
	// Version is the optimistic lock, as in Position.
	Version int64
	// Topic is the source topic and the row's key.
	Topic string
	// ID is Lambda's UUID of the mapping, Group its consumer group on the source.
	ID, Group string
	// State is Lambda's word for the mapping's state: Enabled, Creating, ….
	State string
	// PartialFailures says that Lambda has confirmed ReportBatchItemFailures for
	// this mapping. An answer that names failures counts as success without it.
	PartialFailures bool
	// BatchSize and Window are the mapping's batch size and batching window.
	BatchSize int32
	Window    time.Duration
	// Partitions is the source topic's partition count when it was last seen.
	Partitions int32
	// LastResult is Lambda's LastProcessingResult: what it says of the last poll.
	LastResult string
	// Updated is when the row was last written.
	Updated time.Time
}

// SecondCopy is the Kind of a row that is no hole but the contrary: records that are
// on the target twice. Its offsets are the target's.
const SecondCopy = "second copy"

// A Hole is a range of upstream offsets of which something could not be copied.
type Hole struct {
	// TopicPartition is of the source topic.
	flow.TopicPartition
	// From and To bound the upstream offsets: From ≤ offset < To. Of records that are
	// on the target twice they bound the target's.
	From, To int64
	// Kind says what is missing and why, in the words of whoever found it.
	Kind string
	// Records counts the records concerned, -1 when that is unknown.
	Records int64
	// Seen is when the hole was last reported.
	Seen time.Time
}

// Flushed is how far, in upstream offsets, MirrorMaker 2's own internal topics know
// of a partition. NotFlushed where nothing was written.
type Flushed struct {
	// Sync is the upstream offset of the last offset sync.
	Sync int64
	// Position is the upstream offset of the last record in
	// mm2-offsets.<source>.internal.
	Position int64
}

// NotFlushed is a Flushed offset before the first write.
const NotFlushed = -1

// A Store keeps the state of one flow.
//
// Rows carry the version of their schema. A row of a newer schema than this
// program's is a *SchemaError wherever it is met, and is never overwritten.
type Store interface {
	// Flow returns the flow's row, or ErrNotFound.
	Flow(ctx context.Context) (FlowRow, error)
	// PutFlow writes the row if the stored one has row.Version (none is stored,
	// if that is 0) and returns it with its new version. Otherwise ErrConflict.
	// Writing again what is stored already succeeds.
	PutFlow(ctx context.Context, row FlowRow) (FlowRow, error)

	// Positions reads the positions of source partitions, consistently: it sees
	// every write that was answered before. One that is not stored is not in the
	// map. With an error the map holds what could be read, nil if nothing.
	Positions(ctx context.Context, partitions []flow.TopicPartition) (map[flow.TopicPartition]Position, error)
	// Advance writes each position if the stored one has its Version, and returns
	// what is stored now: the positions with their new versions. Positions are
	// independent of each other: with an error, those in the map are stored, and
	// the error joins what became of the others.
	//
	//   - *ConflictError: the stored position had another version; it holds the
	//     current ones. A position that is found exactly as it would have been
	//     written, version included, is stored and no conflict: so a repeated
	//     Advance succeeds.
	//   - *BackwardsError: Upstream would become lower than it is stored.
	//   - *TooLargeError: Runs is longer than MaxRuns; nothing was tried for this
	//     position.
	//   - any other error: the position may or may not be stored; read it.
	Advance(ctx context.Context, next map[flow.TopicPartition]Position) (map[flow.TopicPartition]Position, error)
	// Rewind is Advance without *BackwardsError: for a topic that was re-created
	// and for a target that lost acknowledged records. First delete the runs that
	// the rewound position contradicts, or PutRuns keeps them.
	Rewind(ctx context.Context, next map[flow.TopicPartition]Position) (map[flow.TopicPartition]Position, error)

	// PutRuns stores a chunk of a partition's run map under its First. Call it
	// before the Advance that drops these runs from the position. A chunk that
	// reaches further (Next) than the stored one replaces it, another is dropped
	// silently: what was appended to the target is true whoever says it, so two
	// invocations that spill the same stretch cannot shorten it, and a repeated
	// put changes nothing. Chunks may thus overlap each other and the open chunk,
	// and agree where they do. *TooLargeError over MaxChunk.
	PutRuns(ctx context.Context, partition flow.TopicPartition, chunk RunChunk) error
	// Runs returns the partition's chunks by rising First, none if there are none.
	Runs(ctx context.Context, partition flow.TopicPartition) ([]RunChunk, error)
	// DeleteRuns deletes the chunks with from ≤ First < to, math.MaxInt64 meaning
	// no end. Deleting what is not there is no error.
	DeleteRuns(ctx context.Context, partition flow.TopicPartition, from, to int64) error

	// Acquire takes the lease of a name for ttl, if it is free, has expired, or is
	// the same owner's already. Otherwise a *HeldError. Clocks of different
	// owners are compared: ttl should be well above their difference.
	Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Lease, error)
	// Renew lets a lease expire ttl from now, also after it has expired, as long
	// as nobody acquired it since. Otherwise a *HeldError.
	Renew(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error)
	// Release gives a lease up. Releasing one that is not held any more, or is
	// another's, changes nothing and is no error.
	Release(ctx context.Context, lease Lease) error

	// Checkpoints returns every stored checkpoint, by group, topic, partition.
	Checkpoints(ctx context.Context) ([]Checkpoint, error)
	// PutCheckpoints stores checkpoints, the last one of a group and partition
	// staying. Independent of each other: with an error some are stored, and
	// repeating all of them is safe. *TooLargeError over MaxGroup and MaxMetadata.
	PutCheckpoints(ctx context.Context, checkpoints []Checkpoint) error

	// EventSource returns the row of a source topic, or ErrNotFound.
	EventSource(ctx context.Context, topic string) (EventSource, error)
	// EventSources returns all rows by topic.
	EventSources(ctx context.Context) ([]EventSource, error)
	// PutEventSource writes a row as PutFlow does: ErrConflict.
	PutEventSource(ctx context.Context, source EventSource) (EventSource, error)
	// DeleteEventSource deletes the row of source.Topic if the stored one has
	// source.Version. Otherwise ErrConflict. No row is no error.
	DeleteEventSource(ctx context.Context, source EventSource) error

	// Holes returns every recorded hole, by topic, partition, From, Kind.
	Holes(ctx context.Context) ([]Hole, error)
	// PutHoles records holes, the last one of a partition, From and Kind staying.
	// Independent of each other, as in PutCheckpoints.
	PutHoles(ctx context.Context, holes []Hole) error

	// Flushed reads how far MirrorMaker 2's internal topics know the partitions.
	// One that is not stored is not in the map.
	Flushed(ctx context.Context, partitions []flow.TopicPartition) (map[flow.TopicPartition]Flushed, error)
	// PutFlushed stores it. Independent of each other, as in PutCheckpoints.
	PutFlushed(ctx context.Context, flushed map[flow.TopicPartition]Flushed) error

	// Close releases what the store holds. Nothing is buffered: every write is
	// stored when it returns.
	Close() error
}
