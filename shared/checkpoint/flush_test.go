package checkpoint_test

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/state"
)

// syncs are the offset syncs of a cluster, in order.
func (w *world) syncs(c *cluster) []mm2.OffsetSync {
	w.t.Helper()
	var all []mm2.OffsetSync
	for _, r := range c.read(w.t, w.settings.OffsetSyncsTopic()) {
		s, err := mm2.ParseOffsetSync(r.Key, r.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// stored are Connect's source offsets on B, in order of each partition.
func (w *world) stored() []mm2.SourcePosition {
	w.t.Helper()
	var all []mm2.SourcePosition
	for _, r := range w.b.read(w.t, w.settings.PositionsTopic) {
		p, err := mm2.ParseSourcePosition(r.Key, r.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		if want := p.RecordPartition(25); r.Partition != want {
			w.t.Errorf("got the position of %s-%d in partition %d, want %d", p.Topic, p.Partition, r.Partition, want)
		}
		all = append(all, p)
	}
	return all
}

func sync(upstream, downstream int64) mm2.OffsetSync {
	return mm2.OffsetSync{Topic: "orders", Upstream: upstream, Downstream: downstream}
}

func at(offset int64) mm2.SourcePosition {
	return mm2.SourcePosition{Connector: "MirrorSourceConnector", Cluster: "A", Topic: "orders", Offset: offset}
}

func TestSlowRecordsTellOfTheLastRecordCopied(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 3, 0)
	w.mustRound() // nothing is copied yet
	w.copied(orders, 0, 1, 2, 7)
	w.mustRound()
	w.mustRound() // nothing has moved
	w.restart()
	w.mustRound() // nor has it for a new environment
	w.copied(orders, upTo(10, 15)...)
	w.spill(orders)
	w.mustRound()
	if diff := cmp.Diff([]mm2.OffsetSync{sync(7, 3), sync(14, 8)}, w.syncs(w.a)); diff != "" {
		t.Errorf("offset syncs on A (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]mm2.SourcePosition{at(7), at(14)}, w.stored()); diff != "" {
		t.Errorf("positions on B (-want +got):\n%s", diff)
	}
}

// The bytes are those of a MirrorMaker 2 4.3.1 in the same place.
func TestInTransactionsPositionRecordsAreMirrors(t *testing.T) {
	w := newWorld(t, "B.exactly.once.source.support = enabled")
	w.topic("orders", 3, 0)
	w.copied(orders, 0, 1, 2, 7)
	w.mustRound()
	if diff := cmp.Diff([]mm2.OffsetSync{sync(7, 3)}, w.syncs(w.a)); diff != "" {
		t.Errorf("offset syncs on A (-want +got):\n%s", diff)
	}
	if got := w.stored(); len(got) != 0 {
		t.Errorf("got positions %v on B, want none: they could be older than what mirror has written", got)
	}
}

func TestSlowRecordsAreMirrorMakers(t *testing.T) {
	w := newWorld(t)
	source := flow.TopicPartition{Topic: "mm2-source-topic"}
	w.topic(source.Topic, 1, 0)
	w.copied(source, upTo(0, 50)...)
	w.a.commit(t, "app-group", source, 50, "")
	w.mustRound()
	record := w.a.read(t, "mm2-offset-syncs.B.internal")[0]
	got := []string{hex.EncodeToString(record.Key), hex.EncodeToString(record.Value)}
	record = w.b.read(t, "mm2-offsets.A.internal")[0]
	got = append(got, string(record.Key), string(record.Value))
	record = w.b.read(t, "A.checkpoints.internal")[0]
	got = append(got, hex.EncodeToString(record.Key), hex.EncodeToString(record.Value))
	want := []string{
		"00106d6d322d736f757263652d746f70696300000000", "00000000000000310000000000000031",
		`["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"mm2-source-topic"}]`, `{"offset":49}`,
		"00096170702d67726f75700012412e6d6d322d736f757263652d746f70696300000000", "000000000000000000320000000000000032" + "0000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestARewoundPartitionIsToldAgain(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 100)...)
	w.mustRound()
	w.runs[orders] = nil
	w.advance(orders, func(pos *state.Position) { pos.Upstream, pos.Runs = 0, nil })
	w.copied(orders, upTo(0, 10)...)
	w.mustRound()
	if diff := cmp.Diff([]mm2.OffsetSync{sync(99, 99), sync(9, 109)}, w.syncs(w.a)); diff != "" {
		t.Errorf("offset syncs (-want +got):\n%s", diff)
	}
}

func TestOffsetSyncsWhereTheFileWantsThem(t *testing.T) {
	t.Run("on the target", func(t *testing.T) {
		w := newWorld(t, "offset-syncs.topic.location = target")
		w.topic("orders", 1, 0)
		w.copied(orders, upTo(0, 10)...)
		produced := w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
		w.mustRound()
		if diff := cmp.Diff([]mm2.OffsetSync{sync(9, 9)}, w.syncs(w.b)); diff != "" {
			t.Errorf("offset syncs on B (-want +got):\n%s", diff)
		}
		if got := produced.Hits(); got != 0 {
			t.Errorf("got %d writes to A, want none", got)
		}
	})
	t.Run("not at all", func(t *testing.T) {
		w := newWorld(t, "emit.offset-syncs.enabled = false")
		w.topic("orders", 1, 0)
		w.copied(orders, upTo(0, 10)...)
		w.mustRound()
		if got := w.syncs(w.a); len(got) > 0 {
			t.Errorf("got offset syncs %v, want none", got)
		}
		if diff := cmp.Diff([]mm2.SourcePosition{at(9)}, w.stored()); diff != "" {
			t.Errorf("positions (-want +got):\n%s", diff)
		}
	})
	t.Run("with a client of their own", func(t *testing.T) {
		w := newWorld(t)
		w.topic("orders", 1, 0)
		w.copied(orders, upTo(0, 10)...)
		counting := &requests{}
		w.options.OffsetSyncs = w.a.client(t, kgo.WithHooks(counting))
		w.restart()
		w.mustRound()
		if counting.n.Load() == 0 || len(w.syncs(w.a)) != 1 {
			t.Errorf("got %d requests and %d offset syncs", counting.n.Load(), len(w.syncs(w.a)))
		}
	})
}

func TestASourceThatMayNotBeWrittenToIsOneWarning(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	denied := w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.settings.OffsetSyncsTopic(), Err: kerr.TopicAuthorizationFailed, Count: -1})
	w.a.commit(t, "g", orders, 5, "")
	for next := range int64(3) {
		w.copied(orders, upTo(10*next, 10*next+10)...)
		w.mustRound()
	}
	if got := strings.Count(w.log.String(), "\n"); got != 1 || !strings.Contains(w.log.String(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("got log %q, want one warning that names the missing right", w.log)
	}
	if diff := cmp.Diff([]mm2.SourcePosition{at(9), at(19), at(29)}, w.stored()); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(one("g", 5, 5), w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
	denied.Remove()
	w.mustRound()
	if diff := cmp.Diff([]mm2.OffsetSync{sync(29, 29)}, w.syncs(w.a)); diff != "" {
		t.Errorf("offset syncs once they are allowed (-want +got):\n%s", diff)
	}
}

func TestIntervalIsTheShortestOneInForce(t *testing.T) {
	for _, test := range []struct {
		lines []string
		want  time.Duration
	}{
		{nil, time.Minute},
		{[]string{"emit.checkpoints.interval.seconds = 5"}, 5 * time.Second},
		{[]string{"sync.group.offsets.interval.seconds = 5"}, time.Minute},
		{[]string{syncing, "sync.group.offsets.interval.seconds = 5"}, 5 * time.Second},
		{[]string{"B.offset.flush.interval.ms = 2500"}, 2500 * time.Millisecond},
	} {
		w := newWorld(t, test.lines...)
		if got := checkpoint.Interval(w.settings); got != test.want {
			t.Errorf("%v: got %s, want %s", test.lines, got, test.want)
		}
	}
}

// Each kind of work comes when its own interval is over, however often Run is
// called and however late.
func TestEachIntervalIsKept(t *testing.T) {
	w := newWorld(t, syncing, "emit.checkpoints.interval.seconds = 120", "sync.group.offsets.interval.seconds = 300")
	w.topic("orders", 1, 0)
	var emitted, committed, told int
	const hour = 60
	for minute := range int64(hour) {
		w.copied(orders, minute)
		w.a.commit(t, "g", orders, minute+1, "")
		w.pass(time.Minute + time.Duration(minute%7-3)*time.Second)
		before := [3]int64{int64(len(w.checkpoints())), w.b.offset(t, "g", w.remote(orders)).At, int64(len(w.stored()))}
		if err := w.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := [3]int64{int64(len(w.checkpoints())), w.b.offset(t, "g", w.remote(orders)).At, int64(len(w.stored()))}
		for i, n := range []*int{&emitted, &committed, &told} {
			if after[i] != before[i] {
				*n++
			}
		}
	}
	if diff := cmp.Diff([]int{hour / 2, hour / 5, hour}, []int{emitted, committed, told}); diff != "" {
		t.Errorf("rounds with checkpoints, commits and positions in an hour (-want +got):\n%s", diff)
	}
}

func TestARoundEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, syncing)
		w.topic("orders", 1, 0)
		w.copied(orders, upTo(0, 10)...)
		w.a.commit(t, "g", orders, 4, "")
		stuck := make(chan struct{})
		w.b.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.b.SleepControl(func() { <-stuck })
			return nil, nil, false
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		if err := w.Run(ctx); err == nil {
			t.Error("got no error")
		}
		if took := time.Since(began); took >= 20*time.Second {
			t.Errorf("it took %s, want less than the deadline leaves", took)
		}
		close(stuck)
		// The lease was given back.
		if _, err := w.store.Acquire(t.Context(), "checkpoint", "somebody else", time.Second); err != nil {
			t.Error(err)
		}
	})
}

// slowStore keeps who reads positions waiting.
type slowStore struct {
	state.Store
	waiting, open chan struct{}
}

func (s *slowStore) Positions(ctx context.Context, partitions []flow.TopicPartition) (map[flow.TopicPartition]state.Position, error) {
	close(s.waiting)
	select {
	case <-s.open:
		return s.Store.Positions(ctx, partitions)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// slowRound begins a round that waits in the store.
func slowRound(w *world) (store *slowStore, done chan error) {
	store = &slowStore{Store: w.store, waiting: make(chan struct{}), open: make(chan struct{})}
	w.options.Store = store
	w.restart()
	done = make(chan error, 1)
	go func() { done <- w.Run(w.t.Context()) }()
	<-store.waiting
	return store, done
}

// An owner that was killed holds the others up for half a minute; one that works
// for longer keeps its lease.
func TestALongRoundKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topic("orders", 1, 0)
		store, done := slowRound(w)
		for range 20 {
			w.pass(5 * time.Second)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if _, err := w.store.Acquire(t.Context(), "checkpoint", "somebody else", time.Second); err == nil {
				t.Error("got the lease in the middle of another owner's round")
			}
		}
		close(store.open)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := w.store.Acquire(t.Context(), "checkpoint", "somebody else", time.Second); err != nil {
			t.Errorf("after the round: %v", err)
		}
	})
}

func TestAnOwnerThatLostItsLeaseStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topic("orders", 1, 0)
		_, done := slowRound(w)
		w.pass(time.Hour) // as after a freeze
		if _, err := w.store.Acquire(t.Context(), "checkpoint", "somebody else", time.Minute); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "somebody else") {
			t.Errorf("got error %v, want one that names the new owner", err)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it went on for %s", took)
		}
	})
}
