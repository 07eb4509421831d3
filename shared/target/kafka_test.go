package target

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
)

func values(from, to int) []batch.Record {
	var rs []batch.Record
	for i := from; i < to; i++ {
		rs = append(rs, batch.Record{Timestamp: time.Now().UnixMilli(), Value: fmt.Appendf(nil, "v%d", i)})
	}
	return rs
}

// TestTheBrokersAnswers holds the answers of real brokers that the package is
// built on.
func TestTheBrokersAnswers(t *testing.T) {
	c := kafkatest.Start(t, kafka.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dial := func() *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	one, two := dial(), dial()
	adm := kadm.NewClient(one)
	topic := func(name string, configs map[string]*string) Partition {
		t.Helper()
		made, err := adm.CreateTopic(ctx, 1, 1, configs, name)
		if err != nil {
			t.Fatal(err)
		}
		return Partition{TopicPartition: flow.TopicPartition{Topic: name}, TopicID: made.ID}
	}
	producer := func() int64 {
		t.Helper()
		id, err := New(one, Options{}).NewProducer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	end := func(p Partition) int64 {
		t.Helper()
		ends, err := adm.ListEndOffsets(ctx, p.Topic)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := ends.Lookup(p.Topic, p.Partition)
		return o.Offset
	}
	send := func(client *kgo.Client, p Partition, producer batch.Producer, records []batch.Record) answer {
		t.Helper()
		k := newWire(client)
		for wait := newBackoff(); ; {
			ans, err := k.produce(ctx, p, batch.Append(nil, producer, records, nil))
			if err == nil && !transient(ans.code) {
				return ans
			}
			if !wait.next(ctx) {
				t.Fatalf("produce: %v, code %d", err, ans.code)
			}
		}
	}

	p, id := topic("answers", nil), producer()
	v0 := send(one, p, batch.Producer{ID: id}, values(0, 10))
	if v0.code != 0 || v0.base != 0 || v0.appendTime != NoTimestamp {
		t.Fatalf("first append: got %+v, want base 0 and no time", v0)
	}
	for name, x := range map[string]struct {
		producer batch.Producer
		records  []batch.Record
		code     int16
		dup      bool
	}{
		"the same from another connection":     {batch.Producer{ID: id}, values(0, 10), 0, true},
		"the same range with other content":    {batch.Producer{ID: id}, values(50, 60), 0, true},
		"a prefix":                             {batch.Producer{ID: id}, values(0, 5), kerr.OutOfOrderSequenceNumber.Code, false},
		"a superset":                           {batch.Producer{ID: id}, values(0, 20), kerr.OutOfOrderSequenceNumber.Code, false},
		"an overlap":                           {batch.Producer{ID: id, Sequence: 5}, values(5, 15), kerr.OutOfOrderSequenceNumber.Code, false},
		"a gap":                                {batch.Producer{ID: id, Sequence: 11}, values(11, 12), kerr.OutOfOrderSequenceNumber.Code, false},
		"a new epoch that does not begin at 0": {batch.Producer{ID: id, Epoch: 1, Sequence: 10}, values(10, 11), kerr.OutOfOrderSequenceNumber.Code, false},
	} {
		got := send(two, p, x.producer, x.records)
		if got.code != x.code {
			t.Errorf("%s: got %s, want code %d", name, kerrName(got.code), x.code)
		}
		if x.dup && (got.base != 0 || got.appendTime == NoTimestamp) {
			t.Errorf("%s: got %+v, want base 0 with a time", name, got)
		}
		if got := end(p); got != 10 {
			t.Fatalf("%s: log ends at %d, want 10", name, got)
		}
	}
	if got := send(two, p, batch.Producer{ID: id, Epoch: 1}, values(10, 12)); got.code != 0 || got.base != 10 {
		t.Errorf("a new epoch from 0: got %+v, want base 10", got)
	}
	if got := send(one, p, batch.Producer{ID: id, Sequence: 10}, values(10, 12)); got.code != kerr.InvalidProducerEpoch.Code {
		t.Errorf("the old epoch: got %s, want INVALID_PRODUCER_EPOCH", kerrName(got.code))
	}

	t.Run("a sixth batch back is refused, and found", func(t *testing.T) {
		p, id := topic("six", nil), producer()
		log := New(two, Options{BatchBytes: 100})
		cursor := Cursor{Producer: batch.Producer{ID: id}}
		all := values(0, 40)
		got, err := log.Append(ctx, p, cursor, all, nil)
		if err != nil || got.Done != 40 {
			t.Fatalf("got %+v, %v", got, err)
		}
		again, err := New(one, Options{}).Append(ctx, p, cursor, append(all[:40:40], values(40, 50)...), nil)
		if err != nil || again.Done != 50 || again.Found != 40 || again.Cursor.End != 50 || end(p) != 50 {
			t.Errorf("got %+v, %v, end %d; want 40 found and 50 in all", again, err, end(p))
		}
	})
	t.Run("sequences wrap", func(t *testing.T) {
		p, id := topic("wrap", nil), producer()
		send(one, p, batch.Producer{ID: id, Sequence: math.MaxInt32 - 4}, values(0, 3))
		got, err := New(two, Options{BatchBytes: 100}).Append(ctx, p, Cursor{End: 3, Producer: batch.Producer{ID: id, Sequence: math.MaxInt32 - 1}}, values(3, 20), nil)
		if err != nil || got.Done != 17 || got.Found != 0 || got.Cursor.Producer.Sequence != 15 {
			t.Errorf("got %+v, %v; want 17 appended", got, err)
		}
	})
	t.Run("a duplicate with other content is settled by comparison", func(t *testing.T) {
		p, id := topic("content", nil), producer()
		send(one, p, batch.Producer{ID: id}, values(0, 4))
		rest := values(0, 4)
		rest = append(rest[:1], rest[2:]...) // compacted on the source since
		for i := range rest {
			rest[i].Timestamp = 0
		}
		got, err := New(two, Options{}).Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, rest, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Timestamps differ, so nothing matches: the four are extra and the three follow.
		if got.Extra != 4 || got.Found != 0 || end(p) != 7 {
			t.Errorf("got %+v, end %d; want 4 extra", got, end(p))
		}
	})
	t.Run("DescribeProducers tells who was here", func(t *testing.T) {
		p, id := topic("standing", nil), producer()
		log := New(two, Options{})
		ask := func(cursor batch.Producer) Standing {
			t.Helper()
			s, err := log.Standing(ctx, []Probe{{p, Cursor{Producer: cursor}}})
			if err != nil {
				t.Fatal(err)
			}
			return s[p.TopicPartition]
		}
		if got := ask(batch.Producer{ID: id}); got.Verdict != Forgotten {
			t.Errorf("before the first append: got %v", got)
		}
		send(one, p, batch.Producer{ID: id}, values(0, 10))
		for want, cursor := range map[Standing]batch.Producer{
			{Verdict: Agrees}:             {ID: id, Sequence: 10},
			{Verdict: Ahead, Records: 7}:  {ID: id, Sequence: 3},
			{Verdict: Behind, Records: 5}: {ID: id, Sequence: 15},
			{Verdict: Forgotten}:          {ID: id + 1},
		} {
			if got := ask(cursor); got != want {
				t.Errorf("%+v: got %+v, want %+v", cursor, got, want)
			}
		}
	})
	t.Run("a topic that was made again is not taken for the old one", func(t *testing.T) {
		p, id := topic("again", nil), producer()
		log := New(two, Options{})
		got, err := log.Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, values(0, 3), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := adm.DeleteTopic(ctx, "again"); err != nil {
			t.Fatal(err)
		}
		topic("again", nil)
		if _, err = log.Append(ctx, p, got.Cursor, values(3, 5), nil); !errors.Is(err, ErrRecreated) {
			t.Errorf("got %v, want ErrRecreated", err)
		}
	})
	t.Run("a topic that stamps its records is read back", func(t *testing.T) {
		stamp := "LogAppendTime"
		p, id := topic("stamped", map[string]*string{"message.timestamp.type": &stamp}), producer()
		log := New(two, Options{})
		got, err := log.Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, values(0, 3), nil)
		if err != nil || got.Done != 3 || got.Stamped != 3 || end(p) != 3 {
			t.Errorf("got %+v, %v; want three records stamped", got, err)
		}
		got, err = log.Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, values(0, 3), nil)
		if err != nil || got.Done != 3 || end(p) != 3 {
			t.Errorf("again: got %+v, %v, end %d; want nothing appended", got, err, end(p))
		}
	})
	t.Run("the record that is too large is named, and what comes before it is appended", func(t *testing.T) {
		limit := "20000"
		p, id := topic("large", map[string]*string{"max.message.bytes": &limit}), producer()
		rs := values(0, 100)
		rs[60].Value = make([]byte, 30_000)
		got, err := New(two, Options{}).Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, rs, nil)
		rejected, ok := errors.AsType[*RejectedError](err)
		if !ok || rejected.Record != 60 || !rejected.OfRecord() || rejected.Limits["max.message.bytes"] != limit || rejected.Size <= 30_000 || !errors.Is(err, kerr.MessageTooLarge) || got.Done != 60 || end(p) != 60 {
			t.Errorf("got %+v, %v, end %d; want record 60 rejected after 60", got, err, end(p))
		}
	})
	t.Run("the broker judges the compressed size", func(t *testing.T) {
		p, id := topic("zeros", nil), producer()
		compress, err := Compression("zstd")
		if err != nil {
			t.Fatal(err)
		}
		rs := values(0, 3)
		rs[1].Value = make([]byte, 3<<20) // three times max.message.bytes
		got, err := New(two, Options{Compress: compress}).Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, rs, nil)
		if err != nil || got.Done != 3 || end(p) != 3 {
			t.Errorf("got %+v, %v, end %d; want all three appended", got, err, end(p))
		}
	})
	t.Run("the record with a timestamp out of range is named", func(t *testing.T) {
		limit := "86400000"
		p, id := topic("old", map[string]*string{"message.timestamp.before.max.ms": &limit}), producer()
		rs := values(0, 10)
		rs[4].Timestamp = time.Now().Add(-48 * time.Hour).UnixMilli()
		got, err := New(two, Options{}).Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, rs, nil)
		rejected, ok := errors.AsType[*RejectedError](err)
		if !ok || rejected.Record != 4 || !rejected.OfRecord() || rejected.Limits["message.timestamp.before.max.ms"] != limit || !errors.Is(err, kerr.InvalidTimestamp) || got.Done != 4 || end(p) != 4 {
			t.Errorf("got %+v, %v, end %d; want record 4 rejected after 4", got, err, end(p))
		}
	})
	t.Run("a batch too large as a whole is split, and nothing is refused", func(t *testing.T) {
		limit := "20000"
		p, id := topic("split", map[string]*string{"max.message.bytes": &limit}), producer()
		rs := values(0, 100)
		for i := range rs {
			rs[i].Value = make([]byte, 5000)
		}
		got, err := New(two, Options{}).Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, rs, nil)
		if err != nil || got.Done != 100 || end(p) != 100 {
			t.Errorf("got %+v, %v, end %d; want all hundred appended", got, err, end(p))
		}
	})
	t.Run("the record without a key is named where the topic is compacted", func(t *testing.T) {
		compact := "compact"
		p, id := topic("compacted", map[string]*string{"cleanup.policy": &compact}), producer()
		rs := values(0, 10)
		for i := range rs {
			if i != 7 {
				rs[i].Key = []byte("k")
			}
		}
		got, err := New(two, Options{}).Append(ctx, p, Cursor{Producer: batch.Producer{ID: id}}, rs, nil)
		rejected, ok := errors.AsType[*RejectedError](err)
		if !ok || rejected.Record != 7 || !rejected.OfRecord() || !errors.Is(err, kerr.InvalidRecord) || rejected.Limits["cleanup.policy"] != compact || got.Done != 7 || end(p) != 7 {
			t.Errorf("got %+v, %v, end %d; want record 7 rejected after 7", got, err, end(p))
		}
	})
}
