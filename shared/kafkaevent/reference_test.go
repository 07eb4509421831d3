package kafkaevent_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"mirrorless/shared/kafkaevent"
)

// The slow reader that Decode is compared with: encoding/json's tokens made into
// a tree that keeps the order and every repeated name, and from the tree the
// event. It takes more than Decode does (it repairs bad UTF-8), but what both
// take must come out the same.

type member struct {
	name  string
	value any
}

// parse returns nil, bool, json.Number, string, []any or []member.
func parse(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := parse(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	case json.Delim('{'):
		object := []member{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := parse(dec)
			if err != nil {
				return nil, err
			}
			object = append(object, member{name.(string), v})
		}
		_, err := dec.Token()
		return object, err
	}
	return token, nil
}

func referenceDecode(payload []byte) (event kafkaevent.Event, err error) {
	payload = bytes.TrimPrefix(payload, []byte("\xef\xbb\xbf"))
	if !json.Valid(payload) {
		return event, errors.New("invalid")
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.UseNumber()
	tree, err := parse(dec)
	if err != nil {
		return event, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return event, errors.New("more text")
	}
	defer func() {
		if r := recover(); r != nil {
			event, err = kafkaevent.Event{}, fmt.Errorf("shape: %v", r)
		}
	}()
	sawRecords := false
	for _, m := range tree.([]member) {
		switch m.name {
		case "eventSource":
			event.Source = optional(m.value)
		case "eventSourceArn":
			event.SourceARN = optional(m.value)
		case "bootstrapServers":
			event.BootstrapServers = optional(m.value)
		case "records":
			sawRecords = true
			for _, list := range m.value.([]member) {
				for _, r := range list.value.([]any) {
					event.Records = append(event.Records, referenceRecord(r.([]member)))
				}
			}
		}
	}
	if !sawRecords || event.Source == "" {
		return event, errors.New("not a Kafka event")
	}
	return event, nil
}

func referenceRecord(object []member) kafkaevent.Record {
	r := kafkaevent.Record{Partition: -1, Offset: -1, Timestamp: kafkaevent.NoTimestamp}
	for _, m := range object {
		if m.value == nil {
			continue
		}
		switch m.name {
		case "topic":
			r.Topic = m.value.(string)
		case "partition":
			r.Partition = int32(whole(m.value, 0, math.MaxInt32))
		case "offset":
			r.Offset = whole(m.value, 0, math.MaxInt64)
		case "timestamp":
			r.Timestamp = whole(m.value, math.MinInt64, math.MaxInt64)
		case "timestampType":
			r.TimestampType = kafkaevent.TimestampType(m.value.(string))
		case "key":
			r.Key = referenceBytes(m.value)
		case "value":
			r.Value = referenceBytes(m.value)
		case "headers":
			for _, h := range m.value.([]any) {
				pairs := h.([]member)
				for _, p := range pairs {
					r.Headers = append(r.Headers, kafkaevent.Header{Name: p.name, Value: referenceBytes(p.value)})
				}
				if len(pairs) == 0 {
					r.Headers = append(r.Headers, kafkaevent.Header{Lost: true})
				}
			}
		case "keySchemaMetadata", "valueSchemaMetadata":
			panic("rewritten")
		}
	}
	if r.Topic == "" || r.Partition < 0 || r.Offset < 0 {
		panic("no topic, partition or offset")
	}
	return r
}

func optional(v any) string {
	if v == nil {
		return ""
	}
	return v.(string)
}

func whole(v any, lo, hi int64) int64 {
	n, err := v.(json.Number).Int64()
	if err != nil || n < lo || n > hi {
		panic("number")
	}
	return n
}

func referenceBytes(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if bytes.ContainsAny([]byte(v), "\r\n") {
			panic("line end in base64")
		}
		b, err := base64.StdEncoding.Strict().DecodeString(v)
		if err != nil {
			panic(err)
		}
		return append([]byte{}, b...)
	case []any:
		b := []byte{}
		for _, n := range v {
			b = append(b, byte(whole(n, -128, 255)))
		}
		return b
	}
	panic("neither base64 nor numbers")
}
