package stories_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/shared/cluster"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/target"
)

// half is a flow of which only the target is there: events are made up, and what
// happens to them on B is looked at.
type half struct {
	t        testing.TB
	settings config.Flow
	admin    *kadm.Client
	store    state.Store
}

func newHalf(t testing.TB, b *kafka.Cluster, store func(flow.Flow) state.Store, lines ...string) *half {
	t.Helper()
	text := strings.Join(append([]string{
		"clusters = A, B", "A.bootstrap.servers = localhost:1", "B.bootstrap.servers = " + b.Bootstrap(), "A->B.enabled = true",
	}, lines...), "\n")
	c := config.Parse("mm2.properties", []byte(text), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	h := &half{t: t, admin: kadm.NewClient(connect(t, b))}
	h.settings, _ = c.Flow(flow.Flow{Source: "A", Target: "B"})
	h.store = store(h.settings.Flow)
	return h
}

// inFile is a store in a file of the test's.
func inFile(t testing.TB) func(flow.Flow) state.Store {
	return func(f flow.Flow) state.Store {
		file, err := embedded.Open(filepath.Join(t.TempDir(), "state.db"), embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		store, err := file.Store(f)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
}

// prepare does what topics does for a topic of the source.
func (h *half) prepare(ctx context.Context, topic string, partitions int32, replicas int16, configs map[string]string) {
	h.t.Helper()
	all := map[string]*string{}
	for name, value := range configs {
		all[name] = &value
	}
	made, err := h.admin.CreateTopic(ctx, partitions, replicas, all, "A."+topic)
	if err != nil {
		h.t.Fatal(err)
	}
	client := h.client()
	id, err := target.New(client, target.Options{}).NewProducer(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	first := map[flow.TopicPartition]state.Position{}
	for p := range partitions {
		first[flow.TopicPartition{Topic: topic, Partition: p}] = state.Position{ProducerID: id, TargetTopicID: state.TopicID(made.ID)}
	}
	if _, err := h.store.Advance(ctx, first); err != nil {
		h.t.Fatal(err)
	}
	eventually(ctx, h.t, "leaders of A."+topic, func() bool {
		listed, err := h.admin.ListTopics(ctx, "A."+topic)
		return err == nil && len(listed["A."+topic].Partitions) == int(partitions) &&
			!slices.ContainsFunc(slices.Collect(maps.Values(listed["A."+topic].Partitions)), func(p kadm.PartitionDetail) bool { return p.Leader < 0 })
	})
}

// client is what a function has of the target.
func (h *half) client() *kgo.Client {
	h.t.Helper()
	c, err := cluster.Dial("B", h.settings.TargetClient(config.Producer))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}

// function is a mirror in an environment of its own.
func (h *half) function() *mirror.Mirror {
	h.t.Helper()
	c := h.client()
	var to mirror.Target = target.New(c, target.Options{})
	if h.settings.ExactlyOnce {
		to = target.NewTransactions(c, target.TransactionOptions{
			Flow: h.settings.Flow, Connector: h.settings.Connector, Cluster: "A", Positions: h.settings.PositionsTopic,
		})
	}
	return mirror.New(mirror.Options{Settings: h.settings, Store: h.store, Target: to, DeadLetters: c})
}

// invoke hands a function records, in so much time.
func invoke(ctx context.Context, m *mirror.Mirror, limit time.Duration, rs ...[]kafkaevent.Record) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := m.Handle(ctx, payloadOf(rs...))
	return err
}

func payloadOf(rs ...[]kafkaevent.Record) []byte {
	return kafkaevent.Encode(kafkaevent.Event{Source: kafkaevent.SourceSelfManaged, Records: slices.Concat(rs...)})
}

// sized are records of a topic with values of a size.
func sized(topic string, partition int32, n, size int) []kafkaevent.Record {
	rs := make([]kafkaevent.Record, n)
	for i := range rs {
		value := []byte(strings.Repeat("x", size))
		copy(value, fmt.Sprintf("%d ", i))
		rs[i] = kafkaevent.Record{
			Topic: topic, Partition: partition, Offset: int64(i), Timestamp: time.Now().UnixMilli(),
			TimestampType: kafkaevent.CreateTime, Key: fmt.Appendf(nil, "%d", i), Value: value,
		}
	}
	return rs
}

// wantKeys wants the first partition of a topic's copies to hold the records, each
// once and in order, but for those left out.
func (h *half) wantKeys(ctx context.Context, b *kafka.Cluster, topic string, n int, left ...int) {
	h.t.Helper()
	var want []string
	for i := range n {
		if !slices.Contains(left, i) {
			want = append(want, fmt.Sprint(i))
		}
	}
	var got []string
	for _, r := range all(ctx, h.t, b, "A."+topic) {
		got = append(got, string(r.Key))
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("A.%s has keys %v, want %v", topic, got, want)
	}
}

// position is the next upstream offset of a topic's first partition, as stored.
func (h *half) position(ctx context.Context, topic string) int64 {
	h.t.Helper()
	tp := flow.TopicPartition{Topic: topic}
	positions, err := h.store.Positions(ctx, []flow.TopicPartition{tp})
	if err != nil {
		h.t.Fatal(err)
	}
	return positions[tp].Upstream
}

// all are the records of a topic's first partition that a reader of committed
// records gets.
func all(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string) []*kgo.Record {
	t.Helper()
	client := connect(t, c, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := listed.Lookup(topic, 0)
	var out []*kgo.Record
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
		})
	}
	return out
}

// TestATargetUnderPressureTakesEachRecordOnce is of what brokers refuse for good or
// for now: rights, sizes, quotas, replicas that are not in sync.
func TestATargetUnderPressureTakesEachRecordOnce(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	b := kafkatest.Start(t, kafka.Options{Brokers: 2, Properties: map[string]string{
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "true",
	}})
	h := newHalf(t, b, inFile(t), "B.producer.client.id = mirror")

	t.Run("a right that is missing is named, and other topics are copied", func(t *testing.T) {
		h.prepare(ctx, "denied", 1, 1, nil)
		h.prepare(ctx, "allowed", 1, 1, nil)
		acl := kadm.NewACLs().Topics("A.denied").Deny("User:ANONYMOUS").DenyHosts("*").Operations(kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral)
		more := kadm.NewACLs().Topics("A.denied").Allow("User:ANONYMOUS").AllowHosts("*").Operations(kadm.OpRead, kadm.OpDescribe).ResourcePatternType(kadm.ACLPatternLiteral)
		for _, rule := range []*kadm.ACLBuilder{acl, more} {
			if _, err := h.admin.CreateACLs(ctx, rule); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		eventually(ctx, t, "the denial", func() bool {
			err = invoke(ctx, h.function(), 20*time.Second, sized("denied", 0, 1, 10), sized("allowed", 0, 5, 10))
			return err != nil
		})
		if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "grant WRITE on topic A.denied of cluster B") {
			t.Errorf("got %v, want the right named", err)
		}
		h.wantKeys(ctx, b, "allowed", 5)
	})

	for name, mode := range map[string]string{"appends": "disabled", "transactions": "enabled"} {
		t.Run("refused records become dead letters: "+name, func(t *testing.T) {
			h := newHalf(t, b, inFile(t), "B.exactly.once.source.support = "+mode, "errors.tolerance = all",
				"errors.deadletterqueue.topic.name = letters-"+name, "offset.storage.topic = positions-"+name)
			for _, topic := range []string{"letters-" + name, "positions-" + name} {
				if _, err := h.admin.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
					t.Fatal(err)
				}
			}
			poison := "poison-" + name
			h.prepare(ctx, poison, 1, 1, map[string]string{
				"max.message.bytes": "20000", "message.timestamp.before.max.ms": "86400000", "cleanup.policy": "compact",
			})
			rs := sized(poison, 0, 100, 10)
			rs[60].Value = make([]byte, 30_000)
			rs[70].Timestamp = time.Now().Add(-48 * time.Hour).UnixMilli()
			rs[80].Key = nil
			for range 2 {
				if err := invoke(ctx, h.function(), 30*time.Second, rs); err != nil {
					t.Fatal(err)
				}
			}
			h.wantKeys(ctx, b, poison, 100, 60, 70, 80)
			var got []string
			for _, r := range all(ctx, t, b, "letters-"+name) {
				headers := map[string]string{}
				for _, header := range r.Headers {
					headers[header.Key] = string(header.Value)
				}
				got = append(got, headers["__connect.errors.offset"]+" "+headers["__connect.errors.exception.class.name"])
			}
			want := []string{
				"60 org.apache.kafka.common.errors.RecordTooLargeException",
				"70 org.apache.kafka.common.errors.InvalidTimestampException",
				"80 org.apache.kafka.common.InvalidRecordException",
			}
			if !slices.Equal(got, want) {
				t.Errorf("got dead letters %q, want %q", got, want)
			}
		})
	}

	t.Run("a quota slows down, and what is appended stays", func(t *testing.T) {
		h.prepare(ctx, "quota", 1, 1, nil)
		name := h.settings.TargetClient(config.Producer)["client.id"]
		quota := func(op kadm.AlterClientQuotaOp) {
			t.Helper()
			if _, err := h.admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
				Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}}, Ops: []kadm.AlterClientQuotaOp{op},
			}}); err != nil {
				t.Fatal(err)
			}
		}
		quota(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 20_000})
		rs := sized("quota", 0, 400, 10_000)
		begun := time.Now()
		var done int64
		var err error
		eventually(ctx, t, "the quota", func() bool { // brokers learn of it in their own time
			err = invoke(ctx, h.function(), 4*time.Second, rs)
			done = h.position(ctx, "quota")
			return err != nil || done == int64(len(rs))
		})
		t.Logf("%d of %d records within %v: %v", done, len(rs), time.Since(begun).Round(time.Millisecond), err)
		if err == nil || !strings.Contains(err.Error(), "the broker throttles this client for") {
			t.Errorf("got %v, want the quota named", err)
		}
		if done == 0 || done == int64(len(rs)) {
			t.Errorf("got %d records, want some kept", done)
		}
		quota(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
		if err := invoke(ctx, h.function(), 30*time.Second, rs); err != nil {
			t.Fatal(err)
		}
		h.wantKeys(ctx, b, "quota", len(rs))
	})

	t.Run("too few replicas in sync are waited for", func(t *testing.T) {
		h.prepare(ctx, "guarded", 1, 2, map[string]string{"min.insync.replicas": "2"})
		h.prepare(ctx, "plain", 1, 2, nil)
		warm := h.function()
		first := sized("guarded", 0, 20, 10)
		if err := invoke(ctx, warm, 30*time.Second, first[:10], sized("plain", 0, 10, 10)); err != nil {
			t.Fatal(err)
		}
		if err := b.Kill(2); err != nil {
			t.Fatal(err)
		}
		const limit = 15 * time.Second
		begun := time.Now()
		err := invoke(ctx, warm, limit, first[10:], sized("plain", 0, 20, 10)[10:])
		took := time.Since(begun)
		t.Logf("after %v: %v", took.Round(time.Millisecond), err)
		if err == nil || !strings.Contains(err.Error(), "copy guarded-0 at offset 10") || !strings.Contains(err.Error(), "NOT_ENOUGH_REPLICAS") || strings.Contains(err.Error(), "plain") {
			t.Errorf("got %v, want guarded-0 alone, which waits for replicas", err)
		}
		if took >= limit+time.Second || took < limit-3*time.Second {
			t.Errorf("gave up after %v of %v", took, limit)
		}
		if got := h.position(ctx, "plain"); got != 20 {
			t.Errorf("position of plain-0 is %d, want 20", got)
		}
		if err := b.Restart(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*mirror.Mirror{warm, h.function()} {
			if err := invoke(ctx, m, 30*time.Second, first); err != nil {
				t.Errorf("after the restart: %v", err)
			}
		}
		h.wantKeys(ctx, b, "guarded", 20)
		h.wantKeys(ctx, b, "plain", 20)
	})
}
