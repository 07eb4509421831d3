package mm2

// OffsetSync says that a record of the source has a copy at an offset of the
// target. MirrorMaker 2 translates the offsets of groups with them
// (org.apache.kafka.connect.mirror.OffsetSync).
type OffsetSync struct {
	Topic      string // name on the source
	Partition  int32
	Upstream   int64 // offset on the source
	Downstream int64 // offset of the copy on the target
}

const offsetSync = "offset sync"

// Key is the record's key; compaction keeps the newest sync of a partition.
func (s OffsetSync) Key() []byte { return appendInt32(appendString(nil, s.Topic), s.Partition) }

// Value is the record's value.
func (s OffsetSync) Value() []byte { return appendInt64(appendInt64(nil, s.Upstream), s.Downstream) }

// ParseOffsetSync reads a record of an offset syncs topic.
func ParseOffsetSync(key, value []byte) (OffsetSync, error) {
	var s OffsetSync
	if err := read(offsetSync, "key", key, func(r *reader) {
		s.Topic, s.Partition = r.string(), r.partition()
	}); err != nil {
		return OffsetSync{}, err
	}
	if err := read(offsetSync, "value", value, func(r *reader) {
		s.Upstream, s.Downstream = r.int64(), r.int64()
	}); err != nil {
		return OffsetSync{}, err
	}
	return s, nil
}
