package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/localstack/eventsource"
)

// link is the way to the cluster of one mapping, which can be cut.
type link struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
	tries int
}

func (l *link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		// As of a cluster of several brokers, which are tried in turn.
		l.tries++
		return nil, fmt.Errorf("dial tcp 10.0.0.%d:909%d: connect: connection refused", l.tries%3+1, l.tries%3)
	}
	conn, err := l.dial(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// logged is what the mapping logged, a line for each message, without time.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns how often each message was logged.
func (l *logged) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for line := range strings.Lines(l.buf.String()) {
		_, message, _ := strings.Cut(line, "msg=")
		if message, _, _ = strings.Cut(message, " topic="); message != "" {
			counts[strings.Trim(message, `"`)]++
		}
	}
	return counts
}

// An idle topic has nothing to tell of the end of an outage.
func TestAnOutageOfTheSourceEndsWithoutARecord(t *testing.T) {
	for _, instance := range []string{"", "run"} {
		t.Run("instance "+instance, func(t *testing.T) {
			in(t, 1, func(t *testing.T, w *world) {
				o := w.options()
				way, log := w.link(&o), &logged{}
				o.Log, o.InstanceID = log.logger(), instance
				m := w.start(o)
				time.Sleep(10 * time.Second)
				way.set(true)
				began := time.Now()
				time.Sleep(10 * time.Minute)
				p := m.Progress()
				if p.Err == nil || !strings.Contains(p.Err.Error(), "read orders: unable to join group session: ") || strings.Contains(p.Err.Error(), " -0") {
					t.Errorf("got %v in an outage, want what is wrong with orders", p.Err)
				}
				if !p.LastFailed.After(began.Add(8 * time.Minute)) {
					t.Errorf("got %v as the time of the last failure, want one near the end of the outage", p.LastFailed)
				}
				way.set(false)
				time.Sleep(time.Minute)
				if p := m.Progress(); p.Err != nil || len(p.Partitions) != 1 {
					t.Errorf("got the progress %+v after the outage, want no error and the partition", p)
				}
				counts := log.count()
				if n := counts["reading fails"] + counts["no partitions to read"]; n < 1 || n > 5 {
					t.Errorf("got %d lines on the outage, want a line for each kind of failure: %s", n, log.buf.String())
				}
				if counts["reads again"] != 1 {
					t.Errorf("got the messages %v, want the end of the outage once", counts)
				}
			})
		})
	}
}

// link gives the mapping a way of its own to the cluster.
func (w *world) link(o *eventsource.Options) *link {
	way := &link{dial: w.dial}
	o.Client = append(o.Client[:len(o.Client):len(o.Client)], kgo.Dialer(way.DialContext))
	return way
}

// The brokers refuse the fetches of an idle topic for a while.
func TestARefusedFetchOfAnIdleTopicEnds(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		o := w.options()
		log := &logged{}
		o.Log = log.logger()
		m := w.start(o)
		time.Sleep(10 * time.Second)
		var answered atomic.Bool
		w.cluster.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if answered.Load() {
				return nil, nil, false
			}
			req := request.(*kmsg.FetchRequest)
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			for _, t := range req.Topics {
				rt := kmsg.NewFetchResponseTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					rp := kmsg.NewFetchResponseTopicPartition()
					rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		w.produce(0, 1) // ends the fetch that waits
		time.Sleep(5 * time.Minute)
		if err := m.Progress().Err; !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "fetch orders-0: ") {
			t.Errorf("got %v, want that orders-0 may not be read", err)
		}
		answered.Store(true)
		time.Sleep(2 * time.Minute)
		if err := m.Progress().Err; err != nil {
			t.Errorf("got %v, want no error once the fetches are answered", err)
		}
		if diff := cmp.Diff(map[string]int{"reading fails": 1, "reads again": 1}, log.count()); diff != "" {
			t.Errorf("messages differ (-want +got):\n%s", diff)
		}
	})
}

// What could not be committed went with the partition.
func TestACommitThatFailedIsForgottenWithItsPartition(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		o := w.options()
		way, log := w.link(&o), &logged{}
		o.Log = log.logger()
		w.answer(func(int, call) ([]byte, error) { time.Sleep(10 * time.Second); return nil, nil })
		m := w.start(o)
		time.Sleep(5 * time.Second)
		w.produce(0, 1)
		time.Sleep(5 * time.Second)
		way.set(true)
		time.Sleep(10 * time.Minute)
		way.set(false)
		time.Sleep(2 * time.Minute)
		if p := m.Progress(); p.Err != nil {
			t.Errorf("got %v, want no error after the outage", p.Err)
		}
		w.expectCommitted(0, 1)
		for message, n := range log.count() {
			if n > 4 {
				t.Errorf("got %q %d times, want no repetitions", message, n)
			}
		}
	})
}

// The function fails while the target is away.
func TestAnOutageOfTheTargetIsLoggedOnce(t *testing.T) {
	in(t, 2, func(t *testing.T, w *world) {
		o := w.options()
		log := &logged{}
		o.Log = log.logger()
		w.answer(func(n int, _ call) ([]byte, error) {
			return nil, fmt.Errorf("produce A.orders-0: dial tcp 10.0.0.%d:9092: connect: connection refused", n%3)
		})
		w.produce(0, 10)
		w.produce(1, 10)
		m := w.start(o)
		time.Sleep(10 * time.Minute)
		for _, p := range m.Progress().Partitions {
			if p.Err == nil || p.Failed < 10 || time.Since(p.LastFailed) > time.Minute {
				t.Errorf("got %+v, want the last failure and when it was", p)
			}
		}
		w.answer(nil)
		time.Sleep(time.Minute)
		for _, p := range m.Progress().Partitions {
			if p.Err != nil || p.Failed != 0 {
				t.Errorf("got %+v, want no error after a success", p)
			}
		}
		if diff := cmp.Diff(map[string]int{"invocation failed": 1, "invocations succeed again": 1}, log.count()); diff != "" {
			t.Errorf("messages differ (-want +got):\n%s", diff)
		}
	})
}

// While the topic is away, that is said once.
func TestADeletedTopicIsLoggedOnce(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world) {
		w.produce(0, 5)
		o := w.options()
		log := &logged{}
		o.Log = log.logger()
		m := w.start(o)
		time.Sleep(5 * time.Second)
		if _, err := kadm.NewClient(w.client).DeleteTopics(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if err := m.Progress().Err; !errors.Is(err, kerr.UnknownTopicID) {
			t.Errorf("got %v, want that the topic is not known", err)
		}
		if diff := cmp.Diff(map[string]int{"reading fails": 1}, log.count()); diff != "" {
			t.Errorf("messages differ (-want +got):\n%s", diff)
		}
	})
}
