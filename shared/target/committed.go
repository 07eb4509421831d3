package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
)

// Claim finds out which of the records are committed on the target already, from
// the cursor's end on, without appending any. want is not asked for: all that is
// there is read.
//
// What is committed and not among the records of the call, although ours, is
// judged by the position record that was committed with it: see
// [Appended.Upstream].
func (t *Transactions) Claim(ctx context.Context, p Partition, c Cursor, records []batch.Record, _ int) (Appended, error) {
	s := t.take(p, c)
	if s == nil {
		return Appended{Cursor: c}, errNoSession
	}
	k := claim{t: t, s: s, p: p, records: records, flow: c.Producer.ID, out: Appended{Cursor: c}}
	err := k.run(ctx)
	if err == nil && !k.more {
		s.end, s.unsettled = k.out.Cursor.End, false
		t.keep(p, s)
	}
	return k.out, err
}

// claim is one call of Claim under way.
type claim struct {
	t       *Transactions
	s       *session
	p       Partition
	records []batch.Record
	flow    int64 // the producer id of appends without transactions
	out     Appended

	more  bool           // there is more of ours than the call has records
	loose []mine         // of ours since the last match, and not among the records
	last  batch.Producer // of the last batch of ours
}

func (k *claim) run(ctx context.Context) error {
	r := reader{t: k.t, p: k.p, from: k.out.Cursor.End}
	if err := r.each(ctx, k.take); err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("read back from offset %d: %w", k.out.Cursor.End, err)
	}
	if k.more {
		return nil
	}
	k.out.Extra += len(k.loose)
	// Whoever has taken the partition over meanwhile may commit what is undecided.
	end := r.from
	for _, base := range r.undecided {
		if base >= k.out.Cursor.End {
			end = min(end, base)
		}
	}
	k.out.Cursor.End = max(k.out.Cursor.End, end)
	if len(k.loose) == 0 || k.out.Done == len(k.records) {
		return nil
	}
	// The source shows other records now than those that were copied.
	offset, producer, err := k.t.lastPosition(ctx, k.p.Source)
	if err != nil {
		return fmt.Errorf("read the position record: %w", err)
	}
	if producer.ID == k.last.ID && producer.Epoch == k.last.Epoch && k.last.Transactional {
		k.out.Upstream = offset + 1
		return nil
	}
	for later := k.out.Done + 1; later < len(k.records); later++ {
		for _, m := range k.loose {
			if same(m, &k.records[later]) {
				return &AlteredError{Record: k.out.Done, Next: later, Offset: m.Offset}
			}
		}
	}
	return nil
}

// errEnough ends reading.
var errEnough = errors.New("enough")

// take books the records of a committed batch against the next ones of the call.
// Anybody's are compared, for the producer id of a transactional id changes with
// time, and what MirrorMaker 2 has copied meanwhile is copied.
func (k *claim) take(b batch.Batch) error {
	records, err := b.Records(fetch.Decompress)
	if err != nil {
		return err
	}
	ours := b.Producer().ID == k.s.producer.ID || b.Producer().ID == k.flow
	for _, placed := range records {
		if placed.Offset < k.out.Cursor.End {
			continue
		}
		m := mine{Placed: placed, stamped: b.LogAppendTime()}
		switch {
		case k.out.Done < len(k.records) && same(m, &k.records[k.out.Done]):
			k.book(m)
			k.last = b.Producer()
		case k.out.Done == len(k.records) && ours:
			k.more = true
			return errEnough
		case ours:
			k.loose = append(k.loose, m)
			k.last = b.Producer()
		default:
			k.out.Foreign++
		}
	}
	return nil
}

func (k *claim) book(m mine) {
	out := &k.out
	want := &k.records[out.Done]
	out.Extra += len(k.loose)
	k.loose = nil
	if len(m.Headers) < len(want.Headers) {
		out.Stripped = append(out.Stripped, out.Done)
	}
	if last := len(out.Placed) - 1; last >= 0 && out.Placed[last].Base+int64(out.Placed[last].Count) == m.Offset {
		out.Placed[last].Count++
	} else {
		out.Placed = append(out.Placed, Placed{First: out.Done, Count: 1, Base: m.Offset})
	}
	if !m.stamped {
		out.Found++
	}
	out.Cursor.Newest = m.Timestamp
	out.Cursor.End = m.Offset + 1
	out.Done++
}

