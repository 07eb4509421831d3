package target

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
)

// Append writes the records in order, one transaction for each batch of them,
// and returns when all are committed, or with an error and what is committed
// nevertheless. Nothing is read by consumers of committed records before their
// transaction is.
//
// Errors are those of [Log.Append], and [ErrFenced] also where no Standing was
// asked for since another call of this process, or where a commit's outcome is
// unknown: ask again how the partition stands.
func (t *Transactions) Append(ctx context.Context, p Partition, c Cursor, records []batch.Record, upstream Upstream) (Appended, error) {
	if len(records) == 0 {
		return Appended{Cursor: c}, nil
	}
	s := t.take(p, c)
	if s == nil || s.unsettled {
		return Appended{Cursor: c}, errNoSession
	}
	topic, err := t.positionsTopic(ctx)
	if err != nil {
		t.keep(p, s)
		return Appended{Cursor: c}, err
	}
	a := transaction{
		t: t, s: s, p: p, records: t.stamp(records), upstream: upstream,
		positions: topic, out: Appended{Cursor: c},
	}
	err = a.run(ctx)
	if err == nil || a.clean {
		t.keep(p, s)
	}
	return a.out, err
}

// transaction is one call of Append under way.
type transaction struct {
	t         *Transactions
	s         *session
	p         Partition
	records   []batch.Record
	upstream  Upstream
	positions positions
	out       Appended

	// careful sends the position record only after the copies are accepted. They
	// go together at first, to be quick.
	careful bool
	// skewed says that the end of an aborted transaction may lie before the next
	// append.
	skewed bool
	// repeated says that a request of the batch at hand was sent more than once, so
	// that the answer to it may be a duplicate's.
	repeated bool
	// clean says that an error has left no transaction open, and the session good.
	clean bool
}

func (a *transaction) run(ctx context.Context) error {
	most := 0 // records in the next batch, where a broker refused more
	for a.out.Done < len(a.records) {
		rest := a.records[a.out.Done:]
		n := batch.Fit(rest, a.t.limit(a.p.Topic))
		if most > 0 {
			n = min(n, most)
		}
		ans, err := a.commit(ctx, rest[:n])
		switch {
		case err != nil:
			return err
		case ans.code == 0:
			a.book(ans, n)
			most = 0
		case ans.bad > 0 && ans.bad < n:
			most = ans.bad
		case n > 1 && ans.bad < 0 && tooLarge(ans.code):
			a.t.lower(a.p.Topic, batch.Size(rest[:n])/2)
		case n > 1 && ans.bad < 0 && ofRecord(ans.code):
			most = n / 2
		default:
			size := batch.Size(rest[:n])
			r := a.t.rejected(ctx, a.p, ans, a.out.Done, len(batch.Append(nil, a.s.producer, rest[:n], a.t.compress)), size)
			// Nothing is appended; what is open, if anything, holds no record.
			a.clean = a.abort(ctx) == nil
			return r
		}
	}
	return nil
}

// commit appends records and their position record in one transaction and
// commits it. Where the broker refuses the records it returns the refusal, and
// nothing of them is appended.
func (a *transaction) commit(ctx context.Context, records []batch.Record) (answer, error) {
	if err := a.renew(ctx); err != nil {
		return answer{}, err
	}
	copies := part{Partition: a.p, raw: batch.Append(nil, a.s.producer, records, a.t.compress)}
	position := a.positionAfter(len(records))
	together := !a.careful
	parts := []part{copies}
	if together {
		parts = append(parts, position)
	}
	answers, err := a.deliver(ctx, parts)
	if err != nil {
		return answer{}, a.give(ctx, err)
	}
	ans := answers[0]
	if ans.code != 0 {
		a.careful = true
		if together {
			// The position record says too much, if it was accepted.
			if answers[1].code == 0 {
				a.s.position = batch.Advance(a.s.position, 1)
			}
			if err := a.abort(ctx); err != nil {
				return answer{}, fmt.Errorf("abort a transaction: %w", err)
			}
		}
		return ans, nil
	}
	if ans.base < a.out.Cursor.End {
		return answer{}, a.give(ctx, &LostError{Records: a.out.Cursor.End - ans.base, End: ans.base})
	}
	a.s.producer.Sequence = batch.Advance(a.s.producer.Sequence, len(records))
	if !together {
		if answers, err = a.deliver(ctx, []part{position}); err != nil {
			return answer{}, a.give(ctx, err)
		}
	}
	if code := answers[len(answers)-1].code; code != 0 {
		a.t.forgetPositionsTopic()
		return answer{}, a.give(ctx, fmt.Errorf("write the position record to %s: broker answered %s", position.TopicPartition, kerrName(code)))
	}
	a.s.position = batch.Advance(a.s.position, 1)
	return ans, a.end(ctx, true)
}

// renew gives every transaction an epoch of its own: the late request that ends
// one would end the next one as well, with a part of its batches.
func (a *transaction) renew(ctx context.Context) error {
	if !a.s.ended {
		return nil
	}
	return a.insist(ctx, func() error {
		next, err := a.t.coordinator.renew(ctx, a.s.id, a.s.producer, limit(ctx))
		if err == nil {
			a.s.use(next)
		}
		return err
	})
}

