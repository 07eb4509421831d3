package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"mirrorless/shared/batch"
	"mirrorless/shared/config"
	"mirrorless/shared/kafkaevent"
)

// fillBytes bounds the records that a round takes from the source, for all
// partitions together. What does not fit is the next round's.
const fillBytes = 16 << 20

// allowance is shared by the lots of a round.
type allowance struct {
	mu   sync.Mutex
	left int
	used bool
}

// take says whether there is room. The first record has room whatever its size, so
// that each round gets somewhere.
func (a *allowance) take(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > a.left && a.used {
		return false
	}
	a.left -= n
	a.used = true
	return true
}

// gaps are the ranges that the lot's records skip, from the position on.
func (l *lot) gaps() []span {
	var gaps []span
	next := l.pos.Upstream
	for i := range l.records {
		if o := l.records[i].Offset; o > next {
			gaps = append(gaps, span{next, o})
		}
		next = l.records[i].Offset + 1
	}
	return gaps
}

// wanted are the ranges to be looked up on the source: what the event skips, and
// records that have lost names of headers. A source that is read committed is to
// say of each record whether it may be copied.
func (m *Mirror) wanted(l *lot) []span {
	if len(l.records) == 0 {
		return nil
	}
	if m.committed {
		return []span{{l.pos.Upstream, l.records[len(l.records)-1].Offset + 1}}
	}
	var spans []span
	next := l.pos.Upstream
	for i := range l.records {
		r := &l.records[i]
		s := span{next, r.Offset}
		if slices.ContainsFunc(r.Headers, func(h kafkaevent.Header) bool { return h.Lost }) {
			s.to++
		}
		next = r.Offset + 1
		switch last := len(spans) - 1; {
		case s.from == s.to:
		case last >= 0 && spans[last].to == s.from:
			spans[last].to = s.to
		default:
			spans = append(spans, s)
		}
	}
	return spans
}

// index is the number of the lot's first record at or behind an offset.
func (l *lot) index(offset int64) int {
	return sort.Search(len(l.records), func(i int) bool { return l.records[i].Offset >= offset })
}

// fill looks up what the event lacks, in one read of the source, and puts it in
// its place. Where the source is out of reach, the holes stay, and are reported.
func (m *Mirror) fill(ctx context.Context, l *lot, room *allowance) {
	for _, s := range l.passed {
		m.addHole(l, HolePassedOver, s, s.to-s.from)
	}
	spans := m.wanted(l)
	if len(spans) == 0 {
		return
	}
	f := filler{Mirror: m, lot: l, room: room, event: l.records, next: l.pos.Upstream}
	known, err := m.source.scan(ctx, question{
		TopicPartition: l.TopicPartition, topicID: l.pos.SourceTopicID, spans: spans, committed: m.committed,
		record: f.record, gone: f.gone,
	})
	switch {
	case err == nil:
	case errors.Is(err, errUndecided):
		f.limit = fmt.Errorf("read offset %d: %w", known, err)
	case errors.Is(err, errNewTopic):
		l.retry(err)
		return
	case m.committed:
		l.fail(fmt.Errorf("read cluster %s, which isolation.level = read_committed needs: %w", m.Settings.Source, err))
		return
	case errors.Is(err, errOutOfReach), errors.Is(err, batch.ErrCorrupt):
		if l.warm && l.records[0].Offset > l.pos.Upstream {
			l.retry(errBehind)
			return
		}
		m.findHoles(l, err)
		return
	default:
		l.fail(fmt.Errorf("read offset %d of cluster %s, of which the event lacks something: %w", known, m.Settings.Source, err))
		return
	}
	if l.warm && f.early {
		l.retry(errBehind)
		return
	}
	f.finish(known, spans[len(spans)-1].to)
}

// errBehind is why a position in memory is not to be trusted: there are records
// between it and the event, which another environment may have copied.
var errBehind = errors.New("position in memory may be old")

