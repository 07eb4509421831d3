package verify

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

const (
	// sampleLength is how many offsets of the source a sampled range has.
	sampleLength = 1000
	// near and far are how many records of the target are searched on either side
	// of where a record of the source is expected.
	near = 256
	far  = longestWindow
)

// Sampled is a range of the source that was compared, and its place on the
// target.
type Sampled struct {
	Source Range `json:"source"`
	Target Range `json:"target"`
}

// Sample is which parts of the partitions were compared: both ends, and so many
// ranges between them as chance has chosen. The same seed chooses the same ones.
type Sample struct {
	Ranges int    `json:"ranges"` // of each partition
	Seed   uint64 `json:"seed"`
}

// small reports whether a side of a partition is not worth sampling.
func (s *Sample) small(p *Partition) bool {
	return min(p.SourceEnd-p.SourceStart, p.TargetEnd-p.TargetStart) <= int64(s.Ranges+3)*sampleLength
}

// sampler compares parts of a partition. Where a record of the source is on the
// target is not known, only that order is kept: the distance of its offsets to
// those of neighbours that were met already is a good guess, and the records
// around it are searched for the same ones.
type sampler struct {
	source, target         partitionLog
	sourceStart, sourceEnd int64
	targetStart, targetEnd int64
	targetName             string
	ledger                 *ledger
	passed                 func(n int64)

	noTimestamp, appended bool
	sampled               []Sampled
}

// meeting is a record on both sides.
type meeting struct{ source, target int64 }

func (m meeting) distance() int64 { return m.target - m.source }

// run compares the beginning, the end, and ranges between them. anchored: both
// logs begin with the same record, if none is missing.
func (s *sampler) run(ctx context.Context, ranges int, random *rand.Rand, anchored bool) error {
	ends := s.targetEnd - s.sourceEnd
	head, ok := meeting{s.sourceStart, s.targetStart}, true
	if !anchored {
		// One of both sides begins later.
		var err error
		if head, ok, err = s.meet(ctx, guess{s.sourceStart, 0}, guess{s.sourceStart, ends}, guess{s.targetStart, 0}, guess{s.targetStart - ends, ends}); err != nil {
			return err
		}
	}
	if !ok {
		return s.lost(ctx, s.sourceStart, s.targetStart)
	}
	if err := s.between(ctx, head, !anchored); err != nil {
		return err
	}
	// Where the target is behind, its end is not the source's.
	tail, ok, err := s.meet(ctx, guess{s.sourceEnd - sampleLength, ends}, guess{s.targetEnd - sampleLength - head.distance(), head.distance()})
	if err != nil {
		return err
	}
	if ok {
		err = s.compare(ctx, tail, meeting{s.sourceEnd, s.targetEnd}, true, false)
	} else {
		tail = meeting{s.sourceEnd - sampleLength, s.targetEnd - sampleLength}
		err = s.lost(ctx, tail.source, tail.target)
	}
	if err != nil {
		return err
	}
	from, to := head.source+sampleLength, tail.source-2*sampleLength
	if to <= from {
		return nil
	}
	places := make([]int64, ranges)
	for i := range places {
		places[i] = from + random.Int64N(to-from)
	}
	slices.Sort(places)
	before := head
	for _, x := range places {
		// Distances mostly grow evenly, or not at all.
		between := before.distance()
		if span := tail.source - before.source; span > 0 {
			between += int64(float64(tail.distance()-before.distance()) * float64(x-before.source) / float64(span))
		}
		at, ok, err := s.meet(ctx, guess{x, between}, guess{x, before.distance()}, guess{x, tail.distance()})
		if err != nil {
			return err
		}
		if !ok {
			err = s.lost(ctx, x, x+between)
		} else {
			err = s.between(ctx, at, true)
			before = at
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(s.sampled, func(a, b Sampled) int { return cmp.Compare(a.Source.First, b.Source.First) })
	return nil
}

// between compares the range that begins at a meeting, up to another one.
func (s *sampler) between(ctx context.Context, at meeting, met bool) error {
	end, ok, err := s.meet(ctx, guess{at.source + sampleLength, at.distance()})
	if err != nil {
		return err
	}
	if !ok {
		return s.lost(ctx, at.source, at.target)
	}
	return s.compare(ctx, at, meeting{end.source + 1, end.target + 1}, met, true)
}

// compare compares from a place to before another one. met: both sides go on
// alike from the first; inside: they do at the second.
func (s *sampler) compare(ctx context.Context, from, to meeting, met, inside bool) error {
	a := openStream(ctx, s.source.until(to.source), from.source, s.passed)
	defer a.close()
	b := openStream(ctx, s.target.until(to.target), from.target, s.passed)
	defer b.close()
	s.ledger.last = nil // ranges are apart
	c := &comparison{source: a, target: b, ledger: s.ledger, resumed: met, inside: inside}
	if err := c.run(ctx); err != nil {
		return err
	}
	s.noTimestamp, s.appended = s.noTimestamp || a.noTimestamp, s.appended || b.appended
	s.sampled = append(s.sampled, Sampled{Range{from.source, to.source - 1}, Range{from.target, to.target - 1}})
	return nil
}

// guess is a record of the source, and the distance of its copy.
type guess struct{ at, distance int64 }

// meet returns a record of the source, at an offset or soon after, that is on the
// target with its neighbours, at about the distance. It takes the first guess
// that is right.
func (s *sampler) meet(ctx context.Context, guesses ...guess) (meeting, bool, error) {
	for _, around := range []int64{near, far} {
		for i, g := range guesses {
			if g.at < s.sourceStart || slices.Contains(guesses[:i], g) {
				continue
			}
			m, ok, err := s.search(ctx, g.at, max(g.at+g.distance-around, s.targetStart), int(around))
			if ok || err != nil {
				return m, ok, err
			}
		}
	}
	return meeting{}, false, nil
}

func (s *sampler) search(ctx context.Context, at, from int64, around int) (meeting, bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := openStream(ctx, s.source, at, func(int64) {})
	defer a.close()
	b := openStream(ctx, s.target, min(from, s.targetEnd), func(int64) {})
	defer b.close()
	c := &comparison{source: a, target: b}
	n, err := a.fill(around/4 + run)
	if err != nil {
		return meeting{}, false, err
	}
	m, err := b.fill(2*around + run)
	if err != nil {
		return meeting{}, false, err
	}
	c.untime()
	i, j, ok := c.searcher(min(n, around/4), min(m, 2*around), c.whole(), allFields).search(run)
	if !ok {
		return meeting{}, false, nil
	}
	return meeting{a.at(i).offset, b.at(j).offset}, true, nil
}

// lost notes a range of the source that was not found.
func (s *sampler) lost(ctx context.Context, source, target int64) error {
	end := min(source+sampleLength, s.sourceEnd)
	a := openStream(ctx, s.source.until(end), source, s.passed)
	defer a.close()
	n, err := a.fill(sampleLength)
	if err != nil || n == 0 {
		return err
	}
	s.ledger.last = nil
	s.ledger.counts.Source += int64(n)
	s.ledger.report(&item{Finding: Finding{
		Kind: Unprovable, Partition: s.ledger.partition, Records: int64(n), Source: &Range{source, end - 1},
		Reason: fmt.Sprintf("not found on %s within %d records of offset %d; only a comparison of everything can tell", s.targetName, far, max(target, 0)),
	}})
	return nil
}

// random returns what chooses the ranges of a partition.
func (s *Sample) random(topic string, partition int32) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s-%d", topic, partition)
	return rand.New(rand.NewPCG(s.Seed, h.Sum64()))
}
