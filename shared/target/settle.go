package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
)

// Verdict says how a cursor stands to what the target's leader knows.
type Verdict string

// The verdicts. The names of the errors say what follows from the last three.
const (
	// Agrees: the next append will be taken.
	Agrees Verdict = "agrees"
	// Ahead: an earlier attempt has appended records that the cursor does not know.
	Ahead Verdict = "ahead"
	// Forgotten, see [ErrForgotten]. What the epoch has appended may still be
	// there, also under sequence 0: claim it first. If records remain to append
	// after that, and the cursor's sequence is not 0, they need a new epoch. If
	// none remain there may be more of the old epoch on the target than the call
	// had records for, so the epoch must stay.
	Forgotten Verdict = "forgotten"
	// Fenced, see [ErrFenced].
	Fenced Verdict = "fenced"
	// Behind, see [LostError].
	Behind Verdict = "behind"
)

// Standing is a verdict with the number of records it is about.
type Standing struct {
	Verdict Verdict
	Records int32
	// Err says why there is no verdict.
	Err error
}

// Probe is a question about one partition.
type Probe struct {
	Partition Partition
	Cursor    Cursor
}

// Standing asks the leaders, one DescribeProducers request per broker, how the
// cursors stand (KIP-664). A caller that does not know for certain that it was
// the last to append must ask: a broker that has forgotten the producer takes
// any sequence. Brokers before 2.8 have no such request; there every producer
// counts as forgotten. A partition that cannot be told of has an error for itself.
func (l *Log) Standing(ctx context.Context, probes []Probe) (map[flow.TopicPartition]Standing, error) {
	ps := make([]Partition, len(probes))
	for i, q := range probes {
		ps[i] = q.Partition
	}
	all, err := l.brokers.producers(ctx, ps)
	if err != nil {
		return nil, fmt.Errorf("describe producers: %w", err)
	}
	out := make(map[flow.TopicPartition]Standing, len(probes))
	for _, q := range probes {
		said, ok := all[q.Partition]
		if !ok {
			said.err = errNoLeader
		}
		var s Standing
		if said.err == nil {
			s, said.err = l.confirmed(ctx, q, standing(said.producers, q.Cursor.Producer))
		}
		if said.err != nil {
			s = Standing{Err: fmt.Errorf("describe producers of %s: %w", q.Partition.TopicPartition, said.err)}
		}
		out[q.Partition.TopicPartition] = s
	}
	return out, nil
}

// confirmed looks into the log before it says that records are lost. A broker
// that has forgotten a producer and then takes a late request of it knows less
// than its log holds: the producer is as good as forgotten.
func (l *Log) confirmed(ctx context.Context, q Probe, s Standing) (Standing, error) {
	if s.Verdict != Behind || q.Cursor.End == 0 {
		return s, nil
	}
	got, err := l.brokers.fetch(ctx, q.Partition, q.Cursor.End-1)
	if err != nil && !errors.Is(err, kerr.OffsetOutOfRange) {
		return s, fmt.Errorf("read the end of %s: %w", q.Partition.TopicPartition, err)
	}
	if err != nil || got.end < q.Cursor.End {
		return s, nil
	}
	for b, err := range batch.All(got.raw) {
		if err != nil {
			return s, fmt.Errorf("read the end of %s: %w", q.Partition.TopicPartition, err)
		}
		if b.NextOffset() < q.Cursor.End {
			continue
		}
		id := b.Producer()
		last := batch.Advance(id.Sequence, int(q.Cursor.End-b.BaseOffset()))
		if id.ID != q.Cursor.Producer.ID || id.Epoch == q.Cursor.Producer.Epoch && last != q.Cursor.Producer.Sequence {
			return s, nil
		}
		break
	}
	return Standing{Verdict: Forgotten}, nil
}

var errNoLeader = errors.New("no leader answered")

func standing(ks []known, p batch.Producer) Standing {
	i := slices.IndexFunc(ks, func(k known) bool { return k.id == p.ID })
	switch {
	case i < 0 || ks[i].sequence < 0:
		return Standing{Verdict: Forgotten}
	case ks[i].epoch > p.Epoch:
		return Standing{Verdict: Fenced}
	case ks[i].epoch < p.Epoch && p.Sequence == 0:
		return Standing{Verdict: Agrees}
	case ks[i].epoch < p.Epoch:
		return Standing{Verdict: Behind, Records: p.Sequence}
	}
	switch k := batch.Distance(p.Sequence, batch.Advance(ks[i].sequence, 1)); {
	case k > 0:
		return Standing{Verdict: Ahead, Records: k}
	case k < 0:
		return Standing{Verdict: Behind, Records: -k}
	}
	return Standing{Verdict: Agrees}
}

