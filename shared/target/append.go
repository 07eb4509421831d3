package target

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
)

// brokers is what the log needs of the target cluster. An error of its methods
// means that the outcome is unknown; a broker's refusal is in the answer.
type brokers interface {
	// produce sends one batch and returns the broker's answer to it.
	produce(ctx context.Context, p Partition, raw []byte) (answer, error)
	// producers returns, for each partition, what its leader knows of its
	// producers. A partition that no leader answers for is missing.
	producers(ctx context.Context, ps []Partition) (map[Partition]told, error)
	// fetch reads batches from an offset on.
	fetch(ctx context.Context, p Partition, offset int64) (fetched, error)
}

// answer is a broker's answer to one batch.
type answer struct {
	code   int16
	detail string
	// base is the batch's base offset; appendTime is −1 for a batch appended now
	// to a CreateTime topic, and a time for a duplicate and on LogAppendTime
	// topics.
	base, appendTime int64
	// bad is the index of the record that the broker objects to, −1 if it names
	// none.
	bad int
}

// told is what a leader tells of the producers of a partition, or why it does not.
type told struct {
	producers []known
	err       error
}

// known is what a leader remembers of one producer.
type known struct {
	id       int64
	epoch    int16
	sequence int32 // of its last record; −1 if it has none under this epoch
}

// fetched is the outcome of one read.
type fetched struct {
	raw        []byte
	start, end int64 // log start offset and high watermark
}

// Append writes records to the partition, in order, at the cursor, and returns
// when all are acknowledged by all in-sync replicas, or with an error and what
// is on the target nevertheless. A lost answer is no error: the same bytes are
// sent again, for as long as the context lasts.
//
// Errors: [ErrFenced], [ErrForgotten], [ErrRecreated], [*LostError],
// [*AlteredError], [*RejectedError], or the context's when the time is up, with
// the last reason. Errors name neither topic nor partition: the caller does.
func (l *Log) Append(ctx context.Context, p Partition, c Cursor, records []batch.Record, _ Upstream) (Appended, error) {
	a := appender{log: l, p: p, records: l.stamp(records), original: records, out: Appended{Cursor: c}}
	err := a.run(ctx)
	return a.out, err
}

// stamp gives the time to records that have none, on a copy.
func (l *Log) stamp(records []batch.Record) []batch.Record {
	var out []batch.Record
	for i := range records {
		if records[i].Timestamp != NoTimestamp {
			continue
		}
		if out == nil {
			out = append(out, records...)
		}
		out[i].Timestamp = l.now().UnixMilli()
	}
	if out == nil {
		return records
	}
	return out
}

// appender is one call of Append under way.
type appender struct {
	log               *Log
	p                 Partition
	records, original []batch.Record // as sent, and as the caller gave them
	out               Appended
	buf               []byte
	settled           int // refusals in a row that finding records did not explain
}

func (a *appender) run(ctx context.Context) error {
	limit := 0 // records in the next batch, where a broker refused more; 0 = as many as fit
	for a.out.Done < len(a.records) {
		rest := a.records[a.out.Done:]
		n := batch.Fit(rest, a.log.limit(a.p.Topic))
		if limit > 0 {
			n = min(n, limit)
		}
		a.buf = batch.Append(a.buf[:0], a.out.Cursor.Producer, rest[:n], a.log.compress)
		ans, sent, err := a.deliver(ctx)
		if err != nil {
			return err
		}
		switch {
		case ans.code == 0:
			if err := a.accept(ctx, ans, n, sent); err != nil {
				return err
			}
			limit = 0
		case refused(ans.code):
			if err := a.settle(ctx, ans); err != nil {
				return err
			}
		case ans.bad > 0 && ans.bad < n:
			limit = ans.bad // what comes before the bad record can be appended
		case n > 1 && ans.bad < 0 && tooLarge(ans.code):
			a.log.lower(a.p.Topic, batch.Size(rest[:n])/2)
		case n > 1 && ans.bad < 0 && ofRecord(ans.code):
			limit = n / 2 // the broker does not say which one: halve until it stands alone
		default:
			return a.log.rejected(ctx, a.p, ans, a.out.Done, len(a.buf), batch.Size(rest[:n]))
		}
	}
	return nil
}

