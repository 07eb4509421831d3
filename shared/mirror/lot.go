package mirror

import (
	"context"
	"fmt"
	"slices"

	"mirrorless/shared/batch"
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
	done    int                 // leading records of all that are on the target
	records []kafkaevent.Record // those that are to be copied now, with what the source adds
	plain   []batch.Record      // records, as they are appended
	limit   error               // why records end before those of the event do
	more    bool                // records end there for want of room; the next round goes on
	through int64               // what lies before and is not among records need not be copied
	passed  []span              // holes that an earlier attempt has made for good
	sweep   *sweeping           // nil for the lot of an event

	pos      state.Position
	open     openRuns
	sourceID state.TopicID // as the source told it in this round; zero if it was not asked
	remote   target.Partition
	standing target.Standing
	warm     bool // pos is of this process's memory
	trusted  bool // the target has acknowledged an append of this round
	tries    int  // rounds that asked for another one
	rewound  bool // pos may lie before the stored one
	changed  bool // pos is to be stored
	holes    []state.Hole

	tally       tally // of the round, for the report
	settled     tally // of what is stored
	repeated    int64 // records that the first round found before the position
	reported    int64 // holes
	lostHeaders int64

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
		return l.err != nil || (len(l.records) == 0 && l.again == nil && !l.changed && !l.more)
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

// prepare drops what is on the target already, looks up what the event lacks, and
// turns the rest into records to append.
func (m *Mirror) prepare(ctx context.Context, l *lot, room *allowance) {
	l.records, l.limit, l.holes, l.more, l.through = l.all[l.done:], nil, nil, false, 0
	if l.sweep != nil {
		m.fillSweep(ctx, l, room)
		l.plain = m.plain(l)
		return
	}
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
	if l.done == 0 && l.settled.records == 0 {
		l.repeated = int64(below)
	}
	l.done += below
	l.records = l.records[below:]
	if m.fill(ctx, l, room); l.err == nil && l.again == nil {
		l.plain = m.plain(l)
	}
}

// stop keeps the lot's records from number i on from being copied.
func (l *lot) stop(i int, err error) {
	l.records = l.records[:i]
	l.limit, l.more, l.through = err, false, 0
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
				m.loseHeader(l, r.Offset)
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
