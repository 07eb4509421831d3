package mirror_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// late is how much later than Handle gives up a busy machine may notice it.
const late = 2 * time.Second

// briefly is Handle with so much time.
func briefly(t *testing.T, m *mirror.Mirror, limit time.Duration, rs ...[]kafkaevent.Record) (time.Duration, error) {
	t.Helper()
	var event kafkaevent.Event
	event.Source = kafkaevent.SourceSelfManaged
	for _, r := range rs {
		event.Records = append(event.Records, r...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begun := time.Now()
	_, err := m.Handle(ctx, kafkaevent.Encode(event))
	return time.Since(begun), err
}

// onProduce answers Produce requests from now on, where answer is not nil.
func (w *world) onProduce(answer func(*kmsg.ProduceRequest) *kmsg.ProduceResponse) {
	w.fakeB.ControlKey(kmsg.Produce.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.fakeB.KeepControl()
		if resp := answer(kreq.(*kmsg.ProduceRequest)); resp != nil {
			return resp, nil, true
		}
		return nil, nil, false
	})
}

// hasPartition says whether a request writes to a partition of the only topic.
func hasPartition(req *kmsg.ProduceRequest, partition int32) bool {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition {
				return true
			}
		}
	}
	return false
}

func inPartition(rs []kafkaevent.Record, partition int32) []kafkaevent.Record {
	for i := range rs {
		rs[i].Partition = partition
	}
	return rs
}

func TestWhatBrokersWillTakeLaterIsWaitedForUntilAMomentBeforeTheDeadline(t *testing.T) {
	for name, code := range map[string]int16{
		"NOT_ENOUGH_REPLICAS":              kerr.NotEnoughReplicas.Code,
		"NOT_ENOUGH_REPLICAS_AFTER_APPEND": kerr.NotEnoughReplicasAfterAppend.Code,
		"NOT_LEADER_FOR_PARTITION":         kerr.NotLeaderForPartition.Code,
		"REQUEST_TIMED_OUT":                kerr.RequestTimedOut.Code,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var healed atomic.Bool
			w.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
				if healed.Load() || !hasPartition(req, 1) {
					return nil
				}
				return refuseProduce(req, 0, code)
			})
			m := w.cold()
			w.must(m, numbered(0, 5)) // alone, since the fake's answer is for a whole request
			const limit = 4 * time.Second
			took, err := briefly(t, m, limit, inPartition(numbered(0, 5), 1))
			if err == nil || !strings.Contains(err.Error(), "copy orders-1 at offset 0") || !strings.Contains(err.Error(), name) ||
				!strings.Contains(err.Error(), "the function's time is up") {
				t.Errorf("got %v, want what was waited for", err)
			}
			if took >= limit+late || took < limit/3 {
				t.Errorf("gave up after %v of %v", took, limit)
			}
			healed.Store(true)
			w.must(m, inPartition(numbered(0, 5), 1))
			if got := len(w.records("A.orders", 1)); got != 5 {
				t.Errorf("got %d records of orders-1, want 5", got)
			}
			w.wantKeys(0, 5)
		})
	}
}

