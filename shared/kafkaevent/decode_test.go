package kafkaevent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/kafkaevent"
)

func decodeFile(t *testing.T, name string) kafkaevent.Event {
	t.Helper()
	payload, err := os.ReadFile(filepath.Join("../../events", name))
	if err != nil {
		t.Fatal(err)
	}
	event, err := kafkaevent.Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func TestSampleEvents(t *testing.T) {
	const now = 1767225600000
	record := func(topic string, partition int32, offset, timestamp int64, key, value []byte, headers ...kafkaevent.Header) kafkaevent.Record {
		return kafkaevent.Record{
			Topic: topic, Partition: partition, Offset: offset, Timestamp: timestamp,
			TimestampType: kafkaevent.CreateTime, Key: key, Value: value, Headers: headers,
		}
	}
	b := func(s string) []byte { return []byte(s) }
	appended := record("orders", 0, 42, now, b("customer-1"), b(`{"total":10}`))
	appended.TimestampType = kafkaevent.LogAppendTime
	for name, want := range map[string][]kafkaevent.Record{
		"msk.json": {
			record("orders", 3, 100, now, b("customer-1"), b(`{"total":10}`),
				kafkaevent.Header{Name: "traceparent", Value: b("00-4bf9")}, kafkaevent.Header{Name: "raw", Value: []byte{0, 127, 128, 255}}),
			record("orders", 3, 101, now+5, b("customer-2"), b(`{"total":20}`)),
		},
		"self-managed.json": {appended},
		"nulls.json": {
			record("customers", 1, 7, now, b("customer-1"), nil),
			record("customers", 1, 8, now+1, b("customer-2"), b("")),
			record("customers", 1, 9, now+2, nil, b("no key")),
			record("customers", 1, 10, now+3, b(""), b("empty key")),
			record("customers", 1, 11, now+4, nil, nil),
		},
		"lost-header.json": {
			record("orders", 3, 7, now, b("k"), b("v"),
				kafkaevent.Header{Name: "a", Value: b("1")}, kafkaevent.Header{Lost: true},
				kafkaevent.Header{Name: "b", Value: b("")}, kafkaevent.Header{Name: "a", Value: b("2")}),
		},
		"two-partitions.json": {
			record("orders", 0, 500, now, b("a"), b("1")), record("orders", 0, 501, now+1, b("a"), b("3")),
			record("orders", 1, 77, now+2, b("b"), b("2")), record("orders", 1, 78, now+3, b("b"), b("4")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, decodeFile(t, name).Records); diff != "" {
				t.Errorf("records differ (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("the envelope is read", func(t *testing.T) {
		got := decodeFile(t, "self-managed.json")
		got.Records = nil
		want := kafkaevent.Event{Source: kafkaevent.SourceSelfManaged, BootstrapServers: "a1.example.com:9093,a2.example.com:9093"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("envelope differs (-want +got):\n%s", diff)
		}
	})
	t.Run("a schedule's event is refused", func(t *testing.T) {
		payload, err := os.ReadFile("../../events/schedule.json")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kafkaevent.Decode(payload); !errors.Is(err, kafkaevent.ErrNotKafka) || !strings.Contains(err.Error(), "Scheduled Event") {
			t.Errorf("got %v, want it to be called a Scheduled Event", err)
		}
	})
}

// Lambda passes on what invokes it, and so many things are not Kafka: none may
// pass for a batch of no records.
func TestOtherEventsAreNamed(t *testing.T) {
	for payload, want := range map[string]string{
		`{"Records":[{"messageId":"1","eventSource":"aws:sqs","body":"x"}]}`:                "an SQS event",
		`{"Records":[{"kinesis":{"data":""},"eventSource":"aws:kinesis"}]}`:                 "a Kinesis event",
		`{"Records":[{"eventSource":"aws:dynamodb"}]}`:                                      "a DynamoDB stream event",
		`{"Records":[{"EventSource":"aws:sns","Sns":{}}]}`:                                  "an SNS event",
		`{"Records":[{"eventSource":"aws:s3"}]}`:                                            "an S3 event",
		`{"Records":[{"cf":{}}]}`:                                                           "CloudFront",
		`{"Records":[]}`:                                                                    "SQS, Kinesis",
		`{"eventSource":"aws:mq","eventSourceArn":"x","messages":[]}`:                       `"aws:mq"`,
		`{"eventSource":"aws:rmq","rmqMessagesByQueue":{}}`:                                 `"aws:rmq"`,
		`{"version":"0","detail-type":"Scheduled Event","source":"aws.events","detail":{}}`: "EventBridge event",
		`{"invocationId":"x","deliveryStreamArn":"y","records":[]}`:                         "Firehose",
		`{"httpMethod":"GET","requestContext":{}}`:                                          "API Gateway",
		`{"version":"2.0","routeKey":"$default","requestContext":{"http":{}}}`:              "API Gateway",
		`{"specversion":"1.0","type":"x"}`:                                                  "CloudEvents",
		`[{"specversion":"1.0"}]`:                                                           "CloudEvents",
		`[{"payload":{"topic":"x"}}]`:                                                       "Kafka Connect",
		`[{"eventSource":"aws:kafka","topic":"x"}]`:                                         "EventBridge Pipes",
		`[]`:                      "empty array",
		`[1]`:                     "an array",
		`{"awslogs":{"data":""}}`: "CloudWatch Logs",
		`{"requestContext":{"condition":"RetryAttemptsExhausted"},"payload":"{}"}`: "on-failure destination",
		`{"key1":"value1","key2":"value2","key3":"value3"}`:                        "test event",
		`{"payload":{}}`:              "no records",
		`{}`:                          "empty object",
		`null`:                        "null",
		`"x"`:                         "a string",
		`7`:                           "a number",
		`{"eventSource":"aws:kafka"}`: "no records",
		`{"eventSource":"aws:kafka","records":null}`: "records are null",
		`{"eventSource":"aws:kafka","records":[]}`:   "records are an array",
		`{"records":{}}`: "no eventSource",
		`{"records":{"a-0":[{"topic":"a","partition":0,"offset":1}]}}`:                       "no eventSource",
		`{"records":{"a-0":[{"topic":"a","partition":0,"offset":1}]},"eventSource":"x"}`:     `eventSource is "x"`,
		`{"eventSource":7,"records":{}}`:                                                     "is not a string",
		`{"eventSource":"aws:kafka","eventSource":"aws:kafka","records":{}}`:                 "eventSource twice",
		`{"eventSource":"aws:kafka","records":{},"records":{}}`:                              "records twice",
		`{"eventSource":"aws:kafka","records":{},"records":[]}`:                              "not what Lambda writes",
		`{"eventSource":"aws:kafka","bootstrapServers":["a:1"],"records":{}}`:                "is not a string",
		`{"EventSource":"aws:kafka","Records":{"a-0":[{"topic":"a"}]},"bootstrapServers":1}`: "it has Records",
	} {
		if event, err := kafkaevent.Decode([]byte(payload)); !errors.Is(err, kafkaevent.ErrNotKafka) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %d records and %v, want %q", payload, len(event.Records), err, want)
		}
	}
}

// A record's fault is told with its place, also where that comes after the fault.
func TestErrorsNameTheRecord(t *testing.T) {
	const place = `"topic":"orders","partition":3,"offset":7`
	for fields, want := range map[string]string{
		`"value":"%",` + place:                                               "value is not base64",
		`"value":"aGk",` + place:                                             "value is not base64",
		`"value":"aGl=",` + place:                                            "value is not base64",
		`"key":"aG\nk=",` + place:                                            "key is not base64",
		`"key":7,` + place:                                                   "key is a number",
		place + `,"key":"","key":""`:                                         "key twice",
		place + `,"offset":8`:                                                "offset twice",
		`"headers":{"a":[1]},` + place:                                       "headers is an object",
		`"headers":[[]],` + place:                                            "a header is an array",
		`"headers":[null],` + place:                                          "a header is null",
		`"headers":[{"h":[1,256]}],` + place:                                 "not a byte",
		`"headers":[{"h":[-129]}],` + place:                                  "not a byte",
		`"headers":[{"h":[1e1]}],` + place:                                   "not a byte",
		`"headers":[{"h":["1"]}],` + place:                                   "is a string",
		`"headers":[{"h":{"0":1}}],` + place:                                 "a header value is an object",
		`"headers":[{"h":"%"}],` + place:                                     "a header value is not base64",
		`"timestamp":1.5,` + place:                                           "timestamp is not a whole number",
		`"timestampType":0,` + place:                                         "timestampType is a number",
		`"keySchemaMetadata":{"dataFormat":"AVRO","schemaId":"1"},` + place:  "SchemaRegistryConfig",
		`"valueSchemaMetadata":{"dataFormat":"JSON","schemaId":""},` + place: "SchemaRegistryConfig",
	} {
		_, err := kafkaevent.Decode([]byte(`{"eventSource":"aws:kafka","records":{"orders-3":[{"topic":"first","partition":0,"offset":0},{` + fields + `}]}}`))
		e, ok := errors.AsType[*kafkaevent.Error](err)
		if !ok || errors.Is(err, kafkaevent.ErrSyntax) {
			t.Errorf("%s: got %v, want an error about a record", fields, err)
			continue
		}
		if !strings.Contains(e.Reason, want) {
			t.Errorf("%s: got %q, want %q", fields, e.Reason, want)
		}
		if e.Topic != "orders" || e.Partition != 3 || e.Offset != 7 || !strings.HasPrefix(e.Path, `records["orders-3"][1]`) {
			t.Errorf("%s: got the place %q, %q %d %d, want that of the record", fields, e.Path, e.Topic, e.Partition, e.Offset)
		}
		if strings.Contains(fields, `"h"`) && (e.Header != "h" || !strings.Contains(err.Error(), `header "h"`)) {
			t.Errorf("%s: got %v, want the header's name", fields, err)
		}
	}
	for fields, want := range map[string]string{
		`"partition":3,"offset":7`:                        "without topic",
		`"topic":"orders","offset":7`:                     "without partition",
		`"topic":"orders","partition":null,"offset":7`:    "without partition",
		`"topic":"orders","partition":3`:                  "without offset",
		`"topic":"","partition":3,"offset":7`:             "empty topic",
		`"topic":"orders","partition":"3","offset":7`:     "partition is a string",
		`"topic":"orders","partition":-1,"offset":7`:      "partition is not",
		`"topic":"orders","partition":3,"offset":-1`:      "offset is not",
		`"topic":"orders","partition":2147483648`:         "partition is not",
		`"topic":["orders"],"partition":3,"offset":7`:     "topic is an array",
		`"topic":"\ud800orders","partition":3,"offset":7`: "half a surrogate pair",
	} {
		_, err := kafkaevent.Decode([]byte(`{"eventSource":"aws:kafka","records":{"orders-3":[{` + fields + `}]}}`))
		if !errors.Is(err, kafkaevent.ErrRecord) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", fields, err, want)
		}
	}
}

// Whatever is wrong, what a record says stays out of the error.
func TestErrorsHoldNoContent(t *testing.T) {
	const secret = "c2VjcmV0" // base64, and also as text nothing that may leak
	whole := fmt.Sprintf(`{"eventSource":"aws:kafka","records":{"orders-3":[{"topic":"orders","partition":3,"offset":7,`+
		`"key":"%s","value":"%s","headers":[{"h":"%s"},{"n":[115,101,99,114,101,116]}],"timestampType":"CREATE_TIME"}]}}`, secret, secret, secret)
	for i := range whole {
		for _, c := range []byte("\"{[,:0x\\\n") {
			payload := []byte(whole)
			payload[i] = c
			_, err := kafkaevent.Decode(payload)
			if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "115,")) {
				t.Fatalf("%q at byte %d: content in %v", c, i, err)
			}
		}
	}
}

