package topics_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/topics"
)

const latest = "A.consumer.auto.offset.reset = latest\n"

func TestAPartitionBeginsAtTheLogStart(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, nil)
		w.produce(w.a, "orders", 0, 10)
		if err := w.a.DeleteRecords("orders", 0, 4); err != nil {
			t.Fatal(err)
		}
		sources := newMappings()
		w.run(w.topics(with(sources)))
		p, _ := w.position("orders", 0)
		if p.First != 4 || p.Upstream != 4 || p.Downstream != 0 || p.Sequence != 0 {
			t.Errorf("got position %+v, want 4 from the start", p)
		}
		if got := sources.all["id-001"].Start; got != (topics.Start{}) {
			t.Errorf("got start %v, want TRIM_HORIZON", got)
		}
	})
}

func TestUnderLatestOnlyTopicsOfTheFirstDeploymentBeginLate(t *testing.T) {
	in(t, latest, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, nil)
		w.produce(w.a, "orders", 0, 10)
		time.Sleep(time.Minute)
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)
		row, err := w.store.Flow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := []int64{w.upstream("orders", 0), w.upstream("orders", 1)}; !cmp.Equal(got, []int64{10, 0}) {
			t.Errorf("got orders beginning at %v, want at 10 and 0", got)
		}
		for _, s := range sources.all {
			want := topics.Start{}
			if s.Topic == "orders" {
				want.At = row.Created
			}
			if s.Topic == "orders" && !s.Start.At.Equal(want.At) {
				t.Errorf("got start %v of %s, want %v", s.Start, s.Topic, want)
			}
		}

		// What comes later is copied from its first record, whoever runs.
		time.Sleep(time.Minute)
		w.create(w.a, "late", 1, nil)
		w.produce(w.a, "late", 0, 3)
		if _, err := w.a.admin.UpdatePartitions(t.Context(), 3, "orders"); err != nil {
			t.Fatal(err)
		}
		w.produce(w.a, "orders", 2, 3)
		w.run(top)
		time.Sleep(2 * time.Hour)
		w.create(w.a, "later", 1, nil)
		w.produce(w.a, "later", 0, 3)
		w.run(w.topics(with(sources)))
		for _, name := range []string{"late", "later"} {
			if got := w.upstream(name, 0); got != 0 {
				t.Errorf("got %s beginning at %d, want 0", name, got)
			}
		}
		if got := w.upstream("orders", 2); got != 0 {
			t.Errorf("got the added partition beginning at %d, want 0", got)
		}
		for _, s := range sources.all {
			if s.Topic != "orders" && s.Topic != "heartbeats" && s.Start != (topics.Start{}) {
				t.Errorf("got start %v of %s, want TRIM_HORIZON", s.Start, s.Topic)
			}
		}
	})
}

func TestUnderLatestRecordsSinceTheDeploymentAreNotSkipped(t *testing.T) {
	in(t, latest, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.produce(w.a, "orders", 0, 10)
		time.Sleep(time.Minute)
		// The first round ends after the flow's row; records come before the next.
		h := w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.UnknownServerError, Count: -1})
		if err := w.topics().Run(t.Context()); err == nil {
			t.Fatal("got a round that succeeds without offsets")
		}
		h.Remove()
		time.Sleep(time.Minute)
		w.produce(w.a, "orders", 0, 5)
		time.Sleep(time.Minute)
		w.run(w.topics())
		if got := w.upstream("orders", 0); got != 10 {
			t.Errorf("got orders beginning at %d, want 10: the first record since the deployment", got)
		}
	})
}

func TestRecordsThatACopyHoldsAlreadyStayInFrontAndAreTold(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, nil)
		w.create(w.b, "A.orders", 2, nil)
		w.produce(w.b, "A.orders", 1, 6)
		top := w.topics()
		w.run(top)
		w.run(top)
		if p, _ := w.position("orders", 1); p.Downstream != 6 || p.Upstream != 0 {
			t.Errorf("got position %+v, want 0 behind 6 records", p)
		}
		if got := w.logs.take("state knows nothing of"); len(got) != 1 || !strings.Contains(got[0], "topic=A.orders") {
			t.Errorf("got lines %q, want one", got)
		}
	})
}

func TestAPositionIsWrittenOnlyWhereTheCopyHasALeader(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		var created atomic.Bool
		w.b.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "A.orders", Observe: true, Count: -1,
			When: func(kmsg.Request) bool { created.Store(true); return true },
		})
		afterwards := func(kmsg.Request) bool { return created.Load() }
		metadata := w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "A.orders", Err: kerr.LeaderNotAvailable, Count: 3, When: afterwards})
		offsets := w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "A.orders", Err: kerr.NotLeaderForPartition, Count: 3})
		sources := newMappings()
		w.run(w.topics(with(sources)))
		if metadata.Hits() != 3 || offsets.Hits() != 3 {
			t.Errorf("got %d metadata and %d offset requests in vain, want 3 and 3", metadata.Hits(), offsets.Hits())
		}
		if _, ok := w.position("orders", 0); !ok || len(sources.all) == 0 {
			t.Error("got no position once there is a leader")
		}
	})
}

