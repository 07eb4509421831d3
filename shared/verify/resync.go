package verify

import (
	"context"
	"slices"
)

const (
	// longestWindow bounds what is kept of a partition to find where both sides
	// go on alike; what lies further away is found through samples.
	longestWindow = 1 << 15
	weakWindow    = 1 << 12
	// run is how many equal records in a row are sure to be the right place,
	// whatever repeats itself.
	run = 8
	// mostFar bounds how often a partition is read again.
	mostFar = 8
	// aligned is how many pairs of records are compared to find the altered
	// ones among them.
	aligned = 1 << 20
)

// windows are the sizes tried in turn, so that a small difference costs little.
func windows() []int { return []int{64, 1024, longestWindow} }

// weaknesses are the fields that altered records may have in common.
func weaknesses() []fields {
	return []fields{
		fieldKey | fieldValue | fieldHeaders,
		fieldKey | fieldValue | fieldTimestamp,
		fieldKey | fieldHeaders | fieldTimestamp,
		fieldValue | fieldHeaders | fieldTimestamp,
		fieldKey | fieldTimestamp,
		fieldKey | fieldValue,
		fieldValue,
	}
}

// resync is called where the next records of both sides differ. It takes from
// both windows what lies before the place where they go on alike.
func (c *comparison) resync(ctx context.Context) error {
	var n, m int
	var ended bool // nothing follows n and m
	for _, w := range windows() {
		// In step again is nearer than alike again, and cheaper to find.
		if w == longestWindow && c.weak != noFields {
			if n, m, err := c.look(weakWindow); err != nil {
				return err
			} else if c.weaken(n, m) {
				return nil
			}
		}
		var err error
		if n, m, err = c.look(w); err != nil {
			return err
		}
		s := c.searcher(n, m, c.whole(), allFields)
		for _, k := range []int{run, 2, 1} {
			if x, y, ok := s.search(k); ok {
				c.block(x, y, false)
				return nil
			}
		}
		if ended = c.source.ends(n) && c.target.ends(m); ended {
			break
		}
	}
	if ended && n*m <= aligned {
		c.block(n, m, !c.inside)
		return nil
	}
	if !ended && c.weak == noFields {
		if ok, err := c.leap(ctx); ok || err != nil {
			return err
		}
	}
	if c.weaken(min(n, weakWindow), min(m, weakWindow)) {
		return nil
	}
	if ended {
		c.block(n, m, !c.inside)
		return nil
	}
	if c.weak != noFields {
		c.weak = noFields
		if ok, err := c.leap(ctx); ok || err != nil {
			return err
		}
	}
	if c.far > mostFar {
		c.leading, c.notTarget, c.notSource = true, lostTrack, lostTrack
	}
	return c.rest()
}

const lostTrack = "too many large differences before it"

// look fills both windows with w records and what a run needs beyond, and
// returns how many there are, at most w.
func (c *comparison) look(w int) (n, m int, err error) {
	if n, err = c.source.fill(w + run); err != nil {
		return 0, 0, err
	}
	if m, err = c.target.fill(w + run); err != nil {
		return 0, 0, err
	}
	c.untime()
	return min(n, w), min(m, w), nil
}

// weaken finds the nearest place where both sides go on with records that have
// something in common, and compares in step from there.
func (c *comparison) weaken(n, m int) bool {
	for _, weak := range weaknesses() {
		if c.timeless && weak&fieldTimestamp != 0 {
			continue
		}
		if x, y, ok := c.searcher(n, m, weak, weak).search(run); ok {
			c.weak = weak
			c.block(x, y, false)
			return true
		}
	}
	return false
}

// searcher looks for records of the source's window in the target's.
type searcher struct {
	c     *comparison
	n, m  int
	in    fields           // by which records are looked up
	same  fields           // in which they have to be alike
	first map[uint64]int32 // the nearest record of the target with a key
	next  []int32          // the next one with the same key, or -1
}

func (c *comparison) searcher(n, m int, in, same fields) *searcher {
	s := &searcher{c: c, n: n, m: m, in: in, same: same, first: make(map[uint64]int32, m), next: make([]int32, m)}
	for j := m - 1; j >= 0; j-- {
		key := c.target.at(j).project(in)
		s.next[j] = -1
		if k, ok := s.first[key]; ok {
			s.next[j] = k
		}
		s.first[key] = int32(j)
	}
	return s
}

// search returns the nearest place, x records on in the source and y in the
// target, from where k records in a row are alike. With k = 1 the record has to
// be the only one of its kind.
func (s *searcher) search(k int) (x, y int, ok bool) {
	var seen map[uint64]int
	if k == 1 {
		seen = make(map[uint64]int, s.n)
		for i := range s.n {
			seen[s.c.source.at(i).project(s.in)]++
		}
	}
	best := s.n + s.m + 1
	for i := 0; i < s.n && i < best; i++ {
		e := s.c.source.at(i)
		if k == 1 && seen[e.project(s.in)] > 1 {
			continue
		}
		j, found := s.nearest(e, i, k, best)
		if found && i+j < best {
			x, y, ok, best = i, j, true, i+j
		}
	}
	return x, y, ok
}

