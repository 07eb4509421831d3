// Package kafkaevent reads and writes the JSON event with which Lambda's Kafka
// event source (Amazon MSK or self-managed Kafka) invokes a function, and the
// reply that names the records which failed.
//
//	event, err := kafkaevent.Decode(payload)
//	if err != nil {
//		return err // nothing was read: the batch must come again
//	}
//	for i := range event.Records { … }
//
// Decode makes one pass over the payload and decodes in place: a record's key,
// value and header values point into the payload, which belongs to the event
// from then on. It tells null from empty, keeps the file's order, believes the
// record's own topic and partition and never the key of the map around it, and
// loses nothing when such a key is repeated. It is strict. What is not valid
// JSON, not a Kafka event, or was rewritten by a schema registry is an error
// that says what it looks like. Only a Kafka event without records decodes to
// no records.
//
// [Encode] and [Writer] write what Lambda writes, for a local event source:
// null keys and values left out, header bytes signed, and a header whose value
// is null as {}, without its name.
//
// The package does not use [encoding/json] where records pass, knows nothing of
// Kafka's offsets beyond their digits, and never puts a key, a value or a
// header's value into an error.
package kafkaevent

// Event is one invocation by a Kafka event source.
type Event struct {
	// Source is "aws:kafka" for Amazon MSK and "SelfManagedKafka" otherwise.
	// Nothing is decided by it.
	Source string
	// SourceARN is the MSK cluster's ARN, empty for self-managed Kafka.
	SourceARN string
	// BootstrapServers is the source cluster's comma-joined host:port list.
	BootstrapServers string
	// Records are in the order of the payload. Offsets of a partition usually
	// rise, but nothing here checks that they do.
	Records []Record
}

// Record is one Kafka record as the event carries it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	// Timestamp is in milliseconds since 1970, or [NoTimestamp]. Any other
	// value, also a negative one, is passed on as it was sent.
	Timestamp     int64
	TimestampType TimestampType
	// Key and Value are nil for Kafka's null; an empty one is not nil.
	Key, Value []byte
	Headers    []Header
}

// NoTimestamp is the timestamp of a record that has none, as in Kafka.
const NoTimestamp = -1

// Header is one header of a record. Names may repeat, and order counts.
type Header struct {
	Name string
	// Value is nil for null. Lambda does not send a null header's name (see
	// Lost); other writers of such events do.
	Value []byte
	// Lost reports a header that arrived as {}: its value is null, and its name
	// did not travel.
	Lost bool
}

// TimestampType says who set a record's timestamp. Values other than the
// constants are kept as they came.
type TimestampType string

// The names are those of Kafka's org.apache.kafka.common.record.TimestampType.
const (
	CreateTime      TimestampType = "CREATE_TIME"
	LogAppendTime   TimestampType = "LOG_APPEND_TIME"
	NoTimestampType TimestampType = "NO_TIMESTAMP_TYPE"
)

// The values of [Event.Source] that Lambda writes.
const (
	SourceMSK         = "aws:kafka"
	SourceSelfManaged = "SelfManagedKafka"
)

// MaxPayload is the largest event in bytes that Lambda hands to a function: 6
// MiB and 100 bytes. A larger one reaches the function cut off.
const MaxPayload = 6*1024*1024 + 100

// Decode reads the event in payload, and owns the payload afterwards: record
// keys, values and header values are slices of it, decoded in place.
//
// Every error is an [*Error] whose kind is one of [ErrSyntax], [ErrNotKafka],
// [ErrRecord] and [ErrRewritten]; no records are returned with it, and the
// payload is spoiled.
func Decode(payload []byte) (Event, error) {
	d := decoder{scanner: scanner{buf: payload}, partition: -1, offset: -1}
	event, err := d.event()
	if err != nil {
		return Event{}, err
	}
	return event, nil
}