// use takes the identity that the coordinator gave for the next transaction.
func (s *session) use(next batch.Producer) {
	s.ended = next.ID == s.producer.ID && next.Epoch == s.producer.Epoch
	if !s.ended {
		s.producer.ID, s.producer.Epoch = next.ID, next.Epoch
		s.producer.Sequence, s.position = 0, 0
	}
}

// positionAfter is the position record after n more records.
func (a *transaction) positionAfter(n int) part {
	position := a.t.positionOf(a.p.Source, a.upstream(a.out.Done+n-1))
	producer := a.s.producer
	producer.Sequence = a.s.position
	return part{
		Partition: a.positions.of(a.t.topic, position),
		raw: batch.Append(nil, producer, []batch.Record{{
			Timestamp: a.t.now().UnixMilli(), Key: position.Key(), Value: position.Value(),
		}}, nil),
	}
}

// book moves the cursor past the next n records, which are committed from the
// answer's base on, and past the marker behind them.
func (a *transaction) book(ans answer, n int) {
	out, base := &a.out, ans.base
	if !a.skewed {
		out.Foreign += base - out.Cursor.End
	}
	if ans.appendTime != NoTimestamp && !a.repeated {
		out.Stamped += n
	}
	a.skewed = false
	out.Placed = append(out.Placed, Placed{First: out.Done, Count: n, Base: base})
	out.Cursor.Newest = newest(a.records[out.Done : out.Done+n])
	out.Cursor.End = base + int64(n) + 1
	out.Done += n
	a.s.end = out.Cursor.End
}

// deliver writes parts of the transaction until every one has an answer that a
// repetition would not change.
func (a *transaction) deliver(ctx context.Context, parts []part) ([]answer, error) {
	a.repeated = false
	answers := make([]answer, len(parts))
	open := make([]int, len(parts)) // indexes of those without an answer
	for i := range open {
		open[i] = i
	}
	for wait := newBackoff(); ; {
		pending := make([]part, len(open))
		for i, at := range open {
			pending[i] = parts[at]
		}
		var last error
		var still []int
		for i, o := range a.t.coordinator.write(ctx, a.s.id, a.s.producer, pending) {
			switch {
			case errors.Is(o.err, ErrRecreated):
				return nil, o.err
			case o.err != nil:
				last = o.err
			case transient(o.ans.code), o.ans.code == kerr.ConcurrentTransactions.Code:
				last = kerr.ErrorForCode(o.ans.code)
			case fenced(o.ans.code):
				return nil, fmt.Errorf("%w: broker answered %s", ErrFenced, kerrName(o.ans.code))
			default:
				answers[open[i]] = o.ans
				continue
			}
			still = append(still, open[i])
		}
		if open = still; len(open) == 0 {
			return answers, nil
		}
		if !wait.next(ctx) {
			return nil, fmt.Errorf("wait for the target: %w (last answer: %w)", context.Cause(ctx), last)
		}
		a.repeated = true
	}
}

// fenced says that the transaction can neither go on nor be begun again under
// this epoch: somebody took the id over, the transaction was aborted by its
// time-out, the id has expired, or a broker lost a part of it.
func fenced(code int16) bool {
	switch code {
	case kerr.ProducerFenced.Code, kerr.InvalidProducerEpoch.Code, kerr.InvalidTxnState.Code,
		kerr.InvalidProducerIDMapping.Code, kerr.UnknownProducerID.Code, kerr.TransactionAbortable.Code,
		kerr.OutOfOrderSequenceNumber.Code, kerr.DuplicateSequenceNumber.Code:
		return true
	}
	return false
}

// end commits or aborts, as often as it takes to get an answer. After an error
// the outcome of a commit is unknown.
func (a *transaction) end(ctx context.Context, commit bool) error {
	return a.insist(ctx, func() error {
		next, err := a.t.coordinator.end(ctx, a.s.id, a.s.producer, commit)
		if err == nil {
			a.s.use(next)
		}
		return err
	})
}

// insist repeats a request to the coordinator until it has an answer that a
// repetition would not change.
func (a *transaction) insist(ctx context.Context, request func() error) error {
	for wait := newBackoff(); ; {
		err := request()
		if err == nil {
			return nil
		}
		if ke, ok := errors.AsType[*kerr.Error](err); ok && !ke.Retriable && ke.Code != kerr.ConcurrentTransactions.Code {
			if fenced(ke.Code) {
				return fmt.Errorf("%w: coordinator answered %s", ErrFenced, ke.Message)
			}
			return fmt.Errorf("ask the transaction's coordinator: %w", err)
		}
		if !wait.next(ctx) {
			return fmt.Errorf("wait for the transaction's coordinator: %w (last answer: %w)", context.Cause(ctx), err)
		}
	}
}

// leastAbort is what an abort gets where the time is up: without it readers of
// committed records wait until the transaction's time-out.
const leastAbort = 300 * time.Millisecond

// abort ends the open transaction, if there is one.
func (a *transaction) abort(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), leastAbort)
		defer cancel()
	}
	a.skewed = true
	return a.end(ctx, false)
}

// give gives the transaction up for an error, which it returns.
func (a *transaction) give(ctx context.Context, err error) error {
	if !errors.Is(err, ErrFenced) {
		_ = a.abort(ctx) // the next Standing does it otherwise
	}
	return err
}
