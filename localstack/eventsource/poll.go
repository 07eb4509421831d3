package eventsource

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/kafkaevent"
)

// What may wait, as bytes of payload. The next batches are fetched while others
// are in flight, but a topic's backlog is not.
const (
	// Polling stops while so much waits, in all.
	maxWaiting = 64 << 20
	// A partition is paused that has half of it, so that it does not stop the
	// others; or two payloads, while the function refuses it.
	maxWaitingPartition = maxWaiting / 2
	maxWaitingRefused   = 2 * kafkaevent.MaxPayload
	// It is resumed below this.
	resumeWaiting = kafkaevent.MaxPayload
)

// revokeWait is how long the group is kept from taking a partition away whose
// invocation is in flight; the client's rebalance timeout is a minute.
const revokeWait = 45 * time.Second

// poll fetches records until polling is over.
func (m *Mapping) poll() {
	for {
		if m.wait(m.polling, m.hasRoom) != nil {
			return
		}
		fetches := m.client.PollFetches(m.polling)
		if m.polling.Err() != nil || fetches.IsClientClosed() {
			m.client.AllowRebalance()
			return
		}
		records := m.enqueue(fetches)
		// Only now may partitions go: what was polled of them is known.
		m.client.AllowRebalance()
		err := m.heed(fetches)
		if old, gone := m.goneTopic(fetches); gone {
			_ = m.turn(old) // while it fails, what has just been noted stands
		}
		if err == nil || records > 0 {
			continue
		}
		// The client has tried already what can be tried again at once.
		select {
		case <-m.polling.Done():
		case <-time.After(time.Second):
		}
	}
}

func (m *Mapping) hasRoom() bool {
	waiting := 0
	for _, p := range m.partition {
		if !p.paused {
			waiting += p.bytes
		}
	}
	return waiting < maxWaiting
}

// enqueue gives records to their partitions and returns how many there were.
func (m *Mapping) enqueue(fetches kgo.Fetches) int {
	total := 0
	var pause []int32
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if f.Topic != m.o.Topic || f.Partition < 0 {
			return
		}
		total += len(f.Records)
		chunk, dropped := m.measure(f.Records)
		m.mu.Lock()
		if p := m.partition[f.Partition]; p != nil && !p.leaving {
			if f.Err == nil {
				p.end = f.HighWatermark
			}
			if n := len(f.Records); n > 0 {
				p.read = f.Records[n-1].Offset + 1
				p.epoch = f.Records[n-1].LeaderEpoch
			}
			p.add(chunk, time.Now())
			p.settle()
			m.stats.Dropped += int64(len(dropped))
			if !p.paused && (p.bytes >= maxWaitingPartition || p.failed > 0 && p.bytes >= maxWaitingRefused) {
				p.paused = true
				pause = append(pause, p.number)
			}
		} else {
			dropped = nil
		}
		m.mu.Unlock()
		m.tellDropped(dropped)
	})
	if len(pause) > 0 {
		m.client.PauseFetchPartitions(map[string][]int32{m.o.Topic: pause})
	}
	m.mu.Lock()
	m.wake()
	m.mu.Unlock()
	return total
}

// measure computes sizes, and leaves out what cannot be delivered.
func (m *Mapping) measure(records []*kgo.Record) (chunk []entry, dropped []Dropped) {
	if len(records) == 0 {
		return nil, nil
	}
	var c converter
	chunk = make([]entry, 0, len(records))
	alone := m.envelope.Size() + kafkaevent.ListSize(m.o.Topic, records[0].Partition)
	for _, r := range records {
		if r.Attrs.IsControl() {
			continue
		}
		size := kafkaevent.RecordSize(c.convert(r))
		if alone+size > m.o.MaxPayload {
			dropped = append(dropped, Dropped{r.Topic, r.Partition, r.Offset, alone + size})
			continue
		}
		chunk = append(chunk, entry{r, size})
	}
	return chunk, dropped
}

func (m *Mapping) tellDropped(dropped []Dropped) {
	for _, d := range dropped {
		m.log.Error("record dropped, its event would be over the payload cap",
			"partition", d.Partition, "offset", d.Offset, "size", d.Size, "cap", m.o.MaxPayload)
		if m.o.Dropped != nil {
			m.o.Dropped(d)
		}
	}
}

// resume is called with partitions that have room again.
func (m *Mapping) resume(numbers []int32) {
	if len(numbers) > 0 {
		m.client.ResumeFetchPartitions(map[string][]int32{m.o.Topic: numbers})
	}
}

