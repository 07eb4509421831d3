package embedded

import (
	"encoding/binary"
	"errors"

	"mirrorless/shared/flow"
	"mirrorless/shared/state/internal/row"
)

// kinds are the buckets of a flow.
var kinds = [...]string{
	row.KindFlow, row.KindPosition, row.KindRuns, row.KindLease,
	row.KindCheckpoint, row.KindEventSource, row.KindHole, row.KindFlushed,
}

// Keys are big-endian behind their names, so that bbolt's byte order is the order
// of partitions and offsets. A topic's name ends before a zero byte, which Kafka
// does not allow in it.

func partitionKey(tp flow.TopicPartition) []byte {
	key := append([]byte(tp.Topic), 0)
	return binary.BigEndian.AppendUint32(key, uint32(tp.Partition))
}

func runKey(tp flow.TopicPartition, first int64) []byte {
	return binary.BigEndian.AppendUint64(partitionKey(tp), uint64(first))
}

func holeKey(tp flow.TopicPartition, from int64, kind string) []byte {
	return append(runKey(tp, from), kind...)
}

// checkpointKey puts the partition first: a group id may hold any byte.
func checkpointKey(group string, tp flow.TopicPartition) []byte {
	return append(partitionKey(tp), group...)
}

var errKey = errors.New("key is too short")

// splitCheckpointKey is the inverse of checkpointKey.
func splitCheckpointKey(key []byte) (group string, tp flow.TopicPartition, err error) {
	for i, b := range key {
		if b != 0 {
			continue
		}
		rest := key[i+1:]
		if len(rest) < 4 {
			break
		}
		tp = flow.TopicPartition{Topic: string(key[:i]), Partition: int32(binary.BigEndian.Uint32(rest))}
		return string(rest[4:]), tp, nil
	}
	return "", tp, errKey
}