func TestACopyWithoutLeaderGetsNoEventSource(t *testing.T) {
	in(t, "B->A.emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		h := w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "A.orders", Err: kerr.LeaderNotAvailable, Count: -1})
		sources := newMappings()
		top := w.topics(with(sources))
		err := top.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "begin orders-0: read the end of A.orders-0 on cluster B: LEADER_NOT_AVAILABLE") {
			t.Errorf("got error %v, want the missing leader", err)
		}
		if _, ok := w.position("orders", 0); ok || len(sources.all) > 0 {
			t.Error("got a position of a partition that cannot be used")
		}
		h.Remove()
		w.run(top)
		if _, ok := w.position("orders", 0); !ok || len(sources.all) == 0 {
			t.Error("got no position once there is a leader")
		}
	})
}

func TestACopyThatWasDeletedComesBackAndIsTold(t *testing.T) {
	in(t, "B->A.emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, nil)
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)
		// Partition 0 is copied up to 5, partition 1 is empty.
		tp := flow.TopicPartition{Topic: "orders", Partition: 0}
		p, _ := w.position("orders", 0)
		p.Upstream, p.Downstream, p.Copied, p.Sequence = 5, 5, 5, 5
		if _, err := w.store.Advance(t.Context(), map[flow.TopicPartition]state.Position{tp: p}); err != nil {
			t.Fatal(err)
		}
		old := w.b.TopicInfo("A.orders").TopicID
		if err := w.b.DeleteTopic("A.orders"); err != nil {
			t.Fatal(err)
		}
		w.run(top)
		now := w.b.TopicInfo("A.orders").TopicID
		if got := w.logs.take("copy was deleted or created again"); len(got) != 1 || !strings.Contains(got[0], "topic=A.orders partition=0 offset=5") {
			t.Errorf("got lines %q, want one about A.orders", got)
		}
		// Whether copying goes on is mirror's to decide where records are missing.
		if p, _ := w.position("orders", 0); p.TargetTopicID != old || p.Upstream != 5 {
			t.Errorf("got position %+v of orders-0, want it untouched", p)
		}
		if p, _ := w.position("orders", 1); p.TargetTopicID != now {
			t.Errorf("got position %+v of orders-1, want it in the new topic", p)
		}
	})
}

// Two deployments of a flow do not share positions, so each would copy everything.
func TestASecondDeploymentBeginsNoTopicThatAnotherIsCopying(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.create(w.a, "bills", 1, nil)
		member, err := kgo.NewClient(append(w.a.opts, kgo.ConsumeTopics("orders"), kgo.ConsumerGroup(topics.Group("first", aToB, "orders")))...)
		if err != nil {
			t.Fatal(err)
		}
		defer member.Close()
		w.produce(w.a, "orders", 0, 1)
		if got := member.PollFetches(t.Context()); got.Err() != nil || got.NumRecords() != 1 {
			t.Fatalf("poll as a member of another deployment's group: %v", got.Err())
		}
		sources := newMappings()
		second := w.topics(with(sources))
		rival, ok := errors.AsType[*topics.RivalError](second.Run(t.Context()))
		want := &topics.RivalError{Flow: aToB, Topic: "orders", Group: "mirrorless/first/A/B/orders", Cluster: "A"}
		if diff := cmp.Diff(want, rival); !ok || diff != "" {
			t.Fatalf("error (-want +got):\n%s", diff)
		}
		if _, ok := w.position("orders", 0); ok {
			t.Error("got a position of orders, want none while another deployment copies it")
		}
		if _, ok := w.position("bills", 0); !ok {
			t.Error("got no position of bills, which nobody else copies")
		}

		member.Close() // leaves the group, which stays
		w.run(second)
		if _, ok := w.position("orders", 0); !ok {
			t.Error("got no position of orders after the other deployment ended")
		}
	})
}

// A deployment that has begun goes on whoever else is there, for it may be the other
// one that has to go; but it says so.
func TestADeploymentThatHasBegunIsNotStoppedByAnother(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.run(w.topics(with(newMappings())))
		member, err := kgo.NewClient(append(w.a.opts, kgo.ConsumeTopics("orders"), kgo.ConsumerGroup(topics.Group("second", aToB, "orders")))...)
		if err != nil {
			t.Fatal(err)
		}
		defer member.Close()
		w.produce(w.a, "orders", 0, 1)
		if got := member.PollFetches(t.Context()); got.Err() != nil {
			t.Fatal(got.Err())
		}
		w.logs.take("")
		w.run(w.topics(with(newMappings())))
		if got := w.logs.take("each record is copied twice"); len(got) != 1 {
			t.Errorf("got %d lines that tell of the other deployment, want one", len(got))
		}
	})
}
