package kafkaevent_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"mirrorless/shared/kafkaevent"
)

// fullEvent is an event near the largest, of values of 1 KB that do not
// compress, over four partitions.
func fullEvent(headers int) kafkaevent.Event {
	event := kafkaevent.Event{
		Source:           kafkaevent.SourceMSK,
		SourceARN:        "arn:aws:kafka:us-east-1:000000000000:cluster/example/00000000-0000-4000-8000-000000000000-1",
		BootstrapServers: "b-1.example.kafka.us-east-1.amazonaws.com:9092",
	}
	random := rand.NewChaCha8([32]byte{1})
	const records = 3600
	for i := range records {
		r := kafkaevent.Record{
			Topic: "orders", Partition: int32(i * 4 / records), Offset: int64(1_000_000 + i),
			Timestamp: 1_750_000_000_000 + int64(i), TimestampType: kafkaevent.CreateTime,
			Key: fmt.Appendf(nil, "key-%08d", i), Value: make([]byte, 1024),
		}
		random.Read(r.Value)
		for h := range headers {
			r.Headers = append(r.Headers, kafkaevent.Header{Name: fmt.Sprintf("header-%d", h), Value: []byte("00-4bf92f3577b34da6")})
		}
		event.Records = append(event.Records, r)
	}
	return event
}

// What a function spends on a full event before it copies anything. The number
// to hold is 500 MB/s on one core, for values of 1 KB.
func BenchmarkDecode(b *testing.B) {
	for _, headers := range []int{0, 4} {
		b.Run(fmt.Sprintf("headers=%d", headers), func(b *testing.B) {
			payload := kafkaevent.Encode(fullEvent(headers))
			work := make([]byte, len(payload))
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer() // decoding spoils the payload
				copy(work, payload)
				b.StartTimer()
				if _, err := kafkaevent.Decode(work); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, headers := range []int{0, 4} {
		b.Run(fmt.Sprintf("headers=%d", headers), func(b *testing.B) {
			event := fullEvent(headers)
			envelope := kafkaevent.Envelope{event.Source, event.SourceARN, event.BootstrapServers}
			dst := kafkaevent.Encode(event)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				w := envelope.Writer(dst[:0])
				for i := range event.Records {
					w.Record(&event.Records[i])
				}
				dst = w.Close()
			}
		})
	}
}

func BenchmarkRecordSize(b *testing.B) {
	event := fullEvent(4)
	b.ReportAllocs()
	for b.Loop() {
		kafkaevent.RecordSize(&event.Records[0])
	}
}