// accept books n records that the broker says are on the target.
func (a *appender) accept(ctx context.Context, ans answer, n, sent int) error {
	c := &a.out.Cursor
	if ans.base < c.End && ans.appendTime == NoTimestamp {
		return &LostError{Records: c.End - ans.base, End: ans.base}
	}
	if ans.base > c.End {
		second, first, err := a.log.seconds(ctx, a.p, c.Producer, c.End, ans.base)
		switch {
		case err != nil:
			return fmt.Errorf("read what lies between offsets %d and %d: %w", c.End, ans.base, err)
		case first: // so that what is at base is the second copy
			return a.claim(ctx, c.End, n)
		}
		a.out.Second = append(a.out.Second, second...)
	}
	// With a time in the answer the batch may have been there before this call.
	// What this call sent itself is what it holds. Anything else is read back,
	// because the broker compares sequences and not content.
	if ans.appendTime != NoTimestamp && sent == 1 {
		return a.verify(ctx, ans.base, n)
	}
	a.book(ans.base, n)
	return nil
}

// book moves the cursor past the next n records, which are at base.
func (a *appender) book(base int64, n int) {
	out := &a.out
	out.Foreign += max(base-out.Cursor.End, 0)
	if last := len(out.Placed) - 1; last >= 0 && out.Placed[last].Base+int64(out.Placed[last].Count) == base &&
		out.Placed[last].First+out.Placed[last].Count == out.Done {
		out.Placed[last].Count += n
	} else {
		out.Placed = append(out.Placed, Placed{First: out.Done, Count: n, Base: base})
	}
	out.Cursor.Newest = newest(a.records[out.Done : out.Done+n])
	out.Cursor.End = base + int64(n)
	out.Cursor.Producer.Sequence = batch.Advance(out.Cursor.Producer.Sequence, n)
	out.Done += n
	a.settled = 0
}

func newest(records []batch.Record) int64 {
	t := records[0].Timestamp
	for i := range records {
		t = max(t, records[i].Timestamp)
	}
	return t
}

// deliver sends the batch until a broker answers it with something that a
// repetition would not change. sent counts the requests that may have reached
// a log.
func (a *appender) deliver(ctx context.Context) (ans answer, sent int, err error) {
	var last error
	for wait := newBackoff(); ; {
		ans, err = a.log.brokers.produce(ctx, a.p, a.buf)
		switch {
		case errors.Is(err, errNotSent):
			last = err
		case errors.Is(err, ErrRecreated):
			return answer{}, sent, err
		case err != nil:
			sent++
			// The end of time is no answer. The request may see it a moment before.
			if last != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
				err = fmt.Errorf("%w, then %w", last, err)
			}
			last = err
		case transient(ans.code):
			sent++
			last = kerr.ErrorForCode(ans.code)
		default:
			return ans, sent + 1, nil
		}
		if !wait.next(ctx) {
			return answer{}, sent, fmt.Errorf("wait for the target: %w (last answer: %w)", context.Cause(ctx), last)
		}
	}
}

// errNotSent marks an attempt of which no byte can have reached a broker.
var errNotSent = errors.New("not sent")

// refused says that the broker compared the sequence and did not like it.
func refused(code int16) bool {
	switch code {
	case kerr.OutOfOrderSequenceNumber.Code, kerr.DuplicateSequenceNumber.Code, kerr.InvalidProducerEpoch.Code,
		kerr.UnknownProducerID.Code, kerr.ProducerFenced.Code:
		return true
	}
	return false
}

// transient says that the same bytes may succeed later. NotEnoughReplicasAfterAppend
// and RequestTimedOut are among them although the batch may have been appended:
// the sequence makes the repetition harmless.
func transient(code int16) bool {
	switch code {
	case kerr.CorruptMessage.Code: // retriable in Kafka, but the bytes were right when they were sent
		return false
	}
	return kerr.IsRetriable(kerr.ErrorForCode(code))
}

// tooLarge says that the batch is over the topic's max.message.bytes.
func tooLarge(code int16) bool {
	return code == kerr.MessageTooLarge.Code || code == kerr.RecordListTooLarge.Code
}

// ofRecord says that the answer is about a batch and not the partition, so that a
// part of it may be taken.
func ofRecord(code int16) bool {
	switch code {
	case kerr.CorruptMessage.Code, kerr.UnsupportedForMessageFormat.Code, kerr.UnsupportedCompressionType.Code:
		return true
	}
	return judges(code)
}

// judges says that the answer is about what a record is, and not how it was sent.
func judges(code int16) bool {
	switch code {
	case kerr.InvalidTimestamp.Code, kerr.InvalidRecord.Code, kerr.PolicyViolation.Code:
		return true
	}
	return tooLarge(code)
}

// backoff waits between two attempts: 20 ms at first, doubling up to a second,
// with jitter so that many functions do not come back together.
type backoff struct{ d time.Duration }

func newBackoff() *backoff { return &backoff{d: 20 * time.Millisecond} }

// next waits and says whether there is time for another attempt.
func (b *backoff) next(ctx context.Context) bool {
	d := b.d/2 + rand.N(b.d/2+1)
	b.d = min(2*b.d, time.Second)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		<-ctx.Done()
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
