package eventsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mirrorless/shared/kafkaevent"
)

// dispatch forms batches and sends them off, until the mapping stops.
func (m *Mapping) dispatch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		m.mu.Lock()
		if m.stopping || m.ctx.Err() != nil {
			m.mu.Unlock()
			return
		}
		b, next := m.next(time.Now())
		if b != nil {
			m.inFlight++
			m.calls.Go(func() { m.deliver(b) })
		}
		resume := m.resumable()
		changed := m.changed
		m.mu.Unlock()
		m.resume(resume)
		if b != nil {
			continue
		}
		timer.Reset(next)
		select {
		case <-changed:
		case <-timer.C:
		case <-m.ctx.Done():
			return
		}
	}
}

// resumable returns the paused partitions that have room again. It needs m.mu.
func (m *Mapping) resumable() (numbers []int32) {
	for _, p := range m.partition {
		if p.paused && p.bytes < resumeWaiting {
			p.paused = false
			numbers = append(numbers, p.number)
		}
	}
	return numbers
}

// next returns the batch to be sent now, or how long until there may be one. It
// needs m.mu.
func (m *Mapping) next(now time.Time) (*batch, time.Duration) {
	wait := time.Hour
	if m.inFlight >= m.o.Concurrency {
		return nil, wait // an invocation's end wakes us
	}
	for i, b := range m.retries {
		if d := b.due.Sub(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		m.retries = slices.Delete(m.retries, i, i+1)
		return b, 0
	}
	idle := m.idle()
	count, size := 0, m.envelope.Size()
	for _, p := range idle {
		n, s := p.count, p.bytes+kafkaevent.ListSize(m.o.Topic, p.number)
		if m.full(n, m.envelope.Size()+s) {
			// A partition that fills an event has it alone, so that the
			// others can be in flight beside it.
			return m.form(p), 0
		}
		count += n
		size += s
	}
	switch {
	case len(idle) == 0:
		return nil, wait
	case m.full(count, size):
		return m.form(idle...), 0
	}
	if d := idle[0].since.Add(m.o.Window).Sub(now); d > 0 {
		return nil, min(wait, d)
	}
	return m.form(idle...), 0
}

// idle returns the partitions of which records could be sent, those whose
// records wait longest first.
func (m *Mapping) idle() []*partition {
	var idle []*partition
	for _, p := range m.partition {
		if p.count > 0 && !p.busy && !p.leaving {
			idle = append(idle, p)
		}
	}
	slices.SortFunc(idle, func(a, b *partition) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return int(a.number) - int(b.number)
	})
	return idle
}

func (m *Mapping) full(count, size int) bool {
	return count >= m.o.BatchSize || size >= m.o.MaxPayload
}

func (m *Mapping) form(from ...*partition) *batch {
	b := &batch{size: m.envelope.Size(), attempt: 1}
	for _, p := range from {
		if b.take(p, m.o.Topic, m.o.BatchSize, m.o.MaxPayload) {
			break
		}
	}
	return b
}

