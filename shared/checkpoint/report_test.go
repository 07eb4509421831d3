package checkpoint_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// observed lets the world's rounds report.
func (w *world) observed() *[]checkpoint.Report {
	var reports []checkpoint.Report
	w.options.Observe = func(r checkpoint.Report) { reports = append(reports, r) }
	w.restart()
	return &reports
}

func TestTheLagIsToldWhetherAnythingMovesOrNot(t *testing.T) {
	w := newWorld(t, "emit.checkpoints.enabled = false")
	w.topic("orders", 2, 0)
	reports := w.observed()
	w.a.produce(t, orders, 10)
	w.copied(orders, 0, 1, 2)
	w.a.create(t, 1, "waiting") // topics has not come to it
	waiting := flow.TopicPartition{Topic: "waiting"}
	w.a.produce(t, waiting, 5)
	w.a.expire(t, waiting, 2)
	want := []checkpoint.Lag{
		{TopicPartition: orders, Remote: "A.orders", Offsets: 7},
		{TopicPartition: flow.TopicPartition{Topic: "orders", Partition: 1}, Remote: "A.orders"},
		{TopicPartition: waiting, Remote: "A.waiting", Offsets: 3},
	}
	for range 2 {
		*reports = nil
		w.mustRound()
		if len(*reports) != 1 {
			t.Fatalf("got %d reports, want one", len(*reports))
		}
		if diff := cmp.Diff(want, (*reports)[0].Lags); diff != "" {
			t.Errorf("lags (-want +got):\n%s", diff)
		}
	}
	// Within a minute it does not look again, and nobody is told nothing.
	*reports = nil
	w.pass(10 * time.Second)
	if err := w.Run(t.Context()); err != nil || len(*reports) != 0 {
		t.Errorf("got reports %v, %v after ten seconds, want none", *reports, err)
	}
}

func TestCheckpointsAreReportedEachByItself(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 2, 0)
	second := flow.TopicPartition{Topic: "orders", Partition: 1}
	w.copied(orders, 0, 1, 2)
	w.copied(second, 0, 1, 2)
	for _, group := range []string{"g1", "g2"} {
		w.a.commit(t, group, orders, 1, "")
		w.a.commit(t, group, second, 2, "")
	}
	reports := w.observed()
	w.mustRound()
	var got []string
	for _, r := range *reports {
		for _, c := range r.Checkpoints {
			got = append(got, c.Group+" "+c.TopicPartition.String())
			if c.Took < 0 || c.Took > time.Minute {
				t.Errorf("got %v for %s", c.Took, c.Group)
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"g1 A.orders-0", "g1 A.orders-1", "g2 A.orders-0", "g2 A.orders-1"}, got); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
	*reports = nil
	w.mustRound()
	if len(*reports) != 1 || len((*reports)[0].Checkpoints) != 0 {
		t.Errorf("got reports %+v of a round that wrote none, want lags alone", *reports)
	}
}

// age is the heartbeat's age that the next round reports.
func (w *world) age(reports *[]checkpoint.Report) time.Duration {
	w.t.Helper()
	*reports = nil
	w.mustRound()
	if len(*reports) != 1 {
		w.t.Fatalf("got %d reports, want one", len(*reports))
	}
	return (*reports)[0].Heartbeat
}

func TestTheHeartbeatsAgeIsThatOfTheLastOneThatCameThrough(t *testing.T) {
	w := newWorld(t)
	w.topic("heartbeats", 1, 0)
	beats := flow.TopicPartition{Topic: "heartbeats"}
	reports := w.observed()
	// Before the first beat it counts from the first look.
	for want := range 2 {
		if got := w.age(reports); got != time.Duration(want)*time.Minute {
			t.Errorf("got age %v, want %dm", got, want)
		}
	}
	w.a.produce(t, beats, 1)
	w.copied(beats, 0)
	w.advance(beats, func(pos *state.Position) { pos.Newest = w.now().Add(-3 * time.Second).UnixMilli() })
	if got := w.age(reports); got != time.Minute+3*time.Second {
		t.Errorf("got age %v, want 1m3s", got)
	}
}

func TestWithoutCopiedHeartbeatsTheAgeIsThatOfTheTargets(t *testing.T) {
	w := newWorld(t)
	w.a.create(t, 1, "orders")
	reports := w.observed()
	if got := w.age(reports); got >= 0 {
		t.Errorf("got age %v without a heartbeats topic, want none", got)
	}
	w = newWorld(t, "emit.heartbeats.enabled = false")
	w.b.create(t, 1, "heartbeats")
	if got := w.age(w.observed()); got >= 0 {
		t.Errorf("got age %v of a flow that emits none, want none", got)
	}
	w = newWorld(t)
	w.b.create(t, 1, "heartbeats")
	w.a.create(t, 1, "orders")
	w.began = time.Now() // which the record's timestamp is
	w.b.produce(t, flow.TopicPartition{Topic: "heartbeats"}, 1)
	if got := w.age(w.observed()); got < 59*time.Second || got > 61*time.Second {
		t.Errorf("got age %v a minute after the beat, want a minute", got)
	}
}
