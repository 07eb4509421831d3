package kafkaevent

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// stop unwinds the scanner after a note that ends the reading.
const stop = "stop"

// decoder reads one event. What is wrong with a record's shape is noted and the
// rest of that record still read, so that the error can name topic, partition
// and offset also where they come last; a syntax error ends the reading at once.
type decoder struct {
	scanner
	out  Event
	seen fields // of the top level

	noted *Error

	// Where reading is, for errors.
	list      text
	inList    bool
	index     int // of the record in its list, -1 before the first
	header    int // index in its record, -1 outside
	name      string
	topic     string
	partition int32
	offset    int64

	last string // topic of a record before

	rec     Record
	recSeen fields
	pairs   int // members of the header object being read
	names   map[string]string
	arena   []Header
	first   int // where the record's headers begin in arena
}

// fields is a set of the names that may stand once in an object.
type fields uint16

const (
	fieldSource fields = 1 << iota
	fieldSourceARN
	fieldServers
	fieldRecords
)

const (
	fieldTopic fields = 1 << iota
	fieldPartition
	fieldOffset
	fieldTimestamp
	fieldTimestampType
	fieldKey
	fieldValue
	fieldHeaders
)

var byteOrderMark = []byte("\xef\xbb\xbf")

func (d *decoder) event() (Event, error) {
	if bytes.HasPrefix(d.buf, byteOrderMark) {
		d.pos = len(byteOrderMark)
	}
	d.header = -1
	if d.space() != '{' {
		return Event{}, d.refuse()
	}
	bad := d.object(d.topLevel)
	switch {
	case bad != "" && bad != stop:
		return Event{}, d.syntax(bad)
	case d.noted != nil:
		return Event{}, d.noted
	case bad == stop:
		return Event{}, d.refuse()
	case d.space() != 0 || d.pos < len(d.buf):
		return Event{}, d.syntax("more text after the event")
	case d.seen&fieldRecords == 0 || d.seen&fieldSource == 0:
		return Event{}, d.refuse()
	}
	return d.out, nil
}

func (d *decoder) topLevel(name text) string {
	key, _ := name.unescape()
	switch string(key) {
	case "eventSource":
		return d.envelope(fieldSource, "eventSource", &d.out.Source)
	case "eventSourceArn":
		return d.envelope(fieldSourceARN, "eventSourceArn", &d.out.SourceARN)
	case "bootstrapServers":
		return d.envelope(fieldServers, "bootstrapServers", &d.out.BootstrapServers)
	case "records":
		if d.space() != '{' {
			return stop
		}
		if d.seen&fieldRecords != 0 {
			return d.end(ErrNotKafka, "it has records twice")
		}
		d.seen |= fieldRecords
		d.inList = true
		bad := d.object(d.records)
		if bad == "" {
			d.inList = false
		}
		return bad
	}
	return d.skip(1)
}

// envelope takes one of the strings around the records.
func (d *decoder) envelope(field fields, name string, to *string) string {
	if d.seen&field != 0 {
		return d.end(ErrNotKafka, "it has "+name+" twice")
	}
	if d.space() == 'n' {
		return d.skip(1)
	}
	d.seen |= field
	if d.space() != '"' {
		return stop
	}
	t, bad := d.str()
	if bad != "" {
		return bad
	}
	raw, ok := t.unescape()
	if !ok {
		return d.end(ErrNotKafka, name+" has half a surrogate pair")
	}
	*to = string(raw)
	if field == fieldSource && !isSource(*to) {
		return stop
	}
	return ""
}

// isSource accepts what Lambda writes, and what a fixture of AWS's own Python
// library has.
func isSource(source string) bool {
	return source == SourceMSK || source == SourceSelfManaged || source == "aws:"+SourceSelfManaged
}

// records takes one member of the map of lists. The key is kept for errors only:
// topics may hold hyphens and digits, and keys are seen that disagree with the
// records.
func (d *decoder) records(key text) string {
	d.list, d.index = key, -1
	if d.space() != '[' {
		return d.endUnwanted("a list of records", "an array")
	}
	return d.array(d.record)
}

