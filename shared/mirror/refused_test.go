package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// set sets a config of a topic of B.
func (w *world) set(topic, name, value string) {
	w.t.Helper()
	_, err := kadm.NewClient(w.b).AlterTopicConfigs(w.t.Context(), []kadm.AlterConfig{{Name: name, Value: &value}}, topic)
	if err != nil {
		w.t.Fatal(err)
	}
}

// poisoned are the numbered records, one of which is larger than B takes.
func (w *world) poisoned(from, to, poison int64) []kafkaevent.Record {
	w.set("A.orders", "max.message.bytes", "20000")
	rs := numbered(from, to)
	rs[poison-from].Value = make([]byte, 30_000)
	return rs
}

// deadLetters makes the dead-letter topic on B.
func (w *world) deadLetters(configs map[string]*string) {
	w.t.Helper()
	if _, err := kadm.NewClient(w.b).CreateTopic(w.t.Context(), 1, 1, configs, w.settings.DeadLettersTopic); err != nil {
		w.t.Fatal(err)
	}
}

// tolerant returns a Mirror that has somewhere to put dead letters.
func (w *world) tolerant(reports ...*mirror.Report) *mirror.Mirror {
	return mirror.New(mirror.Options{
		Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}), Source: w.a, DeadLetters: w.b,
		Observe: func(r mirror.Report) {
			for _, to := range reports {
				*to = r
			}
		},
	})
}

func without(keys []string, key string) []string {
	var out []string
	for _, k := range keys {
		if k != key {
			out = append(out, k)
		}
	}
	return out
}

func TestARefusedRecordIsNamedWithBothLimitsAndWhatComesBeforeItIsThereOnce(t *testing.T) {
	w := newWorld(t)
	rs := w.poisoned(0, 100, 60)
	others := numbered(0, 5)
	for i := range others {
		others[i].Partition = 1
	}
	m := w.cold()
	for range 3 { // as the event source does
		_, err := handle(m, rs, others)
		if err == nil {
			t.Fatal("got no error")
		}
		for _, want := range []string{
			"copy orders-0 at offset 60: append to A.orders-0 on B", "MESSAGE_TOO_LARGE", "batch of 300",
			"max.message.bytes of A.orders is 20000", "max.request.size of the producer, which bounds what several records share, is 1048576",
			"set max.message.bytes of A.orders on B to 300",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if !errors.Is(err, kerr.MessageTooLarge) {
			t.Errorf("got %v, want MESSAGE_TOO_LARGE", err)
		}
	}
	w.wantKeys(0, 60)
	if got := len(w.records("A.orders", 1)); got != 5 {
		t.Errorf("got %d records of orders-1, want all five, once", got)
	}
	w.set("A.orders", "max.message.bytes", "40000")
	w.must(m, rs, others)
	w.wantKeys(0, 100)
}

func TestATopicThatIsRefusedAsAWholeStopsWithTheRightThatIsMissing(t *testing.T) {
	w := newWorld(t, "errors.tolerance = all")
	w.deadLetters(nil)
	w.fakeB.ControlKey(kmsg.Produce.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.fakeB.KeepControl()
		return refuseProduce(kreq.(*kmsg.ProduceRequest), 0, kerr.TopicAuthorizationFailed.Code), nil, true
	})
	_, err := handle(w.tolerant(), numbered(0, 3))
	if err == nil || !strings.Contains(err.Error(), "grant WRITE on topic A.orders of cluster B") {
		t.Errorf("got %v, want the right named", err)
	}
	if got := w.position().Upstream; got != 0 {
		t.Errorf("position is at %d, want 0: a topic that is refused makes no dead letters", got)
	}
}

