package kafkaevent_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/kafkaevent"
)

// expectation is one entry of testdata/casebook/expected.json.
type expectation struct {
	Expect  string // decode, error, decode_or_error
	Note    string
	Count   *int
	Records []struct {
		Topic         string
		Partition     int32
		Offset        int64
		Timestamp     int64
		TimestampType string
		Key, Value    *string // hex
		Headers       []struct{ Name, Value *string }
	}
}

// The events that the case book leaves open, and what is done with them.
var decided = map[string]string{
	"e05-header-value-as-base64-string.json":                    "decode",
	"e28-duplicate-map-keys-one-partition-over-many-lists.json": "decode",
}

func TestEventsOfTheCaseBook(t *testing.T) {
	expected := make(map[string]expectation)
	text, err := os.ReadFile("testdata/casebook/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/casebook/e[0-9]*.json")
	if err != nil || len(files) != len(expected) {
		t.Fatalf("got %d events, want %d (%v)", len(files), len(expected), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			want, ok := expected[name]
			if !ok {
				t.Fatal("nothing expected of this file")
			}
			payload, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			verdict := want.Expect
			if d, ok := decided[name]; ok {
				verdict = d
			}
			event, err := kafkaevent.Decode(payload)
			if verdict == "error" {
				if err == nil {
					t.Fatalf("got %d records, want an error: %s", len(event.Records), want.Note)
				}
				t.Log(err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(records(t, want), event.Records); diff != "" {
				t.Errorf("records differ (-want +got):\n%s", diff)
			}
		})
	}
}

// records is what want says, as Decode returns it.
func records(t *testing.T, want expectation) []kafkaevent.Record {
	t.Helper()
	bytes := func(s *string) []byte {
		if s == nil {
			return nil
		}
		b, err := hex.DecodeString(*s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var all []kafkaevent.Record
	for _, w := range want.Records {
		r := kafkaevent.Record{
			Topic: w.Topic, Partition: w.Partition, Offset: w.Offset, Timestamp: w.Timestamp,
			TimestampType: kafkaevent.TimestampType(w.TimestampType), Key: bytes(w.Key), Value: bytes(w.Value),
		}
		for _, h := range w.Headers {
			if h.Name == nil {
				r.Headers = append(r.Headers, kafkaevent.Header{Lost: true})
			} else {
				r.Headers = append(r.Headers, kafkaevent.Header{Name: *h.Name, Value: bytes(h.Value)})
			}
		}
		all = append(all, r)
	}
	return all
}

// What each refused event of the case book must say, so that the reader knows
// what to change.
func TestRefusalsSayWhatTheyLookLike(t *testing.T) {
	for _, test := range []struct {
		file string
		kind error
		want []string
	}{
		{"e07-records-and-headers-as-objects-with-string-numbers.json", kafkaevent.ErrRecord, []string{`records["demo-topic-0"]`, "list of records is an object", "want an array"}},
		{"e13-schema-metadata-mixed.json", kafkaevent.ErrRewritten, []string{"SchemaRegistryConfig", "topic mytopic", "partition 0", "offset 16"}},
		{"e15-alphabetical-field-order-large-offsets.json", kafkaevent.ErrRewritten, []string{"SchemaRegistryConfig", "topic confluent_proto", "offset 4209910"}},
		{"e22-malformed-json-as-found.json", kafkaevent.ErrSyntax, []string{"byte 319", "topic o.store.1", "partition 8", "offset 150326091"}},
		{"e24-eventbridge-pipes-array.json", kafkaevent.ErrNotKafka, []string{"EventBridge Pipes"}},
		{"e25-firehose-msk-event.json", kafkaevent.ErrNotKafka, []string{"Firehose"}},
	} {
		t.Run(test.file, func(t *testing.T) {
			payload, err := os.ReadFile(filepath.Join("testdata/casebook", test.file))
			if err != nil {
				t.Fatal(err)
			}
			_, err = kafkaevent.Decode(payload)
			if !errors.Is(err, test.kind) {
				t.Fatalf("got %v, want %v", err, test.kind)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}
