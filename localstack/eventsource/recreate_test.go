package eventsource_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/localstack/eventsource"
)

// recreate deletes the topic and creates it again with some partitions.
func (w *world) recreate(partitions int32, between time.Duration) {
	w.t.Helper()
	admin := kadm.NewClient(w.client)
	if _, err := admin.DeleteTopics(w.t.Context(), topic); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(between)
	if _, err := admin.CreateTopic(w.t.Context(), partitions, 1, nil, topic); err != nil {
		w.t.Fatal(err)
	}
	w.client.PurgeTopicsFromClient(topic)
}

func TestATopicThatIsCreatedAgainIsReadFromItsStart(t *testing.T) {
	for name, test := range map[string]struct {
		start    eventsource.StartingPosition
		instance string
		after    int32
		between  time.Duration
	}{
		"at once":                   {start: eventsource.TrimHorizon(), after: 2},
		"as a static member":        {start: eventsource.TrimHorizon(), after: 2, instance: "run"},
		"after a minute":            {start: eventsource.TrimHorizon(), after: 2, between: time.Minute},
		"with fewer partitions":     {start: eventsource.TrimHorizon(), after: 1},
		"with more partitions":      {start: eventsource.TrimHorizon(), after: 4},
		"where new ones begin late": {start: eventsource.Latest(), after: 2},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 2, func(t *testing.T, w *world) {
				o := w.options()
				o.Start, o.InstanceID = test.start, test.instance
				m := w.start(o)
				time.Sleep(5 * time.Second)
				w.produce(0, 50)
				time.Sleep(5 * time.Second)
				w.recreate(test.after, test.between)
				w.produce(0, 70) // more than the old topic had
				time.Sleep(time.Minute)
				if diff := cmp.Diff([]string{"0:0..49", "0:0..69"}, summary(w.seen())); diff != "" {
					t.Errorf("calls differ (-want +got):\n%s", diff)
				}
				w.produce(test.after-1, 1)
				time.Sleep(time.Minute)
				if got := len(w.seen()); got != 3 {
					t.Errorf("got %d calls, want the third with a record that came later", got)
				}
				if p := m.Progress(); p.Err != nil || len(p.Partitions) != int(test.after) {
					t.Errorf("got the progress %+v, want no error and %d partitions", p, test.after)
				}
				w.stop(m)
			})
		})
	}
}

// Before Kafka 4.2 a late commit of the old topic counts for the new one.
func TestTheGroupsOffsetOfADeletedTopicIsNotThatOfItsSuccessor(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 50)
		m := w.start(w.options())
		time.Sleep(5 * time.Second)
		w.recreate(1, 0)
		var committed atomic.Bool
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			committed.Store(true)
			return nil, nil, false
		})
		w.cluster.ControlKey(int16(kmsg.OffsetFetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
			if committed.Load() {
				return nil, nil, false
			}
			w.cluster.KeepControl()
			return everyOffset(request.(*kmsg.OffsetFetchRequest), 50), nil, true
		})
		w.produce(0, 70)
		time.Sleep(time.Minute)
		if !committed.Load() {
			t.Error("got no commit")
		}
		if diff := cmp.Diff([]string{"0:0..49", "0:0..69"}, summary(w.seen())); diff != "" {
			t.Errorf("calls differ (-want +got):\n%s", diff)
		}
		w.expectCommitted(0, 70)
		if err := m.Progress().Err; err != nil {
			t.Errorf("got %v, want no error", err)
		}
	})
}

// everyOffset answers that a group is at an offset in all partitions.
func everyOffset(req *kmsg.OffsetFetchRequest, offset int64) *kmsg.OffsetFetchResponse {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, g := range req.Groups {
		rg := kmsg.NewOffsetFetchResponseGroup()
		rg.Group = g.Group
		for _, t := range g.Topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				rp.Partition, rp.Offset = p, offset
				rt.Partitions = append(rt.Partitions, rp)
			}
			rg.Topics = append(rg.Topics, rt)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

// What is in flight ends before anything of the new topic is sent, and what
// waits behind it is dropped: the function would take its offsets for the new
// topic's.
func TestAnInvocationOfADeletedTopicEndsBeforeItsSuccessorIsRead(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.answer(func(n int, _ call) ([]byte, error) {
			if n == 1 {
				time.Sleep(2 * time.Minute)
				return nil, errRefused // and is not sent again
			}
			return nil, nil
		})
		w.produce(0, 150)
		m := w.start(w.options())
		time.Sleep(5 * time.Second)
		w.recreate(1, 0)
		w.produce(0, 3)
		time.Sleep(time.Minute)
		if got := len(w.seen()); got != 1 {
			t.Errorf("got %d calls while the first is in flight, want it alone", got)
		}
		time.Sleep(3 * time.Minute)
		if diff := cmp.Diff([]string{"0:0..99", "0:0..2"}, summary(w.seen())); diff != "" {
			t.Errorf("calls differ (-want +got):\n%s", diff)
		}
		w.expectCommitted(0, 3)
		w.stop(m)
	})
}

// The group's offset lies beyond the end of a topic that was created again while
// no mapping ran.
func TestAnOffsetBeyondTheEndStartsOver(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		var beyond kadm.Offsets
		beyond.AddOffset(topic, 0, 500, -1)
		if err := kadm.NewClient(w.client).CommitAllOffsets(t.Context(), group, beyond); err != nil {
			t.Fatal(err)
		}
		w.produce(0, 3)
		m := w.start(w.options())
		time.Sleep(time.Minute)
		w.produceRecords(0, &kgo.Record{})
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"0:0..2", "0:3..3"}, summary(w.seen())); diff != "" {
			t.Errorf("calls differ (-want +got):\n%s", diff)
		}
		w.expectCommitted(0, 4)
		if p := m.Progress(); p.Err != nil || p.Partitions[0].Next != 4 {
			t.Errorf("got the progress %+v, want no error and 4 as the next offset", p)
		}
	})
}