func TestAThrottleIsKeptToAndNamed(t *testing.T) {
	w := newWorld(t)
	w.set("A.orders", "max.message.bytes", "20000")
	rs := numbered(0, 6) // each a batch of its own
	for i := range rs {
		rs[i].Value = make([]byte, 15_000)
	}
	var requests atomic.Int32
	var throttle atomic.Int32
	throttle.Store(60_000)
	w.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		if requests.Add(1) == 4 {
			return refuseProduce(req, throttle.Load(), kerr.RequestTimedOut.Code)
		}
		return nil
	})
	const limit = 4 * time.Second
	took, err := briefly(t, w.cold(), limit, rs)
	if err == nil || !strings.Contains(err.Error(), "broker throttles this client for") || !strings.Contains(err.Error(), "producer_byte_rate") {
		t.Errorf("got %v, want the quota named", err)
	}
	if took >= limit+late {
		t.Errorf("gave up after %v of %v", took, limit)
	}
	got, position := len(w.keys()), w.position().Upstream
	if got == 0 || int64(got) != position {
		t.Errorf("got %d records on B and position %d, want the progress kept", got, position)
	}
	if n := requests.Load(); n != 4 {
		t.Errorf("got %d requests, want none while the broker throttles", n)
	}
	// Another environment is another client.
	other, err := kgo.NewClient(kgo.SeedBrokers(w.fakeB.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	throttle.Store(0)
	w.must(mirror.New(mirror.Options{Settings: w.settings, Store: w.store, Target: target.New(other, target.Options{}), Source: w.a}), rs)
	w.wantKeys(0, 6)
}

func TestATargetOutOfReachIsNamedBeforeTheDeadline(t *testing.T) {
	w := newWorld(t)
	m := w.cold()
	w.must(m, numbered(0, 3))
	w.fakeB.Close()
	for _, m := range []*mirror.Mirror{m, w.cold()} {
		took, err := briefly(t, m, 2*time.Second, numbered(3, 6))
		if err == nil || took >= 2*time.Second+late {
			t.Errorf("got %v after %v, want an error before the deadline of 2 s", err, took)
		}
	}
	if got := w.position().Upstream; got != 3 {
		t.Errorf("position is at %d, want 3", got)
	}
}

// throttled is a store that answers no write.
type throttled struct {
	state.Store
	on atomic.Bool
}

func (s *throttled) Advance(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	if s.on.Load() {
		<-ctx.Done()
		return nil, errors.Join(errors.New("ProvisionedThroughputExceededException"), context.Cause(ctx))
	}
	return s.Store.Advance(ctx, next)
}

func TestAStoreThatThrottlesAfterAGoodAppendIsGivenUpBeforeTheDeadline(t *testing.T) {
	w := newWorld(t)
	store := &throttled{Store: w.store}
	fresh := func() *mirror.Mirror {
		return mirror.New(mirror.Options{Settings: w.settings, Store: store, Target: target.New(w.b, target.Options{}), Source: w.a})
	}
	m := fresh()
	w.must(m, numbered(0, 3))
	store.on.Store(true)
	took, err := briefly(t, m, 2*time.Second, numbered(3, 6))
	if err == nil || !strings.Contains(err.Error(), "store the position after upstream offset 5, whose copy is on B") || !strings.Contains(err.Error(), "ProvisionedThroughput") {
		t.Errorf("got %v, want that the copy is on B", err)
	}
	if took >= 2*time.Second+late {
		t.Errorf("gave up after %v of 2 s", took)
	}
	w.wantKeys(0, 6)
	if got := w.position().Upstream; got != 3 {
		t.Errorf("position is at %d, want 3", got)
	}
	store.on.Store(false)
	w.must(m, numbered(3, 8))
	w.must(fresh(), numbered(0, 8))
	w.wantKeys(0, 8)
	if got := w.position().Upstream; got != 8 {
		t.Errorf("position is at %d, want 8", got)
	}
}

// TestAPartitionWithoutALeaderDoesNotHoldUpAnother is of a cold environment, which
// asks the leaders who was there.
func TestAPartitionWithoutALeaderDoesNotHoldUpAnother(t *testing.T) {
	w := newWorld(t)
	w.fakeB.ControlKey(kmsg.DescribeProducers.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.fakeB.KeepControl()
		req := kreq.(*kmsg.DescribeProducersRequest)
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, t := range req.Topics {
			answered := kmsg.NewDescribeProducersResponseTopic()
			answered.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewDescribeProducersResponseTopicPartition()
				if rp.Partition = p; p == 1 {
					rp.ErrorCode = kerr.LeaderNotAvailable.Code
				}
				answered.Partitions = append(answered.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, answered)
		}
		return resp, nil, true
	})
	_, err := briefly(t, w.cold(), 3*time.Second, inPartition(numbered(0, 3), 1), numbered(0, 3))
	if err == nil || !strings.Contains(err.Error(), "copy orders-1 at offset 0: describe producers of A.orders-1") || strings.Contains(err.Error(), "orders-0") {
		t.Errorf("got %v, want orders-1 named alone", err)
	}
	w.wantKeys(0, 3)
}
