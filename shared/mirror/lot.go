package mirror

import (
	"context"
	"fmt"
	"slices"

	"mirrorless/shared/batch"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// lot is the part of a batch that belongs to one partition, and what has become
// of it.
type lot struct {
	flow.TopicPartition
	all     []kafkaevent.Record // of the event, in its order
	done    int                 // leading records of all that this invocation has copied
	records []kafkaevent.Record // those of the rest that are to be copied now
	plain   []batch.Record      // records, as they are appended
	limit   error               // why records end before those of the event do

	pos      state.Position
	open     openRuns
	sourceID state.TopicID // as the source told it in this round; zero if it was not asked
	remote   target.Partition
	standing target.Standing
	rewound  bool // pos may lie before the stored one
	changed  bool // pos is to be stored
	holes    []state.Hole

	again error // why another round is needed
	err   error // why the first of records cannot be copied
}

// split sorts records into lots, by partition, keeping their order.
func split(records []kafkaevent.Record) []*lot {
	var lots []*lot
	at := map[flow.TopicPartition]*lot{}
	for start := 0; start < len(records); {
		tp := flow.TopicPartition{Topic: records[start].Topic, Partition: records[start].Partition}
		end := start + 1
		for end < len(records) && records[end].Partition == tp.Partition && records[end].Topic == tp.Topic {
			end++
		}
		l := at[tp]
		if l == nil {
			l = &lot{TopicPartition: tp, all: records[start:end:end]}
			at[tp] = l
			lots = append(lots, l)
		} else {
			l.all = append(l.all, records[start:end]...)
		}
		start = end
	}
	for _, l := range lots {
		l.records = l.all
	}
	return lots
}

func unfinished(lots []*lot) []*lot {
	return slices.DeleteFunc(slices.Clone(lots), func(l *lot) bool {
		return l.err != nil || (len(l.records) == 0 && l.again == nil && !l.changed)
	})
}

func (l *lot) fail(err error) { l.err = err }

// retry asks for another round.
func (l *lot) retry(err error) { l.again = err }

// admit says whether the lot may be copied at all.
func (m *Mirror) admit(l *lot) error {
	if v := m.selector.Select(l.Topic); !v.Copy {
		return fmt.Errorf("topic is not one of %s's: %s; delete its event source", m.Settings.Flow, v.Reason.Explain())
	}
	for i := 1; i < len(l.all); i++ {
		if prev, next := l.all[i-1].Offset, l.all[i].Offset; next <= prev {
			return fmt.Errorf("offsets of the event do not rise: %d comes after %d", next, prev)
		}
	}
	return nil
}

// prepare drops what is on the target already, names the holes, and turns the
// rest into records to append.
func (m *Mirror) prepare(ctx context.Context, l *lot) {
	l.records, l.limit, l.holes = l.all[l.done:], nil, nil
	if none := (state.TopicID{}); l.sourceID != none && l.pos.SourceTopicID != none && l.sourceID != l.pos.SourceTopicID {
		if err := m.startOver(ctx, l); err != nil {
			l.fail(err)
			return
		}
	}
	below := slices.IndexFunc(l.records, func(r kafkaevent.Record) bool { return r.Offset >= l.pos.Upstream })
	if below < 0 {
		below = len(l.records)
	}
	if below > 0 {
		same, err := m.sameTopic(ctx, l, l.records[:below])
		if err != nil {
			l.fail(fmt.Errorf("compare with what was copied before: %w", err))
			return
		}
		if !same {
			if err := m.startOver(ctx, l); err != nil {
				l.fail(err)
				return
			}
			below = 0
		}
	}
	l.done += below
	l.records = l.records[below:]
	m.findHoles(l)
	l.plain = m.plain(l)
}

// findHoles reports the offsets that the event skips, as one range a batch. What
// is missing may be compacted away, a transaction marker, expired, or a record
// that the event could not carry; the event does not say which.
func (m *Mirror) findHoles(l *lot) {
	next := l.pos.Upstream
	var hole state.Hole
	for i := range l.records {
		if gap := l.records[i].Offset - next; gap > 0 {
			if m.Settings.Holes == config.HoleStop {
				l.stop(i, fmt.Errorf("offsets %d to %d are missing from the event, and mirrorless.holes is stop", next, l.records[i].Offset-1))
				break
			}
			if hole.Records == 0 {
				hole = state.Hole{TopicPartition: l.TopicPartition, From: next, Kind: HoleUnexplained, Seen: m.Now()}
			}
			hole.To = l.records[i].Offset
			hole.Records += gap
		}
		next = l.records[i].Offset + 1
	}
	if hole.Records > 0 {
		l.holes = append(l.holes, hole)
	}
}

// The kinds of [state.Hole] that a Mirror reports.
const (
	// HoleUnexplained is a range of offsets that the event source did not deliver.
	HoleUnexplained = "unexplained"
	// HoleNullHeaders is a range of records that are copied but for headers whose
	// value is null: Lambda's event does not carry their names.
	HoleNullHeaders = "null headers"
	// HoleRecreated is the beginning of a topic that was created again on the
	// source, as far as it was gone before the first record arrived.
	HoleRecreated = "before re-creation was seen"
	// SecondCopy is no hole: records that are on the target twice, because a late
	// request landed after the target had forgotten the producer. Its place is the
	// position at which they were noticed.
	SecondCopy = "second copy"
)

// stop keeps the lot's records from number i on from being copied.
func (l *lot) stop(i int, err error) {
	l.records = l.records[:i]
	l.limit = err
}

// plain returns the lot's records without the headers that did not travel, and
// reports those. A timestamp below −1 is no timestamp, and Kafka's clients
// refuse it; so does this, rather than to invent one.
func (m *Mirror) plain(l *lot) []batch.Record {
	headers := 0
	for i := range l.records {
		headers += len(l.records[i].Headers)
	}
	slab := make([]batch.Header, 0, headers)
	out := make([]batch.Record, 0, len(l.records))
	for i := range l.records {
		r := &l.records[i]
		if r.Timestamp < kafkaevent.NoTimestamp {
			l.stop(i, fmt.Errorf("timestamp %d is below −1", r.Timestamp))
			break
		}
		from := len(slab)
		for _, h := range r.Headers {
			if h.Lost {
				l.loseHeader(r.Offset, m)
				continue
			}
			slab = append(slab, batch.Header{Name: h.Name, Value: h.Value})
		}
		rec := batch.Record{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
		if len(slab) > from {
			rec.Headers = slab[from:len(slab):len(slab)]
		}
		out = append(out, rec)
	}
	return out
}

// loseHeader extends the last report of lost headers, or begins one.
func (l *lot) loseHeader(offset int64, m *Mirror) {
	if n := len(l.holes) - 1; n >= 0 && l.holes[n].Kind == HoleNullHeaders && offset <= l.holes[n].To {
		if offset == l.holes[n].To {
			l.holes[n].To++
			l.holes[n].Records++
		}
		return
	}
	l.holes = append(l.holes, state.Hole{
		TopicPartition: l.TopicPartition, From: offset, To: offset + 1, Kind: HoleNullHeaders, Records: 1, Seen: m.Now(),
	})
}
