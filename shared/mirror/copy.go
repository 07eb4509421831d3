package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// claim finds what an earlier attempt has left on the target that the position
// does not know.
func (m *Mirror) claim(ctx context.Context, l *lot) {
	var want int
	switch l.standing.Verdict {
	case target.Agrees:
		return
	case target.Ahead:
		want = int(l.standing.Records)
	case target.Forgotten:
		want = -1
	case target.Fenced:
		l.retry(target.ErrFenced)
		return
	case target.Behind:
		m.goBack(ctx, l, &target.LostError{Records: int64(l.standing.Records), End: l.pos.Downstream - int64(l.standing.Records)})
		return
	}
	got, err := m.Target.Claim(ctx, l.remote, l.cursor(), l.plain, want)
	m.book(ctx, l, got)
	switch {
	case err == nil:
		m.believe(ctx, l, got.Upstream)
	case errors.Is(err, target.ErrFenced):
		l.retry(err)
	case m.passOver(l, err):
	default:
		l.fail(fmt.Errorf("claim what is on %s: %w", m.Settings.Target, err))
	}
}

// believe passes over records of which the target's position record says that
// they are copied, although they are not found there as the source shows them now.
// A record of a topic that was created again since is not meant by it.
func (m *Mirror) believe(ctx context.Context, l *lot, upstream int64) {
	if upstream <= l.pos.Upstream || l.rewound {
		return
	}
	n := 0
	for n < len(l.records) && l.records[n].Offset < upstream {
		n++
	}
	if n == 0 {
		return
	}
	m.Logger.WarnContext(ctx, "source shows other records than those that were copied, which stay as they are",
		"topic", l.Topic, "partition", l.Partition, "offset", l.records[0].Offset, "next", upstream)
	l.pos.Upstream, l.changed = upstream, true
	l.records, l.plain = l.records[n:], l.plain[n:]
	l.advance()
}

// renew stores a new epoch for the partitions whose producer the target has
// forgotten and that have more to append: a late request of the old epoch can
// then do no harm once the first batch of the new one is there.
func (m *Mirror) renew(ctx context.Context, lots []*lot) {
	var due []*lot
	for _, l := range lots {
		if l.err != nil || l.again != nil || l.standing.Verdict != target.Forgotten || len(l.plain) == 0 ||
			l.pos.Sequence == 0 && l.pos.ProducerID != target.Unknown {
			continue
		}
		l.changed = true
		if l.pos.Epoch == math.MaxInt16 || l.pos.ProducerID == target.Unknown {
			id, err := m.Target.NewProducer(ctx)
			if err != nil {
				l.fail(err)
				continue
			}
			l.pos.ProducerID, l.pos.Epoch = id, -1
		}
		l.pos.Epoch++
		l.pos.Sequence = 0
		l.pos.Runs = l.open.pack()
		due = append(due, l)
	}
	if len(due) == 0 {
		return
	}
	// The position moves past the second copies that were claimed.
	m.putHoles(ctx, due, func(_ *lot, h state.Hole) bool { return h.Kind == SecondCopy })
	due = slices.DeleteFunc(due, func(l *lot) bool { return l.err != nil })
	err := m.store(ctx, due)
	for _, l := range due {
		if !l.changed {
			continue
		}
		l.changed = false
		if errors.Is(err, state.ErrConflict) {
			// Another invocation stored first, perhaps in the middle of what was found
			// on the target: the next round finds it again, from there on.
			l.uncount()
			l.done = 0
			l.retry(err)
			continue
		}
		l.fail(fmt.Errorf("store a new epoch: %w", err))
	}
}

// append copies the lot's records.
func (m *Mirror) append(ctx context.Context, l *lot) {
	if len(l.plain) == 0 {
		return
	}
	got, err := m.Target.Append(ctx, l.remote, l.cursor(), l.plain, l.upstream)
	m.book(ctx, l, got)
	switch {
	case err == nil:
		l.trusted = true
	case errors.Is(err, target.ErrForgotten), errors.Is(err, target.ErrFenced):
		l.retry(err)
	case m.passOver(l, err):
	default:
		switch done, failed := m.tolerate(ctx, l, err); {
		case failed != nil:
			l.fail(failed)
		case !done:
			l.fail(m.refused(l, err))
		}
	}
}

