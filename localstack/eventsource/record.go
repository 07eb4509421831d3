package eventsource

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/kafkaevent"
)

// converter makes the event's record of the client's, in place of the one
// before.
type converter struct {
	record  kafkaevent.Record
	headers []kafkaevent.Header
}

func (c *converter) convert(r *kgo.Record) *kafkaevent.Record {
	c.headers = c.headers[:0]
	for i := range r.Headers {
		h := &r.Headers[i]
		c.headers = append(c.headers, kafkaevent.Header{Name: h.Key, Value: h.Value})
	}
	c.record = kafkaevent.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Timestamp: r.Timestamp.UnixMilli(), TimestampType: timestampType(r),
		Key: r.Key, Value: r.Value, Headers: c.headers,
	}
	return &c.record
}

func timestampType(r *kgo.Record) kafkaevent.TimestampType {
	switch r.Attrs.TimestampType() {
	case 0:
		return kafkaevent.CreateTime
	case 1:
		return kafkaevent.LogAppendTime
	}
	return kafkaevent.NoTimestampType
}
