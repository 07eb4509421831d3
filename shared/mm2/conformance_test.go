package mm2_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
)

// row is a question that was put to MirrorMaker 2 4.3.1, and its answer.
type row[In, Out any] struct {
	ID  string `json:"id"`
	In  In     `json:"in"`
	Out Out    `json:"out"`
}

func load(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
}

func suite[In, Out any](t *testing.T, id string) []row[In, Out] {
	t.Helper()
	var s struct{ Rows []row[In, Out] }
	load(t, id+".json", &s)
	if len(s.Rows) == 0 {
		t.Fatalf("suite %s has no rows", id)
	}
	return s.Rows
}

// bytesOf decodes hexadecimal digits; nil stays nil.
func bytesOf(t *testing.T, digits *string) []byte {
	t.Helper()
	if digits == nil {
		return nil
	}
	b, err := hex.DecodeString(*digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// encoded is how the serde suites show a record.
type encoded struct {
	Key    string `json:"key_hex"`
	Value  string `json:"value_hex"`
	Result struct{ Error string }
}

func encode(r interface{ Key() []byte }, value []byte) encoded {
	return encoded{Key: hex.EncodeToString(r.Key()), Value: hex.EncodeToString(value)}
}

func TestOffsetSyncIsWrittenAsByKafka(t *testing.T) {
	type in struct {
		Topic      string
		Partition  int32
		Upstream   int64 `json:"upstreamOffset"`
		Downstream int64 `json:"downstreamOffset"`
	}
	for _, r := range suite[in, encoded](t, "serde.offset_sync") {
		s := mm2.OffsetSync(r.In)
		if diff := cmp.Diff(r.Out, encode(s, s.Value())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.ID, diff)
		}
		if got, err := mm2.ParseOffsetSync(s.Key(), s.Value()); err != nil || got != s {
			t.Errorf("%s: read back %+v, %v, want %+v", r.ID, got, err, s)
		}
	}
}

func TestCheckpointIsWrittenAsByKafka(t *testing.T) {
	type in struct {
		Group      string
		Topic      string
		Partition  int32
		Upstream   int64   `json:"upstreamOffset"`
		Downstream int64   `json:"downstreamOffset"`
		Metadata   *string // null in one row
	}
	for _, r := range suite[in, encoded](t, "serde.checkpoint") {
		c := mm2.Checkpoint{
			Group: r.In.Group, Topic: r.In.Topic, Partition: r.In.Partition,
			Upstream: r.In.Upstream, Downstream: r.In.Downstream,
		}
		if r.In.Metadata == nil {
			// Kafka cannot write null metadata. Here it cannot even be said: what a
			// group committed without metadata is "", as in MirrorCheckpointTask.
			if r.Out.Result.Error == "" {
				t.Errorf("%s: Kafka wrote null metadata", r.ID)
			}
			continue
		}
		c.Metadata = *r.In.Metadata
		if diff := cmp.Diff(r.Out, encode(c, c.Value())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.ID, diff)
		}
		if got, err := mm2.ParseCheckpoint(c.Key(), c.Value()); err != nil || got != c {
			t.Errorf("%s: read back %+v, %v, want %+v", r.ID, got, err, c)
		}
	}
}

func TestHeartbeatIsWrittenAsByKafka(t *testing.T) {
	type in struct {
		Source    string `json:"sourceClusterAlias"`
		Target    string `json:"targetClusterAlias"`
		Timestamp int64
	}
	for _, r := range suite[in, encoded](t, "serde.heartbeat") {
		h := mm2.Heartbeat(r.In)
		if diff := cmp.Diff(r.Out, encode(h, h.Value())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.ID, diff)
		}
		if got, err := mm2.ParseHeartbeat(h.Key(), h.Value()); err != nil || got != h {
			t.Errorf("%s: read back %+v, %v, want %+v", r.ID, got, err, h)
		}
	}
}