func (d *decoder) record(i int) string {
	d.index, d.topic, d.partition, d.offset = i, "", -1, -1
	if d.space() != '{' {
		return d.endUnwanted("a record", "an object")
	}
	start := d.pos
	d.rec = Record{Timestamp: NoTimestamp}
	d.recSeen = 0
	d.first = len(d.arena)
	if bad := d.object(d.field); bad != "" {
		return bad
	}
	switch {
	case d.recSeen&fieldTopic == 0:
		d.note(ErrRecord, "a record without topic")
	case d.recSeen&fieldPartition == 0:
		d.note(ErrRecord, "a record without partition")
	case d.recSeen&fieldOffset == 0:
		d.note(ErrRecord, "a record without offset")
	}
	if d.noted != nil {
		d.noted.Topic, d.noted.Partition, d.noted.Offset = d.topic, d.partition, d.offset
		return stop
	}
	if n := len(d.arena); n > d.first {
		d.rec.Headers = d.arena[d.first:n:n]
	}
	if d.out.Records == nil {
		d.out.Records = make([]Record, 0, d.expect(d.pos-start))
	}
	d.out.Records = append(d.out.Records, d.rec)
	return ""
}

// expect guesses from the first record how many there are; an event source
// sends at most 10,000.
func (d *decoder) expect(size int) int {
	return min((len(d.buf)-d.pos)/(size+1)+1, 10_000)
}

func (d *decoder) field(name text) (bad string) {
	key, _ := name.unescape()
	switch string(key) {
	case "topic":
		d.topic, bad = d.word(fieldTopic, "topic", d.last)
		d.rec.Topic, d.last = d.topic, d.topic
	case "partition":
		n, bad := d.integer(fieldPartition, "partition", 0, math.MaxInt32)
		d.rec.Partition = int32(n)
		if d.recSeen&fieldPartition != 0 && d.partition < 0 {
			d.partition = int32(n)
		}
		return bad
	case "offset":
		d.rec.Offset, bad = d.integer(fieldOffset, "offset", 0, math.MaxInt64)
		if d.recSeen&fieldOffset != 0 && d.offset < 0 {
			d.offset = d.rec.Offset
		}
	case "timestamp":
		d.rec.Timestamp, bad = d.integer(fieldTimestamp, "timestamp", math.MinInt64, math.MaxInt64)
		if d.recSeen&fieldTimestamp == 0 {
			d.rec.Timestamp = NoTimestamp
		}
	case "timestampType":
		var word string
		word, bad = d.word(fieldTimestampType, "timestampType", string(CreateTime))
		d.rec.TimestampType = TimestampType(word)
	case "key":
		d.once(fieldKey, "key")
		d.rec.Key, bad = d.base64("key")
	case "value":
		d.once(fieldValue, "value")
		d.rec.Value, bad = d.base64("value")
	case "headers":
		d.once(fieldHeaders, "headers")
		return d.headers()
	case "keySchemaMetadata", "valueSchemaMetadata":
		if d.space() != 'n' {
			d.note(ErrRewritten, string(key)+" is there: remove SchemaRegistryConfig from the event source mapping,"+
				" with it Lambda takes schema ids out of the bytes or writes them anew")
		}
		return d.skip(1)
	default:
		return d.skip(1)
	}
	return bad
}

// once notes a field that stands twice in a record: either could be meant.
func (d *decoder) once(field fields, name string) {
	if d.recSeen&field != 0 {
		d.note(ErrRecord, "a record with "+name+" twice")
	}
	d.recSeen |= field
}

// word takes a record's string. usual is returned where it stands again, and
// saves a look-up.
func (d *decoder) word(field fields, name, usual string) (string, string) {
	c := d.space()
	if c == 'n' {
		return "", d.skip(1)
	}
	d.once(field, name)
	if c != '"' {
		return "", d.unwanted(name, "a string")
	}
	t, bad := d.str()
	if bad != "" {
		return "", bad
	}
	if len(t.raw) == 0 && field == fieldTopic {
		d.note(ErrRecord, "an empty topic")
	}
	if string(t.raw) == usual {
		return usual, ""
	}
	raw, ok := t.unescape()
	if !ok {
		d.note(ErrRecord, name+" has half a surrogate pair")
	}
	return d.intern(raw), ""
}

// intern returns the string for raw, the same one each time: names repeat, and
// must not point into a payload that is decoded in place.
func (d *decoder) intern(raw []byte) string {
	if s, ok := d.names[string(raw)]; ok {
		return s
	}
	if d.names == nil {
		d.names = make(map[string]string)
	}
	s := string(raw)
	d.names[s] = s
	return s
}