func TestARefusalSaysWhatToSet(t *testing.T) {
	for code, want := range map[int16]string{
		kerr.UnsupportedForMessageFormat.Code: "set B.producer.compression.type = none",
		kerr.UnsupportedCompressionType.Code:  "set B.producer.compression.type = none",
		kerr.ClusterAuthorizationFailed.Code:  "grant IDEMPOTENT_WRITE on cluster B",
		kerr.InvalidTimestamp.Code:            "set message.timestamp.before.max.ms of A.orders on B to more",
		kerr.InvalidRecord.Code:               "append to A.orders-0 on B: broker answered INVALID_RECORD",
	} {
		w := newWorld(t)
		w.fakeB.ControlKey(kmsg.Produce.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.fakeB.KeepControl()
			return refuseProduce(kreq.(*kmsg.ProduceRequest), 0, code), nil, true
		})
		rs := numbered(0, 3)
		for i := range rs {
			rs[i].Timestamp = begun - 1000
		}
		if _, err := handle(w.cold(), rs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// refuseProduce answers every partition with a code.
func refuseProduce(req *kmsg.ProduceRequest, throttle int32, code int16) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	resp.ThrottleMillis = throttle
	for _, t := range req.Topics {
		answered := kmsg.NewProduceResponseTopic()
		answered.Topic, answered.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset, rp.LogAppendTime = p.Partition, code, -1, -1
			answered.Partitions = append(answered.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, answered)
	}
	return resp
}

func TestARefusedRecordBecomesADeadLetterWhereErrorsAreTolerated(t *testing.T) {
	w := newWorld(t, "errors.tolerance = all", "errors.deadletterqueue.topic.name = letters")
	w.deadLetters(nil)
	rs := w.poisoned(0, 100, 60)
	rs[60].Headers = []kafkaevent.Header{{Name: "own", Value: []byte("kept")}}
	var report mirror.Report
	m := w.tolerant(&report)
	w.must(m, rs)
	w.must(m, rs) // again: nothing more
	w.must(w.tolerant(), rs)
	if diff := cmp.Diff(without(keysOf(0, 100), "k60"), w.keys()); diff != "" {
		t.Errorf("keys on B (-want +got):\n%s", diff)
	}
	letters := w.records("letters", 0)
	if len(letters) != 1 {
		t.Fatalf("got %d dead letters, want 1", len(letters))
	}
	l := letters[0]
	if string(l.Key) != "k60" || len(l.Value) != 30_000 || l.Timestamp.UnixMilli() != begun+60 {
		t.Errorf("got key %s, %d bytes, time %v: want the record as it was", l.Key, len(l.Value), l.Timestamp)
	}
	got := map[string]string{}
	for _, h := range l.Headers {
		got[h.Key] = string(h.Value)
	}
	for name, want := range map[string]string{
		"own": "kept", "__connect.errors.topic": "orders", "__connect.errors.partition": "0", "__connect.errors.offset": "60",
		"__connect.errors.connector.name": "MirrorSourceConnector", "__connect.errors.task.id": "0",
		"__connect.errors.stage":                "KAFKA_PRODUCE",
		"__connect.errors.class.name":           "mirrorless/shared/mirror",
		"__connect.errors.exception.class.name": "org.apache.kafka.common.errors.RecordTooLargeException",
	} {
		if got[name] != want {
			t.Errorf("header %s: got %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"__connect.errors.exception.message", "__connect.errors.exception.stacktrace"} {
		if !strings.Contains(got[name], "max.message.bytes of A.orders is 20000") {
			t.Errorf("header %s: got %q, want the limits", name, got[name])
		}
	}
	holes, err := w.store.Holes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range holes {
		holes[i].Seen = time.Time{}
	}
	if diff := cmp.Diff([]state.Hole{{TopicPartition: orders0, From: 60, To: 61, Kind: mirror.DeadLetter, Records: 1}}, holes); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}
}

func TestDeadLettersAreReported(t *testing.T) {
	w := newWorld(t, "errors.tolerance = all", "errors.deadletterqueue.context.headers.enable = false")
	w.deadLetters(nil)
	rs := w.poisoned(0, 10, 4)
	rs[5].Value, rs[9].Value = rs[4].Value, rs[4].Value
	var report mirror.Report
	w.must(w.tolerant(&report), rs)
	if got := report.Partitions[0]; got.DeadLetters != 3 || got.Records != 7 || got.Holes != 0 {
		t.Errorf("got %+v, want 7 records and 3 dead letters", got)
	}
	for _, l := range w.records(w.settings.DeadLettersTopic, 0) {
		if len(l.Headers) > 0 {
			t.Errorf("got headers %v, want none", l.Headers)
		}
	}
	if got := w.position().Upstream; got != 10 {
		t.Errorf("position is at %d, want 10", got)
	}
}

func TestOneDeadLetterIsOneWarning(t *testing.T) {
	w := newWorld(t, "errors.tolerance = all")
	w.deadLetters(nil)
	var out bytes.Buffer
	m := mirror.New(mirror.Options{
		Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}), Source: w.a, DeadLetters: w.b,
		Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	w.must(m, w.poisoned(0, 10, 4))
	text := out.String()
	if strings.Count(text, "level=WARN") != 1 || strings.Count(text, "record is refused and went to the dead-letter topic") != 1 {
		t.Errorf("got\n%swant one warning, of the record that was refused", text)
	}
	holes, err := w.store.Holes(t.Context())
	if err != nil || len(holes) != 1 {
		t.Errorf("got %v, %v, want the ledger to have it all the same", holes, err)
	}
}

func TestADeadLetterThatCannotBeWrittenStopsThePartition(t *testing.T) {
	small := "20000"
	for name, test := range map[string]struct {
		prepare func(*world)
		want    string
	}{
		"the topic takes it neither": {func(w *world) { w.deadLetters(map[string]*string{"max.message.bytes": &small}) }, "write it to the dead-letter topic: produce mirrorless-dead-letters.A.internal-0: MESSAGE_TOO_LARGE"},
		"there is no topic":          {func(*world) {}, "the topics function creates it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "errors.tolerance = all")
			test.prepare(w)
			_, err := handle(w.tolerant(), w.poisoned(0, 10, 4))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "copy orders-0 at offset 4") {
				t.Errorf("got %v, want %q", err, test.want)
			}
			w.wantKeys(0, 4)
		})
	}
}

