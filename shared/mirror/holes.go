package mirror

import (
	"errors"
	"fmt"
	"sort"

	"mirrorless/shared/config"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// The kinds of [state.Hole] that a Mirror reports. What compaction has removed,
// the markers of transactions, and aborted records of a read_committed source are
// no holes: a reader of the source does not get them either.
const (
	// HoleUnexplained is a range of offsets that the event source did not deliver
	// and that could not be looked up, because the source is out of reach. There may
	// have been nothing to be copied.
	HoleUnexplained = "unexplained"
	// HoleExpired is a range that the source had deleted before it could be copied:
	// its log begins behind it, by retention or by DeleteRecords. Records counts
	// offsets, some of which may never have held a record.
	HoleExpired = "expired"
	// HoleTruncated is a range behind the end of the source's log: it has lost
	// records that the event source was given, as by an unclean leader election.
	HoleTruncated = "lost by the source"
	// HolePassedOver is a range of records that an earlier attempt knew nothing of
	// and has copied later ones after, when it could not read the source.
	HolePassedOver = "passed over"
	// HoleNullHeaders is a range of records that are copied but for headers whose
	// value is null: Lambda's event does not carry their names, and the source could
	// not be asked.
	HoleNullHeaders = "null headers"
	// HoleRecreated is the beginning of a topic that was created again on the
	// source, as far as it was gone before the first record arrived.
	HoleRecreated = "before re-creation was seen"
	// DeadLetter is a record that the target has refused, and that is in the
	// dead-letter topic instead.
	DeadLetter = "dead letter"
	// SecondCopy is no hole: records that are on the target twice, because a late
	// request landed after the target had forgotten the producer. Its offsets are
	// the target's, so that whoever notices them again, after a crash, tells of the
	// same ones.
	SecondCopy = state.SecondCopy
)

// addHole reports a range of the batch. All ranges of a kind make one hole, which
// spans them.
func (m *Mirror) addHole(l *lot, kind string, s span, records int64) {
	for i := range l.holes {
		if h := &l.holes[i]; h.Kind == kind && kind != HoleNullHeaders && h.From <= s.from {
			h.To = max(h.To, s.to)
			h.Records += records
			return
		}
	}
	l.holes = append(l.holes, state.Hole{TopicPartition: l.TopicPartition, From: s.from, To: s.to, Kind: kind, Records: records, Seen: m.Now()})
}

// findHoles reports the offsets that the event skips, of which nothing more can
// be known because of why.
func (m *Mirror) findHoles(l *lot, why error) {
	for _, s := range l.gaps() {
		if m.Settings.Holes == config.HoleStop {
			i := l.index(s.to)
			l.stop(i, fmt.Errorf("offsets %d to %d are missing from the event, the source cannot tell what they were, and mirrorless.holes is stop: %w", s.from, s.to-1, why))
			return
		}
		m.addHole(l, HoleUnexplained, s, s.to-s.from)
	}
}

// loseHeader extends the last report of lost headers, or begins one.
func (m *Mirror) loseHeader(l *lot, offset int64) {
	for i := range l.holes {
		if h := &l.holes[i]; h.Kind == HoleNullHeaders && h.From <= offset && offset <= h.To {
			if offset == h.To {
				h.To++
				h.Records++
			}
			return
		}
	}
	m.addHole(l, HoleNullHeaders, span{offset, offset + 1}, 1)
}

func errHoleStop(s span, why, cluster string) error {
	return fmt.Errorf("offsets %d to %d are gone from cluster %s before they were copied (%s), and mirrorless.holes is stop", s.from, s.to-1, cluster, why)
}

// passOver gives up records that an earlier attempt knew nothing of, if that is
// what err says: later ones are on the target, so these cannot be put in order any
// more. It reports whether it did, and asks for another round then.
func (m *Mirror) passOver(l *lot, err error) bool {
	altered, ok := errors.AsType[*target.AlteredError](err)
	if !ok || m.Settings.Holes == config.HoleStop {
		return false
	}
	lost := l.records[:altered.Next-altered.Record] // book has dropped what comes before
	for _, r := range lost {
		if l.delivers(r.Offset) {
			return false
		}
	}
	l.passed = append(l.passed, span{lost[0].Offset, lost[len(lost)-1].Offset + 1})
	l.retry(err)
	return true
}

// delivers says whether the event has a record of its own at an offset.
func (l *lot) delivers(offset int64) bool {
	i := sort.Search(len(l.all), func(i int) bool { return l.all[i].Offset >= offset })
	return i < len(l.all) && l.all[i].Offset == offset
}