// filler merges the records of the source into those of the event.
type filler struct {
	*Mirror
	*lot
	room  *allowance
	event []kafkaevent.Record // those that are still to come
	out   []kafkaevent.Record
	next  int64 // the offset that follows what is settled
	cut   bool  // for want of room
	early bool  // there is something between the position and the event
	limit error
}

// keep takes the event's records before an offset. A committed source has not
// handed them over: they were aborted.
func (f *filler) keep(to int64) {
	n := 0
	for n < len(f.event) && f.event[n].Offset < to {
		n++
	}
	if !f.committed {
		f.out = append(f.out, f.event[:n]...)
	}
	f.event = f.event[n:]
}

func (f *filler) record(r *batch.Placed) bool {
	f.keep(r.Offset)
	if len(f.event) > 0 && f.event[0].Offset == r.Offset {
		e := f.event[0]
		f.event = f.event[1:]
		if slices.ContainsFunc(e.Headers, func(h kafkaevent.Header) bool { return h.Lost }) && sameRecord(&e, r) {
			e.Headers = headersOf(r)
		}
		f.out = append(f.out, e)
		return true
	}
	if f.lot.isPassed(r.Offset) {
		return true
	}
	if r.Offset < f.lot.records[0].Offset {
		f.early = true
		if f.lot.warm {
			return false
		}
	}
	if !f.room.take(sizeOf(r)) {
		f.cut = true
		return false
	}
	f.out = append(f.out, f.lot.recordOf(r))
	return true
}

// gone takes a range that the source does not hold. Names of headers are a loss of
// their own, and told as such.
func (f *filler) gone(s span, why string) bool {
	if f.lot.warm && s.from < f.lot.records[0].Offset {
		f.early = true
		return false
	}
	f.keep(s.from)
	lost := s.to - s.from
	if !f.committed {
		for i := range f.event {
			if s.holds(f.event[i].Offset) {
				lost--
			}
		}
	}
	if lost > 0 {
		if f.Settings.Holes == config.HoleStop {
			f.limit = errHoleStop(s, why, f.Settings.Source)
			return false
		}
		f.addHole(f.lot, why, s, lost)
	}
	f.keep(s.to)
	return true
}

// finish makes the outcome the lot's records: up to known, or all of them where
// that is all that was asked for.
func (f *filler) finish(known, asked int64) {
	f.keep(known)
	if known < asked {
		f.lot.more = f.cut
		f.lot.limit = f.limit
	} else if !f.committed {
		f.out = append(f.out, f.event...)
	}
	f.lot.records = f.out
	if f.committed {
		f.lot.through = known
	}
}

func (l *lot) isPassed(offset int64) bool {
	return slices.ContainsFunc(l.passed, func(s span) bool { return s.holds(offset) })
}

// recordOf is a copy of a record of the source, as an event would have brought it.
func (l *lot) recordOf(r *batch.Placed) kafkaevent.Record {
	return kafkaevent.Record{
		Topic: l.Topic, Partition: l.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Headers: headersOf(r),
	}
}

func headersOf(r *batch.Placed) []kafkaevent.Header {
	if len(r.Headers) == 0 {
		return nil
	}
	out := make([]kafkaevent.Header, len(r.Headers))
	for i, h := range r.Headers {
		out[i] = kafkaevent.Header{Name: h.Name, Value: bytes.Clone(h.Value)}
	}
	return out
}

// sameRecord says whether the source's record is the event's, by all that the event
// carries whole.
func sameRecord(e *kafkaevent.Record, r *batch.Placed) bool {
	return e.Timestamp == r.Timestamp && (e.Key == nil) == (r.Key == nil) && bytes.Equal(e.Key, r.Key) &&
		(e.Value == nil) == (r.Value == nil) && bytes.Equal(e.Value, r.Value)
}

func sizeOf(r *batch.Placed) int {
	n := len(r.Key) + len(r.Value) + 64
	for _, h := range r.Headers {
		n += len(h.Name) + len(h.Value) + 48
	}
	return n
}
