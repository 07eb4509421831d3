package verify

import (
	"cmp"
	"context"
	"slices"
)

// keysInMemory is how many keys of a partition are held at the same time, about
// 100 bytes each. A partition with more of them is read again for the others.
const keysInMemory = 1 << 19

// undecided bounds the keys that wait for the last pass to be judged.
const undecided = 1 << 16

// superseded is why a key that was written during the comparison is not judged:
// what was written before may have been compacted away.
const superseded = "was written again while it was compared"

// latest is the last record of a key on one side.
type latest struct {
	offset    int64
	timestamp int64
	id        uint64 // of key, value and headers
	found     bool
	dead      bool // it has no value: the key is deleted
	appended  bool
	moved     bool // another one follows after the end of the comparison
}

// lives reports whether the key has a value.
func (l *latest) lives() bool { return l.found && !l.dead }

// lastValues is a key on both sides.
type lastValues struct {
	source, target latest
	kept           uint64 // source's id as it looks without its null headers
}

// keyed is the comparison of one partition of a compacted topic. What stood
// before the last record of a key may have been compacted away on either side, so
// only the last ones are compared; a key without one, or whose last record has no
// value, is deleted, which is the same on both sides.
type keyed struct {
	source, target         keyedSide
	notTarget, notSource   string // why records may be on one side only, as in comparison
	limit                  int    // keys in memory
	ledger                 *ledger
	open                   []lastValues // the keys that differ
	front                  int64        // the last offset of the source that is on the target
	firstSource, firstCopy int64        // the first offsets, by side, of what is on both
	older                  int64        // records of the target that newer ones of the source supersede
	unkeyed                int64        // records without a key, on both sides
	noTimestamp, appended  bool         // as of a stream, of the source and of the target
	items                  int64
}

// keyedSide is one side of a partition.
type keyedSide struct {
	log   partitionLog
	start int64
	// grown returns where the log ends now.
	grown  func(context.Context) (int64, error)
	passed func(n int64)
}

// part is the keys whose lowest bits are the same.
type part struct {
	bits  int
	value uint64
}

func (p part) has(key uint64) bool { return key&(1<<p.bits-1) == p.value }

// halves returns p in two.
func (p part) halves() (part, part) {
	return part{p.bits + 1, p.value}, part{p.bits + 1, p.value | 1<<p.bits}
}

// run compares all keys, in as many passes as memory needs.
func (k *keyed) run(ctx context.Context) error {
	k.front, k.firstSource, k.firstCopy = -1, everything, everything
	parts := []part{{}}
	for first := true; len(parts) > 0; first = false {
		p := parts[len(parts)-1]
		rest, err := k.pass(ctx, p, first)
		if err != nil {
			return err
		}
		parts = append(parts[:len(parts)-1], rest...)
	}
	return k.judge(ctx)
}

// pass compares keys of a part, and returns the parts that are left over. The
// target is read first, so that what is newer on the source is behind.
func (k *keyed) pass(ctx context.Context, p part, first bool) (rest []part, err error) {
	table := map[uint64]*lastValues{}
	add := func(e *entry, of func(*lastValues) *latest, beyond bool) {
		key := mix(e.key, uint64(e.keySize))
		if e.keySize < 0 {
			if first && !beyond {
				k.unkeyed++
			}
			return
		}
		if !p.has(key) {
			return
		}
		both := table[key]
		if both == nil {
			both = &lastValues{}
			table[key] = both
			for len(table) > k.limit {
				var other part
				p, other = p.halves()
				rest = append(rest, other)
				for key := range table {
					if !p.has(key) {
						delete(table, key)
					}
				}
			}
		}
		l := of(both)
		if beyond {
			l.moved = true
			return
		}
		const content = allFields &^ fieldTimestamp
		*l = latest{offset: e.offset, timestamp: e.timestamp, id: e.project(content), found: true, dead: e.valueSize < 0, appended: e.appended}
		if l == &both.source {
			both.kept = e.projectKept(content)
			k.noTimestamp = k.noTimestamp || e.timestamp == noTimestamp
		} else {
			k.appended = k.appended || e.appended
		}
	}
	if err := k.target.read(ctx, first, func(e *entry, beyond bool) {
		add(e, func(v *lastValues) *latest { return &v.target }, beyond)
	}); err != nil {
		return nil, err
	}
	if err := k.source.read(ctx, first, func(e *entry, beyond bool) {
		add(e, func(v *lastValues) *latest { return &v.source }, beyond)
	}); err != nil {
		return nil, err
	}
	for _, v := range table {
		k.settle(v)
	}
	if len(k.open) > undecided {
		return rest, k.judge(ctx)
	}
	return rest, nil
}

