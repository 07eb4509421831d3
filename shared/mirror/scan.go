package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/batch"
	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// span is a range of upstream offsets: from ≤ offset < to.
type span struct{ from, to int64 }

func (s span) holds(offset int64) bool { return s.from <= offset && offset < s.to }

// question asks the source what is at offsets of a partition.
type question struct {
	flow.TopicPartition
	topicID state.TopicID // zero if unknown
	// spans rise and do not touch. They are read from the first one's beginning to
	// the last one's end, but what lies between two of them is passed over where
	// that saves a read.
	spans     []span
	committed bool

	// record gets, in order, each record within the spans that a consumer would
	// get, and refuses to go on by false. It points into what was read.
	record func(*batch.Placed) bool
	// gone gets the ranges that the log does not hold any more, or has never held.
	gone func(s span, why string) bool
}

var (
	// errUndecided is returned at an offset that a transaction which is neither
	// committed nor aborted keeps from being read.
	errUndecided = errors.New("a transaction of the source is not decided yet, and isolation.level is read_committed")
	// errNewTopic is returned where the topic bears another id than it is read by.
	errNewTopic = errors.New("source topic was re-created")
	errNothing  = errors.New("source returns nothing, though its log goes on")
)

// patience is how many reads in a row may bring nothing.
const patience = 3

// scan reads the source in one pass. What it has not handed over before the offset
// that it returns is not there: a marker, or what compaction or an abort left.
// Besides the errors of read: errUndecided, errNewTopic, batch.ErrCorrupt.
func (s *source) scan(ctx context.Context, q question) (known int64, err error) {
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return q.spans[0].from, context.Cause(ctx)
	}
	c := scanner{question: q, at: q.spans[0].from}
	for idle := 0; len(c.spans) > 0; {
		c.at = max(c.at, c.spans[0].from)
		got, err := s.read(ctx, q, c.at)
		if errors.Is(err, kerr.OffsetOutOfRange) {
			start, err := s.start(ctx, q.TopicPartition)
			if err != nil {
				return c.at, err
			}
			if !c.leave(start) {
				return c.at, nil
			}
			continue
		}
		if err != nil {
			return c.at, err
		}
		before := c.at
		if stop, err := c.take(got); stop || err != nil {
			return c.at, err
		}
		switch {
		case c.at > before:
			idle = 0
		case q.committed && got.Stable <= c.at:
			return c.at, errUndecided
		default:
			// A leader that was just elected may not know its high watermark yet.
			// Where it does, and says nothing again and again, nothing is there.
			if idle++; idle == patience {
				if got.End <= c.at {
					return c.at, errNothing
				}
				c.pass(got.End)
				idle = 0
			}
		}
	}
	return c.at, nil
}

// scanner is a scan under way.
type scanner struct {
	question
	at int64 // what lies before is known
}

// take hands over the records of a response, and reports whether that is the end.
func (c *scanner) take(got fetch.Response) (stop bool, err error) {
	for b, err := range got.Batches() {
		if err != nil {
			return true, fmt.Errorf("read offset %d: %w", c.at, err)
		}
		next := b.NextOffset()
		if next <= c.at {
			continue
		}
		if c.spans[0].from < next && !b.Control() && !b.Aborted {
			records, err := b.Records(fetch.Decompress)
			if err != nil {
				return true, err
			}
			for i := range records {
				if records[i].Offset < c.at {
					continue
				}
				c.pass(records[i].Offset)
				if len(c.spans) == 0 {
					return true, nil
				}
				if c.spans[0].holds(records[i].Offset) && !c.record(&records[i]) {
					return true, nil
				}
			}
		}
		c.pass(next)
		if len(c.spans) == 0 {
			return true, nil
		}
	}
	return false, nil
}

// pass notes that everything before an offset is known.
func (c *scanner) pass(offset int64) {
	for len(c.spans) > 0 && c.spans[0].to <= offset {
		c.at = max(c.at, c.spans[0].to)
		c.spans = c.spans[1:]
	}
	if len(c.spans) > 0 {
		c.at = max(c.at, offset)
	}
}

// leave tells of the spans that lie before the log's start, or, where the log ends
// before the scan has, of all that are left.
func (c *scanner) leave(start int64) bool {
	why := HoleExpired
	if start <= c.at {
		why, start = HoleTruncated, c.spans[len(c.spans)-1].to
	}
	for len(c.spans) > 0 && c.spans[0].from < start {
		lost := span{max(c.at, c.spans[0].from), min(start, c.spans[0].to)}
		if !c.gone(lost, why) {
			return false
		}
		c.pass(lost.to)
		if lost.to == start {
			break
		}
	}
	return true
}
