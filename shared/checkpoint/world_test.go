package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
)

// cluster is a fake cluster in memory, which a synctest bubble may hold.
type cluster struct {
	*kfake.Cluster
	*kgo.Client
	admin   *kadm.Client
	network kfake.VirtualNetwork
}

func start(t *testing.T, opts ...kfake.Opt) *cluster {
	t.Helper()
	c := &cluster{}
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.Ports(9092)}, opts...)
	fake, err := kfake.NewCluster(append(opts, kfake.ListenFn(c.network.Listen))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	c.Cluster = fake
	c.Client = c.client(t)
	c.admin = kadm.NewClient(c.Client)
	return c
}

func (c *cluster) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts,
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(c.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (c *cluster) create(t *testing.T, partitions int32, topics ...string) {
	t.Helper()
	if _, err := c.admin.CreateTopics(t.Context(), partitions, 1, nil, topics...); err != nil {
		t.Fatal(err)
	}
}

// produce appends n records.
func (c *cluster) produce(t *testing.T, tp flow.TopicPartition, n int) {
	t.Helper()
	var records []*kgo.Record
	for range n {
		records = append(records, &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: []byte("x")})
	}
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// expire deletes the records before an offset.
func (c *cluster) expire(t *testing.T, tp flow.TopicPartition, before int64) {
	t.Helper()
	of := kadm.Offsets{}
	of.Add(kadm.Offset{Topic: tp.Topic, Partition: tp.Partition, At: before})
	deleted, err := c.admin.DeleteRecords(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	deleted.Each(func(d kadm.DeleteRecordsResponse) {
		if d.Err != nil {
			t.Fatal(d.Err)
		}
	})
}

// commit gives a group an offset as Kafka's assign() and commit do.
func (c *cluster) commit(t *testing.T, group string, tp flow.TopicPartition, offset int64, metadata string) {
	t.Helper()
	of := kadm.Offsets{}
	of.Add(kadm.Offset{Topic: tp.Topic, Partition: tp.Partition, At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := c.admin.CommitAllOffsets(t.Context(), group, of); err != nil {
		t.Fatal(err)
	}
}

// offset is what a group has committed, -1 where there is nothing.
func (c *cluster) offset(t *testing.T, group string, tp flow.TopicPartition) kadm.Offset {
	t.Helper()
	fetched, err := c.admin.FetchOffsets(t.Context(), group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatal(err)
	}
	o, ok := fetched.Lookup(tp.Topic, tp.Partition)
	if !ok {
		return kadm.Offset{At: -1}
	}
	return o.Offset
}

// join makes a member of a group that reads topics, and waits until it has its
// partitions.
func (c *cluster) join(t *testing.T, group string, topics []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	assigned := make(chan struct{}, 1)
	member := c.client(t, append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}))...)
	select {
	case <-assigned:
	case <-time.After(time.Minute):
		t.Fatal("the member got no partitions in a minute")
	}
	return member
}

// read returns all records of a topic, those of a partition in order.
func (c *cluster) read(t *testing.T, topic string) []*kgo.Record {
	t.Helper()
	ends, err := c.admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	client := c.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	defer client.Close()
	var records []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			records = append(records, r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	return records
}

// world is a flow A->B with its clusters and store. Records are copied by
// writing down that they were.
type world struct {
	t        *testing.T
	a, b     *cluster
	store    state.Store
	settings config.Flow
	log      *bytes.Buffer
	began    time.Time
	passed   atomic.Int64 // since began
	options  checkpoint.Options
	*checkpoint.Translator

	runs map[flow.TopicPartition][]offsets.Run // of the open chunks
}

const internal = "A.checkpoints.internal"

// newWorld is the flow of a file with the given lines besides.
func newWorld(t *testing.T, lines ...string) *world {
	t.Helper()
	text := "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
	c := config.Parse("mm2.properties", []byte(text+strings.Join(lines, "\n")), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, a: start(t), b: start(t), log: &bytes.Buffer{}, began: time.UnixMilli(1_796_050_689_000),
		runs: map[flow.TopicPartition][]offsets.Run{},
	}
	w.settings, _ = c.Flow(flow.Flow{Source: "A", Target: "B"})
	file, err := embedded.Open(filepath.Join(t.TempDir(), "state.db"), embedded.Options{Now: w.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if w.store, err = file.Store(w.settings.Flow); err != nil {
		t.Fatal(err)
	}
	if w.settings.OffsetSyncsOnTarget {
		w.b.create(t, 1, w.settings.OffsetSyncsTopic())
	} else {
		w.a.create(t, 1, w.settings.OffsetSyncsTopic())
	}
	w.b.create(t, 1, w.settings.CheckpointsTopic())
	w.b.create(t, 25, w.settings.PositionsTopic)
	w.options = checkpoint.Options{
		Settings: w.settings, Store: w.store, Source: w.a.Client, Target: w.b.Client, Owner: "test",
		Logger: slog.New(slog.NewTextHandler(w.log, nil)), Now: w.now,
	}
	w.restart()
	return w
}

func (w *world) now() time.Time { return w.began.Add(time.Duration(w.passed.Load())) }

// pass lets time pass for the flow.
func (w *world) pass(d time.Duration) { w.passed.Add(int64(d)) }

// restart is a new environment.
func (w *world) restart() { w.Translator = checkpoint.New(w.options) }

// round lets an interval pass and runs.
func (w *world) round() error {
	w.t.Helper()
	w.pass(time.Minute)
	return w.Run(w.t.Context())
}

// mustRound is round, of which no failure is expected.
func (w *world) mustRound() {
	w.t.Helper()
	if err := w.round(); err != nil {
		w.t.Fatal(err)
	}
}

// topic makes a topic on both sides, and the positions of its partitions, that
// begin at an upstream offset.
func (w *world) topic(name string, partitions int32, first int64) {
	w.t.Helper()
	w.a.create(w.t, partitions, name)
	w.b.create(w.t, partitions, w.settings.RemoteTopic(name))
	for p := range partitions {
		w.advance(flow.TopicPartition{Topic: name, Partition: p}, func(pos *state.Position) {
			pos.First, pos.Upstream = first, first
		})
	}
}

func (w *world) remote(tp flow.TopicPartition) flow.TopicPartition {
	return flow.TopicPartition{Topic: w.settings.RemoteTopic(tp.Topic), Partition: tp.Partition}
}

func (w *world) position(tp flow.TopicPartition) state.Position {
	w.t.Helper()
	stored, err := w.store.Positions(w.t.Context(), []flow.TopicPartition{tp})
	if err != nil {
		w.t.Fatal(err)
	}
	return stored[tp]
}

func (w *world) advance(tp flow.TopicPartition, change func(*state.Position)) {
	w.t.Helper()
	pos := w.position(tp)
	change(&pos)
	if _, err := w.store.Rewind(w.t.Context(), map[flow.TopicPartition]state.Position{tp: pos}); err != nil {
		w.t.Fatal(err)
	}
}

// copied puts the copies of upstream offsets on B, behind what is there, and
// stores the position as mirror does.
func (w *world) copied(tp flow.TopicPartition, upstream ...int64) {
	w.t.Helper()
	if len(upstream) == 0 {
		return
	}
	ends, err := w.b.admin.ListEndOffsets(w.t.Context(), w.remote(tp).Topic)
	if err != nil {
		w.t.Fatal(err)
	}
	end, ok := ends.Lookup(w.remote(tp).Topic, tp.Partition)
	if !ok {
		w.t.Fatalf("got no end of %s", w.remote(tp))
	}
	w.b.produce(w.t, w.remote(tp), len(upstream))
	for i, u := range upstream {
		r := offsets.Run{Upstream: u, Downstream: end.Offset + int64(i), Length: 1}
		if n := len(w.runs[tp]) - 1; n >= 0 {
			last := &w.runs[tp][n]
			if last.Upstream+last.Length == r.Upstream && last.Downstream+last.Length == r.Downstream {
				last.Length++
				continue
			}
		}
		w.runs[tp] = append(w.runs[tp], r)
	}
	w.advance(tp, func(pos *state.Position) {
		pos.Upstream, pos.Downstream = upstream[len(upstream)-1]+1, end.Offset+int64(len(upstream))
		pos.Copied += int64(len(upstream))
		pos.Runs = offsets.AppendChunk(nil, w.runs[tp])
	})
}

// spill closes the open chunk but for its last run.
func (w *world) spill(tp flow.TopicPartition) {
	w.t.Helper()
	n := len(w.runs[tp]) - 1
	if n < 1 {
		return
	}
	closed := w.runs[tp][:n]
	if err := w.store.PutRuns(w.t.Context(), tp, state.RunChunk{
		First: closed[0].Upstream, Next: closed[n-1].Upstream + closed[n-1].Length, Data: offsets.AppendChunk(nil, closed),
	}); err != nil {
		w.t.Fatal(err)
	}
	w.runs[tp] = []offsets.Run{w.runs[tp][n]}
	w.advance(tp, func(pos *state.Position) { pos.Runs = offsets.AppendChunk(nil, w.runs[tp]) })
}

// checkpoints are the records of the checkpoints topic, in order.
func (w *world) checkpoints() []mm2.Checkpoint {
	w.t.Helper()
	var all []mm2.Checkpoint
	for _, r := range w.b.read(w.t, w.settings.CheckpointsTopic()) {
		c, err := mm2.ParseCheckpoint(r.Key, r.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		if r.Partition != 0 || r.Timestamp.Before(w.began) || r.Timestamp.After(w.now()) {
			w.t.Errorf("got a checkpoint in partition %d at %s", r.Partition, r.Timestamp)
		}
		all = append(all, c)
	}
	return all
}

// written counts the records of all internal topics.
func (w *world) written() int {
	w.t.Helper()
	n := len(w.checkpoints()) + len(w.b.read(w.t, w.settings.PositionsTopic))
	if w.settings.OffsetSyncsOnTarget {
		return n + len(w.b.read(w.t, w.settings.OffsetSyncsTopic()))
	}
	return n + len(w.a.read(w.t, w.settings.OffsetSyncsTopic()))
}

// upTo are the upstream offsets from first to before next.
func upTo(first, next int64) []int64 {
	var all []int64
	for u := first; u < next; u++ {
		all = append(all, u)
	}
	return all
}

var orders = flow.TopicPartition{Topic: "orders"}

// requests counts what a client sends.
type requests struct{ n atomic.Int64 }

func (r *requests) OnBrokerWrite(kgo.BrokerMetadata, int16, int, time.Duration, time.Duration, error) {
	r.n.Add(1)
}
