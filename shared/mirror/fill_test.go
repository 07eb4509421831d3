package mirror_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// connect is another client of a cluster.
func (w *world) connect(c *kgo.Client, opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.OptValue(kgo.SeedBrokers).([]string)...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("orders"))...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	return client
}

func (w *world) end() int64 {
	w.t.Helper()
	ends, err := kadm.NewClient(w.a).ListEndOffsets(w.t.Context(), "orders")
	if err != nil {
		w.t.Fatal(err)
	}
	end, _ := ends.Lookup("orders", 0)
	return end.Offset
}

// source reads orders-0 of A as a consumer does.
func (w *world) source(isolation kgo.IsolationLevel) []kafkaevent.Record {
	w.t.Helper()
	adm := kadm.NewClient(w.a)
	starts, err := adm.ListStartOffsets(w.t.Context(), "orders")
	if err != nil {
		w.t.Fatal(err)
	}
	start, _ := starts.Lookup("orders", 0)
	end := w.end()
	if start.Offset == end {
		return nil
	}
	reader := w.connect(w.a, kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().AtStart()}}))
	defer reader.Close()
	var out []kafkaevent.Record
	for {
		fs := reader.PollFetches(w.t.Context())
		if err := fs.Err(); err != nil {
			w.t.Fatal(err)
		}
		for r := range fs.RecordsAll() {
			if !r.Attrs.IsControl() {
				out = append(out, eventRecord(r))
			}
			if r.Offset == end-1 {
				return out
			}
		}
	}
}

func eventRecord(r *kgo.Record) kafkaevent.Record {
	e := kafkaevent.Record{
		Topic: "orders", Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(),
		TimestampType: kafkaevent.CreateTime, Key: r.Key, Value: r.Value,
	}
	for _, h := range r.Headers {
		e.Headers = append(e.Headers, kafkaevent.Header{Name: h.Key, Value: h.Value})
	}
	return e
}

// line spells out all that a mirror must keep.
func line(r kafkaevent.Record) string {
	value := ""
	if len(r.Value) < 1000 {
		value = fmt.Sprintf("%q", r.Value)
	} else {
		value = fmt.Sprintf("%d bytes, %x", len(r.Value), sha256.Sum256(r.Value))
	}
	var s strings.Builder
	s.WriteString(fmt.Sprintf("%d %q=%s", r.Timestamp, r.Key, value))
	for _, h := range r.Headers {
		s.WriteString(fmt.Sprintf(" %q:%q/%v", h.Name, h.Value, h.Value == nil))
	}
	return s.String()
}

func lines(rs []kafkaevent.Record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, line(r))
	}
	return out
}

func (w *world) copies() []string {
	w.t.Helper()
	var out []string
	for _, r := range w.records("A.orders", 0) {
		out = append(out, line(eventRecord(r)))
	}
	return out
}

func (w *world) holes() []string {
	w.t.Helper()
	holes, err := w.store.Holes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, h := range holes {
		out = append(out, fmt.Sprintf("%s [%d, %d) %s: %d", h.TopicPartition, h.From, h.To, h.Kind, h.Records))
	}
	return out
}

// wantMap wants the run map to translate every offset exactly.
func (w *world) wantMap(copied []kafkaevent.Record, end int64) {
	w.t.Helper()
	pos := w.position()
	chunks, err := w.store.Runs(w.t.Context(), orders0)
	if err != nil {
		w.t.Fatal(err)
	}
	var runs offsets.Map
	for _, c := range append(chunks, state.RunChunk{Data: pos.Runs}) {
		if err := runs.AddChunk(c.Data); err != nil {
			w.t.Fatal(err)
		}
	}
	next := 0
	for g := pos.First; g <= end; g++ {
		for next < len(copied) && copied[next].Offset < g {
			next++
		}
		got, ok := runs.Translate(g, offsets.Bounds{First: pos.First, Next: pos.Upstream, End: pos.Downstream, LogEnd: pos.Downstream})
		if !ok || got != int64(next) {
			w.t.Errorf("translate %d: got %d, %v; want %d", g, got, ok, next)
			return
		}
	}
}