func TestOddRecordsAreReadAsByKafka(t *testing.T) {
	type in struct {
		Type  string
		Case  string
		Key   *string `json:"key_hex"`
		Value *string `json:"value_hex"`
	}
	type out struct {
		Error          string `json:"error"`
		Group          string `json:"consumerGroupId"`
		TopicPartition string `json:"topicPartition"`
		Upstream       int64  `json:"upstreamOffset"`
		Downstream     int64  `json:"downstreamOffset"`
		Metadata       string `json:"metadata"`
	}
	// What Kafka throws, and what we say instead.
	errs := map[string]error{"SchemaException": mm2.ErrTruncated, "NullPointerException": mm2.ErrNull}
	for _, r := range suite[in, out](t, "serde.decode_edge") {
		key, value := bytesOf(t, r.In.Key), bytesOf(t, r.In.Value)
		var got out
		var err error
		switch r.In.Type {
		case "checkpoint":
			var c mm2.Checkpoint
			c, err = mm2.ParseCheckpoint(key, value)
			tp := flow.TopicPartition{Topic: c.Topic, Partition: c.Partition}
			got = out{Group: c.Group, TopicPartition: tp.String(), Upstream: c.Upstream, Downstream: c.Downstream, Metadata: c.Metadata}
		case "offset_sync":
			var s mm2.OffsetSync
			s, err = mm2.ParseOffsetSync(key, value)
			tp := flow.TopicPartition{Topic: s.Topic, Partition: s.Partition}
			got = out{TopicPartition: tp.String(), Upstream: s.Upstream, Downstream: s.Downstream}
		default:
			t.Fatalf("unknown type %q", r.In.Type)
		}
		if r.Out.Error != "" {
			if want := errs[r.Out.Error]; want == nil || !errors.Is(err, want) {
				t.Errorf("%s: %s: got error %v, want %v", r.ID, r.In.Case, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", r.ID, r.In.Case, err)
		} else if diff := cmp.Diff(r.Out, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", r.ID, r.In.Case, diff)
		}
	}
}

func TestPositionIsWrittenAsByConnect(t *testing.T) {
	type in struct {
		Connector string
		Topic     string
		Partition int32
		Source    string `json:"source_alias"`
		Last      *int64 `json:"last_replicated_upstream_offset"`
	}
	type out struct {
		Key       string `json:"key_utf8"`
		Value     string `json:"value_utf8"`
		Partition int32  `json:"offsets_topic_partition_of_25"`
	}
	for _, r := range suite[in, out](t, "connect.source_offset_record") {
		if r.In.Last == nil {
			// The checkpoint and heartbeat connectors leave entries that nobody reads;
			// we leave none, and pass over theirs.
			if _, err := mm2.ParseSourcePosition([]byte(r.Out.Key), []byte(r.Out.Value)); !errors.Is(err, mm2.ErrOtherConnector) {
				t.Errorf("%s: got error %v, want %v", r.ID, err, mm2.ErrOtherConnector)
			}
			continue
		}
		p := mm2.SourcePosition{
			Connector: r.In.Connector, Cluster: r.In.Source, Topic: r.In.Topic, Partition: r.In.Partition, Offset: *r.In.Last,
		}
		got := out{Key: string(p.Key()), Value: string(p.Value()), Partition: p.RecordPartition(mm2.OffsetsPartitions)}
		if diff := cmp.Diff(r.Out, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.ID, diff)
		}
		if back, err := mm2.ParseSourcePosition(p.Key(), p.Value()); err != nil || back != p {
			t.Errorf("%s: read back %+v, %v, want %+v", r.ID, back, err, p)
		}
	}
}

func TestPositionIsResumedAsByMirrorMaker(t *testing.T) {
	type in struct{ Stored *string }
	type out struct {
		Unwrapped int64
		Action    string
	}
	for _, r := range suite[in, out](t, "connect.unwrap_offset") {
		var value []byte
		if r.In.Stored != nil { // the suite shows the map, not its JSON
			value = []byte(strings.Replace(*r.In.Stored, "offset", `"offset"`, 1))
		}
		p, err := mm2.ParseSourcePosition(mm2.SourcePosition{Connector: "c"}.Key(), value)
		if err != nil || p.Offset != r.Out.Unwrapped {
			t.Errorf("%s: got offset %d, %v, want %d", r.ID, p.Offset, err, r.Out.Unwrapped)
		}
		next, ok := p.Next()
		switch {
		case !ok && !strings.HasPrefix(r.Out.Action, "no seek"),
			ok && (next != p.Offset+1 || r.Out.Action != "seek 6"):
			t.Errorf("%s: got next %d, %v, want %s", r.ID, next, ok, r.Out.Action)
		}
	}
}

func TestTimestampIsKeptAsByMirrorMaker(t *testing.T) {
	type in struct {
		Source *int64 `json:"source_timestamp"`
	}
	type out struct {
		Producer json.RawMessage `json:"producer_timestamp"`
	}
	const now = 1_800_000_000_000
	for _, r := range suite[in, out](t, "source.timestamp") {
		source := int64(mm2.NoTimestamp) // null is what Connect makes of it
		if r.In.Source != nil {
			source = *r.In.Source
		}
		got, err := mm2.RecordTimestamp(source, now)
		switch answer := string(r.Out.Producer); {
		case strings.Contains(answer, "error"):
			if _, ok := errors.AsType[*mm2.TimestampError](err); !ok {
				t.Errorf("%s: timestamp %d: got %d, %v, want a TimestampError", r.ID, source, got, err)
			}
		case answer == "null" || answer == "":
			if got != now || err != nil {
				t.Errorf("%s: timestamp %d: got %d, %v, want now", r.ID, source, got, err)
			}
		default:
			if got != source || err != nil {
				t.Errorf("%s: timestamp %d: got %d, %v", r.ID, source, got, err)
			}
		}
	}
}

func defaultPolicy(t *testing.T, o flow.PolicyOptions) flow.Policy {
	t.Helper()
	p, err := flow.NewPolicy(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInternalTopicsAreMadeAsByKafka(t *testing.T) {
	type in struct{ Topic, Cluster string }
	type out struct {
		Partitions int32
		Cleanup    string `json:"cleanup.policy"`
		Key        string `json:"replication_factor_key"`
		Default    int    `json:"default_rf"`
	}
	f := flow.Flow{Source: "<source>", Target: "<target>"}
	p := defaultPolicy(t, flow.PolicyOptions{})
	byName := map[string]mm2.InternalTopic{}
	for _, topic := range []mm2.InternalTopic{
		mm2.OffsetSyncsTopic(f, p, ""), mm2.CheckpointsTopic(f, p), mm2.HeartbeatsTopic(f, p),
		mm2.OffsetsTopic(f), mm2.ConfigsTopic(f), mm2.StatusTopic(f),
	} {
		byName[topic.Name] = topic
	}
	rows := suite[in, out](t, "topic.internal_spec")
	if len(rows) != len(byName) {
		t.Errorf("got %d topics, want %d", len(byName), len(rows))
	}
	for _, r := range rows {
		topic, ok := byName[r.In.Topic]
		if !ok {
			t.Errorf("%s: no topic %s", r.ID, r.In.Topic)
			continue
		}
		got := out{topic.Partitions, topic.Configs["cleanup.policy"], topic.ReplicationFactorKey, mm2.DefaultReplicationFactor}
		if got != r.Out || len(topic.Configs) != 1 {
			t.Errorf("%s: got %+v with configs %v, want %+v", r.ID, got, topic.Configs, r.Out)
		}
		cluster, _, _ := strings.Cut(r.In.Cluster, " ")
		if topic.Cluster != "<"+cluster+">" {
			t.Errorf("%s: %s lives in %s, want %s", r.ID, topic.Name, topic.Cluster, r.In.Cluster)
		}
	}
}

func TestInternalTopicsLiveWhereKafkaKeepsThem(t *testing.T) {
	type in struct {
		Location  mm2.Location `json:"offset-syncs.topic.location"`
		Separator *string
		Source    string
		Target    string
	}
	type out struct {
		Syncs         string `json:"offset_syncs_topic"`
		SyncsIn       string `json:"lives_in"`
		Checkpoints   string `json:"checkpoints_topic"`
		CheckpointsIn string `json:"checkpoints_live_in"`
	}
	for _, r := range suite[in, out](t, "topic.locations") {
		o := flow.PolicyOptions{InternalSeparator: true}
		if r.In.Separator != nil {
			o.Separator, o.SeparatorSet = *r.In.Separator, true
		}
		f, p := flow.Flow{Source: r.In.Source, Target: r.In.Target}, defaultPolicy(t, o)
		syncs, checkpoints := mm2.OffsetSyncsTopic(f, p, r.In.Location), mm2.CheckpointsTopic(f, p)
		got := out{syncs.Name, syncs.Cluster, checkpoints.Name, checkpoints.Cluster}
		if diff := cmp.Diff(r.Out, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.ID, diff)
		}
	}
}
