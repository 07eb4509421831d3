package topics

import (
	"strconv"
	"strings"

	"mirrorless/shared/config"
	"mirrorless/shared/kafkaevent"
)

// batchOverhead is what a batch of one record takes on a broker beside its key,
// value and headers: 61 bytes of header, and lengths and deltas.
const batchOverhead = 61 + 20

// envelope is what an event of the flow says of its cluster, where that is long.
func (r rules) envelope() kafkaevent.Envelope {
	return kafkaevent.Envelope{
		Source: kafkaevent.SourceSelfManaged, SourceARN: strings.Repeat("x", mostARN),
		BootstrapServers: r.settings.SourceClient(config.Consumer)["bootstrap.servers"],
	}
}

// mostARN is about the length of the longest ARN that a cluster can have.
const mostARN = 200

// carried is the most bytes of key and value together that one record of a topic
// may have for an event to carry it: they travel in base64. A header's bytes take
// up to five each.
func carried(topic string, envelope kafkaevent.Envelope) int64 {
	r := kafkaevent.Record{Topic: topic, Timestamp: 1e12, Offset: 1e12, TimestampType: kafkaevent.CreateTime, Key: []byte{}, Value: []byte{}}
	room := kafkaevent.MaxPayload - envelope.Size() - kafkaevent.ListSize(topic, 999) - kafkaevent.RecordSize(&r)
	return int64(room / 4 * 3)
}

// tooLarge warns of a topic that takes larger records than an event carries. A
// batch may be compressed, so that it says nothing of a topic with a lower limit.
func tooLarge(topic string, configs []configEntry, envelope kafkaevent.Envelope) []Warning {
	for _, e := range configs {
		if e.name != "max.message.bytes" {
			continue
		}
		most, err := strconv.ParseInt(strings.TrimSpace(e.value), 10, 64)
		fits := carried(topic, envelope)
		if err != nil || most-batchOverhead <= fits {
			return nil
		}
		return []Warning{{
			Message: "topic takes larger records than Lambda's event can carry: what an event leaves out is recorded as a hole",
			Topic:   topic, Detail: []any{"max.message.bytes", most, "carried", fits},
		}}
	}
	return nil
}
