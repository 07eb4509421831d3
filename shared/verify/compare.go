package verify

import "context"

// comparison is the comparison of one partition's records on both sides.
//
// While the records are equal it only steps. Where they are not, resync finds
// how many records of each side lie between here and where both go on alike;
// block says what became of those. Records that are on one side only go to the
// ledger, and settle there: what turns up elsewhere was reordered, what is also
// in its place was duplicated, the rest is missing or extra.
type comparison struct {
	source, target *stream
	ledger         *ledger
	history        history
	equal          int64

	// weak is what records have in common while they are compared in step
	// although they differ in the rest; none is the usual case.
	weak fields
	// strict counts equal records in a row.
	strict int
	// timeless: timestamps are no help in looking records up.
	timeless bool
	// far counts searches beyond the window.
	far int

	// proof, if not nil, takes the equal records before the first difference.
	proof *proof

	// resumed: what lies before is on both sides.
	resumed bool
	// inside: both sides go on alike after the end.
	inside bool
	// leading: nothing was found on both sides yet. What one side has before the
	// first such record cannot be expected on the other where that has lost its
	// beginning, for the reason given here.
	leading              bool
	notTarget, notSource string
}

// run compares to the end.
func (c *comparison) run(ctx context.Context) error {
	c.leading = !c.resumed
	a, b := c.source, c.target
	for {
		n, err := c.both()
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		for i := range n {
			x, y := a.at(0), b.at(0)
			if !resembles(x, y, allFields) && (c.weak == noFields || !resembles(x, y, c.weak)) {
				// Every record of the window may be needed, so the loop starts anew.
				if err := c.resync(ctx); err != nil {
					return err
				}
				break
			}
			c.pair(0, 0)
			a.advance(1)
			b.advance(1)
			if i&1023 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	if err := c.rest(); err != nil {
		return err
	}
	c.ledger.flush(0)
	c.ledger.counts.add(Counts{Source: a.taken, Target: b.taken, Equal: c.equal})
	return nil
}

// both returns how many records both windows have, at least one if both sides
// go on.
func (c *comparison) both() (int, error) {
	if _, err := c.source.fill(1); err != nil {
		return 0, err
	}
	if _, err := c.target.fill(1); err != nil {
		return 0, err
	}
	c.untime()
	return min(c.source.buffered(), c.target.buffered()), nil
}

// untime stops looking records up by their timestamps, once some say nothing.
func (c *comparison) untime() {
	if !c.timeless && (c.source.noTimestamp || c.target.appended) {
		c.timeless = true
		c.history.clear()
	}
}

// whole is all fields by which a record can be looked up on the other side.
func (c *comparison) whole() fields {
	if c.timeless {
		return allFields &^ fieldTimestamp
	}
	return allFields
}

func (c *comparison) key(e *entry) uint64 {
	if c.timeless {
		return e.project(allFields &^ fieldTimestamp)
	}
	return e.id
}

// keys are what a record of the source may look like on the target.
func (c *comparison) keys(e *entry) []uint64 {
	k := c.key(e)
	if e.nullCount == 0 {
		return []uint64{k}
	}
	return []uint64{k, e.projectKept(c.whole())}
}

// pair notes records i of the source's window and j of the target's, which are
// in the same place.
func (c *comparison) pair(i, j int) {
	a, b := c.source.at(i), c.target.at(j)
	c.leading = false
	c.copied(c.key(b), a.offset, c.source.taken+int64(i))
	d := differ(a, b)
	if d == noFields {
		c.equal++
		if c.proof != nil && !c.ledger.different {
			c.proof.add(a, b)
		}
		if c.strict++; c.strict >= 1024 {
			c.weak = noFields
		}
		return
	}
	c.strict = 0
	kind := Altered
	if d == fieldHeaders && lostHeaders(a, b) {
		kind = HeaderLost
	}
	c.ledger.add(&item{
		Finding: Finding{
			Kind:   kind,
			Source: &Range{a.offset, a.offset}, Target: &Range{b.offset, b.offset},
			Differences: differences(a, b),
		},
		source: c.source.taken + int64(i), target: c.target.taken + int64(j),
	})
}

// copied notes that a record of the source has its copy. Those that came before
// their time are further ones.
func (c *comparison) copied(key uint64, offset, ordinal int64) {
	for len(c.ledger.extra) > 0 {
		it := c.ledger.extra.take(key)
		if it == nil {
			break
		}
		it.Kind = Duplicated
		it.Before, it.Source, it.source = nil, &Range{offset, offset}, ordinal
	}
	c.history.add(key, offset, ordinal)
}

// onSource notes record i of the source's window, which is not in this place of
// the target, before its offset. trailing: nothing of the source follows there.
func (c *comparison) onSource(i int, before int64, trailing bool) {
	e := c.source.at(i)
	it := &item{
		Finding: Finding{Source: &Range{e.offset, e.offset}},
		source:  c.source.taken + int64(i),
	}
	if c.leading && c.notTarget != "" {
		it.Kind, it.Reason = Unprovable, c.notTarget
		c.ledger.add(it)
		return
	}
	keys := c.keys(e)
	for _, k := range keys {
		if other := c.ledger.extra.take(k); other != nil {
			other.Kind = Reordered
			other.Before, other.Source, other.source = nil, it.Source, it.source
			c.copied(k, e.offset, it.source)
			return
		}
	}
	it.Before = &before
	if trailing {
		it.Kind = Behind
	} else {
		it.Kind, it.pending, it.keys = Missing, true, keys
	}
	c.ledger.add(it)
}

// onTarget notes record j of the target's window, which is not in this place of
// the source, before its offset.
func (c *comparison) onTarget(j int, before int64) {
	e := c.target.at(j)
	it := &item{
		Finding: Finding{Target: &Range{e.offset, e.offset}},
		target:  c.target.taken + int64(j),
	}
	if c.leading && c.notSource != "" {
		it.Kind, it.Reason = Unprovable, c.notSource
		c.ledger.add(it)
		return
	}
	key := c.key(e)
	if other := c.ledger.missing.take(key); other != nil {
		other.Kind = Reordered
		other.Before, other.Target, other.target = nil, it.Target, it.target
		c.copied(key, other.Source.First, other.source)
		return
	}
	if first, ok := c.history.find(key); ok {
		it.Kind = Duplicated
		it.Source, it.source = &Range{first.source, first.source}, first.ordinal
		c.ledger.add(it)
		return
	}
	it.Kind, it.Before, it.pending, it.keys = Extra, &before, true, []uint64{key}
	c.ledger.add(it)
}

// moved notes a record of both windows that is out of order on the target.
func (c *comparison) moved(i, j int) {
	a, b := c.source.at(i), c.target.at(j)
	c.copied(c.key(b), a.offset, c.source.taken+int64(i))
	c.ledger.add(&item{
		Finding: Finding{
			Kind:   Reordered,
			Source: &Range{a.offset, a.offset}, Target: &Range{b.offset, b.offset},
		},
		source: c.source.taken + int64(i), target: c.target.taken + int64(j),
	})
}

// pass notes n records of the source and m of the target that have nothing in
// common.
func (c *comparison) pass(n, m int64, trailing bool) error {
	before := c.target.offset(0)
	for ; n > 0; n-- {
		if k, err := c.source.fill(1); err != nil {
			return err
		} else if k == 0 {
			break
		}
		c.onSource(0, before, trailing)
		c.source.advance(1)
	}
	before = c.source.offset(0)
	for ; m > 0; m-- {
		if k, err := c.target.fill(1); err != nil {
			return err
		} else if k == 0 {
			break
		}
		c.onTarget(0, before)
		c.target.advance(1)
	}
	return nil
}

// everything is a number of records that no partition has.
const everything = 1<<63 - 1

// rest notes what one side has after the other's end.
func (c *comparison) rest() error { return c.pass(everything, everything, !c.inside) }