// Claim finds out which of the records are on the target already, from the
// cursor's end on, without appending any. want is the number of records of ours
// that lie there, as [Standing] gave it; below zero it means all up to the end
// of the log.
func (l *Log) Claim(ctx context.Context, p Partition, c Cursor, records []batch.Record, want int) (Appended, error) {
	a := appender{log: l, p: p, records: records, original: records, out: Appended{Cursor: c}}
	err := a.claim(ctx, c.End, want)
	return a.out, err
}

// settle answers a refusal: it asks the leader what is there, and claims it.
func (a *appender) settle(ctx context.Context, ans answer) error {
	const patience = 4
	if a.settled++; a.settled > patience {
		return fmt.Errorf("settle the sequence: broker answered %s %d times although it agrees on the sequence", kerrName(ans.code), patience)
	}
	all, err := a.log.brokers.producers(ctx, []Partition{a.p})
	if err != nil {
		return fmt.Errorf("describe producers: %w", err)
	}
	said, ok := all[a.p]
	if said.err != nil {
		return fmt.Errorf("describe producers: %w", said.err)
	}
	if !ok { // between two leaders: ask again
		if !newBackoff().next(ctx) {
			return fmt.Errorf("describe producers: %w", context.Cause(ctx))
		}
		a.settled--
		return nil
	}
	s, err := a.log.confirmed(ctx, Probe{a.p, a.out.Cursor}, standing(said.producers, a.out.Cursor.Producer))
	if err != nil {
		return err
	}
	switch s.Verdict {
	case Forgotten:
		return ErrForgotten
	case Fenced:
		return ErrFenced
	case Behind:
		return &LostError{Records: int64(s.Records), End: a.out.Cursor.End - int64(s.Records)}
	case Ahead:
		return a.claim(ctx, a.out.Cursor.End, int(s.Records))
	}
	if !newBackoff().next(ctx) {
		return fmt.Errorf("settle the sequence: %w", context.Cause(ctx))
	}
	return nil
}

// verify reads back n records that the broker says are at base, of which the
// call cannot know that it wrote them.
func (a *appender) verify(ctx context.Context, base int64, n int) error {
	if base < a.out.Cursor.End {
		return &LostError{Records: a.out.Cursor.End - base, End: base}
	}
	return a.claim(ctx, base, n)
}

// claim reads records of ours from an offset on and books them against the next
// records of the call: want records, all there are if below zero, or as many as
// it takes until every record of the call is found.
func (a *appender) claim(ctx context.Context, from int64, want int) error {
	r := trail{log: a.log, p: a.p, producer: a.out.Cursor.Producer, from: from, left: want}
	for a.out.Done < len(a.original) && r.left != 0 {
		if err := r.read(ctx, len(a.original)-a.out.Done); err != nil {
			return fmt.Errorf("read back from offset %d: %w", from, err)
		}
		a.match(&r)
	}
	return a.leave(&r)
}

// seconds are the second copies in a range of offsets, before an answer's. first
// says that there are first copies too, from the producer's sequence on: the broker
// has forgotten those. Whoever comes later finds the same by a [trail].
func (l *Log) seconds(ctx context.Context, p Partition, producer batch.Producer, from, to int64) (all []SecondCopy, first bool, err error) {
	for wait := newBackoff(); from < to; {
		got, err := l.brokers.fetch(ctx, p, from)
		if err != nil {
			return nil, false, err
		}
		at := from
		for b, err := range batch.All(got.raw) {
			if err != nil {
				return nil, false, err
			}
			if b.NextOffset() <= from || b.BaseOffset() >= to {
				continue
			}
			if b.Producer().ID == producer.ID && !b.Control() {
				skip, second := copied(b, producer, from)
				if second.Records > 0 {
					all = append(all, second)
				}
				first = first || 0 <= skip && skip < b.Count()
			}
			from = b.NextOffset()
		}
		from = max(from, got.start)
		if from == at && !wait.next(ctx) {
			return nil, false, context.Cause(ctx)
		}
	}
	return all, first, nil
}

