package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"mirrorless/shared/flow"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
)

// openRuns is the chunk of the run map that lives in the position: the runs
// since the last chunk that was spilled.
type openRuns []offsets.Run

func parseRuns(chunk []byte) (openRuns, error) { return offsets.ParseChunk(chunk) }

func (o openRuns) pack() []byte { return offsets.AppendChunk(nil, o) }

// add appends a run or lengthens the last one. It never writes into the array
// that the memory of an earlier invocation still shows.
func (o *openRuns) add(r offsets.Run) {
	if n := len(*o) - 1; n >= 0 {
		last := (*o)[n]
		if last.Upstream+last.Length == r.Upstream && last.Downstream+last.Length == r.Downstream {
			last.Length += r.Length
			*o = append((*o)[:n:n], last)
			return
		}
	}
	*o = append(*o, r)
}

// remember stores what the round has achieved: the reported holes, the chunks
// of the run map that have grown too long, and then the positions, in one
// conditional write for sixteen partitions of a topic.
func (m *Mirror) remember(ctx context.Context, lots []*lot) {
	m.putHoles(ctx, lots, func(l *lot, h state.Hole) bool { return h.From < l.pos.Upstream || h.Kind == SecondCopy })
	var due []*lot
	for _, l := range lots {
		if !l.changed {
			if l.err != nil || l.again != nil {
				m.forget(l)
			}
			continue
		}
		if err := m.spill(ctx, l); err != nil {
			m.unstored(l, err)
			continue
		}
		due = append(due, l)
	}
	err := m.store(ctx, due)
	for _, l := range due {
		switch {
		case !l.changed && l.err == nil && l.again == nil:
			m.keep(l)
		case !l.changed:
			m.forget(l)
		case errors.Is(err, state.ErrConflict) && l.err == nil:
			// Another invocation stored first. What this one appended is on the
			// target; the next round finds it there.
			m.forget(l)
			l.uncount()
			l.changed, l.done = false, 0
			l.retry(err)
		default:
			m.unstored(l, err)
		}
	}
	for _, l := range lots {
		if l.err == nil && l.again == nil && l.limit != nil && len(l.records) == 0 {
			l.fail(l.limit)
		}
	}
}

// store writes the positions of lots, of which those that it could write have
// not changed any more afterwards.
func (m *Mirror) store(ctx context.Context, lots []*lot) error {
	forward, rewound := map[flow.TopicPartition]state.Position{}, map[flow.TopicPartition]state.Position{}
	for _, l := range lots {
		if l.rewound {
			rewound[l.TopicPartition] = l.pos
		} else {
			forward[l.TopicPartition] = l.pos
		}
	}
	var errs []error
	stored := map[flow.TopicPartition]state.Position{}
	if len(forward) > 0 {
		done, err := m.Store.Advance(ctx, forward)
		errs = append(errs, err)
		maps.Copy(stored, done)
	}
	if len(rewound) > 0 {
		done, err := m.Store.Rewind(ctx, rewound)
		errs = append(errs, err)
		maps.Copy(stored, done)
	}
	for _, l := range lots {
		if pos, ok := stored[l.TopicPartition]; ok {
			l.pos, l.changed, l.rewound = pos, false, false
			l.settle()
		}
	}
	return errors.Join(errs...)
}

// unstored fails a lot whose position could not be written. Nothing is lost and
// nothing will be copied twice: the next invocation finds the records there.
func (m *Mirror) unstored(l *lot, err error) {
	m.forget(l)
	l.uncount()
	l.changed = false
	l.fail(errors.Join(l.err, fmt.Errorf("store the position after upstream offset %d, whose copy is on %s: %w",
		l.pos.Upstream-1, m.Settings.Target, err)))
}

// spill moves all runs but the last, which still grows, into a chunk of their
// own once they have become many.
func (m *Mirror) spill(ctx context.Context, l *lot) error {
	l.pos.Runs = l.open.pack()
	n := len(l.open) - 1
	if len(l.pos.Runs) <= state.SpillRuns || n < 1 {
		return nil
	}
	closed := l.open[:n]
	err := m.Store.PutRuns(ctx, l.TopicPartition, state.RunChunk{
		First: closed[0].Upstream, Next: closed[n-1].Upstream + closed[n-1].Length, Data: closed.pack(),
	})
	if err != nil {
		return err
	}
	l.open = openRuns{l.open[n]}
	l.pos.Runs = l.open.pack()
	return nil
}

// putHoles reports the holes that are due, once.
func (m *Mirror) putHoles(ctx context.Context, lots []*lot, due func(*lot, state.Hole) bool) {
	var holes []state.Hole
	of := map[*lot]bool{}
	for _, l := range lots {
		var later []state.Hole
		for _, h := range l.holes {
			if !due(l, h) {
				later = append(later, h)
				continue
			}
			holes = append(holes, h)
			of[l] = true
			switch h.Kind {
			case HoleNullHeaders:
				l.lostHeaders += h.Records
			case SecondCopy, DeadLetter:
			default:
				l.reported++
			}
			if h.Kind == DeadLetter {
				continue // of which tolerate has warned, with the reason
			}
			m.Logger.WarnContext(ctx, "hole in what was copied", "kind", h.Kind,
				"topic", h.Topic, "partition", h.Partition, "offset", h.From, "next", h.To, "records", h.Records)
		}
		l.holes = later
	}
	if len(holes) == 0 {
		return
	}
	if err := m.Store.PutHoles(ctx, holes); err != nil {
		for l := range of {
			m.unstored(l, fmt.Errorf("record a hole: %w", err))
		}
	}
}
