package eventsource_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/shared/kafkaevent"
)

func TestAFailedBatchComesAgainWhole(t *testing.T) {
	in(t, 2, func(t *testing.T, w *world) {
		w.produce(0, 20)
		w.produce(1, 20)
		w.answer(func(n int, _ call) ([]byte, error) {
			if n <= 4 {
				w.expectCommitted(0, -1)
			}
			if n <= 3 {
				return nil, errRefused
			}
			return nil, nil
		})
		m := w.start(w.options())
		time.Sleep(700 * time.Millisecond) // the window, and two attempts
		w.produce(0, 5)                    // wait for the failed batch
		if p := m.Progress().Partitions[0]; !errors.Is(p.Err, errRefused) || p.Failed != 2 || !p.InFlight {
			t.Errorf("got the progress %+v, want two failures of the batch in flight", p)
		}
		time.Sleep(5 * time.Second)
		calls := w.seen()
		again := "0:0..19 1:0..19"
		if diff := cmp.Diff([]string{again, again, again, again, "0:20..24"}, summary(calls)); diff != "" {
			t.Fatalf("calls differ (-want +got):\n%s", diff)
		}
		for i, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
			if got := calls[i+1].at - calls[i].at; got != want {
				t.Errorf("got %v before repetition %d, want %v", got, i+1, want)
			}
		}
		w.expectCommitted(0, 25)
		w.expectCommitted(1, 20)
		p := m.Progress()
		if p.Partitions[0].Err != nil || p.Partitions[0].Failed != 0 || p.Stats.Failures != 3 || p.Stats.Invocations != 5 {
			t.Errorf("got the progress %+v, want no failure left, 3 of 5 invocations failed", p)
		}
	})
}

func TestARefusedPartitionDoesNotHoldUpOthers(t *testing.T) {
	in(t, 3, func(t *testing.T, w *world) {
		w.answer(func(_ int, c call) ([]byte, error) {
			if c.records[0].Partition == 1 {
				return nil, errRefused
			}
			return nil, nil
		})
		o := w.options()
		o.Concurrency = 1 // the waiting repetition does not hold it
		o.BatchSize = 10
		w.start(o)
		w.produce(1, 10)
		time.Sleep(time.Second)
		for range 5 {
			w.produce(0, 10)
			w.produce(2, 10)
			time.Sleep(time.Minute)
		}
		w.expectCommitted(0, 50)
		w.expectCommitted(1, -1)
		w.expectCommitted(2, 50)
	})
}

// A reply with batchItemFailures: the named records come again, what comes
// before the first of them is committed, and what comes after it counts as done.
func TestNamedFailuresComeAgain(t *testing.T) {
	in(t, 2, func(t *testing.T, w *world) {
		w.produce(0, 10)
		w.produce(1, 10)
		failure := func(offset int64) kafkaevent.Failure {
			return kafkaevent.Failure{Topic: topic, Partition: 0, Offset: offset}
		}
		w.answer(func(n int, _ call) ([]byte, error) {
			switch n {
			case 1:
				return kafkaevent.EncodeFailures([]kafkaevent.Failure{failure(4), failure(6), failure(7)}), nil
			case 2:
				return kafkaevent.EncodeFailures([]kafkaevent.Failure{failure(6)}), nil
			}
			return []byte(`{"batchItemFailures":[]}`), nil
		})
		o := w.options()
		o.Failures = true
		o.Backoff = func(int) time.Duration { return time.Minute }
		w.start(o)
		time.Sleep(30 * time.Second)
		w.expectCommitted(0, 4)
		w.expectCommitted(1, 10)
		time.Sleep(time.Minute)
		w.expectCommitted(0, 6)
		time.Sleep(time.Minute)
		w.expectCommitted(0, 10)
		if diff := cmp.Diff([]string{"0:0..9 1:0..9", "0:4..4 0:6..7", "0:6..6"}, summary(w.seen())); diff != "" {
			t.Errorf("calls differ (-want +got):\n%s", diff)
		}
	})
}