func (w *world) deleteRecords(before int64) {
	w.t.Helper()
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: "orders", At: before})
	if _, err := kadm.NewClient(w.a).DeleteRecords(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// swept lets a Mirror sweep until it has looked twice.
func (w *world) sweep(group int64) error {
	w.t.Helper()
	ctx := w.t.Context()
	if group >= 0 {
		var o kadm.Offsets
		o.Add(kadm.Offset{Topic: "orders", At: group, LeaderEpoch: -1})
		if _, err := kadm.NewClient(w.a).CommitOffsets(ctx, "mirrorless/orders", o); err != nil {
			w.t.Fatal(err)
		}
		row, err := w.store.EventSource(ctx, "orders")
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			w.t.Fatal(err)
		}
		row.Topic, row.Group = "orders", "mirrorless/orders"
		if _, err := w.store.PutEventSource(ctx, row); err != nil {
			w.t.Fatal(err)
		}
	}
	now := time.Now()
	m := mirror.New(mirror.Options{
		Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}), Source: w.a,
		Now: func() time.Time { return now },
	})
	for range 3 {
		if err := m.Sweep(ctx); err != nil {
			return err
		}
		now = now.Add(time.Minute)
	}
	return nil
}

// TestWhatTheEventLacksIsFilledFromTheSource is a property: whatever subset of A's
// records the events bring, in whatever batches, with failures of the store, in
// cold and in warm environments, B has in the end what a consumer of A
// reads, in order, each once, and every offset translates exactly.
func TestWhatTheEventLacksIsFilledFromTheSource(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			(&play{rng: rand.New(rand.NewPCG(seed, 5)), committed: seed%3 == 1, compacted: seed%4 == 2}).run(t)
		})
	}
}

type play struct {
	*world
	rng                  *rand.Rand
	committed, compacted bool
	mirrors              []*mirror.Mirror
}

