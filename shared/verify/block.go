package verify

import (
	"slices"
	"sort"
)

// block says what became of the next n records of the source and m of the
// target, between two places where both sides are alike; the second one is the
// end of both sides if final.
//
// Records that are on both sides and in order stay together; the others of
// them were reordered. Between those, records that look alike are altered ones,
// and the rest is on one side only.
func (c *comparison) block(n, m int, final bool) {
	before := c.blockPairs(n, m)
	if k := len(before.order); k > 0 && k < max(n, m) {
		// What is out of order is told only where its place on the source is.
		c.ledger.different = true
	}
	i, j := 0, 0
	for _, p := range before.order {
		c.gap(before, &i, &j, p, false)
		c.pair(i, j)
		i, j = i+1, j+1
	}
	c.gap(before, &i, &j, pairing{n, m}, final)
	c.source.advance(n)
	c.target.advance(m)
}

// pairing is record i of the source's window and j of the target's.
type pairing struct{ i, j int }

// pairings is which records of a block belong together.
type pairings struct {
	order []pairing // those in order
	// partner is, by record of the source, the one of the target, or -1; taken
	// is which ones of the target are someone's partner.
	partner []int
	taken   []bool
}

// blockPairs finds equal records in a block, each one's first equal that is
// left, and the longest series of them that is in order.
func (c *comparison) blockPairs(n, m int) *pairings {
	p := &pairings{partner: make([]int, n), taken: make([]bool, m)}
	in := c.whole()
	places := make(map[uint64][]int, m)
	for j := range m {
		key := c.target.at(j).project(in)
		places[key] = append(places[key], j)
	}
	var both []int
	for i := range n {
		e := c.source.at(i)
		p.partner[i] = -1
		for _, key := range [2]uint64{e.project(in), e.projectKept(in)} {
			if js := places[key]; len(js) > 0 && resembles(e, c.target.at(js[0]), allFields) {
				p.partner[i], p.taken[js[0]], places[key] = js[0], true, js[1:]
				both = append(both, i)
				break
			}
		}
	}
	for _, at := range longestRising(both, func(i int) int { return p.partner[i] }) {
		p.order = append(p.order, pairing{at, p.partner[at]})
	}
	return p
}

// gap deals with what lies before the pairing to, from *i and *j on, which it
// moves there.
func (c *comparison) gap(p *pairings, i, j *int, to pairing, final bool) {
	var left, right []int // without a partner
	for k := *i; k < to.i; k++ {
		if p.partner[k] < 0 {
			left = append(left, k)
		}
	}
	for k := *j; k < to.j; k++ {
		// A second copy is not an altered record, however alike they are.
		if !p.taken[k] && !c.history.has(c.key(c.target.at(k))) {
			right = append(right, k)
		}
	}
	altered := c.align(left, right)
	// The pairing to is one more place to stop at; there is no pair in it here.
	for at, stop := range append(altered, to) {
		last := at == len(altered)
		for ; *i < stop.i; *i++ {
			if p.partner[*i] >= 0 {
				c.moved(*i, p.partner[*i])
			} else {
				c.onSource(*i, c.target.offset(*j), final && last)
			}
		}
		for ; *j < stop.j; *j++ {
			if !p.taken[*j] {
				c.onTarget(*j, c.source.offset(*i))
			}
		}
		if !last {
			c.pair(*i, *j)
			*i, *j = *i+1, *j+1
		}
	}
}

// align finds altered records: pairs in order whose likeness is the greatest in
// all.
func (c *comparison) align(left, right []int) []pairing {
	n, m := len(left), len(right)
	if n == 0 || m == 0 {
		return nil
	}
	if n == 1 && m == 1 && c.stands(c.source.at(left[0]), c.target.at(right[0])) {
		return []pairing{{left[0], right[0]}}
	}
	var out []pairing
	if n*m > aligned {
		for k := range min(n, m) {
			if likeness(c.source.at(left[k]), c.target.at(right[k])) > 0 {
				out = append(out, pairing{left[k], right[k]})
			}
		}
		return out
	}
	// best[i][j] is the greatest likeness of what follows i and j.
	best := make([]int32, (n+1)*(m+1))
	at := func(i, j int) *int32 { return &best[i*(m+1)+j] }
	like := func(i, j int) int32 { return int32(likeness(c.source.at(left[i]), c.target.at(right[j]))) }
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			*at(i, j) = max(*at(i+1, j), *at(i, j+1))
			if l := like(i, j); l > 0 {
				*at(i, j) = max(*at(i, j), *at(i+1, j+1)+l)
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		l := like(i, j)
		switch {
		case l > 0 && *at(i, j) == *at(i+1, j+1)+l:
			out = append(out, pairing{left[i], right[j]})
			i, j = i+1, j+1
		case *at(i, j) == *at(i+1, j):
			i++
		default:
			j++
		}
	}
	return out
}

// stands reports whether b, which stands where a should and between the same
// neighbours, can be taken for an altered a: it has something in common with it,
// or differs in one field only, and neither of them has turned up elsewhere.
func (c *comparison) stands(a, b *entry) bool {
	d := differ(a, b)
	if (d&fieldKey != 0 || a.keySize <= 0) && (d&fieldHeaders != 0 || a.headerCount == 0) && d&(d-1) != 0 {
		return false
	}
	return len(c.ledger.missing[c.key(b)]) == 0 && !slices.ContainsFunc(c.keys(a), func(k uint64) bool { return len(c.ledger.extra[k]) > 0 })
}

// longestRising returns a longest subsequence of xs whose values rise.
func longestRising(xs []int, value func(int) int) []int {
	var tails []int // tails[k] is the index in xs of the lowest end of a series of k+1
	previous := make([]int, len(xs))
	for at, x := range xs {
		k := sort.Search(len(tails), func(k int) bool { return value(xs[tails[k]]) >= value(x) })
		previous[at] = -1
		if k > 0 {
			previous[at] = tails[k-1]
		}
		if k == len(tails) {
			tails = append(tails, at)
		} else {
			tails[k] = at
		}
	}
	if len(tails) == 0 {
		return nil
	}
	var out []int
	for at := tails[len(tails)-1]; at >= 0; at = previous[at] {
		out = append(out, xs[at])
	}
	slices.Reverse(out)
	return out
}