// reader reads committed batches. It does not ask the broker for committed ones
// only: that answer ends at the first open transaction, whosever that is.
type reader struct {
	t    *Transactions
	p    Partition
	from int64
	queue
	// undecided are the base offsets of batches that were undecided at the end.
	undecided []int64
}

// queue puts the batches of a log in the order in which readers of committed records
// get them, and leaves out those of aborted transactions.
type queue struct{ held []held }

// held is a batch whose turn has not come: it, or one before it, is undecided.
type held struct {
	batch.Batch
	decided, committed bool
}

// each calls f for every committed batch from an offset to the end that the
// partition has at first, in order, and moves from to there. What is undecided at
// that end is passed over.
func (r *reader) each(ctx context.Context, f func(batch.Batch) error) error {
	end := int64(-1)
	for wait := newBackoff(); end < 0 || r.from < end; {
		got, err := r.t.brokers.fetch(ctx, r.p, r.from)
		if errors.Is(err, kerr.OffsetOutOfRange) {
			if err = r.begin(ctx, err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if end < 0 {
			end = got.end
		}
		at := r.from
		for b, err := range batch.All(got.raw) {
			if err != nil {
				return err
			}
			if b.NextOffset() <= r.from || b.BaseOffset() >= end {
				continue
			}
			r.from = b.NextOffset()
			if err := r.take(b, f); err != nil {
				return err
			}
		}
		if r.from == at && r.from < end && !wait.next(ctx) {
			return context.Cause(ctx)
		}
	}
	for i := range r.held {
		if !r.held[i].decided {
			r.held[i].decided = true
			r.undecided = append(r.undecided, r.held[i].BaseOffset())
		}
	}
	return r.release(f)
}

// begin goes on at the first offset that the partition still has.
func (r *reader) begin(ctx context.Context, refusal error) error {
	starts, err := r.t.coordinator.offsets(ctx, []Partition{r.p}, logStart)
	if err != nil {
		return err
	}
	if starts[r.p] <= r.from {
		return refusal
	}
	r.from = starts[r.p]
	return nil
}

// take takes the next batch of the log, and hands out to f what is decided by it.
func (q *queue) take(b batch.Batch, f func(batch.Batch) error) error {
	committed, marker := b.Marker()
	switch {
	case marker:
		for i := range q.held {
			if h := &q.held[i]; !h.decided && h.Producer().ID == b.Producer().ID {
				h.decided, h.committed = true, committed
			}
		}
	case b.Control():
		return nil
	default:
		plain := !b.Transactional()
		q.held = append(q.held, held{Batch: b, decided: plain, committed: plain})
	}
	return q.release(f)
}

// release hands out what is decided and has nothing undecided before it.
func (q *queue) release(f func(batch.Batch) error) error {
	for len(q.held) > 0 && q.held[0].decided {
		h := q.held[0]
		q.held = q.held[1:]
		if !h.committed {
			continue
		}
		if err := f(h.Batch); err != nil {
			return err
		}
	}
	return nil
}

// lastPosition is the last committed position record of a source partition: its
// source offset, and the producer that wrote it, whose id is −1 if there is none.
// Records are sought from the end, for the topic may be large: what moves is
// near the end.
func (t *Transactions) lastPosition(ctx context.Context, source flow.TopicPartition) (offset int64, producer batch.Producer, err error) {
	none := batch.Producer{ID: -1}
	topic, err := t.positionsTopic(ctx)
	if err != nil {
		return 0, none, err
	}
	position := t.positionOf(source, 0)
	p := topic.of(t.topic, position)
	starts, err := t.coordinator.offsets(ctx, []Partition{p}, logStart)
	if err != nil {
		return 0, none, err
	}
	ends, err := t.coordinator.offsets(ctx, []Partition{p}, logEnd)
	if err != nil {
		return 0, none, err
	}
	start, end := starts[p], ends[p]
	for back := int64(1000); ; back *= 8 {
		r := reader{t: t, p: p, from: max(start, end-back)}
		first := r.from
		offset, producer = 0, none
		err := r.each(ctx, func(b batch.Batch) error {
			records, err := b.Records(fetch.Decompress)
			if err != nil {
				return err
			}
			for _, rec := range records {
				if bytes.Equal(rec.Key, position.Key()) {
					if offset, err = positionOffset(rec.Record); err != nil {
						return err
					}
					producer = b.Producer()
				}
			}
			return nil
		})
		if err != nil || producer.ID >= 0 || first == start {
			return offset, producer, err
		}
	}
}
