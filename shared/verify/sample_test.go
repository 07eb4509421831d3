package verify

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// sampleOf samples two partitions whose logs begin at 0, or later.
func sampleOf(t *testing.T, a, b sparse, startA, startB int64, seed uint64) *sampler {
	t.Helper()
	hash := maphash.MakeSeed()
	endA, endB := a[len(a)-1].Offset+1, b[len(b)-1].Offset+1
	s := &sampler{
		source: a.log(hash, endA), sourceStart: startA, sourceEnd: endA,
		target: b.log(hash, endB), targetStart: startB, targetEnd: endB,
		targetName: "B", ledger: newLedger(0, 100), passed: func(int64) {},
	}
	if err := s.run(t.Context(), 10, rand.New(rand.NewPCG(seed, 0)), startA == 0 && startB == 0); err != nil {
		t.Fatal(err)
	}
	if !s.ledger.counts.balanced() {
		t.Fatalf("got counts %+v, want all accounted for", s.ledger.counts)
	}
	return s
}

// at gives records offsets from one on, and one more for each that skip says.
func at(first int64, rs []kgo.Record, skip func(i int) bool) sparse {
	out := make(sparse, len(rs))
	for i, r := range rs {
		if skip(i) {
			first++
		}
		out[i] = moved(r, first)
		first++
	}
	return out
}

func TestASampleFindsItsPlaceOnTheTarget(t *testing.T) {
	const n = 150_000
	rs := sequence(0, n)
	never := func(int) bool { return false }
	for name, test := range map[string]struct {
		a, b           sparse
		startA, startB int64
	}{
		"the same offsets":         {a: at(0, rs, never), b: at(0, rs, never)},
		"markers on the source":    {a: at(0, rs, func(i int) bool { return i%10 == 9 }), b: at(0, rs, never)},
		"a large hole":             {a: at(0, rs, func(i int) bool { return i > 60_000 && i < 100_000 }), b: at(0, rs, never)},
		"markers on the target":    {a: at(0, rs, never), b: at(0, rs, func(i int) bool { return i%100 == 99 })},
		"expired on the source":    {a: at(50_000, rs[50_000:], never), b: at(0, rs, never), startA: 50_000},
		"expired on the target":    {a: at(0, rs, never), b: at(50_000, rs[50_000:], never), startB: 50_000},
		"begun late":               {a: at(1_000_000, rs, never), b: at(0, rs, never), startA: 1_000_000},
		"much that repeats itself": {a: at(0, slices.Concat(rs[:50_000], rs[:50_000], rs[:50_000]), never), b: at(0, slices.Concat(rs[:50_000], rs[:50_000], rs[:50_000]), never)},
	} {
		t.Run(name, func(t *testing.T) {
			s := sampleOf(t, test.a, test.b, test.startA, test.startB, rand.Uint64())
			if got := s.ledger.counts; got.Equal != got.Source || got.Equal != got.Target || got.Equal < 9_000 || got.Equal > 14_000 {
				t.Errorf("got %d equal of %d and %d, want about 12,000 and nothing else", got.Equal, got.Source, got.Target)
			}
			if len(s.sampled) != 12 || s.sampled[0].Source.First > s.sourceStart+test.startB+sampleLength || s.sampled[11].Source.Last != s.sourceEnd-1 {
				t.Errorf("got ranges %+v, want twelve with both ends", s.sampled)
			}
		})
	}
}

func TestTheSameSeedIsTheSameSample(t *testing.T) {
	rs := at(0, sequence(0, 50_000), func(int) bool { return false })
	first, second, other := sampleOf(t, rs, rs, 0, 0, 7), sampleOf(t, rs, rs, 0, 0, 7), sampleOf(t, rs, rs, 0, 0, 8)
	if diff := cmp.Diff(first.sampled, second.sampled); diff != "" {
		t.Errorf("ranges of the same seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(first.sampled, other.sampled) {
		t.Errorf("got %+v for two seeds, want others", other.sampled)
	}
}

func TestFaultsInASampleAreFound(t *testing.T) {
	const n = 150_000
	never := func(int) bool { return false }
	rs := sequence(0, n)
	a := at(0, rs, never)
	for name, test := range map[string]struct {
		b    []kgo.Record
		want func(Counts) bool
	}{
		"behind":                   {rs[:n-2000], func(c Counts) bool { return c.Behind == 2000 && c.Different() == 0 }},
		"one dropped of the first": {slices.Delete(slices.Clone(rs), 10, 11), func(c Counts) bool { return c.Missing == 1 && c.Different() == 1 }},
		"one doubled of the last":  {append(slices.Clone(rs), rs[n-1]), func(c Counts) bool { return c.Duplicated == 1 && c.Different() == 1 }},
		"each hundredth altered": {edit(rs, func(r []kgo.Record) {
			for i := 50; i < n; i += 100 {
				r[i].Value = []byte("other")
			}
		}), func(c Counts) bool { return c.Altered > 100 && c.Altered == c.Different() }},
		"each hundredth dropped": {func() []kgo.Record {
			i := 0
			return slices.DeleteFunc(slices.Clone(rs), func(kgo.Record) bool { i++; return i%100 == 50 })
		}(), func(c Counts) bool { return c.Missing > 100 && c.Missing == c.Different() }},
		// What is not found where it should be is never equal.
		"most of it dropped": {slices.Delete(slices.Clone(rs), 5000, n-5000), func(c Counts) bool { return c.UnprovableSource > 5000 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := sampleOf(t, a, at(0, test.b, never), 0, 0, 1)
			if !test.want(s.ledger.counts) {
				t.Errorf("got %+v, %q", s.ledger.counts, shorts(s.ledger))
			}
		})
	}
}
