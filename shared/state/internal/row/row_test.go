package row_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

var positions = []state.Position{
	{Version: 1},
	{
		Version: 7, First: 3, Upstream: 1<<53 + 1, Downstream: 1 << 53, ProducerID: 4000, Epoch: 12, Sequence: math.MaxInt32,
		Newest: 1_790_000_000_000, Copied: 99, SourceTopicID: state.TopicID{1}, TargetTopicID: state.TopicID{2}, Runs: []byte{1, 2, 3},
	},
	{Version: math.MaxInt64, First: math.MinInt64, Upstream: math.MaxInt64, Downstream: math.MinInt64, ProducerID: -1, Epoch: -1, Sequence: -1, Newest: -1, Copied: math.MinInt64},
}

// part reads a part from a block that has its topic ids.
func part(data []byte, p state.Position) (state.Position, error) {
	_, ids := row.Ref(p)
	return row.Part("orders-1", data, p.Version, p.Upstream, func(row.TopicRef) []byte { return ids })
}

func TestPositionsComeBack(t *testing.T) {
	for _, want := range positions {
		got, err := row.Position("orders-1", row.AppendPosition(nil, want))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Position: error %v (-want +got):\n%s", err, diff)
		}
		got, err = part(row.AppendPart(nil, want), want)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Part: error %v (-want +got):\n%s", err, diff)
		}
	}
}

func TestPositionWithoutItsTopicIDsIsRefused(t *testing.T) {
	p := positions[1]
	_, err := row.Part("orders-1", row.AppendPart(nil, p), p.Version, p.Upstream, func(row.TopicRef) []byte { return nil })
	if err == nil {
		t.Error("got no error")
	}
}

// TestRowsAreStable pins the bytes: rows outlive the program that wrote them.
func TestRowsAreStable(t *testing.T) {
	p := state.Position{
		Version: 2, First: 10, Upstream: 310, Downstream: 300, ProducerID: 4000, Epoch: 1, Sequence: 300,
		Newest: 1_700_000_000_000, Copied: 298, SourceTopicID: state.TopicID{1, 15: 2}, TargetTopicID: state.TopicID{3, 15: 4}, Runs: []byte("runs"),
	}
	at := time.UnixMilli(1_700_000_000_000)
	for _, test := range []struct{ name, got, want string }{
		{
			"position", string(row.AppendPosition(nil, p)),
			"\x01\x04\xec\x04\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04" +
				"\x14\x13\xc0\x3e\x02\xd8\x04\x80\xa0\xab\xfe\xf9\x62\x03runs",
		},
		{"part", string(row.AppendPart(nil, p)), "\x01\x8f\x82\x32\x7b\x14\x13\xc0\x3e\x02\xd8\x04\x80\xa0\xab\xfe\xf9\x62\x03runs"},
		{"chunk", string(row.AppendChunk(nil, state.RunChunk{First: 5, Next: 300, Data: []byte("data")})), "\x01\xd8\x04data"},
		{"checkpoint", string(row.AppendCheckpoint(nil, state.Checkpoint{Group: "g", Upstream: 3, Downstream: 2, Metadata: "meta", Written: at})), "\x01\x06\x04\x80\xa0\xab\xfe\xf9\x62meta"},
		{"flushed", string(row.AppendFlushed(nil, state.Flushed{Sync: 3, Position: state.NotFlushed})), "\x01\x06\x01"},
		{
			"flow", string(row.MarshalFlow(state.FlowRow{Version: 1, Flow: flow.Flow{Source: "A", Target: "B"}, ProducerID: 1<<53 + 1, Created: at})),
			`{"schema":1,"version":1,"source":"A","target":"B","sourceClusterId":"","targetClusterId":"","producerId":9007199254740993,"created":1700000000000}`,
		},
		{
			"event source", string(row.MarshalEventSource(state.EventSource{Version: 1, Topic: "t", Window: time.Second})),
			`{"schema":1,"version":1,"topic":"t","id":"","group":"","state":"","partialFailures":false,"batchSize":0,"window":1000,"partitions":0,"lastResult":"","updated":0}`,
		},
		{
			"hole", string(row.MarshalHole(state.Hole{TopicPartition: flow.TopicPartition{Topic: "t", Partition: 2}, From: 3, To: 4, Kind: "k", Records: -1})),
			`{"schema":1,"topic":"t","partition":2,"from":3,"to":4,"kind":"k","records":-1,"seen":0}`,
		},
		{
			"lease", string(row.MarshalLease(state.Lease{Name: "n", Owner: "o", Expires: at, Token: 3})),
			`{"schema":1,"name":"n","owner":"o","expires":1700000000000,"token":3}`,
		},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, test.got, test.want)
		}
	}
}

func TestNewerRowIsRefused(t *testing.T) {
	for name, decode := range decoders {
		for _, data := range []string{"\x02 whatever", `{"schema":2,"version":"another type"}`} {
			_, err := decode([]byte(data))
			newer, ok := errors.AsType[*state.SchemaError](err)
			if data[0] == '{' != json[name] {
				continue
			}
			if !ok || newer.Schema != 2 || newer.Known != row.Schema {
				t.Errorf("%s of %q: got error %v, want a SchemaError", name, data, err)
			}
		}
	}
}

// json names the kinds whose rows are text.
var json = map[string]bool{"flow": true, "event source": true, "hole": true, "lease": true}