// upstream is the offset on the source of a record that is to be copied.
func (l *lot) upstream(record int) int64 { return l.records[record].Offset }

// book moves the lot's position past what is on the target.
func (m *Mirror) book(ctx context.Context, l *lot, got target.Appended) {
	c := got.Cursor
	if c == l.cursor() {
		return
	}
	l.changed, l.tries = true, 0
	m.count(l, got)
	for _, i := range got.Stripped {
		m.loseHeader(l, l.records[i].Offset)
	}
	for _, p := range got.Placed {
		if got.Extra > 0 {
			m.bookExtra(l, l.records[p.First].Offset, p.Base)
		}
		for i := range p.Count {
			l.open.add(offsets.Run{Upstream: l.records[p.First+i].Offset, Downstream: p.Base + int64(i), Length: 1})
		}
	}
	l.pos.Downstream, l.pos.Sequence, l.pos.Newest = c.End, c.Producer.Sequence, c.Newest
	if got.Done > 0 {
		l.pos.Upstream = l.records[got.Done-1].Offset + 1
		l.pos.Copied += int64(got.Done)
	}
	l.advance()
	l.records, l.plain = l.records[got.Done:], l.plain[got.Done:]
	foreign := got.Foreign
	for _, s := range got.Second {
		// The residual of the guarantees, counted.
		l.holes = append(l.holes, state.Hole{
			TopicPartition: l.TopicPartition, From: s.Offset, To: s.Offset + s.Records, Kind: SecondCopy, Records: s.Records, Seen: m.Now(),
		})
		foreign -= s.Records
	}
	if got.Stamped > 0 && m.first("stamped", l.remote.Topic) {
		m.Logger.WarnContext(ctx, "target topic stamps its records with its own time, so that their timestamps are not the source's: set message.timestamp.type = CreateTime",
			"topic", l.remote.Topic)
	}
	if foreign > 0 {
		m.Logger.WarnContext(ctx, "another writer appends to the target partition",
			"topic", l.remote.Topic, "partition", l.Partition, "offset", l.pos.Downstream, "records", foreign)
	}
	if got.Extra > 0 {
		m.Logger.WarnContext(ctx, "target holds copies of records that the source does not show any more",
			"topic", l.remote.Topic, "partition", l.Partition, "offset", l.pos.Downstream, "records", got.Extra)
	}
}

// advance counts the records of the event that lie behind the position.
func (l *lot) advance() {
	for l.done < len(l.all) && l.all[l.done].Offset < l.pos.Upstream {
		l.done++
	}
}

// bookExtra puts into the run map what the target has between two booked records,
// and the source does not show any more, or cannot be asked for. A group that
// stands there goes on at the first of them that it may lack.
func (m *Mirror) bookExtra(l *lot, upstream, downstream int64) {
	from := span{l.pos.Upstream, l.pos.Downstream}
	if n := len(l.open) - 1; n >= 0 {
		if end := l.open[n]; end.Upstream+end.Length > from.from {
			from = span{end.Upstream + end.Length, end.Downstream + end.Length}
		}
	}
	n := min(upstream-from.from, downstream-from.to)
	if n <= 0 {
		return
	}
	l.open.add(offsets.Run{Upstream: upstream - n, Downstream: downstream - n, Length: n})
	for i := range l.holes {
		if h := &l.holes[i]; h.Kind == HoleUnexplained && h.From <= upstream-n && upstream <= h.To {
			h.Records -= n
		}
	}
}

// pass moves the positions of lots that are copied over what need not be.
func (m *Mirror) pass(l *lot) {
	if len(l.records) == 0 && l.through > l.pos.Upstream {
		l.pos.Upstream, l.changed = l.through, true
		l.advance()
	}
}
