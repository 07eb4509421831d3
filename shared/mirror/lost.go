package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"mirrorless/shared/batch"
	"mirrorless/shared/config"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// goBack answers a target that lost the last records it had acknowledged, as
// after an unclean leader election. Nobody knows what else it lost, so it stops
// the partition unless mirrorless.recreated is copy. Then the position goes back
// to the first lost record; the event source does not, and the source is read for
// what lies before the event at hand.
func (m *Mirror) goBack(ctx context.Context, l *lot, lost *target.LostError) {
	if m.Settings.Recreated != config.RecreatedCopy {
		l.fail(fmt.Errorf("%w; set mirrorless.recreated = copy to copy them again from %s", lost, m.Settings.Source))
		return
	}
	all, err := m.runMap(ctx, l)
	if err != nil {
		l.fail(err)
		return
	}
	runs := slices.Collect(all.Runs())
	first, ok := fromEnd(runs, lost.Records)
	if m.Settings.ExactlyOnce { // the ends of transactions take offsets too
		first, ok = fromOffset(runs, lost.End, l.pos), true
	}
	if !ok {
		l.fail(fmt.Errorf("%w, more than the run map knows of", lost))
		return
	}
	m.Logger.WarnContext(ctx, "target lost acknowledged records, they are copied again",
		"topic", l.remote.Topic, "partition", l.Partition, "offset", first.Downstream, "records", lost.Records)
	if err := m.Store.DeleteRuns(ctx, l.TopicPartition, first.Upstream, l.pos.Upstream); err != nil {
		l.fail(fmt.Errorf("delete the run map: %w", err))
		return
	}
	l.pos.Upstream, l.pos.Downstream = first.Upstream, first.Downstream
	if !m.Settings.ExactlyOnce {
		l.pos.Sequence = batch.Advance(l.pos.Sequence, -int(lost.Records))
	}
	l.open = before(l.open, first.Upstream)
	l.pos.Runs = l.open.pack()
	l.changed, l.rewound = true, true
	if err := m.store(ctx, []*lot{l}); err != nil && !errors.Is(err, state.ErrConflict) {
		l.fail(fmt.Errorf("store the position that went back: %w", err))
	}
	l.changed, l.done = false, 0
	l.retry(lost)
}

// fromEnd is the place of the n-th copied record from the end.
func fromEnd(runs []offsets.Run, n int64) (offsets.Run, bool) {
	for i := len(runs) - 1; i >= 0; i-- {
		r := runs[i]
		if n <= r.Length {
			return offsets.Run{Upstream: r.Upstream + r.Length - n, Downstream: r.Downstream + r.Length - n, Length: n}, true
		}
		n -= r.Length
	}
	return offsets.Run{}, false
}

// fromOffset is the place of the first copied record at or behind an offset of the
// target, or where the next one belongs if there is none.
func fromOffset(runs []offsets.Run, downstream int64, pos state.Position) offsets.Run {
	for _, r := range runs {
		if skip := max(downstream-r.Downstream, 0); skip < r.Length {
			return offsets.Run{Upstream: r.Upstream + skip, Downstream: downstream, Length: r.Length - skip}
		}
	}
	return offsets.Run{Upstream: pos.Upstream, Downstream: downstream}
}

// before is what runs hold of records below an upstream offset.
func before(runs openRuns, upstream int64) (out openRuns) {
	for _, r := range runs {
		if n := min(r.Length, upstream-r.Upstream); n > 0 {
			r.Length = n
			out = append(out, r)
		}
	}
	return out
}
