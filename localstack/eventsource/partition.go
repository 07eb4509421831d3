package eventsource

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/kafkaevent"
)

// partition is an assigned partition. All of it is guarded by Mapping.mu.
type partition struct {
	number int32
	// chunks are the records that wait, as the fetches brought them.
	chunks [][]entry
	count  int // records in chunks
	bytes  int // their sizes
	// since is when the oldest of them came, or a little earlier.
	since time.Time
	// busy: an invocation is in flight, or waits to be repeated.
	busy bool
	// leaving: soon no longer ours. Nothing more is sent.
	leaving bool
	// gone: no longer ours. Nothing counts.
	gone bool
	// paused: the client does not fetch it.
	paused bool

	// next is the first offset the function has not acknowledged, read the
	// first one that was not fetched, end the high watermark; −1 if unknown.
	next, read, end int64
	// acked: next is ours, not only where we began. epoch goes with it.
	acked bool
	epoch int32
	// committed is what the group has, −1 for nothing.
	committed int64

	delivered  int64     // records acknowledged
	failed     int       // attempts in a row
	err        error     // of the last attempt
	lastFailed time.Time // an attempt
	refused    alarm
}

// entry is a record that waits, and its size in an event.
type entry struct {
	record *kgo.Record
	size   int
}

// add appends what a fetch brought.
func (p *partition) add(chunk []entry, now time.Time) {
	if len(chunk) == 0 {
		return
	}
	if p.count == 0 {
		p.since = now
	}
	p.chunks = append(p.chunks, chunk)
	p.count += len(chunk)
	for i := range chunk {
		p.bytes += chunk[i].size
	}
}

// settle moves next over what is not delivered (control records, dropped ones),
// where nothing before it waits.
func (p *partition) settle() {
	if p.count == 0 && !p.busy && p.read > p.next {
		p.next, p.acked = p.read, true
	}
}

// dirty reports an acknowledged position that the group does not have.
func (p *partition) dirty() bool {
	return !p.gone && p.acked && p.next != p.committed
}

// drop forgets the records that wait, and with them how far was read: settle
// must not take them for done.
func (p *partition) drop() {
	p.chunks, p.count, p.bytes, p.read = nil, 0, 0, -1
}

// part is what a batch holds of one partition.
type part struct {
	p      *partition
	chunks [][]entry
	count  int
	// end is the group's offset when all is done. In a repetition that is not
	// told by the records: later ones may be done already.
	end kgo.EpochOffset
}

// batch is the records of one event. Nobody changes it after it was formed.
type batch struct {
	parts []part
	count int
	// size is the payload's size in bytes, to the byte.
	size int

	attempt int       // that comes next, from 1
	due     time.Time // of a repetition
}

// take moves records from the front of p to b, up to limits of count and size,
// and reports whether the batch is full.
func (b *batch) take(p *partition, topic string, maxCount, maxSize int) (full bool) {
	list := kafkaevent.ListSize(topic, p.number)
	taken := part{p: p}
	size := b.size + list
	for len(p.chunks) > 0 && !full {
		chunk := p.chunks[0]
		n := 0
		for n < len(chunk) {
			if b.count == maxCount || size+chunk[n].size > maxSize {
				full = true
				break
			}
			size += chunk[n].size
			p.bytes -= chunk[n].size
			b.count++
			n++
		}
		if n == 0 {
			break
		}
		taken.chunks = append(taken.chunks, chunk[:n:n])
		taken.count += n
		if n == len(chunk) {
			p.chunks[0] = nil
			p.chunks = p.chunks[1:]
		} else {
			p.chunks[0] = chunk[n:]
		}
	}
	p.count -= taken.count
	if taken.count > 0 {
		last := taken.last()
		taken.end = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
		b.size = size
		b.parts = append(b.parts, taken)
		p.busy = true
	}
	return full || b.count == maxCount
}

func (t part) first() *kgo.Record { return t.chunks[0][0].record }

func (t part) last() *kgo.Record {
	chunk := t.chunks[len(t.chunks)-1]
	return chunk[len(chunk)-1].record
}

// invocation describes the batch to a fault.
func (b *batch) invocation(topic string) Invocation {
	i := Invocation{Attempt: b.attempt, Size: b.size}
	for _, t := range b.parts {
		i.Ranges = append(i.Ranges, Range{topic, t.p.number, t.first().Offset, t.last().Offset, t.count})
	}
	return i
}

// narrow returns the batch of the records of b that keep says yes to.
func (b *batch) narrow(topic string, envelope int, keep func(*partition, int64) bool) *batch {
	n := &batch{size: envelope, attempt: b.attempt}
	for _, t := range b.parts {
		var chunk []entry
		for _, c := range t.chunks {
			for _, e := range c {
				if keep(t.p, e.record.Offset) {
					chunk = append(chunk, e)
					n.size += e.size
				}
			}
		}
		if len(chunk) > 0 {
			n.size += kafkaevent.ListSize(topic, t.p.number)
			n.count += len(chunk)
			n.parts = append(n.parts, part{t.p, [][]entry{chunk}, len(chunk), t.end})
		}
	}
	return n
}