// read hands out a side's records up to its end, then those that have come since.
func (s *keyedSide) read(ctx context.Context, tell bool, each func(e *entry, beyond bool)) error {
	from := s.start
	through := func(log partitionLog, beyond bool) error {
		f := log.open(ctx, from)
		defer f.close()
		for {
			chunk, err := f.next()
			if err != nil {
				return err
			}
			next := log.end()
			if len(chunk) > 0 {
				next = chunk[len(chunk)-1].offset + 1
			}
			if tell && !beyond && next > from {
				s.passed(next - from)
			}
			from = next
			if len(chunk) == 0 {
				return nil
			}
			for i := range chunk {
				each(&chunk[i], beyond)
			}
		}
	}
	if err := through(s.log, false); err != nil || s.grown == nil {
		return err
	}
	end, err := s.grown(ctx)
	if err != nil || end <= from {
		return err
	}
	return through(s.log.until(end), true)
}

// settle counts a key that is the same on both sides, and keeps the others.
func (k *keyed) settle(v *lastValues) {
	s, t := &v.source, &v.target
	timed := !t.appended && s.timestamp != noTimestamp
	same := s.found && t.found && (s.id == t.id || v.kept == t.id) && (!timed || s.timestamp == t.timestamp)
	if same {
		k.front = max(k.front, s.offset)
		k.firstSource, k.firstCopy = min(k.firstSource, s.offset), min(k.firstCopy, t.offset)
	}
	switch {
	case !s.lives() && !t.lives():
	case same && s.id == t.id:
		k.ledger.counts.Source++
		k.ledger.counts.Target++
		k.ledger.counts.Equal++
	default:
		k.open = append(k.open, *v)
	}
}

// judge says of each key that differs what became of it.
func (k *keyed) judge(ctx context.Context) error {
	slices.SortFunc(k.open, func(v, w lastValues) int {
		return cmp.Or(cmp.Compare(v.source.offset, w.source.offset), cmp.Compare(v.target.offset, w.target.offset))
	})
	for i := range k.open {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		k.finding(ctx, &k.open[i])
	}
	k.open = k.open[:0]
	return nil
}

func (k *keyed) finding(ctx context.Context, v *lastValues) {
	s, t := &v.source, &v.target
	k.items += 2 // keys are no neighbours
	it := &item{Finding: Finding{Records: 1, Partition: k.ledger.partition}, source: k.items, target: k.items}
	if s.found {
		k.ledger.counts.Source++
		it.Source = &Range{s.offset, s.offset}
	}
	if t.found {
		k.ledger.counts.Target++
		it.Target = &Range{t.offset, t.offset}
	}
	timed := !t.appended && s.timestamp != noTimestamp
	moved := s.moved || t.moved
	switch {
	case s.found && t.found && v.kept == t.id && (!timed || s.timestamp == t.timestamp):
		it.Kind = HeaderLost
	case s.found && t.found && (!timed || s.timestamp != t.timestamp) && s.offset > k.front:
		it.Kind, it.Target, it.Before = Behind, nil, new(k.target.log.end())
		k.older++
	case s.found && t.found && moved:
		it.Kind, it.Reason, it.Target = Unprovable, superseded, nil
		k.older++
	case s.found && t.found:
		it.Kind = Altered
	case s.found && s.offset > k.front:
		it.Kind, it.Before = Behind, new(k.target.log.end())
	case s.found && k.notTarget != "" && s.offset < k.firstSource:
		it.Kind, it.Reason = Unprovable, k.notTarget
	case t.found && !s.found && k.notSource != "" && t.offset < k.firstCopy:
		it.Kind, it.Reason = Unprovable, k.notSource
	case moved:
		it.Kind, it.Reason = Unprovable, superseded
	case s.found:
		it.Kind = Missing
	default:
		it.Kind = Extra
	}
	if (it.Kind == Altered || it.Kind == HeaderLost) && len(k.ledger.findings) < k.ledger.most {
		// What was found cannot be found again only if it was compacted away since.
		a, aok := lookUp(ctx, k.source.log, s.offset)
		b, bok := lookUp(ctx, k.target.log, t.offset)
		if aok && bok {
			it.Differences = differences(&a, &b)
		}
	}
	k.ledger.report(it)
}

// lookUp reads the record with an offset once more.
func lookUp(ctx context.Context, log partitionLog, offset int64) (entry, bool) {
	f := log.until(offset+1).open(ctx, offset)
	defer f.close()
	chunk, err := f.next()
	if err != nil || len(chunk) == 0 || chunk[0].offset != offset {
		return entry{}, false
	}
	return chunk[0], true
}

// balanced reports whether every key is accounted for.
func (k *keyed) balanced() bool {
	c := k.ledger.counts
	c.Target -= k.older
	return c.balanced()
}
