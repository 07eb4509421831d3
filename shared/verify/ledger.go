package verify

import "slices"

// ledgerLength is how many findings wait at most. A record that is out of its
// place is known as reordered only while its other place still waits here.
const ledgerLength = 1 << 16

// item is a finding on its way into the report.
type item struct {
	Finding
	keys []uint64 // what the records are looked up by while pending
	// source and target are the ordinals of the records, to tell whether the
	// next item goes on where this one stops.
	source, target int64
	// pending: the records may yet turn up on the other side.
	pending bool
}

// ledger is the findings in the order in which they were met. Records that are
// on one side only wait, for they may turn up elsewhere on the other.
type ledger struct {
	partition int32
	most      int // findings to keep

	queue   []*item
	missing waiting // on the source only, so far
	extra   waiting // on the target only, so far

	counts   Counts
	findings []Finding
	omitted  int64
	last     *item // of findings
	// different: there was a finding of another kind than unprovable.
	different bool
}

func newLedger(partition int32, most int) *ledger {
	return &ledger{partition: partition, most: most, missing: waiting{}, extra: waiting{}}
}

// waiting finds pending items by a key of their record, the oldest first.
type waiting map[uint64][]*item

func (w waiting) add(it *item) {
	for _, k := range it.keys {
		w[k] = append(w[k], it)
	}
}

// take returns an item that waits under key, no longer pending, or nil.
func (w waiting) take(key uint64) *item {
	w.tidy(key)
	items := w[key]
	if len(items) == 0 {
		return nil
	}
	it := items[0]
	w.settle(it)
	return it
}

// settle ends the wait of an item, which is the oldest under its keys.
func (w waiting) settle(it *item) {
	it.pending = false
	for _, k := range it.keys {
		w.tidy(k)
	}
	it.keys = nil
}

// tidy drops what no longer waits from the front of a key's items.
func (w waiting) tidy(key uint64) {
	items, ok := w[key]
	if !ok {
		return
	}
	for len(items) > 0 && !items[0].pending {
		items = items[1:]
	}
	if len(items) == 0 {
		delete(w, key)
	} else {
		w[key] = items
	}
}

// add puts an item at the end.
func (l *ledger) add(it *item) {
	it.Partition = l.partition
	it.Records = 1
	l.different = l.different || it.Kind != Unprovable
	switch {
	case !it.pending:
	case it.Kind == Missing:
		l.missing.add(it)
	default:
		l.extra.add(it)
	}
	l.queue = append(l.queue, it)
	l.flush(ledgerLength)
}

// resume begins with what is known of an earlier comparison: so many equal
// records, and before them what is unprovable.
func (l *ledger) resume(known int64, unprovable []Finding) {
	l.counts.add(Counts{Source: known, Target: known, Equal: known})
	for _, f := range unprovable {
		if f.Source != nil {
			l.counts.Source += f.Records
		} else {
			l.counts.Target += f.Records
		}
		l.report(&item{Finding: f, source: -1, target: -1})
	}
}

// flush reports the items at the front that are settled, and pending ones while
// there are more than most.
func (l *ledger) flush(most int) {
	n := 0
	for ; n < len(l.queue); n++ {
		it := l.queue[n]
		if it.pending {
			if len(l.queue)-n <= most {
				break
			}
			if it.Kind == Missing {
				l.missing.settle(it)
			} else {
				l.extra.settle(it)
			}
		}
		l.report(it)
	}
	if n == len(l.queue) {
		l.queue = l.queue[:0]
	} else {
		clear(l.queue[:n])
		l.queue = l.queue[n:]
	}
}

// report counts an item and keeps it, as part of the last one where it goes on
// from there.
func (l *ledger) report(it *item) {
	switch n := it.Records; it.Kind {
	case Missing:
		l.counts.Missing += n
	case Duplicated:
		l.counts.Duplicated += n
	case Reordered:
		l.counts.Reordered += n
	case Altered:
		l.counts.Altered += n
	case HeaderLost:
		l.counts.HeaderLost += n
	case Extra:
		l.counts.Extra += n
	case Behind:
		l.counts.Behind += n
	case Unprovable:
		if it.Source != nil {
			l.counts.UnprovableSource += n
		} else {
			l.counts.UnprovableTarget += n
		}
	}
	if l.last != nil && l.last.join(it) {
		if n := len(l.findings); n > 0 && l.omitted == 0 {
			l.findings[n-1] = l.last.Finding
		}
		return
	}
	l.last = it
	if len(l.findings) < l.most {
		l.findings = append(l.findings, it.Finding)
	} else {
		l.omitted++
	}
}

// join makes next part of it, where it is the same thing one record further.
func (it *item) join(next *item) bool {
	if it.Kind != next.Kind || it.Reason != next.Reason ||
		!follows(it.Source, next.Source, it.source, next.source) ||
		!follows(it.Target, next.Target, it.target, next.target) ||
		!slices.EqualFunc(it.Differences, next.Differences, func(d, e Difference) bool { return d.Field == e.Field }) {
		return false
	}
	it.Records += next.Records
	if it.Source != nil {
		it.Source.Last, it.source = next.Source.Last, next.source
	}
	if it.Target != nil {
		it.Target.Last, it.target = next.Target.Last, next.target
	}
	return true
}

// follows reports whether a side of an item goes on where the other stops; n and
// m are their ordinals.
func follows(r, s *Range, n, m int64) bool {
	if r == nil || s == nil {
		return r == s
	}
	return m == n+1
}