func TestACrashAfterADeadLetterDoublesItAndLosesNothing(t *testing.T) {
	w := newWorld(t, "errors.tolerance = all")
	w.deadLetters(nil)
	rs := w.poisoned(0, 10, 4)
	died := errors.New("died")
	w.broken.fail(died, nil)
	if _, err := handle(w.tolerant(), rs); !errors.Is(err, died) {
		t.Fatalf("got %v, want the store's failure", err)
	}
	if got := len(w.keys()); got != 4 {
		t.Errorf("got %d copies, want nothing behind the dead letter before its position is stored", got)
	}
	w.must(w.tolerant(), rs)
	if diff := cmp.Diff(without(keysOf(0, 10), "k4"), w.keys()); diff != "" {
		t.Errorf("keys on B (-want +got):\n%s", diff)
	}
	if got := len(w.records(w.settings.DeadLettersTopic, 0)); got != 2 {
		t.Errorf("got %d dead letters, want the two that the documentation speaks of", got)
	}
}

// TestTwoEnvironmentsMakeOneDeadLetter is of one whose position is old.
func TestTwoEnvironmentsMakeOneDeadLetter(t *testing.T) {
	w := newWorld(t, "errors.tolerance = all")
	w.deadLetters(nil)
	slept, awake := w.tolerant(), w.tolerant()
	w.must(slept, numbered(0, 4))
	rs := w.poisoned(4, 10, 4)
	w.must(awake, rs)
	w.must(slept, rs)
	if diff := cmp.Diff(without(keysOf(0, 10), "k4"), w.keys()); diff != "" {
		t.Errorf("keys on B (-want +got):\n%s", diff)
	}
	if got := len(w.records(w.settings.DeadLettersTopic, 0)); got != 1 {
		t.Errorf("got %d dead letters, want 1", got)
	}
}

// stamping is a target whose topics keep their own time.
type stamping struct{ mirror.Target }

func (s stamping) Append(ctx context.Context, p target.Partition, c target.Cursor, records []batch.Record, upstream target.Upstream) (target.Appended, error) {
	got, err := s.Target.Append(ctx, p, c, records, upstream)
	got.Stamped = got.Done
	return got, err
}

func TestATopicThatStampsItsRecordsIsNamedOnce(t *testing.T) {
	w := newWorld(t)
	var out bytes.Buffer
	m := mirror.New(mirror.Options{
		Settings: w.settings, Store: w.store, Target: stamping{target.New(w.b, target.Options{})}, Source: w.a,
		Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	w.must(m, numbered(0, 3))
	w.must(m, numbered(3, 6))
	const want = "target topic stamps its records with its own time"
	if got := strings.Count(out.String(), want); got != 1 || !strings.Contains(out.String(), "topic=A.orders") {
		t.Errorf("got %d lines %q, want 1 that names A.orders:\n%s", got, want, out.String())
	}
}