// copied says which records of a batch, from an offset on, are second copies: a
// late request has landed after the broker had forgotten the first. They are of an
// older epoch, or below the sequence of the producer's next record. Behind the first
// skip records of the batch the next ones follow; −1 where those are not ours to
// explain, above the sequence or of a newer epoch.
func copied(b batch.Batch, producer batch.Producer, from int64) (skip int, second SecondCopy) {
	id := b.Producer()
	skip = int(batch.Distance(id.Sequence, producer.Sequence))
	switch {
	case id.Epoch < producer.Epoch:
		skip = b.Count()
	case id.Epoch > producer.Epoch || skip < 0:
		return -1, SecondCopy{}
	}
	skip = min(skip, b.Count())
	at := max(b.BaseOffset(), from)
	return skip, SecondCopy{at, max(b.BaseOffset()+int64(skip)-at, 0)}
}

// mine is a record of ours as the target holds it.
type mine struct {
	batch.Placed
	stamped bool // by the target, so that its timestamp says nothing
}

// trail reads the records that a producer wrote from an offset on, in the order
// of their sequence. Of an [Unknown] one it reads what is committed, and waits for
// what is undecided: MirrorMaker 2 may have been killed in a transaction.
type trail struct {
	log      *Log
	p        Partition
	producer batch.Producer // of the next record
	from     int64
	left     int    // records to be read, below zero for all; 0 at the end
	found    []mine // read and not booked yet
	second   []SecondCopy
	queue    queue // of an Unknown producer's batches, which may be of transactions
}

// passed are the second copies before an offset, told once.
func (r *trail) passed(offset int64) []SecondCopy {
	n := 0
	for n < len(r.second) && r.second[n].Offset < offset {
		n++
	}
	passed := r.second[:n]
	r.second = r.second[n:]
	return passed
}

// read adds at least n records to those that were found, unless it comes to the
// end first. It waits for records that are appended but not replicated yet.
func (r *trail) read(ctx context.Context, n int) error {
	for wait, more := newBackoff(), len(r.found)+n; r.left != 0 && len(r.found) < more; {
		got, err := r.log.brokers.fetch(ctx, r.p, r.from)
		if err != nil {
			return err
		}
		r.from = max(r.from, got.start)
		at := r.from
		if err := r.take(got.raw); err != nil {
			return err
		}
		switch {
		case r.from > at:
		case r.left < 0 && r.from >= got.end && len(r.queue.held) == 0:
			r.left = 0
		case len(r.queue.held) > 0 && !wait.next(ctx):
			return fmt.Errorf("wait for the transaction at offset %d to end: %w", r.queue.held[0].BaseOffset(), context.Cause(ctx))
		case len(r.queue.held) > 0:
		case !wait.next(ctx):
			return fmt.Errorf("wait for %d records of ours after offset %d: %w", r.left, r.from, context.Cause(ctx))
		}
	}
	return nil
}

// take adds the records of ours among fetched batches.
func (r *trail) take(raw []byte) error {
	for b, err := range batch.All(raw) {
		if err != nil {
			return err
		}
		if b.NextOffset() <= r.from {
			continue
		}
		from := r.from
		r.from = b.NextOffset()
		if r.producer.ID == Unknown {
			if err := r.queue.take(b, func(b batch.Batch) error { return r.add(b, 0) }); err != nil {
				return err
			}
			continue
		}
		if b.Control() || b.Producer().ID != r.producer.ID {
			continue
		}
		skip, second := copied(b, r.producer, from)
		if second.Records > 0 {
			r.second = append(r.second, second)
		}
		if skip < 0 || skip == b.Count() {
			continue
		}
		r.producer.Sequence = b.Producer().Sequence
		if err := r.add(b, skip); err != nil {
			return err
		}
	}
	return nil
}

// add adds the records of a batch but for the first skip of them.
func (r *trail) add(b batch.Batch, skip int) error {
	records, err := b.Records(fetch.Decompress)
	if err != nil {
		return err
	}
	for _, placed := range records[skip:] {
		if r.left == 0 {
			return nil
		}
		r.left = max(r.left-1, min(r.left, -1))
		r.found = append(r.found, mine{Placed: placed, stamped: b.LogAppendTime()})
	}
	r.producer.Sequence = batch.Advance(r.producer.Sequence, b.Count())
	return nil
}

