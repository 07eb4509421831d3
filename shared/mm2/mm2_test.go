package mm2_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"mirrorless/shared/mm2"
)

// vector is a record that a running MirrorMaker 2 4.3.1 wrote.
type vector struct {
	Partition  int32
	Offset     int64
	Key, Value string
}

func vectors(t *testing.T, name string, check func(t *testing.T, key, value []byte, partition int32)) {
	t.Helper()
	var all []vector
	load(t, "vectors/"+name+".json", &all)
	if len(all) == 0 {
		t.Fatalf("%s: no vectors", name)
	}
	for _, v := range all {
		check(t, bytesOf(t, &v.Key), bytesOf(t, &v.Value), v.Partition)
	}
}

// same wants a record that was read to be written as it was.
func same(t *testing.T, r interface{ Key() []byte }, value, wantKey, wantValue []byte, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("key %x: %v", wantKey, err)
	} else if key := r.Key(); !bytes.Equal(key, wantKey) || !bytes.Equal(value, wantValue) {
		t.Errorf("%+v: got %x, %x, want %x, %x", r, key, value, wantKey, wantValue)
	}
}

func TestRecordsOfARunningMirrorMakerAreReadAndWrittenAlike(t *testing.T) {
	vectors(t, "offset-syncs", func(t *testing.T, key, value []byte, _ int32) {
		s, err := mm2.ParseOffsetSync(key, value)
		same(t, s, s.Value(), key, value, err)
	})
	vectors(t, "checkpoints", func(t *testing.T, key, value []byte, _ int32) {
		c, err := mm2.ParseCheckpoint(key, value)
		same(t, c, c.Value(), key, value, err)
		if c.Group != "app-group" || c.Topic != "A.mm2-source-topic" {
			t.Errorf("got %+v", c)
		}
	})
	vectors(t, "heartbeats", func(t *testing.T, key, value []byte, _ int32) {
		h, err := mm2.ParseHeartbeat(key, value)
		same(t, h, h.Value(), key, value, err)
		if h.Source != "B" || h.Target != "A" {
			t.Errorf("got %+v", h)
		}
	})
	positions := 0
	vectors(t, "connect-offsets", func(t *testing.T, key, value []byte, partition int32) {
		p, err := mm2.ParseSourcePosition(key, value)
		if errors.Is(err, mm2.ErrOtherConnector) {
			return
		}
		positions++
		same(t, p, p.Value(), key, value, err)
		if got := p.RecordPartition(mm2.OffsetsPartitions); got != partition {
			t.Errorf("%+v: got partition %d, want %d", p, got, partition)
		}
	})
	if positions != 12 {
		t.Errorf("got %d positions of a source connector, want 12", positions)
	}
}

// javaPartitions is toPositive(murmur2(key)) % 1000003 of kafka-clients 4.3.1 for
// the position of partition 7 of these topics of A.
var javaPartitions = map[string]int32{
	"":       319575,
	"a":      485288,
	"ab":     922999,
	"abc":    238672,
	"abcd":   861904,
	"orders": 878237,
	"é":      983873,
	"тема":   89032,
}

// The answer of org.apache.kafka.common.utils.Utils.murmur2 shows itself in the
// partition alone, so the keys here have every length modulo four.
func TestPositionKeysOfEveryLengthArePartitionedAsByKafka(t *testing.T) {
	for topic, want := range javaPartitions {
		p := mm2.SourcePosition{Connector: mm2.SourceConnector, Cluster: "A", Topic: topic, Partition: 7}
		if got := p.RecordPartition(1_000_003); got != want {
			t.Errorf("topic %q: got partition %d, want %d", topic, got, want)
		}
	}
}