func (p *play) run(t *testing.T) {
	var properties []string
	isolation := kgo.ReadUncommitted()
	if p.committed {
		properties = []string{"A.consumer.isolation.level = read_committed"}
		isolation = kgo.ReadCommitted()
	}
	p.world = newWorld(t, properties...)
	p.write(40 + p.rng.IntN(60))
	p.begin()
	all := p.source(kgo.ReadUncommitted())
	want := p.source(isolation)
	var expired []string
	for len(all) > 0 {
		n := 1 + p.rng.IntN(min(len(all), 60))
		if len(all) < 3 {
			break // the sweep's
		}
		p.deliver(all[:n])
		all = all[n:]
		if len(all) > 10 && p.rng.IntN(12) == 0 {
			// Retention overtakes the event source.
			before, at := all[p.rng.IntN(8)].Offset, p.position().Upstream
			p.deleteRecords(before)
			all = slices.DeleteFunc(all, func(r kafkaevent.Record) bool { return r.Offset < before })
			want = slices.DeleteFunc(want, func(r kafkaevent.Record) bool { return r.Offset >= at && r.Offset < before })
			if before > at {
				expired = append(expired, fmt.Sprintf("orders-0 [%d, %d) expired: %d", at, before, before-at))
			}
		}
	}
	p.broken.fail(nil, nil)
	if err := p.sweep(p.end()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines(want), p.copies()); diff != "" {
		t.Errorf("records on B (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(expired, p.holes()); diff != "" {
		t.Errorf("holes (-want +got):\n%s", diff)
	}
	p.wantMap(want, p.end())
	if got := p.position(); got.Copied != int64(len(want)) {
		t.Errorf("position: got %d copied, want %d", got.Copied, len(want))
	}
}

// write makes a log with transactions, null headers, batches of many records and,
// if asked for, what compaction leaves.
func (p *play) write(steps int) {
	t := p.t
	ctx := t.Context()
	if p.compacted {
		policy := "compact"
		if _, err := kadm.NewClient(p.a).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "cleanup.policy", Value: &policy}}, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	plain := p.connect(p.a, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	var writers []*kgo.Client
	open := map[*kgo.Client]bool{}
	for i := range 2 {
		writers = append(writers, p.connect(p.a, kgo.TransactionalID(fmt.Sprint("writer-", i))))
	}
	number := 0
	produce := func(c *kgo.Client, n int) {
		var rs []*kgo.Record
		for range n {
			r := kgo.StringRecord(fmt.Sprint("value ", number))
			r.Key = fmt.Appendf(nil, "key %d", number)
			if p.compacted {
				r.Key = fmt.Appendf(nil, "key %d", p.rng.IntN(20))
			}
			for range p.rng.IntN(6) / 3 {
				h := kgo.RecordHeader{Key: fmt.Sprint("h", p.rng.IntN(3)), Value: []byte("v")}
				if p.rng.IntN(4) == 0 {
					h.Value = nil
				}
				r.Headers = append(r.Headers, h)
			}
			number++
			rs = append(rs, r)
		}
		if err := c.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(c *kgo.Client) {
		if err := c.EndTransaction(ctx, kgo.TransactionEndTry(p.rng.IntN(2) == 0)); err != nil {
			t.Fatal(err)
		}
		open[c] = false
	}
	for range steps {
		if p.rng.IntN(2) == 0 {
			produce(plain, 1+p.rng.IntN(8))
			continue
		}
		w := writers[p.rng.IntN(len(writers))]
		switch {
		case !open[w]:
			if err := w.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			open[w] = true
			produce(w, 1+p.rng.IntN(4))
		case p.rng.IntN(3) == 0:
			end(w)
		default:
			produce(w, 1+p.rng.IntN(4))
		}
	}
	for _, w := range writers {
		if open[w] {
			end(w)
		}
	}
	produce(plain, 1)
	if p.compacted {
		p.fakeA.Compact()
	}
}

// begin prepares the partition again: compaction on the fake moves the log start.
func (p *play) begin() {
	starts, err := kadm.NewClient(p.a).ListStartOffsets(p.t.Context(), "orders")
	if err != nil {
		p.t.Fatal(err)
	}
	start, _ := starts.Lookup("orders", 0)
	pos := p.position()
	pos.First, pos.Upstream = start.Offset, start.Offset
	if _, err := p.store.Advance(p.t.Context(), map[flow.TopicPartition]state.Position{orders0: pos}); err != nil {
		p.t.Fatal(err)
	}
}

// deliver brings some of the records in one event, again and again until it is
// taken.
func (p *play) deliver(rs []kafkaevent.Record) {
	p.t.Helper()
	drop := p.rng.IntN(3)
	var some []kafkaevent.Record
	for _, r := range rs {
		if p.rng.IntN(4) >= drop {
			some = append(some, r)
		}
	}
	for try := 0; len(some) > 0; try++ {
		if try == 30 {
			p.t.Fatal("an event fails for ever")
		}
		switch p.rng.IntN(6) {
		case 0:
			p.broken.fail(errors.New("throttled"), nil)
		case 1:
			p.broken.fail(nil, errors.New("time-out"))
		}
		n := 1 + p.rng.IntN(len(some)) // a retry may be cut elsewhere
		if p.rng.IntN(3) > 0 {
			n = len(some)
		}
		m := p.environment()
		_, err := handle(m, some[:n])
		if err == nil {
			some = some[n:]
		} else if strings.Contains(err.Error(), "isolation") {
			p.t.Fatal(err)
		}
	}
}

// environment is a Mirror that may have been at work before.
func (p *play) environment() *mirror.Mirror {
	if len(p.mirrors) < 3 || p.rng.IntN(6) == 0 {
		m := p.cold()
		if p.rng.IntN(2) == 0 {
			m.Narrow(1 + p.rng.IntN(500))
		}
		p.mirrors = append(p.mirrors, m)
		return m
	}
	return p.mirrors[p.rng.IntN(len(p.mirrors))]
}
