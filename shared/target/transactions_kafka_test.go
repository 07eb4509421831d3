package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
)

// step is one request of a transaction.
type step string

// killed is a coordinator whose process dies at a step: before the request or
// after it, and before its answer in any case.
type killed struct {
	coordinator
	at    step
	after bool
}

var errKilled = errors.New("killed")

func (k *killed) dies(at step, request func()) bool {
	if k.at != at {
		if k.at == "dead" {
			return true
		}
		request()
		return false
	}
	if k.after {
		request()
	}
	k.at = "dead"
	return true
}

func (k *killed) begin(ctx context.Context, id string, limit time.Duration) (p batch.Producer, err error) {
	if k.dies("begin", func() { p, err = k.coordinator.begin(ctx, id, limit) }) {
		return p, errKilled
	}
	return p, err
}

func (k *killed) write(ctx context.Context, id string, producer batch.Producer, parts []part) (out []outcome) {
	one := k.at == "write only copies" || k.at == "write only position"
	if one && len(parts) == 2 {
		i := 0
		if k.at == "write only position" {
			i = 1
		}
		k.coordinator.write(ctx, id, producer, parts[i:i+1])
		k.at = "dead"
	}
	if k.dies("write", func() { out = k.coordinator.write(ctx, id, producer, parts) }) {
		out = make([]outcome, len(parts))
		for i := range out {
			out[i].err = errKilled
		}
	}
	return out
}

func (k *killed) end(ctx context.Context, id string, producer batch.Producer, commit bool) (p batch.Producer, err error) {
	if k.dies("end", func() { p, err = k.coordinator.end(ctx, id, producer, commit) }) {
		return p, errKilled
	}
	return p, err
}

// txWorld is a cluster with a topic of copies and one of positions.
type txWorld struct {
	t       *testing.T
	cluster *kafka.Cluster
	client  *kgo.Client
	admin   *kadm.Client
	n       *int // topics made
}

func (w txWorld) transactions(at step, after bool, o Options) *Transactions {
	c := newWire(w.client)
	return newTransactions(newLog(c, o), &killed{c, at, after}, TransactionOptions{
		Flow: flow.Flow{Source: "A", Target: "B"}, Connector: mm2.SourceConnector, Cluster: "A", Positions: "mm2-offsets.A.internal",
	})
}

// topic makes a topic of copies of one partition.
func (w txWorld) topic(ctx context.Context, configs map[string]*string) Partition {
	w.t.Helper()
	*w.n++
	name := fmt.Sprintf("orders-%d", *w.n)
	made, err := w.admin.CreateTopic(ctx, 1, 1, configs, "A."+name)
	if err != nil {
		w.t.Fatal(err)
	}
	return Partition{
		TopicPartition: flow.TopicPartition{Topic: "A." + name}, TopicID: made.ID,
		Source: flow.TopicPartition{Topic: name},
	}
}

// read returns the committed values of a topic by offset, or of position records.
func (w txWorld) read(ctx context.Context, topic string, keep func(*kgo.Record) bool) map[int64]string {
	w.t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.Seeds()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	left := map[int32]int64{}
	ends, err := w.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	got := map[int64]string{}
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			w.t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() && keep(r) {
				got[r.Offset] = string(r.Value)
			}
		})
	}
	return got
}

// positionsOf are the committed position records of a source partition, in order.
func (w txWorld) positionsOf(ctx context.Context, source flow.TopicPartition) []string {
	w.t.Helper()
	key := fmt.Sprintf(`["MirrorSourceConnector",{"cluster":"A","partition":%d,"topic":%q}]`, source.Partition, source.Topic)
	got := w.read(ctx, "mm2-offsets.A.internal", func(r *kgo.Record) bool { return string(r.Key) == key })
	var out []string
	for _, o := range slices.Sorted(mapKeys(got)) {
		out = append(out, got[o])
	}
	return out
}

