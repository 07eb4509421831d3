package kafkaevent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/kafkaevent"
)

// FuzzDecode holds Decode to its promises on any bytes: no panic, no byte
// touched outside of the payload, the reference's reading of all it accepts, no
// syntax error for valid JSON, and a round trip through the encoder.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/casebook/e*.json", "../../events/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	for _, s := range odd {
		f.Add([]byte(s))
	}
	f.Fuzz(checkDecode)
}

func checkDecode(t *testing.T, original []byte) {
	const guard = 16
	room := bytes.Repeat([]byte{'"'}, len(original)+2*guard)
	payload := room[guard : guard+len(original)]
	copy(payload, original)
	got, err := kafkaevent.Decode(payload)
	if fence := bytes.Repeat([]byte{'"'}, guard); !bytes.Equal(room[:guard], fence) || !bytes.Equal(room[len(room)-guard:], fence) {
		t.Fatal("bytes outside of the payload were changed")
	}
	if err != nil {
		checkError(t, original, err)
		return
	}
	want, err := referenceDecode(original)
	if err != nil {
		t.Fatalf("accepted, but the reference says: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("reading differs (-reference +got):\n%s", diff)
	}
	checkRoundTrip(t, got)
}

func checkError(t *testing.T, original []byte, err error) {
	t.Helper()
	e, ok := errors.AsType[*kafkaevent.Error](err)
	if !ok {
		t.Fatalf("got %T, want *kafkaevent.Error", err)
	}
	if e.Byte < 0 || e.Byte > len(original) {
		t.Fatalf("got byte %d of %d", e.Byte, len(original))
	}
	text := bytes.TrimPrefix(original, []byte("\xef\xbb\xbf"))
	if errors.Is(err, kafkaevent.ErrSyntax) && json.Valid(text) && utf8.Valid(text) && !strings.Contains(err.Error(), "too deep") {
		t.Fatalf("got %v for valid JSON", err)
	}
}

func checkRoundTrip(t *testing.T, event kafkaevent.Event) {
	t.Helper()
	for i := range event.Records {
		for h, header := range event.Records[i].Headers {
			if header.Value == nil {
				event.Records[i].Headers[h] = kafkaevent.Header{Lost: true}
			}
		}
	}
	encoded := kafkaevent.Encode(event)
	if !json.Valid(encoded) {
		t.Fatalf("encoded to invalid JSON: %q", encoded)
	}
	if want := size(event); len(encoded) != want {
		t.Fatalf("got %d bytes, want the size computed before, %d", len(encoded), want)
	}
	again, err := kafkaevent.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(grouped(event), again); diff != "" {
		t.Fatalf("round trip differs (-want +got):\n%s", diff)
	}
}

type partition struct {
	topic string
	n     int32
}

// size is the size of the event as Envelope.Size documents it.
func size(event kafkaevent.Event) int {
	n := kafkaevent.Envelope{event.Source, event.SourceARN, event.BootstrapServers}.Size()
	seen := make(map[partition]bool)
	for i := range event.Records {
		r := &event.Records[i]
		if p := (partition{r.Topic, r.Partition}); !seen[p] {
			seen[p] = true
			n += kafkaevent.ListSize(r.Topic, r.Partition)
		}
		n += kafkaevent.RecordSize(r)
	}
	if len(event.Records) == 0 {
		n++
	}
	return n
}

// grouped orders records as an event has them: by partition, in the order of
// first appearance.
func grouped(event kafkaevent.Event) kafkaevent.Event {
	var order []partition
	lists := make(map[partition][]kafkaevent.Record)
	for _, r := range event.Records {
		p := partition{r.Topic, r.Partition}
		if lists[p] == nil {
			order = append(order, p)
		}
		lists[p] = append(lists[p], r)
	}
	event.Records = nil
	for _, p := range order {
		event.Records = append(event.Records, lists[p]...)
	}
	return event
}

// odd are texts near the edges of what is accepted.
var odd = []string{
	``, ` `, `null`, `{}`, `[]`, `"x"`, `1`, `{"records":{}}`, `{"records":null,"eventSource":"aws:kafka"}`,
	`{"eventSource":"aws:kafka","records":{}} x`,
	`{"eventSource":"aws:kafka","records":{"a-0":[{"topic":"\u00e4\ud83d\ude00","partition":0,"offset":9223372036854775807,"timestamp":-9223372036854775808}]}}`,
	`{"eventSource":"aws:kafka","records":{"a-0":[{"topic":"a","partition":0,"offset":9223372036854775808}]}}`,
	`{"eventSource":"aws:kafka","records":{"a-0":[{"topic":"a","partition":0,"offset":0,"value":"aGk\u003d","key":"\/\/\/\/"}]}}`,
	`{"eventSource":"aws:kafka","records":{"a-0":[{"topic":"a","partition":0,"offset":0,"headers":[{"x":null},{"\ud800":[]},{"a":[1],"b":[ -1 , 255 ]}]}]}}`,
	`{"eventSource":"aws:kafka","records":{"a-0":[{"topic":"a","partition":0,"offset":0,"headers":[{"a":[00]},{"a":[-]},{"a":[1.0]},{"a":[1e1]},{"a":[256]}]}]}}`,
	`{"eventSource":"aws:kafka","records":{"a-0":[{"topic":"a","partition":-0,"offset":0,"value":"aGl=","x":{"y":[true,false,null,-1.5e+3]}}]}}`,
	`{"eventSource":"aws:kafka","records":{"a-0":[{"topic":"a","partition":0,"offset":0,"value":"aGk` + "\n" + `="}]}}`,
	"{\"eventSource\":\"aws:kafka\",\"records\":{\"a-0\":[{\"topic\":\"a\xff\",\"partition\":0,\"offset\":0}]}}",
}

func TestOddTexts(t *testing.T) {
	for _, s := range odd {
		checkDecode(t, []byte(s))
	}
}

// Cut off anywhere, an event is an error: Lambda cuts what is over the cap.
func TestEveryPrefixIsAnError(t *testing.T) {
	whole := kafkaevent.Encode(sample())
	for n := range len(whole) {
		payload := append([]byte(nil), whole[:n]...)
		if event, err := kafkaevent.Decode(payload); !errors.Is(err, kafkaevent.ErrSyntax) {
			t.Fatalf("%d of %d bytes: got %d records and %v, want a syntax error", n, len(whole), len(event.Records), err)
		}
	}
}

// sample has all that a record can have.
func sample() kafkaevent.Event {
	return kafkaevent.Event{
		Source: kafkaevent.SourceSelfManaged, BootstrapServers: "127.0.0.1:9092",
		Records: []kafkaevent.Record{
			{Topic: "orders", Partition: 3, Offset: 7, Timestamp: 1_750_000_000_000, TimestampType: kafkaevent.CreateTime, Key: []byte("k"), Value: []byte{0xff, 0, 0xfe}},
			{Topic: "orders", Partition: 3, Offset: 8, Timestamp: 0, TimestampType: kafkaevent.LogAppendTime, Key: []byte{}, Value: nil, Headers: []kafkaevent.Header{
				{Name: "a", Value: []byte{127, 128, 255, 0}}, {Lost: true}, {Name: "", Value: []byte{}}, {Name: "a", Value: []byte("2")}, {Name: "\"\\\x01ä", Value: []byte("3")},
			}},
			{Topic: "or-ders.4", Partition: 0, Offset: 1 << 40, Timestamp: kafkaevent.NoTimestamp, TimestampType: kafkaevent.NoTimestampType, Value: []byte{}},
		},
	}
}

func TestSampleRoundTrips(t *testing.T) { checkRoundTrip(t, sample()) }