func TestPositionKeyIsEscapedAsByJackson(t *testing.T) {
	p := mm2.SourcePosition{Connector: `my "own" <c&c>`, Cluster: "a\\b\t\x01\x1f/\u2028é", Topic: "t", Partition: 1, Offset: 5}
	want := `["my \"own\" <c&c>",{"cluster":"a\\b\t\u0001\u001F/` + "\u2028é" + `","partition":1,"topic":"t"}]`
	if got := string(p.Key()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := mm2.ParseSourcePosition(p.Key(), p.Value()); err != nil || got != p {
		t.Errorf("read back %+v, %v, want %+v", got, err, p)
	}
}

func TestPositionOfAnotherSpellingIsRead(t *testing.T) {
	// As somebody would post it to Connect's /offsets, or Connect itself with
	// another converter.
	p, err := mm2.ParseSourcePosition(
		[]byte(` [ "c" , { "topic":"t", "partition":2, "cluster":"A" } ] `), []byte(`{ "offset" : 7 }`))
	want := mm2.SourcePosition{Connector: "c", Cluster: "A", Topic: "t", Partition: 2, Offset: 7}
	if err != nil || p != want {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
}

func TestDeletedPositionSaysNothing(t *testing.T) {
	key := mm2.SourcePosition{Connector: "c"}.Key()
	for _, value := range [][]byte{nil, []byte(`{}`), []byte(`null`), []byte(`{"offset":null}`), []byte(`{"offset":-1}`)} {
		p, err := mm2.ParseSourcePosition(key, value)
		if err != nil || p.Offset != mm2.NoOffset {
			t.Errorf("value %s: got %+v, %v, want no offset", value, p, err)
		}
		if _, ok := p.Next(); ok {
			t.Errorf("value %s: there is a next offset", value)
		}
		if got := p.Value(); got != nil {
			t.Errorf("value %s: written as %s, want a tombstone", value, got)
		}
	}
	if _, ok := (mm2.SourcePosition{Offset: math.MaxInt64}).Next(); ok {
		t.Error("there is an offset after the last one")
	}
}

func TestPoisonedPositionsAreErrors(t *testing.T) {
	good := mm2.SourcePosition{Connector: "c", Cluster: "A", Topic: "t"}
	for _, c := range []struct {
		key, value string
		want       error
	}{
		{``, `{}`, mm2.ErrMalformed},
		{`{}`, `{}`, mm2.ErrMalformed},
		{`[]`, `{}`, mm2.ErrMalformed},
		{`["c"]`, `{}`, mm2.ErrMalformed},
		{`["c",{},1]`, `{}`, mm2.ErrMalformed},
		{`[1,{"cluster":"A","partition":0,"topic":"t"}]`, `{}`, mm2.ErrMalformed},
		{`["c",{"cluster":1,"partition":0,"topic":"t"}]`, `{}`, mm2.ErrMalformed},
		{`["c",{"cluster":"A","partition":"0","topic":"t"}]`, `{}`, mm2.ErrMalformed},
		{`["c",{"cluster":"A","partition":null,"topic":"t"}]`, `{}`, mm2.ErrMalformed},
		{`["c",{"cluster":"A","partition":2147483648,"topic":"t"}]`, `{}`, mm2.ErrMalformed},
		{`["c",{"cluster":"A","partition":-1,"topic":"t"}]`, `{}`, mm2.ErrNegativePartition},
		{`["c",{"cluster":"A","partition":0,"topic":"t","group":"g"}]`, `{}`, mm2.ErrOtherConnector},
		{`["c",{"cluster":"A","partition":0}]`, `{}`, mm2.ErrOtherConnector},
		{`["c",{}]`, `{}`, mm2.ErrOtherConnector},
		{`["c",null]`, `{}`, mm2.ErrOtherConnector},
		{string(good.Key()), ``, mm2.ErrMalformed},
		{string(good.Key()), `5`, mm2.ErrMalformed},
		{string(good.Key()), `{"offset":"5"}`, mm2.ErrMalformed},
		{string(good.Key()), `{"offset":5.5}`, mm2.ErrMalformed},
		{string(good.Key()), `{"offset":-2}`, mm2.ErrMalformed},
		{string(good.Key()), `{"offset":9223372036854775808}`, mm2.ErrMalformed},
	} {
		p, err := mm2.ParseSourcePosition([]byte(c.key), []byte(c.value))
		if _, ok := errors.AsType[*mm2.ParseError](err); !ok || !errors.Is(err, c.want) || p != (mm2.SourcePosition{}) {
			t.Errorf("key %s, value %s: got %+v, %v, want %v", c.key, c.value, p, err, c.want)
		}
	}
	if _, err := mm2.ParseSourcePosition(nil, []byte("{}")); !errors.Is(err, mm2.ErrNull) {
		t.Errorf("null key: got %v, want %v", err, mm2.ErrNull)
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	sync := mm2.OffsetSync{Topic: "orders", Partition: 3, Upstream: 41, Downstream: 40}
	check := mm2.Checkpoint{Group: "g", Topic: "A.orders", Partition: 3, Upstream: 41, Downstream: 40, Metadata: "m"}
	beat := mm2.Heartbeat{Source: "A", Target: "B", Timestamp: 5}
	for _, c := range []struct {
		name       string
		key, value []byte
		parse      func(key, value []byte) error
	}{
		{"offset sync", sync.Key(), sync.Value(), func(k, v []byte) error { _, err := mm2.ParseOffsetSync(k, v); return err }},
		{"checkpoint", check.Key(), check.Value(), func(k, v []byte) error { _, err := mm2.ParseCheckpoint(k, v); return err }},
		{"heartbeat", beat.Key(), beat.Value(), func(k, v []byte) error { _, err := mm2.ParseHeartbeat(k, v); return err }},
	} {
		if err := c.parse(c.key, c.value); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for n := range c.key {
			wantError(t, c.parse(c.key[:n], c.value), c.name, "key", mm2.ErrTruncated)
		}
		for n := range c.value {
			wantError(t, c.parse(c.key, c.value[:n]), c.name, "value", mm2.ErrTruncated)
		}
		wantError(t, c.parse(nil, c.value), c.name, "key", mm2.ErrNull)
		wantError(t, c.parse(c.key, nil), c.name, "value", mm2.ErrNull)
		longer := append(bytes.Clone(c.key), 0, 1, 2)
		if err := c.parse(longer, append(bytes.Clone(c.value), 9)); err != nil {
			t.Errorf("%s with trailing bytes: %v", c.name, err)
		}
	}
}

func wantError(t *testing.T, err error, record, part string, want error) {
	t.Helper()
	pe, ok := errors.AsType[*mm2.ParseError](err)
	if !ok || !errors.Is(err, want) || pe.Part != part || pe.Record != record {
		t.Errorf("%s %s: got error %v, want %v", record, part, err, want)
	}
}

func TestImpossibleFieldsAreErrors(t *testing.T) {
	for digits, want := range map[string]error{
		"ffff00000000":   mm2.ErrTruncated, // a string of length −1
		"7fff6100000000": mm2.ErrTruncated,
		"000161ffffffff": mm2.ErrNegativePartition,
	} {
		key, _ := hex.DecodeString(digits)
		_, err := mm2.ParseOffsetSync(key, make([]byte, 16))
		wantError(t, err, "offset sync", "key", want)
	}
}

func TestStringsTooLongForKafkaAreCut(t *testing.T) {
	c := mm2.Checkpoint{Group: "g", Topic: "t", Metadata: strings.Repeat("m", 40_000)}
	got, err := mm2.ParseCheckpoint(c.Key(), c.Value())
	if err != nil || len(got.Metadata) != math.MaxInt16 {
		t.Errorf("got %d bytes, %v, want %d", len(got.Metadata), err, math.MaxInt16)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(mm2.OffsetSync{Topic: "orders", Partition: 3}.Key(), mm2.OffsetSync{}.Value())
	f.Add(mm2.Checkpoint{Group: "g"}.Key(), mm2.Checkpoint{Metadata: "m"}.Value())
	f.Add(mm2.Heartbeat{Source: "A"}.Key(), mm2.Heartbeat{}.Value())
	f.Add(mm2.SourcePosition{Connector: "c"}.Key(), mm2.SourcePosition{}.Value())
	f.Add([]byte(`["c",{"cluster":"A","partition":0,"topic":"\ud800"}]`), []byte(`{"offset":1e3}`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		// What can be read can be written, and reads the same again.
		if s, err := mm2.ParseOffsetSync(key, value); err == nil {
			if back, err := mm2.ParseOffsetSync(s.Key(), s.Value()); err != nil || back != s {
				t.Errorf("got %+v, %v, want %+v", back, err, s)
			}
		}
		if c, err := mm2.ParseCheckpoint(key, value); err == nil {
			if back, err := mm2.ParseCheckpoint(c.Key(), c.Value()); err != nil || back != c {
				t.Errorf("got %+v, %v, want %+v", back, err, c)
			}
		}
		if h, err := mm2.ParseHeartbeat(key, value); err == nil {
			if back, err := mm2.ParseHeartbeat(h.Key(), h.Value()); err != nil || back != h {
				t.Errorf("got %+v, %v, want %+v", back, err, h)
			}
		}
		if p, err := mm2.ParseSourcePosition(key, value); err == nil {
			if back, err := mm2.ParseSourcePosition(p.Key(), p.Value()); err != nil || back != p {
				t.Errorf("got %+v, %v, want %+v", back, err, p)
			}
			if n := p.RecordPartition(25); n < 0 || n >= 25 {
				t.Errorf("got partition %d of 25", n)
			}
		} else if _, ok := errors.AsType[*mm2.ParseError](err); !ok {
			t.Errorf("got error %v, want a ParseError", err)
		}
	})
}
