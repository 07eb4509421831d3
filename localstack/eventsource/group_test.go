package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
)

func TestStartingPositions(t *testing.T) {
	stamp := func(i int) time.Time { return time.UnixMilli(1_700_000_000_000).Add(time.Duration(i) * time.Second) }
	for name, test := range map[string]struct {
		start eventsource.StartingPosition
		want  string
	}{
		"trim horizon":          {eventsource.TrimHorizon(), "0:0..11"},
		"latest":                {eventsource.Latest(), "0:10..11"},
		"a timestamp":           {eventsource.AtTimestamp(stamp(7)), "0:7..11"},
		"a timestamp after all": {eventsource.AtTimestamp(stamp(1000)), "0:10..11"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 1, func(t *testing.T, w *world) {
				for i := range 10 {
					w.produceRecords(0, &kgo.Record{Timestamp: stamp(i)})
				}
				o := w.options()
				o.Window = 20 * time.Second
				o.Start = test.start
				w.start(o)
				time.Sleep(10 * time.Second)
				w.produce(0, 2)
				time.Sleep(time.Minute)
				if diff := cmp.Diff([]string{test.want}, summary(w.seen())); diff != "" {
					t.Errorf("calls differ (-want +got):\n%s", diff)
				}
				w.expectCommitted(0, 12)
			})
		})
	}
}

func TestTheStartingPositionIsIgnoredWhereTheGroupHasOffsets(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 10)
		var at kadm.Offsets
		at.AddOffset(topic, 0, 4, -1)
		if err := kadm.NewClient(w.client).CommitAllOffsets(t.Context(), group, at); err != nil {
			t.Fatal(err)
		}
		o := w.options()
		o.Start = eventsource.Latest()
		w.start(o)
		time.Sleep(5 * time.Second)
		if diff := cmp.Diff([]string{"0:4..9"}, summary(w.seen())); diff != "" {
			t.Errorf("calls differ (-want +got):\n%s", diff)
		}
	})
}

func TestAStoppedMappingIsContinued(t *testing.T) {
	for _, instance := range []string{"", "run"} {
		t.Run("instance "+instance, func(t *testing.T) {
			in(t, 2, func(t *testing.T, w *world) {
				w.produce(0, 150)
				w.answer(func(int, call) ([]byte, error) { time.Sleep(2 * time.Second); return nil, nil })
				o := w.options()
				o.InstanceID = instance
				m := w.start(o)
				time.Sleep(time.Second)
				stopping := time.Now()
				w.stop(m) // with the first 100 in flight
				if took := time.Since(stopping); took > 5*time.Second {
					t.Errorf("got %v to stop, want the end of the invocation", took)
				}
				w.expectCommitted(0, 100)
				described, err := kadm.NewClient(w.client).DescribeGroups(t.Context(), group)
				if err != nil || len(described[group].Members) != 0 {
					t.Errorf("got members %v (%v), want the group left", described[group].Members, err)
				}
				w.start(o)
				time.Sleep(20 * time.Second)
				if diff := cmp.Diff([]string{"0:0..99", "0:100..149"}, summary(w.seen())); diff != "" {
					t.Errorf("calls differ (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestStopGivesUpAnInvocationThatDoesNotEnd(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 10)
		o := w.options()
		var cancelled atomic.Bool
		o.Invoker = eventsource.InvokerFunc(func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			cancelled.Store(true)
			return nil, ctx.Err()
		})
		m := w.start(o)
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := m.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline exceeded", err)
		}
		time.Sleep(time.Second)
		if !cancelled.Load() {
			t.Error("the invocation was not cancelled")
		}
		w.expectCommitted(0, -1)
	})
}

// Mappings of one group come and go under load: partitions wander, and every
// record is delivered once and in order, since what is in flight may end before
// its partition is given up.
func TestPartitionsWander(t *testing.T) {
	in(t, 6, func(t *testing.T, w *world) {
		w.answer(func(int, call) ([]byte, error) { time.Sleep(300 * time.Millisecond); return nil, nil })
		o := w.options()
		o.BatchSize = 10
		total := 0
		feed := func(rounds int) {
			for range rounds {
				for p := range int32(6) {
					w.produce(p, 25)
				}
				total += 25
				time.Sleep(700 * time.Millisecond)
			}
		}
		first := w.start(o)
		feed(10)
		second := w.start(o)
		feed(10)
		if a, b := len(first.Progress().Partitions), len(second.Progress().Partitions); a != 3 || b != 3 {
			t.Errorf("got %d and %d partitions, want 3 each", a, b)
		}
		w.stop(first)
		feed(10)
		w.start(o)
		feed(5)
		time.Sleep(2 * time.Minute)
		for p := range int32(6) {
			if diff := cmp.Diff(upTo(total), offsets(w.seen(), p)); diff != "" {
				t.Errorf("records of partition %d differ (-want +got):\n%s", p, diff)
			}
			w.expectCommitted(p, int64(total))
		}
	})
}

// A partition whose batch fails again and again can be taken away, and goes on
// elsewhere.
func TestARefusedPartitionWanders(t *testing.T) {
	in(t, 2, func(t *testing.T, w *world) {
		w.produce(0, 10)
		w.produce(1, 10)
		w.answer(func(int, call) ([]byte, error) { return nil, errRefused })
		first := w.start(w.options())
		time.Sleep(30 * time.Second)
		w.start(w.options())
		time.Sleep(30 * time.Second)
		if got := len(first.Progress().Partitions); got != 1 {
			t.Errorf("got %d partitions, want one to have gone", got)
		}
		w.answer(nil)
		time.Sleep(time.Minute)
		w.expectCommitted(0, 10)
		w.expectCommitted(1, 10)
	})
}

// The next one does not wait for the end of a dead one's session.
func TestAStaticMemberComesBackAtOnce(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 10)
		o := w.options()
		o.InstanceID = "run"
		o.Window = eventsource.NoWindow
		m := w.start(o)
		time.Sleep(time.Second)
		m.Kill()
		w.produce(0, 10)
		back := time.Since(w.begin)
		w.start(o)
		time.Sleep(time.Minute)
		calls := w.seen()
		if diff := cmp.Diff([]string{"0:0..9", "0:10..19"}, summary(calls)); diff != "" {
			t.Fatalf("calls differ (-want +got):\n%s", diff)
		}
		if took := calls[1].at - back; took > 2*time.Second {
			t.Errorf("got the first records after %v, want them at once", took)
		}
	})
}