// match books what was found against the next records of the call. Both are in
// order. It stops at a record of the call that is not among what was found.
func (a *appender) match(r *trail) {
	for a.out.Done < len(a.original) && len(r.found) > 0 {
		want := &a.original[a.out.Done]
		at := slices.IndexFunc(r.found, func(m mine) bool { return same(m, want) })
		if at < 0 {
			return
		}
		// A record that the call lacks was compacted away on the source since.
		a.skip(r.found[:at])
		a.out.Second = append(a.out.Second, r.passed(r.found[at].Offset)...)
		if len(r.found[at].Headers) < len(want.Headers) {
			a.out.Stripped = append(a.out.Stripped, a.out.Done)
		}
		a.book(r.found[at].Offset, 1)
		if r.found[at].stamped {
			a.out.Stamped++
		} else {
			a.out.Found++
		}
		r.found = r.found[at+1:]
	}
}

// leave settles what was found and not booked, once everything is read. With
// records of the call left to append, none of them is among it. But where a
// later record of the call is, the ones before it cannot be put in order any
// more.
func (a *appender) leave(r *trail) error {
	if a.out.Done == len(a.original) || len(r.found) == 0 {
		return nil
	}
	for later := a.out.Done + 1; later < len(a.original); later++ {
		if i := slices.IndexFunc(r.found, func(m mine) bool { return same(m, &a.original[later]) }); i >= 0 {
			return &AlteredError{Record: a.out.Done, Next: later, Offset: r.found[i].Offset}
		}
	}
	a.out.Second = append(a.out.Second, r.passed(r.found[len(r.found)-1].Offset)...)
	a.skip(r.found)
	return nil
}

// skip moves the cursor past records that the target has and the source lacks.
func (a *appender) skip(found []mine) {
	if len(found) == 0 {
		return
	}
	a.out.Extra += len(found)
	a.out.Cursor.Producer.Sequence = batch.Advance(a.out.Cursor.Producer.Sequence, len(found))
	a.out.Cursor.End = found[len(found)-1].Offset + 1
	a.settled = 0
}

// same compares everything that a mirror must keep, but for headers whose value
// is null: an attempt that did not know their names has left them out.
func same(m mine, r *batch.Record) bool {
	if !m.stamped && r.Timestamp != NoTimestamp && m.Timestamp != r.Timestamp {
		return false
	}
	return sameBytes(m.Key, r.Key) && sameBytes(m.Value, r.Value) && sameHeaders(m.Headers, r.Headers)
}

func sameHeaders(a, b []batch.Header) bool {
	i, j := 0, 0
	for {
		for i < len(a) && a[i].Value == nil {
			i++
		}
		for j < len(b) && b[j].Value == nil {
			j++
		}
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b)
		}
		if a[i].Name != b[j].Name || !bytes.Equal(a[i].Value, b[j].Value) {
			return false
		}
		i, j = i+1, j+1
	}
}

func sameBytes(x, y []byte) bool { return (x == nil) == (y == nil) && bytes.Equal(x, y) }

// Holds says whether the record at an offset of the target is this one. It
// returns kerr.OffsetOutOfRange where the target holds nothing there any more. A
// leader that was just elected shows nothing of what it holds until it knows what
// its followers have: that is waited for.
func (l *Log) Holds(ctx context.Context, p Partition, offset int64, r batch.Record) (bool, error) {
	const patience = 4
	idle, wait := 0, newBackoff()
	for from := offset; ; {
		got, err := l.brokers.fetch(ctx, p, from)
		if err != nil {
			return false, fmt.Errorf("read offset %d: %w", offset, err)
		}
		last := from
		for b, err := range batch.All(got.raw) {
			if err != nil {
				return false, err
			}
			if b.NextOffset() <= offset {
				from = b.NextOffset()
				continue
			}
			records, err := b.Records(fetch.Decompress)
			if err != nil {
				return false, err
			}
			for _, placed := range records {
				if placed.Offset == offset {
					return same(mine{placed, b.LogAppendTime()}, &r), nil
				}
			}
			return false, nil // compacted away
		}
		if from > last {
			continue
		}
		if got.end > offset {
			idle++
		}
		if idle == patience {
			return false, nil
		}
		if !wait.next(ctx) {
			return false, fmt.Errorf("wait for offset %d to be replicated: %w", offset, context.Cause(ctx))
		}
	}
}
