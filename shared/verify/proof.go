package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math"
	"slices"
	"sort"
	"time"
)

// provenLength is how many records a range of a kept report has; the last one of
// a partition may have fewer.
const provenLength = 1 << 16

// keptVersion is the version of the kept report's digests and ranges.
const keptVersion = 1

// Kept is what a later comparison needs to know of one whose report is kept.
type Kept struct {
	// Version is of the digests; reports of other versions prove nothing.
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	// Length is how many records a range has that is full.
	Length int64 `json:"length"`
	// SourceCommitted and TargetCommitted: the side was read with read_committed.
	SourceCommitted bool `json:"sourceCommitted"`
	TargetCommitted bool `json:"targetCommitted"`
}

// Proven is a range of records that are on both sides, in order and equal, with
// nothing else in between. A partition's ranges follow each other, up to the
// first difference.
type Proven struct {
	Source  Range `json:"source"`
	Target  Range `json:"target"`
	Records int64 `json:"records"`
	// SourceDigest and TargetDigest are SHA-256 over what stands for each record:
	// the first 16 bytes of SHA-256 over its key, value, headers and timestamp.
	// They differ only where timestamps are not compared.
	SourceDigest string `json:"sourceDigest"`
	TargetDigest string `json:"targetDigest"`
}

// proof collects the proven ranges of a partition while it is compared.
type proof struct {
	ranges         []Proven
	open           Proven
	length         int64 // of a full one
	source, target hash.Hash
}

func newProof(length int64) *proof {
	return &proof{length: length, source: sha256.New(), target: sha256.New()}
}

// add takes a pair of equal records, which follows those before.
func (p *proof) add(a, b *entry) {
	if p.open.Records == 0 {
		p.open.Source.First, p.open.Target.First = a.offset, b.offset
	}
	p.open.Source.Last, p.open.Target.Last = a.offset, b.offset
	p.open.Records++
	p.source.Write(a.content[:])
	p.target.Write(b.content[:])
	if p.open.Records == p.length {
		p.close()
	}
}

// close ends the open range.
func (p *proof) close() {
	if p.open.Records == 0 {
		return
	}
	p.open.SourceDigest = hex.EncodeToString(p.source.Sum(nil))
	p.open.TargetDigest = hex.EncodeToString(p.target.Sum(nil))
	p.ranges = append(p.ranges, p.open)
	p.open = Proven{}
	p.source.Reset()
	p.target.Reset()
}

// kept is what an earlier report proves of a partition.
type kept struct {
	ranges []Proven
	// unprovable are the findings before the ranges.
	unprovable []Finding
}

// keptOf returns what the report of an earlier comparison says of a partition,
// if it was compared in the same way and both topics are still those.
func (v *Verification) keptOf(j *job) kept {
	r := v.Since
	if r == nil || r.Kept == nil || r.Kept.Version != keptVersion || r.Kept.Length != v.length ||
		r.Kept.SourceCommitted != v.Source.Committed || r.Kept.TargetCommitted != v.Target.Committed {
		return kept{}
	}
	source, target := hex.EncodeToString(j.sourceID[:]), hex.EncodeToString(j.targetID[:])
	none := [16]byte{} // of brokers that do not know topic ids
	if j.sourceID == none || j.targetID == none {
		return kept{}
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		if t.Source != j.subject.Source || t.Target != j.subject.Target || t.SourceID != source || t.TargetID != target || t.Compared != ByRecord {
			continue
		}
		for k := range t.Partitions {
			if p := &t.Partitions[k]; p.Partition == j.result.Partition && follow(p.Ranges, v.length) {
				return kept{p.Ranges, unprovableBefore(t.Findings, p)}
			}
		}
	}
	return kept{}
}

// keepUnread leaves a partition that was not come to what an earlier report proves
// of it, with what is unprovable before that. It is no result: a later comparison
// looks whether it is still there.
func (v *Verification) keepUnread(j *job) {
	if j.result.Verdict != VerdictFailed || j.result.Counts != (Counts{}) || len(j.result.Ranges) > 0 || j.subject.Compared != ByRecord {
		return
	}
	k := v.keptOf(j)
	if len(k.ranges) == 0 {
		return
	}
	l := newLedger(j.result.Partition, v.Findings)
	l.resume(0, k.unprovable)
	j.take(l)
	j.result.Known, j.result.Ranges = 0, k.ranges
}

