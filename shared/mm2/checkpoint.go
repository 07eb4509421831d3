package mm2

// Checkpoint says where a group that has read the source up to Upstream goes on
// reading on the target (org.apache.kafka.connect.mirror.Checkpoint).
type Checkpoint struct {
	Group      string
	Topic      string // name on the target
	Partition  int32
	Upstream   int64  // what the group committed on the source
	Downstream int64  // the same position on the target
	Metadata   string // what the group committed with it; null there is "" here
}

const checkpoint = "checkpoint"

// Key is the record's key; compaction keeps the newest checkpoint of a group and
// partition.
func (c Checkpoint) Key() []byte {
	return appendInt32(appendString(appendString(nil, c.Group), c.Topic), c.Partition)
}

// Value is the record's value.
func (c Checkpoint) Value() []byte {
	return appendString(appendInt64(appendInt64([]byte{0, version}, c.Upstream), c.Downstream), c.Metadata)
}

// ParseCheckpoint reads a record of a checkpoints topic.
func ParseCheckpoint(key, value []byte) (Checkpoint, error) {
	var c Checkpoint
	if err := read(checkpoint, "key", key, func(r *reader) {
		c.Group, c.Topic, c.Partition = r.string(), r.string(), r.partition()
	}); err != nil {
		return Checkpoint{}, err
	}
	if err := read(checkpoint, "value", value, func(r *reader) {
		r.int16()
		c.Upstream, c.Downstream, c.Metadata = r.int64(), r.int64(), r.string()
	}); err != nil {
		return Checkpoint{}, err
	}
	return c, nil
}