// deliver sends a batch to the function, and makes of the answer what is to be
// made of it.
func (m *Mapping) deliver(b *batch) {
	rest, err := m.attempt(b)
	if m.ctx.Err() != nil {
		// Killed: whatever came of it, nobody knows.
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.wake()
	m.inFlight--
	m.acknowledge(b, rest, err)
	m.tellOutcome(b, rest, err)
	if rest == nil {
		return
	}
	m.stats.Failures++
	again := m.without(rest, func(p *partition) bool { return p.leaving || p.gone })
	if again.count > 0 && !m.stopping {
		again.attempt = b.attempt + 1
		again.due = time.Now().Add(m.o.Backoff(b.attempt))
		m.retries = append(m.retries, again)
	}
}

// without returns the batch without some partitions, which are set free. It
// needs m.mu.
func (m *Mapping) without(b *batch, drop func(*partition) bool) *batch {
	for _, t := range b.parts {
		if drop(t.p) {
			t.p.busy = false
		}
	}
	return b.narrow(m.o.Topic, m.envelope.Size(), func(p *partition, _ int64) bool { return !drop(p) })
}

// attempt invokes the function once. rest is what has to come again, nil for
// nothing.
func (m *Mapping) attempt(b *batch) (rest *batch, err error) {
	reply, err := m.invoke(b)
	if err == nil && m.o.Failures {
		rest, err = m.failures(b, reply)
	} else if err != nil {
		rest = b
	}
	if rest == nil {
		if f := m.o.Faults.BeforeCommit; f != nil {
			f(b.invocation(m.o.Topic))
		}
		return nil, nil
	}
	if err == nil {
		err = fmt.Errorf("the function reports %d of %d records as failed", rest.count, b.count)
	}
	return rest, err
}

// tellOutcome logs a failure that a partition did not have before, and its end:
// not every repetition. It needs m.mu.
func (m *Mapping) tellOutcome(b, rest *batch, err error) {
	var news, again bool
	if rest != nil {
		for _, t := range rest.parts {
			news = t.p.refused.tell(err) || news
		}
	}
	for _, t := range b.parts {
		if t.p.err == nil {
			again = t.p.refused.end() || again
		}
	}
	first := b.parts[0]
	if news {
		m.log.Warn("invocation failed", "partition", first.p.number, "offset", first.first().Offset,
			"records", b.count, "partitions", len(b.parts), "attempt", b.attempt, "error", err)
	}
	if again {
		m.log.Info("invocations succeed again", "partition", first.p.number, "partitions", len(b.parts))
	}
}

// failures reads the reply of a mapping with ReportBatchItemFailures. A reply
// that is not understood, or names what was not sent, fails the whole batch.
func (m *Mapping) failures(b *batch, reply []byte) (*batch, error) {
	failures, err := kafkaevent.DecodeFailures(reply)
	if err != nil {
		return b, err
	}
	if len(failures) == 0 {
		return nil, nil
	}
	type position struct {
		number int32
		offset int64
	}
	failed := make(map[position]bool, len(failures))
	for _, f := range failures {
		if f.Topic != m.o.Topic {
			return b, fmt.Errorf("the function reports a failure of %s-%d, which was not sent", f.Topic, f.Partition)
		}
		failed[position{f.Partition, f.Offset}] = true
	}
	rest := b.narrow(m.o.Topic, m.envelope.Size(), func(p *partition, offset int64) bool {
		at := position{p.number, offset}
		return failed[at]
	})
	for _, t := range rest.parts {
		for _, e := range t.chunks[0] {
			delete(failed, position{t.p.number, e.record.Offset})
		}
	}
	for at := range failed {
		return b, fmt.Errorf("the function reports a failure of %s-%d at offset %d, which was not sent", m.o.Topic, at.number, at.offset)
	}
	return rest, nil
}

// acknowledge notes what of b is done: everything but rest. It needs m.mu.
func (m *Mapping) acknowledge(b, rest *batch, err error) {
	left := make(map[*partition]part)
	if rest != nil {
		for _, t := range rest.parts {
			left[t.p] = t
		}
	}
	m.stats.Invocations++
	for _, t := range b.parts {
		p := t.p
		if p.gone || m.partition[p.number] != p {
			continue
		}
		l, failed := left[p]
		p.delivered += int64(t.count - l.count)
		if failed {
			p.failed, p.err, p.lastFailed = b.attempt, err, time.Now()
			// What comes after the first failed record may be done, but a
			// group has one offset.
			if first := l.first(); first.Offset > p.next && first != t.first() {
				p.next, p.acked, p.epoch = first.Offset, true, first.LeaderEpoch
			}
			continue
		}
		p.busy, p.failed, p.err = false, 0, nil
		p.next, p.acked, p.epoch = t.end.Offset, true, t.end.Epoch
		p.settle()
	}
}

// invoke writes the event and hands it to the function, subject to faults.
func (m *Mapping) invoke(b *batch) ([]byte, error) {
	payload := m.encode(b)
	var fault Fault
	if f := m.o.Faults.BeforeInvoke; f != nil {
		fault = f(b.invocation(m.o.Topic))
	}
	for range fault.Duplicates {
		again := bytes.Clone(payload)
		m.calls.Go(func() {
			if pause(m.ctx, fault.Delay+fault.DuplicateDelay) == nil {
				_, _ = m.o.Invoker.Invoke(m.ctx, again) // a copy that nobody asked for
			}
		})
	}
	if err := pause(m.ctx, fault.Delay); err != nil {
		return nil, err
	}
	if fault.Lose {
		return nil, ErrLost
	}
	reply, err := m.o.Invoker.Invoke(m.ctx, payload)
	if fault.LoseReply {
		err = errors.Join(ErrLost, err)
	}
	if err != nil {
		// The invoker may have been cut off in the midst of the payload, which
		// is therefore not used again.
		return nil, err
	}
	reply = bytes.Clone(reply) // it could point into the payload
	select {
	case m.buffers <- payload:
	default:
	}
	return reply, nil
}

func (m *Mapping) encode(b *batch) []byte {
	var buf []byte
	select {
	case buf = <-m.buffers:
	default:
	}
	if cap(buf) < b.size {
		buf = make([]byte, 0, b.size)
	}
	w := m.envelope.Writer(buf[:0])
	var c converter
	for _, t := range b.parts {
		for _, chunk := range t.chunks {
			for i := range chunk {
				w.Record(c.convert(chunk[i].record))
			}
		}
	}
	return w.Close()
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
