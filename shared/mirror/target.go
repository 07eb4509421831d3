package mirror

import (
	"context"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/target"
)

// Target is the partitions of the target cluster: a [target.Log], or
// [target.Transactions] where exactly.once.source.support is enabled. Its methods
// are documented there.
type Target interface {
	Topics(ctx context.Context, names []string) (map[string]target.Topic, error)
	Standing(ctx context.Context, probes []target.Probe) (map[flow.TopicPartition]target.Standing, error)
	Claim(ctx context.Context, p target.Partition, c target.Cursor, records []batch.Record, want int) (target.Appended, error)
	Append(ctx context.Context, p target.Partition, c target.Cursor, records []batch.Record, upstream target.Upstream) (target.Appended, error)
	Holds(ctx context.Context, p target.Partition, offset int64, r batch.Record) (bool, error)
	NewProducer(ctx context.Context) (int64, error)
}