func TestRecordsDoNotShareRoom(t *testing.T) {
	event := decodeFile(t, "msk.json")
	r := event.Records[0]
	for _, b := range [][]byte{r.Key, r.Value, r.Headers[0].Value, r.Headers[1].Value} {
		if len(b) != cap(b) {
			t.Errorf("got capacity %d for %d bytes: an append would write over the next record", cap(b), len(b))
		}
	}
	if len(r.Headers) != cap(r.Headers) {
		t.Errorf("got capacity %d for %d headers, want the same", cap(r.Headers), len(r.Headers))
	}
}

// Headers of many records lie together; growing must lose none.
func TestManyHeaders(t *testing.T) {
	event := kafkaevent.Event{Source: kafkaevent.SourceMSK}
	for i := range 500 {
		r := kafkaevent.Record{Topic: "orders", Offset: int64(i), TimestampType: kafkaevent.CreateTime}
		for h := range i % 7 {
			r.Headers = append(r.Headers, kafkaevent.Header{Name: fmt.Sprint(h), Value: fmt.Append(nil, i)})
		}
		event.Records = append(event.Records, r)
	}
	got, err := kafkaevent.Decode(kafkaevent.Encode(event))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(event, got); diff != "" {
		t.Errorf("records differ (-want +got):\n%s", diff)
	}
}

func TestACutPayloadIsNamedAsLambdasCut(t *testing.T) {
	event := fullEvent(0)
	event.Records = append(event.Records, event.Records...)
	payload := kafkaevent.Encode(event)[:kafkaevent.MaxPayload]
	_, err := kafkaevent.Decode(payload)
	if !errors.Is(err, kafkaevent.ErrSyntax) || !strings.Contains(err.Error(), "6291556 bytes") {
		t.Errorf("got %v, want the payload's cap named", err)
	}
}
