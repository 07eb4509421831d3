package kafkaevent

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// refuse makes the error for a payload that is not a Kafka event. It may be slow
// and therefore reads it again, with encoding/json, to say what it is; unless
// records were decoded over it already.
func (d *decoder) refuse() *Error {
	d.inList, d.topic, d.partition, d.offset = false, "", -1, -1
	if d.seen&fieldRecords != 0 {
		if d.out.Source == "" {
			return d.fail(ErrNotKafka, `it has records but no eventSource, want "aws:kafka" or "SelfManagedKafka"`)
		}
		if !isSource(d.out.Source) {
			return d.fail(ErrNotKafka, "its eventSource is "+strconv.Quote(bounded(d.out.Source)))
		}
		return d.fail(ErrNotKafka, "what stands around its records is not what Lambda writes")
	}
	d.pos = 0
	if bytes.HasPrefix(d.buf, byteOrderMark) {
		d.pos = len(byteOrderMark)
	}
	begin := d.pos
	if bad := d.skip(0); bad != "" {
		return d.syntax(bad)
	}
	if d.space() != 0 || d.pos < len(d.buf) {
		return d.syntax("more text after the first value")
	}
	d.pos = begin
	return d.fail(ErrNotKafka, describe(d.buf[begin:]))
}

// describe says what a payload is that is not a Kafka event.
func describe(payload []byte) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(payload, &object) == nil && object != nil {
		return describeObject(object)
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(payload, &list) == nil && list != nil {
		return describeList(list)
	}
	return "it is " + kind(bytes.TrimSpace(payload)[0])
}

func describeList(list []map[string]json.RawMessage) string {
	if len(list) == 0 {
		return "it is an empty array"
	}
	first := list[0]
	switch source := word(first["eventSource"]); {
	case source != "":
		return "it is an EventBridge Pipes batch (an array of records of " + strconv.Quote(source) +
			"), not the event of a Kafka event source mapping"
	case first["specversion"] != nil:
		return "it is a batch of CloudEvents"
	case first["payload"] != nil:
		return "it is a batch of Kafka Connect's Lambda sink, not the event of a Kafka event source mapping"
	}
	return "it is an array, want an object"
}

// describeObject looks for the marks of what else invokes functions. The more
// telling mark comes first.
func describeObject(object map[string]json.RawMessage) string {
	has := func(names ...string) bool {
		for _, name := range names {
			if object[name] == nil {
				return false
			}
		}
		return true
	}
	switch {
	case has("Records"):
		return describeRecords(object["Records"])
	case has("deliveryStreamArn"), has("invocationId", "records"):
		return "it is a Firehose transformation event"
	case has("detail-type"):
		return "it is an EventBridge event (" + strconv.Quote(word(object["detail-type"])) +
			"), as scheduled functions get"
	case has("specversion"):
		return "it is a CloudEvents event"
	case has("awslogs"):
		return "it is a CloudWatch Logs event"
	case has("requestContext", "requestPayload"), has("requestContext", "payload"), has("requestContext", "KafkaBatchInfo"):
		return "it is what an on-failure destination gets of an event, not the event"
	case has("httpMethod"), has("requestContext", "version"), has("requestContext", "routeKey"), has("requestContext", "http"):
		return "it is an API Gateway, load balancer or function URL request"
	case has("requestContext"):
		return "it is an API Gateway request"
	case has("key1", "key2", "key3"):
		return "it is the test event of Lambda's console"
	}
	if source := word(object["eventSource"]); source != "" && !isSource(source) {
		return "its eventSource is " + strconv.Quote(bounded(source)) + `, want "aws:kafka" or "SelfManagedKafka"`
	}
	switch records := bytes.TrimSpace(object["records"]); {
	case len(object) == 0:
		return "it is an empty object"
	case len(records) == 0:
		return "it has no records"
	case records[0] != '{':
		return "its records are " + kind(records[0]) + ", want an object of lists"
	case object["eventSource"] != nil:
		return "its eventSource, eventSourceArn or bootstrapServers is not a string"
	}
	return "it has no eventSource"
}

// describeRecords tells apart the events whose list is called Records.
func describeRecords(raw json.RawMessage) string {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return "it has Records, as SQS, Kinesis, DynamoDB, SNS and S3 events have"
	}
	source := word(list[0]["eventSource"])
	if source == "" {
		source = word(list[0]["EventSource"])
	}
	names := map[string]string{
		"aws:sqs": "an SQS", "aws:kinesis": "a Kinesis", "aws:dynamodb": "a DynamoDB stream", "aws:sns": "an SNS", "aws:s3": "an S3",
	}
	if name, ok := names[source]; ok {
		return "it is " + name + " event"
	}
	if list[0]["cf"] != nil {
		return "it is a CloudFront event"
	}
	return "it is an event of " + strconv.Quote(bounded(source))
}

// word returns raw as a string, empty if it is none.
func word(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
