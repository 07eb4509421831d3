package target

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
)

// adoptBytes bounds how much of the log is searched for a first copy. Whoever took
// a turn after us went on where we were, or, as MirrorMaker 2 may, a little before.
// Another application's records are read in vain, at each cold start.
const adoptBytes = 16 << 20

// Adopt finds copies that somebody else has appended behind the cursor's end, in a
// turn of its own: another deployment of the flow, or MirrorMaker 2. It compares
// content, as [Log.Claim] does for an [Unknown] producer, and looks at no batch of
// the cursor's own one, whose sequence stays as it is. Where the first of the
// records is not among the first 16 MiB of the log from there on, nobody took a
// turn, and nothing is done. Whoever appends after a turn must store a new epoch
// before, as after [ErrForgotten]: a late request of the old one would be taken.
func (l *Log) Adopt(ctx context.Context, p Partition, c Cursor, records []batch.Record) (Appended, error) {
	at, err := l.search(ctx, p, c, &records[0])
	if at < 0 || err != nil {
		return Appended{Cursor: c}, err
	}
	a := appender{log: l, p: p, records: records, original: records, out: Appended{Cursor: c}}
	anybody := batch.Producer{ID: Unknown}
	err = a.follow(ctx, &trail{log: l, p: p, producer: anybody, besides: &c.Producer.ID, from: at, left: -1})
	a.out.Cursor.Producer = c.Producer
	return a.out, err
}

// search returns the offset of the first copy of a record that another producer
// than the cursor's has appended behind it, −1 if there is none.
func (l *Log) search(ctx context.Context, p Partition, c Cursor, r *batch.Record) (int64, error) {
	from := c.End
	for wait, read := newBackoff(), 0; read < adoptBytes; {
		got, err := l.read(ctx, p, from)
		if err != nil {
			return -1, fmt.Errorf("search from offset %d: %w", from, err)
		}
		from = max(from, got.start)
		at := from
		read += len(got.raw)
		for b, err := range batch.All(got.raw) {
			if err != nil {
				return -1, err
			}
			if b.NextOffset() <= at {
				continue
			}
			from = b.NextOffset()
			if b.Control() || b.Producer().ID == c.Producer.ID {
				continue
			}
			records, err := b.Records(fetch.Decompress)
			if err != nil {
				return -1, err
			}
			for _, placed := range records {
				if placed.Offset >= at && same(mine{placed, b.LogAppendTime()}, r) {
					return placed.Offset, nil
				}
			}
		}
		switch {
		case from > at:
		case from >= got.end:
			return -1, nil
		case !wait.next(ctx):
			return -1, fmt.Errorf("wait for offset %d to be replicated: %w", from, context.Cause(ctx))
		}
	}
	return -1, nil
}

// read reads from an offset on, or from where the log begins by now: what lay there
// has expired.
func (l *Log) read(ctx context.Context, p Partition, offset int64) (fetched, error) {
	got, err := l.brokers.fetch(ctx, p, offset)
	if !errors.Is(err, kerr.OffsetOutOfRange) {
		return got, err
	}
	starts, failed := l.brokers.offsets(ctx, []Partition{p}, logStart)
	if failed != nil {
		return fetched{}, fmt.Errorf("find the start of the log: %w", failed)
	}
	if starts[p] <= offset {
		return fetched{}, err // it ends before
	}
	return l.brokers.fetch(ctx, p, starts[p])
}

// lookForEnds adds the ends of logs to standings.
func (l *Log) lookForEnds(ctx context.Context, probes []Probe, standings map[flow.TopicPartition]Standing) {
	var ps []Partition
	for _, q := range probes {
		if s := standings[q.Partition.TopicPartition]; s.Err == nil {
			ps = append(ps, q.Partition)
		}
	}
	if len(ps) == 0 {
		return
	}
	patient, cancel := patience(ctx)
	defer cancel()
	ends, err := l.brokers.offsets(patient, ps, logEnd)
	for _, p := range ps {
		s := standings[p.TopicPartition]
		end, ok := ends[p]
		if s.End = end; !ok {
			s.Err = fmt.Errorf("find the end of %s: %w", p.TopicPartition, err)
		}
		standings[p.TopicPartition] = s
	}
}