// assigned is called by the client before it fetches new partitions.
func (m *Mapping) assigned(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rebalancing = false
	m.inSession(assigned[m.o.Topic])
	for _, number := range assigned[m.o.Topic] {
		m.partition[number] = &partition{number: number, next: -1, read: -1, end: -1, committed: -1, epoch: -1}
	}
	m.wake()
}

// fetched is called with the group's offsets for new partitions.
func (m *Mapping) fetched(_ context.Context, _ *kgo.Client, response *kmsg.OffsetFetchResponse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	note := func(topic string, number int32, offset int64) {
		if p := m.partition[number]; topic == m.o.Topic && p != nil && offset >= 0 {
			p.next, p.committed = offset, offset
		}
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			note(t.Topic, p.Partition, p.Offset)
		}
	}
	for _, g := range response.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				// By topic id, from version 10 on, the name is empty; the
				// group reads no other topic.
				note(m.o.Topic, p.Partition, p.Offset)
			}
		}
	}
	m.unlocated = true
	m.wake()
	return nil
}

// probeEvery is how often a mapping without partitions asks for the reason, and
// how long it waits for the answer.
const probeEvery = 5 * time.Second

// locate finds out where new partitions begin and end; whether a fetch that failed
// is over; and why there are no partitions, about which the client keeps silent:
// it tries for ever to reach brokers, or to find a topic.
func (m *Mapping) locate() {
	for m.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(m.ctx, probeEvery)
		_ = m.wait(ctx, func() bool { return m.unlocated })
		cancel()
		m.mu.Lock()
		ask := m.unlocated || len(m.partition) == 0 || m.trouble.silent(time.Now())
		m.unlocated = false
		if !ask {
			m.located(nil, time.Now())
		}
		m.mu.Unlock()
		if !ask {
			continue
		}
		ctx, cancel = context.WithTimeout(m.ctx, probeEvery)
		err := m.Refresh(ctx)
		cancel()
		m.mu.Lock()
		m.located(err, time.Now())
		m.mu.Unlock()
	}
}

// revoked is called by the client at the end of a session, and when the group
// takes partitions away, which it gives up when this returns. What is in flight
// of them may end and be committed.
func (m *Mapping) revoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	ctx, cancel := context.WithTimeout(m.ctx, revokeWait)
	defer cancel()
	m.mu.Lock()
	m.rebalancing = false // the client is in no join now
	var leaving []*partition
	var resume []int32
	for _, number := range revoked[m.o.Topic] {
		p := m.partition[number]
		if p == nil {
			continue
		}
		p.drop()
		p.leaving = true
		leaving = append(leaving, p)
		if p.paused {
			resume = append(resume, number)
		}
	}
	m.dropRetries()
	m.wake()
	m.mu.Unlock()
	m.resume(resume)
	err := m.wait(ctx, func() bool {
		for _, p := range leaving {
			if p.busy || p.dirty() {
				return false
			}
		}
		return true
	})
	if err != nil && m.ctx.Err() == nil {
		m.log.Warn("partitions taken away with an invocation in flight, its records will come again", "error", err)
	}
	m.forget(leaving)
	m.rebalance(ctx)
}

// rebalance keeps commits from the time when the client would hold them.
func (m *Mapping) rebalance(ctx context.Context) {
	m.mu.Lock()
	m.rebalancing = true
	m.mu.Unlock()
	_ = m.wait(ctx, func() bool { return !m.committing }) // else it waits, or fails and is repeated
}

// lost is called when the partitions are gone already.
func (m *Mapping) lost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	m.mu.Lock()
	var leaving []*partition
	var resume []int32
	for _, number := range lost[m.o.Topic] {
		if p := m.partition[number]; p != nil {
			p.leaving = true
			leaving = append(leaving, p)
			if p.paused {
				resume = append(resume, number)
			}
		}
	}
	m.dropRetries()
	m.mu.Unlock()
	m.resume(resume)
	m.forget(leaving)
	m.rebalance(m.ctx)
}

func (m *Mapping) forget(leaving []*partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range leaving {
		p.gone = true
		p.drop()
		if m.partition[p.number] == p {
			delete(m.partition, p.number)
		}
	}
	m.wake()
}

// dropRetries takes partitions that leave out of the batches that wait to be
// repeated. It needs m.mu.
func (m *Mapping) dropRetries() {
	var kept []*batch
	for _, b := range m.retries {
		again := m.without(b, func(p *partition) bool { return p.leaving })
		if again.count > 0 {
			again.due = b.due
			kept = append(kept, again)
		}
	}
	m.retries = kept
}