// follow reports whether ranges are such as a comparison writes.
func follow(ranges []Proven, length int64) bool {
	before := Proven{Source: Range{-1, -1}, Target: Range{-1, -1}}
	for i, r := range ranges {
		if r.Source.First <= before.Source.Last || r.Target.First <= before.Target.Last ||
			r.Source.Last == math.MaxInt64 || r.Target.Last == math.MaxInt64 ||
			r.Records < 1 || r.Source.Last-r.Source.First < r.Records-1 || r.Target.Last-r.Target.First < r.Records-1 ||
			r.Records != length && (i != len(ranges)-1 || r.Records > length) {
			return false
		}
		before = r
	}
	return true
}

// unprovableBefore returns the findings about records that stand before the
// ranges of a partition.
func unprovableBefore(findings []Finding, p *Partition) []Finding {
	if len(p.Ranges) == 0 {
		return nil
	}
	first := p.Ranges[0]
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool {
		return f.Partition != p.Partition || f.Kind != Unprovable || f.Records < 1 || (f.Source == nil) == (f.Target == nil) ||
			f.Source != nil && f.Source.Last >= first.Source.First || f.Target != nil && f.Target.Last >= first.Target.First
	})
}

// still returns the ranges that are on both sides as they were. A log changes at
// its ends only: it loses its beginning when it expires, and its end when a
// leader is elected that did not have it. So if a range is as it was, all before
// it are; the last such one is found by bisection, reading a few ranges.
func (v *Verification) still(ctx context.Context, source, target *brokerLog, j *job, ranges []Proven) ([]Proven, error) {
	p := &j.result
	readable := func(r Proven) bool { return r.Source.First >= p.SourceStart && r.Target.First >= p.TargetStart }
	from := sort.Search(len(ranges), func(i int) bool { return readable(ranges[i]) })
	to := sort.Search(len(ranges), func(i int) bool { return ranges[i].Source.Last >= p.SourceEnd || ranges[i].Target.Last >= p.TargetEnd })
	if from >= to {
		return nil, nil
	}
	var failure error
	same := func(i int) bool {
		if failure != nil {
			return false
		}
		var a, b bool
		if a, failure = unchanged(ctx, source, ranges[i].Source, ranges[i].Records, ranges[i].SourceDigest); failure != nil || !a {
			return false
		}
		b, failure = unchanged(ctx, target, ranges[i].Target, ranges[i].Records, ranges[i].TargetDigest)
		return b
	}
	n := to
	if !same(to - 1) {
		n = from + sort.Search(to-1-from, func(i int) bool { return !same(from + i) })
	}
	if failure != nil || n == from {
		return nil, failure
	}
	return ranges[:n], nil
}

// unchanged reports whether a range of a log has a digest.
func unchanged(ctx context.Context, log partitionLog, r Range, records int64, digest string) (bool, error) {
	f := log.until(r.Last+1).open(ctx, r.First)
	defer f.close()
	sum := sha256.New()
	for n := int64(0); ; {
		chunk, err := f.next()
		if err != nil {
			return false, err
		}
		if len(chunk) == 0 {
			return n == records && hex.EncodeToString(sum.Sum(nil)) == digest, nil
		}
		for i := range chunk {
			sum.Write(chunk[i].content[:])
		}
		n += int64(len(chunk))
	}
}

// resume is where a comparison goes on after what is still proven.
func (v *Verification) resume(ctx context.Context, source, target *brokerLog, j *job) (ranges []Proven, unprovable []Finding, err error) {
	k := v.keptOf(j)
	if ranges, err = v.still(ctx, source, target, j, k.ranges); len(ranges) == 0 {
		return nil, nil, err
	}
	// A range that is not full is read again, and goes on.
	if last := len(ranges) - 1; ranges[last].Records < v.length {
		ranges = ranges[:last]
	}
	if len(ranges) == 0 {
		return nil, nil, nil
	}
	return slices.Clip(ranges), k.unprovable, nil
}

// recall reads the source's records of a proven range again, so that a second
// copy of one is known as such.
func (c *comparison) recall(ctx context.Context, log partitionLog, r Range) error {
	f := log.until(r.Last+1).open(ctx, r.First)
	defer f.close()
	for ordinal := -r.Last - 2; ; { // below those that follow, and apart from them
		chunk, err := f.next()
		if err != nil || len(chunk) == 0 {
			return err
		}
		for i := range chunk {
			c.history.add(chunk[i].id, chunk[i].offset, ordinal)
			ordinal++
		}
	}
}