func TestProgress(t *testing.T) {
	in(t, 2, func(t *testing.T, w *world) {
		w.produce(0, 130)
		release := make(chan struct{})
		w.answer(func(n int, _ call) ([]byte, error) {
			if n == 2 {
				<-release
			}
			return nil, nil
		})
		o := w.options()
		o.Window = 10 * time.Second
		m := w.start(o)
		time.Sleep(5 * time.Second)
		progress := func() (lines []string) {
			for _, p := range m.Progress().Partitions {
				lines = append(lines, fmt.Sprintf("%d: %d/%d waiting %d in flight %v delivered %d behind %d",
					p.Partition, p.Next, p.End, p.Waiting, p.InFlight, p.Delivered, p.Behind()))
			}
			return lines
		}
		idle := "1: 0/0 waiting 0 in flight false delivered 0 behind 0"
		want := []string{"0: 100/130 waiting 30 in flight false delivered 100 behind 30", idle}
		if diff := cmp.Diff(want, progress()); diff != "" {
			t.Errorf("progress differs (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Second)
		want = []string{"0: 100/130 waiting 0 in flight true delivered 100 behind 30", idle}
		if diff := cmp.Diff(want, progress()); diff != "" {
			t.Errorf("progress differs (-want +got):\n%s", diff)
		}
		close(release)
		time.Sleep(time.Second)
		want = []string{"0: 130/130 waiting 0 in flight false delivered 130 behind 0", idle}
		if diff := cmp.Diff(want, progress()); diff != "" {
			t.Errorf("progress differs (-want +got):\n%s", diff)
		}
		w.stop(m)
		m = w.start(o)
		time.Sleep(5 * time.Second)
		want = []string{"0: 130/130 waiting 0 in flight false delivered 0 behind 0", idle}
		if diff := cmp.Diff(want, progress()); diff != "" {
			t.Errorf("progress of a new mapping differs (-want +got):\n%s", diff)
		}
	})
}

func TestProgressSaysWhatHinders(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		says := func(m *eventsource.Mapping, want string) {
			t.Helper()
			if err := m.Progress().Err; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
		o := w.options()
		o.Client = append(o.Client[:len(o.Client):len(o.Client)], kgo.SeedBrokers("localhost:1"))
		away := w.start(o)
		o = w.options()
		o.Topic = "invoices"
		missing := w.start(o)
		time.Sleep(20 * time.Second)
		says(away, "dial")
		says(missing, "UNKNOWN_TOPIC_OR_PARTITION")
		if _, err := kadm.NewClient(w.client).CreateTopic(t.Context(), 1, 1, nil, "invoices"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if p := missing.Progress(); p.Err != nil || len(p.Partitions) != 1 {
			t.Errorf("got the progress %+v of a topic created late, want no error and its partition", p)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := eventsource.Start(eventsource.Options{Topic: "orders", BatchSize: 20_000, Window: time.Hour})
	for _, want := range []string{"no group", "no invoker", "batch size 20000", "batching window 1h"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