func mapKeys[V any](m map[int64]V) func(func(int64) bool) {
	return func(yield func(int64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// attempt copies records as mirror does, from a cursor on.
func attempt(ctx context.Context, tx *Transactions, p Partition, c Cursor, from int, records []batch.Record) (Appended, error) {
	standing, err := tx.Standing(ctx, []Probe{{p, c}})
	if err != nil {
		return Appended{Cursor: c}, err
	}
	s := standing[p.TopicPartition]
	out := Appended{Cursor: c}
	switch {
	case s.Err != nil:
		return out, s.Err
	case s.Verdict == Ahead:
		if out, err = tx.Claim(ctx, p, c, records, int(s.Records)); err != nil {
			return out, err
		}
	case s.Verdict != Agrees:
		return out, fmt.Errorf("verdict %s", s.Verdict)
	}
	done := out.Done
	more, err := tx.Append(ctx, p, out.Cursor, records[done:], func(i int) int64 { return int64(from + done + i) })
	for _, placed := range more.Placed {
		placed.First += done
		out.Placed = append(out.Placed, placed)
	}
	out.Cursor, out.Done = more.Cursor, done+more.Done
	return out, err
}

// TestTransactionsOnKafka is what transactions promise, in each version of the
// protocol that Kafka 4.3.1 can be told to speak.
func TestTransactionsOnKafka(t *testing.T) {
	c := kafkatest.Start(t, kafka.Options{Properties: map[string]string{"transaction.max.timeout.ms": "20000"}})
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 25, 1, map[string]*string{"cleanup.policy": new("compact")}, "mm2-offsets.A.internal"); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, version := range []int16{2, 1, 0} {
		t.Run(fmt.Sprintf("transaction.version %d", version), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			speak(ctx, t, client, version)
			w := txWorld{t: t, cluster: c, client: client, admin: admin, n: &n}
			w.appends(ctx)
			w.kills(ctx)
			w.zombies(ctx)
			w.refusals(ctx)
			w.goesBack(ctx)
		})
	}
}

// speak finalizes a version of the transaction protocol.
func speak(ctx context.Context, t *testing.T, client *kgo.Client, version int16) {
	t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel = "transaction.version", version
	const safeDowngrade = 2
	if f.UpgradeType = safeDowngrade; version == 2 {
		f.UpgradeType = 1
	}
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	if _, err := req.RequestWith(ctx, client); err != nil {
		t.Fatal(err)
	}
	for wait := newBackoff(); ; {
		resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
		if err != nil {
			t.Fatal(err)
		}
		got := int16(0)
		for _, f := range resp.FinalizedFeatures {
			if f.Name == "transaction.version" {
				got = f.MaxVersionLevel
			}
		}
		if got == version {
			return
		}
		if !wait.next(ctx) {
			t.Fatalf("got transaction.version %d, want %d", got, version)
		}
	}
}

func (w txWorld) appends(ctx context.Context) {
	w.t.Run("one transaction a batch, with its position", func(t *testing.T) {
		w := w
		w.t = t
		p := w.topic(ctx, nil)
		tx := w.transactions("", false, Options{BatchBytes: 150})
		all := values(0, 20)
		got, err := attempt(ctx, tx, p, Cursor{}, 0, all[:15])
		if err != nil {
			t.Fatal(err)
		}
		// Warm: nothing is asked before the next append.
		more, err := tx.Append(ctx, p, got.Cursor, all[15:], func(i int) int64 { return int64(100 + i) })
		if err != nil {
			t.Fatal(err)
		}
		copies := w.read(ctx, p.Topic, func(*kgo.Record) bool { return true })
		for i, placed := range append(got.Placed, more.Placed...) {
			first := placed.First
			if i >= len(got.Placed) {
				first += 15
			}
			for j := range placed.Count {
				if at := placed.Base + int64(j); copies[at] != fmt.Sprintf("v%d", first+j) {
					t.Errorf("got %q at %d, want v%d", copies[at], at, first+j)
				}
			}
		}
		if len(copies) != 20 || got.Done+more.Done != 20 {
			t.Errorf("got %d copies, %d and %d done; want 20", len(copies), got.Done, more.Done)
		}
		end, err := w.admin.ListEndOffsets(ctx, p.Topic)
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := end.Lookup(p.Topic, 0); o.Offset != more.Cursor.End {
			t.Errorf("cursor ends at %d, the log at %d", more.Cursor.End, o.Offset)
		}
		positions := w.positionsOf(ctx, p.Source)
		if last := positions[len(positions)-1]; last != `{"offset":104}` || len(positions) != len(got.Placed)+len(more.Placed) {
			t.Errorf("got positions %v, want one for each of %d transactions, the last of 104", positions, len(got.Placed)+len(more.Placed))
		}
	})
}

func (w txWorld) kills(ctx context.Context) {
	for _, x := range []struct {
		at    step
		after bool
		seen  int // records that are committed when the process is dead
	}{
		{"begin", false, 0},
		{"begin", true, 0},
		{"write", false, 0},
		{"write only copies", false, 0},
		{"write only position", false, 0},
		{"write", true, 0},
		{"end", false, 0},
		{"end", true, 10},
	} {
		when := "before"
		if x.after {
			when = "after"
		}
		w.t.Run(fmt.Sprintf("killed %s %s", when, x.at), func(t *testing.T) {
			w := w
			w.t = t
			p := w.topic(ctx, nil)
			all := values(0, 15)
			short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			if _, err := attempt(short, w.transactions(x.at, x.after, Options{}), p, Cursor{}, 0, all[:10]); err == nil {
				t.Fatal("got no error, want the kill's")
			}
			// The store knows nothing of it, and the event comes again with another end.
			got, err := attempt(ctx, w.transactions("", false, Options{}), p, Cursor{}, 0, all[:7])
			if err != nil || got.Done != 7 {
				t.Fatalf("got %+v, %v; want 7 done", got, err)
			}
			rest, err := attempt(ctx, w.transactions("", false, Options{}), p, got.Cursor, 7, all[7:])
			if err != nil || rest.Done != 8 {
				t.Fatalf("got %+v, %v; want 8 done", rest, err)
			}
			copies := w.read(ctx, p.Topic, func(*kgo.Record) bool { return true })
			var values []string
			for _, at := range slices.Sorted(mapKeys(copies)) {
				values = append(values, copies[at])
			}
			var want []string
			for _, r := range all {
				want = append(want, string(r.Value))
			}
			if diff := cmp.Diff(want, values); diff != "" {
				t.Errorf("committed copies (-want +got):\n%s", diff)
			}
			for i, placed := range append(got.Placed, rest.Placed...) {
				first := placed.First
				if i >= len(got.Placed) {
					first += 7
				}
				for j := range placed.Count {
					if at := placed.Base + int64(j); copies[at] != fmt.Sprintf("v%d", first+j) {
						t.Errorf("the run map has v%d at %d, where %q is", first+j, at, copies[at])
					}
				}
			}
			positions := w.positionsOf(ctx, p.Source)
			if last := positions[len(positions)-1]; last != `{"offset":14}` {
				t.Errorf("got positions %v, want the last of 14", positions)
			}
		})
	}
}

func (w txWorld) zombies(ctx context.Context) {
	w.t.Run("two zombies add nothing", func(t *testing.T) {
		w := w
		w.t = t
		p := w.topic(ctx, nil)
		all := values(0, 30)
		one, two, three := w.transactions("", false, Options{}), w.transactions("", false, Options{}), w.transactions("", false, Options{})
		got, err := attempt(ctx, one, p, Cursor{}, 0, all[:10])
		if err != nil {
			t.Fatal(err)
		}
		// Both know of ten records, and are frozen before they append.
		for _, tx := range []*Transactions{one, two} {
			if s, err := tx.Standing(ctx, []Probe{{p, got.Cursor}}); err != nil || s[p.TopicPartition].Verdict != Agrees {
				t.Fatalf("got %v, %v", s, err)
			}
		}
		if _, err := attempt(ctx, three, p, got.Cursor, 10, all[10:20]); err != nil {
			t.Fatal(err)
		}
		for i, tx := range []*Transactions{one, two} {
			// The first one only adds, the other one comes with other records.
			zombie, err := tx.Append(ctx, p, got.Cursor, all[10+5*i:30], func(i int) int64 { return int64(10 + i) })
			if !errors.Is(err, ErrFenced) || zombie.Done != 0 {
				t.Errorf("zombie %d: got %+v, %v; want it fenced", i, zombie, err)
			}
		}
		if copies := w.read(ctx, p.Topic, func(*kgo.Record) bool { return true }); len(copies) != 20 {
			t.Errorf("got %d copies, want 20", len(copies))
		}
		// What three has committed since is claimed, whoever asks.
		again, err := attempt(ctx, one, p, got.Cursor, 10, all[10:])
		if err != nil || again.Done != 20 {
			t.Errorf("got %+v, %v; want 20 done", again, err)
		}
		if copies := w.read(ctx, p.Topic, func(*kgo.Record) bool { return true }); len(copies) != 30 {
			t.Errorf("got %d copies, want 30", len(copies))
		}
	})
}

func (w txWorld) refusals(ctx context.Context) {
	w.t.Run("a record that is refused leaves no transaction open", func(t *testing.T) {
		w := w
		w.t = t
		p := w.topic(ctx, map[string]*string{"max.message.bytes": new("20000")})
		all := values(0, 100)
		all[60].Value = make([]byte, 30_000)
		tx := w.transactions("", false, Options{})
		got, err := attempt(ctx, tx, p, Cursor{}, 0, all)
		rejected, ok := errors.AsType[*RejectedError](err)
		if !ok || rejected.Record != 60 || got.Done != 60 {
			t.Fatalf("got %+v, %v; want record 60 rejected after 60", got, err)
		}
		// The reader would wait for an open transaction's end.
		if copies := w.read(ctx, p.Topic, func(*kgo.Record) bool { return true }); len(copies) != 60 {
			t.Errorf("got %d copies, want 60", len(copies))
		}
		if positions := w.positionsOf(ctx, p.Source); positions[len(positions)-1] != `{"offset":59}` {
			t.Errorf("got positions %v, want the last of 59", positions)
		}
		// The session is still good.
		rest, err := tx.Append(ctx, p, got.Cursor, all[61:], func(i int) int64 { return int64(61 + i) })
		if err != nil || rest.Done != 39 {
			t.Errorf("got %+v, %v; want 39 done", rest, err)
		}
	})
}

func (w txWorld) goesBack(ctx context.Context) {
	w.t.Run("a flow that had no transactions before goes on with them", func(t *testing.T) {
		w := w
		w.t = t
		p := w.topic(ctx, nil)
		all := values(0, 30)
		log := New(w.client, Options{})
		id, err := log.NewProducer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cursor := Cursor{Producer: batch.Producer{ID: id}}
		got, err := log.Append(ctx, p, cursor, all[:10], nil)
		if err != nil {
			t.Fatal(err)
		}
		// Its store knows only of five.
		known := Cursor{End: 5, Producer: batch.Producer{ID: id, Sequence: 5}}
		more, err := attempt(ctx, w.transactions("", false, Options{}), p, known, 5, all[5:20])
		if err != nil || more.Done != 15 {
			t.Fatalf("got %+v, %v; want 15 done", more, err)
		}
		for wait := newBackoff(); ; { // the end of the last transaction is written late
			ends, err := w.admin.ListEndOffsets(ctx, p.Topic)
			if err != nil {
				t.Fatal(err)
			}
			if o, _ := ends.Lookup(p.Topic, 0); o.Offset == more.Cursor.End {
				break
			}
			if !wait.next(ctx) {
				t.Fatal(ctx.Err())
			}
		}
		// And back: the identity of the appends without transactions is kept.
		back := Cursor{End: more.Cursor.End, Producer: got.Cursor.Producer}
		last, err := log.Append(ctx, p, back, all[20:], nil)
		if err != nil || last.Done != 10 || last.Foreign != 0 {
			t.Fatalf("got %+v, %v; want 10 done", last, err)
		}
		if copies := w.read(ctx, p.Topic, func(*kgo.Record) bool { return true }); len(copies) != 30 {
			t.Errorf("got %d copies, want 30", len(copies))
		}
	})
}