// mostAlike bounds the places that are tried for one record.
const mostAlike = 32

func (s *searcher) nearest(e *entry, i, k, best int) (j int, ok bool) {
	keys := [2]uint64{e.project(s.in), e.projectKept(s.in)}
	for _, key := range keys {
		j, ok := s.first[key]
		if !ok || k == 1 && s.next[j] >= 0 {
			continue
		}
		for tries := 0; j >= 0 && i+int(j) < best && tries < mostAlike; tries++ {
			if s.alike(i, int(j), k) {
				return int(j), true
			}
			j = s.next[j]
		}
	}
	return 0, false
}

// alike reports whether k records in a row are alike; fewer will do where a
// side ends.
func (s *searcher) alike(i, j, k int) bool {
	a, b := s.c.source, s.c.target
	for t := range k {
		if i+t >= a.buffered() || j+t >= b.buffered() {
			return t > 0
		}
		if !resembles(a.at(i+t), b.at(j+t), s.same) {
			return false
		}
	}
	return true
}

// leap finds a place beyond the windows where both sides go on alike, and takes
// what lies before. It reads on through feeds of its own.
func (c *comparison) leap(ctx context.Context) (bool, error) {
	if c.far++; c.far > mostFar {
		return false, nil
	}
	a, b := newScout(ctx, c.source, true), newScout(ctx, c.target, false)
	defer a.close()
	defer b.close()
	in := c.whole()
	for horizon := int64(8 * longestWindow); ; horizon *= 8 {
		if err := a.read(horizon, in); err != nil {
			return false, err
		}
		if err := b.read(horizon, in); err != nil {
			return false, err
		}
		x, y, ok := meet(a, b)
		switch {
		case ok:
			// A sample may lie behind the place itself.
			back := min(int64(longestWindow/2), x, y)
			return true, c.pass(x-back, y-back, false)
		case a.done && b.done:
			return false, nil
		}
	}
}

// mostSamples bounds the memory of a scout.
const mostSamples = 1 << 16

// scout reads ahead and remembers records by a sample that depends on nothing
// but their content, so that scouts of both sides remember the same ones.
type scout struct {
	window *stream
	feed   feed
	kept   bool // also as they look without their null headers
	seen   int64
	done   bool

	mask    uint64 // of the bits that are 0 in the key of a sample
	samples map[uint64]int64
}

// repeated marks a sample that was met twice.
const repeated = -1

func newScout(ctx context.Context, s *stream, kept bool) *scout {
	from := s.log.end()
	if n := s.buffered(); n > 0 {
		from = s.at(n-1).offset + 1
	}
	return &scout{window: s, feed: s.log.open(ctx, from), kept: kept, samples: map[uint64]int64{}}
}

func (s *scout) close() { s.feed.close() }

// read goes on until n records were read in all.
func (s *scout) read(n int64, in fields) error {
	if s.seen == 0 {
		for i := range s.window.buffered() {
			s.add(s.window.at(i), in)
		}
	}
	for !s.done && s.seen < n {
		chunk, err := s.feed.next()
		if err != nil {
			return err
		}
		if len(chunk) == 0 {
			s.done = true
		}
		for i := range chunk {
			s.add(&chunk[i], in)
		}
	}
	return nil
}

func (s *scout) add(e *entry, in fields) {
	s.sample(e.project(in))
	if s.kept && e.nullCount > 0 {
		s.sample(e.projectKept(in))
	}
	s.seen++
}

func (s *scout) sample(key uint64) {
	if key&s.mask != 0 {
		return
	}
	if _, ok := s.samples[key]; ok {
		s.samples[key] = repeated
		return
	}
	s.samples[key] = s.seen
	for len(s.samples) > mostSamples {
		s.mask = s.mask<<1 | 1
		for k := range s.samples {
			if k&s.mask != 0 {
				delete(s.samples, k)
			}
		}
	}
}

// meet returns the nearest records that both scouts have met, by how many lie
// before them on each side. One that has the next one in the same distance on
// both sides is preferred: others may have been moved.
func meet(a, b *scout) (x, y int64, ok bool) {
	type place struct{ x, y int64 }
	var common []place
	for k, x := range a.samples {
		if y, ok := b.samples[k]; ok && x != repeated && y != repeated {
			common = append(common, place{x, y})
		}
	}
	if len(common) == 0 {
		return 0, 0, false
	}
	slices.SortFunc(common, func(p, q place) int { return int(p.x - q.x) })
	best := place{-1, -1}
	for i, p := range common[:len(common)-1] {
		if q := common[i+1]; q.x-p.x == q.y-p.y && (best.x < 0 || p.x+p.y < best.x+best.y) {
			best = p
		}
	}
	if best.x < 0 {
		best = slices.MinFunc(common, func(p, q place) int { return int(p.x + p.y - q.x - q.y) })
	}
	return best.x, best.y, true
}
