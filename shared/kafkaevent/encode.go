package kafkaevent

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Envelope is what an event says of its cluster, and the way to write events.
type Envelope struct {
	// Source, SourceARN and BootstrapServers are as in [Event]; an empty
	// SourceARN is left out, as for self-managed Kafka.
	Source, SourceARN, BootstrapServers string
}

// Size is what an event takes in bytes apart from its lists and records: an
// event's size is exactly Size, and [ListSize] for each partition in it, and
// [RecordSize] for each record. (An event without records, which an event source
// does not send, is one byte longer.)
func (e Envelope) Size() int {
	n := len(`{"eventSource":,"bootstrapServers":,"records":{}}`) - 1
	n += stringSize(e.Source) + stringSize(e.BootstrapServers)
	if e.SourceARN != "" {
		n += len(`"eventSourceArn":,`) + stringSize(e.SourceARN)
	}
	return n
}

// ListSize is what the list of one partition takes in an event, without its
// records.
func ListSize(topic string, partition int32) int {
	return len(`"-":[],`) - 1 + escapedSize(topic) + intSize(int64(partition))
}

// RecordSize is what r takes in an event. It looks at each byte of the headers,
// and at the lengths of key and value.
func RecordSize(r *Record) int {
	n := len(`{"topic":,"partition":,"offset":,"timestamp":,"timestampType":"","headers":[]},`)
	n += stringSize(r.Topic) + intSize(int64(r.Partition)) + intSize(r.Offset) + intSize(r.Timestamp)
	n += escapedSize(string(r.TimestampType))
	if r.Key != nil {
		n += len(`"key":"",`) + base64Size(len(r.Key))
	}
	if r.Value != nil {
		n += len(`"value":"",`) + base64Size(len(r.Value))
	}
	for i := range r.Headers {
		n += headerSize(&r.Headers[i])
	}
	if len(r.Headers) > 0 {
		n-- // one comma less than headers
	}
	return n
}

func headerSize(h *Header) int {
	if h.Value == nil {
		return len(`{},`)
	}
	n := len(`{:[]},`) + stringSize(h.Name)
	for _, b := range h.Value {
		n += int(signedLen[b])
	}
	if len(h.Value) > 0 {
		n += len(h.Value) - 1
	}
	return n
}

// Encode returns the event as Lambda writes it, with the records of a partition
// in one list, in their order, and the lists in the order of their first
// records. Decode returns the same records, grouped so, except for what Lambda
// loses: the names of headers with null values.
func Encode(event Event) []byte {
	type list struct {
		topic     string
		partition int32
	}
	envelope := Envelope{event.Source, event.SourceARN, event.BootstrapServers}
	size := envelope.Size() + 1
	var order []list
	members := make(map[list][]int)
	for i := range event.Records {
		r := &event.Records[i]
		l := list{r.Topic, r.Partition}
		if members[l] == nil {
			order = append(order, l)
			size += ListSize(l.topic, l.partition)
		}
		members[l] = append(members[l], i)
		size += RecordSize(r)
	}
	w := envelope.Writer(make([]byte, 0, size))
	for _, l := range order {
		for _, i := range members[l] {
			w.Record(&event.Records[i])
		}
	}
	return w.Close()
}

// Writer writes one event, record by record.
type Writer struct {
	buf       []byte
	topic     string
	partition int32
	open      bool // a list is
}

// Writer begins an event, which is appended to dst. To allocate nothing more,
// dst needs room for the sum that Size describes.
func (e Envelope) Writer(dst []byte) *Writer {
	dst = append(dst, `{"eventSource":`...)
	dst = appendString(dst, e.Source)
	if e.SourceARN != "" {
		dst = append(dst, `,"eventSourceArn":`...)
		dst = appendString(dst, e.SourceARN)
	}
	dst = append(dst, `,"bootstrapServers":`...)
	dst = appendString(dst, e.BootstrapServers)
	dst = append(dst, `,"records":{`...)
	return &Writer{buf: dst}
}

// Record adds a record. All of one partition must come one after the other: a
// new list is begun where topic or partition change, and a key of the map of
// lists would be there twice.
func (w *Writer) Record(r *Record) {
	b := w.buf
	if w.open && w.partition == r.Partition && w.topic == r.Topic {
		b = append(b, ',')
	} else {
		if w.open {
			b = append(b, `],`...)
		}
		w.open, w.topic, w.partition = true, r.Topic, r.Partition
		b = append(b, '"')
		b = appendEscaped(b, r.Topic)
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(r.Partition), 10)
		b = append(b, `":[`...)
	}
	w.buf = appendRecord(b, r)
}

// Close ends the event and returns dst with it.
func (w *Writer) Close() []byte {
	if w.open {
		w.buf = append(w.buf, ']')
	}
	return append(w.buf, `}}`...)
}

func appendRecord(b []byte, r *Record) []byte {
	b = append(b, `{"topic":`...)
	b = appendString(b, r.Topic)
	b = append(b, `,"partition":`...)
	b = strconv.AppendInt(b, int64(r.Partition), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, r.Offset, 10)
	b = append(b, `,"timestamp":`...)
	b = strconv.AppendInt(b, r.Timestamp, 10)
	b = append(b, `,"timestampType":"`...)
	b = appendEscaped(b, string(r.TimestampType))
	b = append(b, '"')
	if r.Key != nil {
		b = append(b, `,"key":"`...)
		b = appendBase64(b, r.Key)
		b = append(b, '"')
	}
	if r.Value != nil {
		b = append(b, `,"value":"`...)
		b = appendBase64(b, r.Value)
		b = append(b, '"')
	}
	b = append(b, `,"headers":[`...)
	for i := range r.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendHeader(b, &r.Headers[i])
	}
	return append(b, `]}`...)
}

func appendHeader(b []byte, h *Header) []byte {
	if h.Value == nil {
		return append(b, `{}`...)
	}
	b = append(b, '{')
	b = appendString(b, h.Name)
	b = append(b, `:[`...)
	for i, c := range h.Value {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, signedDigits[c]...)
	}
	return append(b, `]}`...)
}

// signedDigits is each byte as Java prints it.
var signedDigits = func() (t [256]string) {
	for i := range t {
		t[i] = strconv.Itoa(int(int8(i)))
	}
	return t
}()

var signedLen = func() (t [256]uint8) {
	for i, digits := range signedDigits {
		t[i] = uint8(len(digits))
	}
	return t
}()

func intSize(n int64) int {
	size := 1
	if n < 0 {
		if n == math.MinInt64 {
			return len("-9223372036854775808")
		}
		size, n = 2, -n
	}
	for ; n >= 10; n /= 10 {
		size++
	}
	return size
}

// The strings of an event are escaped where JSON demands it. Bytes that are not
// UTF-8 become U+FFFD each, as in a Java client's header names.

func stringSize(s string) int { return escapedSize(s) + 2 }

func escapedSize(s string) int {
	size := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			size += utf8.RuneLen(r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			size += 2
		case c < ' ':
			size += 6
		default:
			size++
		}
		i++
	}
	return size
}

func appendString(b []byte, s string) []byte {
	return append(appendEscaped(append(b, '"'), s), '"')
}

func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return b
}