// decoders return what they read, written again.
var decoders = map[string]func([]byte) ([]byte, error){
	"position": func(data []byte) ([]byte, error) {
		p, err := row.Position("key", data)
		return row.AppendPosition(nil, p), err
	},
	"part": func(data []byte) ([]byte, error) {
		ids := bytes.Repeat([]byte{7}, 32)
		p, err := row.Part("key", data, 1, 1<<40, func(row.TopicRef) []byte { return ids })
		return row.AppendPart(nil, p), err
	},
	"chunk": func(data []byte) ([]byte, error) {
		c, err := row.Chunk("key", 1, data)
		return row.AppendChunk(nil, c), err
	},
	"checkpoint": func(data []byte) ([]byte, error) {
		c, err := row.Checkpoint("key", data)
		return row.AppendCheckpoint(nil, c), err
	},
	"flushed": func(data []byte) ([]byte, error) {
		f, err := row.Flushed("key", data)
		return row.AppendFlushed(nil, f), err
	},
	"flow": func(data []byte) ([]byte, error) {
		f, err := row.Flow(data)
		return row.MarshalFlow(f), err
	},
	"event source": func(data []byte) ([]byte, error) {
		s, err := row.EventSource("key", data)
		return row.MarshalEventSource(s), err
	},
	"hole": func(data []byte) ([]byte, error) {
		h, err := row.Hole("key", data)
		return row.MarshalHole(h), err
	},
	"lease": func(data []byte) ([]byte, error) {
		l, err := row.Lease("key", data)
		return row.MarshalLease(l), err
	},
}

// FuzzRows decodes any bytes as every kind: no panic, and what is read means the
// same when it is written and read again.
func FuzzRows(f *testing.F) {
	for _, p := range positions {
		f.Add(row.AppendPosition(nil, p))
		f.Add(row.AppendPart(nil, p))
	}
	f.Add(row.AppendChunk(nil, state.RunChunk{Next: 1 << 60, Data: []byte("data")}))
	f.Add(row.AppendCheckpoint(nil, state.Checkpoint{Upstream: 1, Metadata: "m", Written: time.UnixMilli(-5)}))
	f.Add(row.AppendFlushed(nil, state.Flushed{Sync: -1, Position: math.MaxInt64}))
	f.Add(row.MarshalFlow(state.FlowRow{Version: 1, ProducerID: 1 << 60}))
	f.Add(row.MarshalEventSource(state.EventSource{Version: 1, Topic: "t", Window: time.Hour}))
	f.Add(row.MarshalHole(state.Hole{From: 1, To: 2}))
	f.Add(row.MarshalLease(state.Lease{Name: "n", Expires: time.UnixMilli(1)}))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, decode := range decoders {
			before := bytes.Clone(data)
			once, err := decode(data)
			if !bytes.Equal(before, data) {
				t.Fatalf("%s: the input was changed", name)
			}
			if err != nil {
				continue
			}
			twice, err := decode(once)
			if err != nil || !bytes.Equal(once, twice) {
				t.Errorf("%s: %q was read, written as %q, and then as %q with error %v", name, data, once, twice, err)
			}
		}
	})
}

func TestDecisions(t *testing.T) {
	tp := flow.TopicPartition{Topic: "orders", Partition: 1}
	next := state.Position{Version: 3, Upstream: 10}
	for _, test := range []struct {
		name   string
		stored state.Position
		next   state.Position
		rewind bool
		write  bool
		result any // what Result's error holds, nil for none
	}{
		{"the version that was read is replaced", state.Position{Version: 3, Upstream: 9}, next, false, true, nil},
		{"the same offset is no step back", state.Position{Version: 3, Upstream: 10}, next, false, true, nil},
		{"nothing stored is version 0", state.Position{}, state.Position{Upstream: -5}, false, true, nil},
		{"an equal write is stored", state.Position{Version: 4, Upstream: 10}, next, false, false, nil},
		{"an equal rewind is stored", state.Position{Version: 4, Upstream: 10}, next, true, false, nil},
		{"other content is a conflict", state.Position{Version: 4, Upstream: 11}, next, false, false, &state.ConflictError{}},
		{"a newer version is a conflict", state.Position{Version: 5, Upstream: 10}, next, true, false, &state.ConflictError{}},
		{"an older version is a conflict", state.Position{Version: 2, Upstream: 10}, next, false, false, &state.ConflictError{}},
		{"a step back is refused", state.Position{Version: 3, Upstream: 11}, next, false, false, &state.BackwardsError{}},
		{"a rewind steps back", state.Position{Version: 3, Upstream: 11}, next, true, true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := row.NewOutcome(test.rewind)
			if got := o.Decide(tp, test.stored, test.next); got != test.write {
				t.Errorf("got write %v, want %v", got, test.write)
			}
			stored, err := o.Result()
			switch want := test.result.(type) {
			case nil:
				if err != nil {
					t.Errorf("got error %v", err)
				}
				if !test.write && stored[tp].Version != test.next.Version+1 {
					t.Errorf("got stored %v", stored)
				}
			case *state.ConflictError:
				got, ok := errors.AsType[*state.ConflictError](err)
				if !ok || !reflect.DeepEqual(got.Current[tp], test.stored) {
					t.Errorf("got error %v, want a conflict with %v", err, test.stored)
				}
			case *state.BackwardsError:
				if _, ok := errors.AsType[*state.BackwardsError](err); !ok {
					t.Errorf("got error %v, want %T", err, want)
				}
			}
		})
	}
}
