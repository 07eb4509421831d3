package mm2

// Heartbeat says that the flow from Source to Target was alive at Timestamp
// (org.apache.kafka.connect.mirror.Heartbeat).
type Heartbeat struct {
	Source    string // alias
	Target    string // alias
	Timestamp int64  // milliseconds since 1970, as in a Kafka record
}

const heartbeat = "heartbeat"

// Key is the record's key; compaction keeps the newest heartbeat of a flow.
func (h Heartbeat) Key() []byte { return appendString(appendString(nil, h.Source), h.Target) }

// Value is the record's value.
func (h Heartbeat) Value() []byte { return appendInt64([]byte{0, version}, h.Timestamp) }

// ParseHeartbeat reads a record of a heartbeats topic, local or copied.
func ParseHeartbeat(key, value []byte) (Heartbeat, error) {
	var h Heartbeat
	if err := read(heartbeat, "key", key, func(r *reader) {
		h.Source, h.Target = r.string(), r.string()
	}); err != nil {
		return Heartbeat{}, err
	}
	if err := read(heartbeat, "value", value, func(r *reader) {
		r.int16()
		h.Timestamp = r.int64()
	}); err != nil {
		return Heartbeat{}, err
	}
	return h, nil
}