// integer takes a record's number; for null it is 0 and the field counts as
// absent.
func (d *decoder) integer(field fields, name string, lo, hi int64) (int64, string) {
	c := d.space()
	if c == 'n' {
		return 0, d.skip(1)
	}
	d.once(field, name)
	if c != '-' && c-'0' > 9 {
		d.recSeen &^= field
		return 0, d.unwanted(name, "a number")
	}
	n, bad := d.num()
	if bad != "" {
		d.recSeen &^= field
		return 0, bad
	}
	if !n.whole || n.value < lo || n.value > hi {
		d.recSeen &^= field
		d.note(ErrRecord, fmt.Sprintf("%s is not a whole number from %d to %d", name, lo, hi))
	}
	return n.value, ""
}

// endUnwanted is unwanted for what is not part of a record.
func (d *decoder) endUnwanted(name, want string) string {
	if bad := d.unwanted(name, want); bad != "" {
		return bad
	}
	return stop
}

// unwanted takes a value of the wrong kind and notes it.
func (d *decoder) unwanted(name, want string) string {
	found, at := kind(d.space()), d.pos
	if bad := d.skip(1); bad != "" {
		return bad
	}
	after := d.pos
	d.pos = at
	d.note(ErrRecord, fmt.Sprintf("%s is %s, want %s", name, found, want))
	d.pos = after
	return ""
}

// base64 takes a string of base64, which it decodes in place, or null.
func (d *decoder) base64(name string) ([]byte, string) {
	switch d.space() {
	case 'n':
		return nil, d.skip(1)
	case '"':
	default:
		return nil, d.unwanted(name, "base64")
	}
	raw, plain := d.plain()
	if !plain {
		t, bad := d.str()
		if bad != "" {
			return nil, bad
		}
		raw, _ = t.unescape()
	}
	n, read := decodeBase64(raw)
	if read == len(raw) {
		return raw[:n:n], ""
	}
	if plain {
		// Nobody has looked at its characters yet.
		if i := bytes.IndexFunc(raw[read:], func(r rune) bool { return r < ' ' }); i >= 0 {
			d.pos -= len(raw) - read - i + 1
			return nil, "control character in a string"
		}
		if !utf8.Valid(raw[read:]) {
			return nil, "a string is not UTF-8"
		}
	}
	d.note(ErrRecord, name+" is not base64")
	return nil, ""
}

// kind names the value that begins with c.
func kind(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	case 0:
		return "nothing"
	}
	if c == '-' || c-'0' <= 9 {
		return "a number"
	}
	return "no JSON value"
}

// note keeps the first complaint about a record, which is made complete when the
// record has been read.
func (d *decoder) note(kind error, reason string) {
	if d.noted == nil {
		d.noted = d.fail(kind, reason)
	}
}

// end notes a complaint after which nothing is read.
func (d *decoder) end(kind error, reason string) string {
	d.note(kind, reason)
	return stop
}

func (d *decoder) fail(kind error, reason string) *Error {
	return &Error{
		Kind: kind, Reason: reason, Byte: d.pos, Path: d.path(),
		Topic: d.topic, Partition: d.partition, Offset: d.offset, Header: d.name,
	}
}

func (d *decoder) syntax(bad string) *Error {
	switch {
	case d.pos < len(d.buf):
	case len(d.buf) == 0:
		bad = "the payload is empty"
	case len(d.buf) >= MaxPayload-4:
		bad = fmt.Sprintf("cut off after %d bytes, the most that Lambda hands to a function: %s", len(d.buf), bad)
	default:
		bad = "cut off: " + bad
	}
	return d.fail(ErrSyntax, bad)
}

// path is the place in the event. Names of the record's fields are part of the
// reason.
func (d *decoder) path() string {
	if !d.inList {
		return ""
	}
	if d.list.raw == nil {
		return "records"
	}
	path := "records[" + strconv.Quote(bounded(string(d.list.raw))) + "]"
	if d.index >= 0 {
		path += "[" + strconv.Itoa(d.index) + "]"
	}
	if d.header >= 0 {
		path += ".headers[" + strconv.Itoa(d.header) + "]"
	}
	return path
}