func TestRepliesThatFailTheWholeBatch(t *testing.T) {
	for name, reply := range map[string]string{
		"not JSON":              `oops`,
		"an offset not sent":    `{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-0","offset":2}},{"itemIdentifier":{"partition":"orders-0","offset":99}}]}`,
		"a partition not sent":  `{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-7","offset":2}}]}`,
		"another topic":         `{"batchItemFailures":[{"itemIdentifier":{"partition":"A.orders-0","offset":2}}]}`,
		"an identifier lacking": `{"batchItemFailures":[{"itemIdentifier":{}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 1, func(t *testing.T, w *world) {
				w.produce(0, 10)
				w.answer(func(n int, _ call) ([]byte, error) {
					if n == 1 {
						return []byte(reply), nil
					}
					return nil, nil
				})
				o := w.options()
				o.Failures = true
				w.start(o)
				time.Sleep(5 * time.Second)
				if diff := cmp.Diff([]string{"0:0..9", "0:0..9"}, summary(w.seen())); diff != "" {
					t.Errorf("calls differ (-want +got):\n%s", diff)
				}
				w.expectCommitted(0, 10)
			})
		})
	}
}

// Without ReportBatchItemFailures a reply means nothing, whatever it says.
func TestARepliedFailureIsSuccessUnlessSwitchedOn(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 10)
		w.answer(func(int, call) ([]byte, error) {
			return kafkaevent.EncodeFailures([]kafkaevent.Failure{{Topic: topic, Partition: 0, Offset: 4}}), nil
		})
		w.start(w.options())
		time.Sleep(5 * time.Second)
		if got := len(w.seen()); got != 1 {
			t.Errorf("got %d calls, want 1", got)
		}
		w.expectCommitted(0, 10)
	})
}

func TestFaults(t *testing.T) {
	first := func(f eventsource.Fault) eventsource.Faults {
		return eventsource.Faults{BeforeInvoke: func(i eventsource.Invocation) eventsource.Fault {
			if i.Attempt == 1 {
				return f
			}
			return eventsource.Fault{}
		}}
	}
	for name, test := range map[string]struct {
		faults eventsource.Faults
		want   int // calls
		delay  time.Duration
	}{
		"a lost invocation is repeated":       {first(eventsource.Fault{Lose: true}), 1, 100 * time.Millisecond},
		"a lost reply repeats what was done":  {first(eventsource.Fault{LoseReply: true}), 2, 0},
		"a duplicate comes later, and unseen": {first(eventsource.Fault{Duplicates: 2, DuplicateDelay: time.Minute}), 3, 0},
		"a delay delays":                      {first(eventsource.Fault{Delay: time.Minute}), 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 1, func(t *testing.T, w *world) {
				w.produce(0, 10)
				w.answer(func(n int, c call) ([]byte, error) { return nil, nil })
				o := w.options()
				o.Window = eventsource.NoWindow
				o.Faults = test.faults
				// Duplicates run side by side, which the harness would object to.
				o.Invoker = eventsource.InvokerFunc(w.count)
				w.start(o)
				time.Sleep(3 * time.Minute)
				calls := w.seen()
				if len(calls) != test.want {
					t.Fatalf("got calls %v, want %d", summary(calls), test.want)
				}
				if calls[0].at < test.delay {
					t.Errorf("got the first call after %v, want at least %v", calls[0].at, test.delay)
				}
				for _, c := range calls {
					if diff := cmp.Diff(upTo(10), offsets([]call{c}, 0)); diff != "" {
						t.Errorf("a call differs (-want +got):\n%s", diff)
					}
				}
				w.expectCommitted(0, 10)
			})
		})
	}
}

// A crash between the function's success and the commit: the records come again.
func TestAKillBeforeTheCommitDeliversAgain(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 250)
		o := w.options()
		reached, killed := make(chan struct{}), make(chan struct{})
		o.Faults.BeforeCommit = func(i eventsource.Invocation) {
			if i.Ranges[0].First == 100 {
				time.Sleep(time.Second) // the commit of the batch before is made meanwhile
				close(reached)
				<-killed
			}
		}
		m := w.start(o)
		<-reached
		m.Kill()
		close(killed)
		o.Faults = eventsource.Faults{}
		time.Sleep(time.Minute)
		w.expectCommitted(0, 100)
		w.start(o)
		time.Sleep(time.Minute)
		want := []string{"0:0..99", "0:100..199", "0:100..199", "0:200..249"}
		if diff := cmp.Diff(want, summary(w.seen())); diff != "" {
			t.Errorf("calls differ (-want +got):\n%s", diff)
		}
		w.expectCommitted(0, 250)
	})
}

// What waits behind a refused batch is bounded, and does not keep others from
// being read; nothing of it is lost.
func TestARefusedPartitionIsPaused(t *testing.T) {
	in(t, 2, func(t *testing.T, w *world) {
		const large, small = 30, 200
		for range large {
			w.produceRecords(0, &kgo.Record{Value: make([]byte, 1_000_000)})
		}
		w.answer(func(_ int, c call) ([]byte, error) {
			if c.records[0].Partition == 0 {
				return nil, errRefused
			}
			return nil, nil
		})
		o := w.options()
		o.Backoff = func(int) time.Duration { return 40 * time.Second }
		m := w.start(o)
		time.Sleep(time.Minute)
		w.produce(1, small)
		time.Sleep(time.Minute)
		w.expectCommitted(1, small)
		if p := m.Progress().Partitions[0]; p.Waiting < 4 || p.Waiting > 26 {
			t.Errorf("got %d records of 1 MB waiting, want at most half of 64 MB of payload", p.Waiting)
		}
		w.answer(nil)
		time.Sleep(time.Minute)
		w.expectCommitted(0, large)
	})
}
