package target

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
)

// sender shares Produce requests to one broker. A broker handles one request
// of a connection at a time and answers after its followers have the records,
// so five hundred partitions must not take five hundred rounds. The first batch
// goes at once; those that arrive while its request is under way share the
// next. One request holds one batch of a partition, which is all that magic 2
// allows. Nothing runs while nobody waits.
type sender struct {
	broker *kgo.Broker

	mu      sync.Mutex
	waiting []*submission
	running bool
	until   time.Time // when the broker's quota lets the next request go
}

type submission struct {
	ctx  context.Context
	p    Partition
	raw  []byte
	done chan outcome // buffered: whoever left early does not hold up the others
}

type outcome struct {
	ans answer
	err error
}

// requestBytes bounds a Produce request, far below socket.request.max.bytes.
const requestBytes = 16 << 20

// noDeadline bounds a request whose callers have no deadline of their own.
const noDeadline = 30 * time.Second

// replicasFor is how long a leader waits for its followers before it answers. A
// leader that is left without them does not give up earlier (KIP-966), and all
// partitions of a request wait for the one; what is sent again is not taken twice.
const replicasFor = 10 * time.Second

func (s *sender) send(ctx context.Context, p Partition, raw []byte) (answer, error) {
	sub := &submission{ctx: ctx, p: p, raw: raw, done: make(chan outcome, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, sub)
	if !s.running {
		s.running = true
		go s.run()
	}
	s.mu.Unlock()
	// A caller that leaves early must not write to raw again: the request may be
	// under way for others.
	select {
	case o := <-sub.done:
		if o.err != nil {
			o.err = s.throttled(o.err)
		}
		return o.ans, o.err
	case <-ctx.Done():
		return answer{}, fmt.Errorf("produce: %w", s.throttled(context.Cause(ctx)))
	}
}

// throttled says of a request that was not made in time that the broker holds it
// back, if it does: the client keeps to what the last answer said (KIP-219).
func (s *sender) throttled(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(s.until); left > 0 {
		return fmt.Errorf("%w while the broker throttles this client for %s more, by its quota: raise producer_byte_rate, or write less at a time", err, left.Round(time.Second))
	}
	return err
}

// run sends rounds until nobody waits.
func (s *sender) run() {
	for {
		s.mu.Lock()
		round := s.take()
		if len(round) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.round(round)
	}
}

// take removes the submissions of the next request from the queue.
func (s *sender) take() []*submission {
	var round, rest []*submission
	in := map[flow.TopicPartition]bool{}
	size := 0
	for _, sub := range s.waiting {
		if in[sub.p.TopicPartition] || (len(round) > 0 && size+len(sub.raw) > requestBytes) {
			rest = append(rest, sub)
			continue
		}
		in[sub.p.TopicPartition] = true
		size += len(sub.raw)
		round = append(round, sub)
	}
	s.waiting = rest
	return round
}

func (s *sender) round(round []*submission) {
	ctx, cancel := join(round)
	defer cancel()
	if pause := request(ctx, s.broker, nil, round); pause > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.until = time.Now().Add(pause)
	}
}

// request makes one Produce request of the submissions and answers each of them.
// With a transactional id, they are all part of its transaction. It returns how long
// the broker wants to have no other.
func request(ctx context.Context, broker *kgo.Broker, transaction *string, round []*submission) time.Duration {
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID = transaction
	req.Acks = -1
	req.TimeoutMillis = int32(replicasFor / time.Millisecond)
	if deadline, ok := ctx.Deadline(); ok {
		req.TimeoutMillis = int32(min(max(time.Until(deadline)/2, time.Millisecond), replicasFor) / time.Millisecond)
	}
	at := map[flow.TopicPartition]*submission{}
	topics := map[string]int{}
	ids := map[[16]byte]string{}
	for _, sub := range round {
		at[sub.p.TopicPartition] = sub
		ids[sub.p.TopicID] = sub.p.Topic
		i, ok := topics[sub.p.Topic]
		if !ok {
			i = len(req.Topics)
			topics[sub.p.Topic] = i
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = sub.p.Topic, sub.p.TopicID
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = sub.p.Partition, sub.raw
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	resp, err := broker.Request(ctx, req)
	if err != nil {
		for _, sub := range round {
			sub.done <- outcome{err: fmt.Errorf("produce: %w", err)}
		}
		return 0
	}
	r := resp.(*kmsg.ProduceResponse)
	for _, t := range r.Topics {
		name := t.Topic
		if name == "" { // since version 13 an answer bears the id alone
			name = ids[t.TopicID]
		}
		for _, rp := range t.Partitions {
			tp := flow.TopicPartition{Topic: name, Partition: rp.Partition}
			if sub := at[tp]; sub != nil {
				sub.done <- outcome{ans: answerOf(&rp)}
				delete(at, tp)
			}
		}
	}
	for _, sub := range at {
		sub.done <- outcome{err: fmt.Errorf("produce: broker's answer lacks the partition: %w", kerr.UnknownServerError)}
	}
	return time.Duration(r.ThrottleMillis) * time.Millisecond
}

func answerOf(rp *kmsg.ProduceResponseTopicPartition) answer {
	a := answer{code: rp.ErrorCode, base: rp.BaseOffset, appendTime: rp.LogAppendTime, bad: -1}
	if rp.ErrorMessage != nil {
		a.detail = *rp.ErrorMessage
	}
	for _, e := range rp.ErrorRecords {
		if a.bad < 0 || int(e.RelativeOffset) < a.bad {
			a.bad = int(e.RelativeOffset)
			if e.ErrorMessage != nil {
				a.detail = *e.ErrorMessage
			}
		}
	}
	return a
}

// join returns a context that ends when the contexts of all submissions have
// ended.
func join(round []*submission) (context.Context, context.CancelFunc) {
	parent := context.WithoutCancel(round[0].ctx)
	var latest time.Time
	for _, sub := range round {
		d, ok := sub.ctx.Deadline()
		if !ok {
			latest = time.Now().Add(noDeadline)
			break
		}
		if d.After(latest) {
			latest = d
		}
	}
	ctx, cancel := context.WithDeadline(parent, latest)
	var left atomic.Int32
	left.Store(int32(len(round)))
	stops := make([]func() bool, len(round))
	for i, sub := range round {
		stops[i] = context.AfterFunc(sub.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
