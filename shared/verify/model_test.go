package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// model says what became of records that are numbered, all different and not
// altered, in the plainest way: by their numbers, and by the longest common
// subsequence of both sides.
type model struct {
	absent, foreign, again []int64 // offsets of the source, of the target, of the source
	inOrder                int64   // as many as can be equal
}

func modelOf(a, b []int) model {
	var m model
	copies := map[int]int{}
	for _, n := range b {
		copies[n]++
	}
	at := map[int]int64{}
	for i, n := range a {
		at[n] = int64(i)
		if copies[n] == 0 {
			m.absent = append(m.absent, int64(i))
		}
		for range copies[n] - 1 {
			m.again = append(m.again, int64(i))
		}
	}
	for j, n := range b {
		if _, ok := at[n]; !ok {
			m.foreign = append(m.foreign, int64(j))
		}
	}
	longest := make([][]int64, len(a)+1)
	for i := range longest {
		longest[i] = make([]int64, len(b)+1)
	}
	for i := range a {
		for j := range b {
			longest[i+1][j+1] = max(longest[i][j+1], longest[i+1][j])
			if a[i] == b[j] {
				longest[i+1][j+1] = max(longest[i+1][j+1], longest[i][j]+1)
			}
		}
	}
	m.inOrder = longest[len(a)][len(b)]
	return m
}

// offsetsOf lists what findings of some kinds are about, on the source or, if it
// has none, on the target.
func offsetsOf(l *ledger, kinds ...Kind) (all []int64) {
	for _, f := range l.findings {
		r := f.Source
		if r == nil {
			r = f.Target
		}
		if slices.Contains(kinds, f.Kind) {
			for o := r.First; o <= r.Last; o++ {
				all = append(all, o)
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestRandomEditsAreFoundAsAPlainModelFindsThem(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		a := make([]int, 1+r.IntN(250))
		for i := range a {
			a[i] = i
		}
		b := slices.Clone(a)
		foreign := 100_000
		for range r.IntN(12) {
			i := r.IntN(len(b) + 1)
			j := min(len(b), i+1+r.IntN(1+r.IntN(20)))
			k := r.IntN(len(b) + 1)
			switch r.IntN(5) {
			case 0:
				b = slices.Delete(b, min(i, j), j)
			case 1:
				b = slices.Insert(b, k, slices.Clone(b[min(i, j):j])...)
			case 2:
				b = slices.Insert(b, k, foreign)
				foreign++
			case 3:
				moved := slices.Clone(b[min(i, j):j])
				b = slices.Delete(b, min(i, j), j)
				b = slices.Insert(b, min(k, len(b)), moved...)
			case 4:
				if i+1 < len(b) {
					b[i], b[i+1] = b[i+1], b[i]
				}
			}
		}
		// No two have anything in common, so that nothing looks altered.
		plain := func(numbers []int) (rs []kgo.Record) {
			for _, n := range numbers {
				rs = append(rs, kgo.Record{Key: fmt.Append(nil, "key ", n), Value: fmt.Append(nil, "value ", n), Timestamp: time.UnixMilli(int64(n))})
			}
			return rs
		}
		l := compareSides(t, side{records: plain(a)}, side{records: plain(b)}, false)
		want := modelOf(a, b)
		script := fmt.Sprintf("A %d records, B %v: %q", len(a), b, shorts(l))
		if diff := cmp.Diff(want.absent, offsetsOf(l, Missing, Behind)); diff != "" {
			t.Fatalf("missing or behind (-model +got):\n%s%s", diff, script)
		}
		if diff := cmp.Diff(want.foreign, offsetsOf(l, Extra)); diff != "" {
			t.Fatalf("extra (-model +got):\n%s%s", diff, script)
		}
		if diff := cmp.Diff(want.again, offsetsOf(l, Duplicated)); diff != "" {
			t.Fatalf("duplicated (-model +got):\n%s%s", diff, script)
		}
		if c := l.counts; c.Equal > want.inOrder || (c.Reordered == 0) != (c.Equal == want.inOrder && c.Equal == int64(len(a)-len(want.absent))) || c.Altered > 0 {
			t.Fatalf("got %d equal and %s, want %d equal at most: %s", c.Equal, c, want.inOrder, script)
		}
	}
}

// Faults that stand apart are each found where they are, on both sides.
func TestFaultsThatStandApartAreFoundExactly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		n := 200 + r.IntN(5000)
		a := headed(sequence(0, n))
		for i := range a {
			switch r.IntN(8) {
			case 0:
				a[i].Value = nil
				a[i].Headers = []kgo.RecordHeader{header("n", fmt.Append(nil, i))} // what has no value is not the same twice
			case 1:
				a[i].Key = nil
			}
		}
		b := slices.Clone(a)
		want := []string{}
		shift := 0
		for i := 20 + r.IntN(50); i < n-20; i += 20 + r.IntN(1+r.IntN(1000)) {
			j := i + shift
			was := b[j]
			switch r.IntN(8) {
			case 0:
				b = slices.Delete(b, j, j+1)
				want = append(want, fmt.Sprintf("missing A %d before %d", i, j))
				shift--
			case 1:
				b = slices.Insert(b, j+1, was)
				want = append(want, fmt.Sprintf("duplicated A %d B %d", i, j+1))
				shift++
			case 2:
				b[j], b[j+1] = b[j+1], b[j]
				want = append(want, fmt.Sprintf("reordered A %d B %d", i, j+1))
			case 3:
				b[j].Timestamp = was.Timestamp.Add(time.Millisecond)
				want = append(want, fmt.Sprintf("altered A %d B %d timestamp", i, j))
			case 4:
				b[j].Value = append(slices.Clone(was.Value), 'x')
				want = append(want, fmt.Sprintf("altered A %d B %d value", i, j))
			case 5:
				b[j].Key = append(slices.Clone(was.Key), 'x')
				want = append(want, fmt.Sprintf("altered A %d B %d key", i, j))
			case 6:
				b[j].Headers = append(slices.Clone(was.Headers), header("x", nil))
				want = append(want, fmt.Sprintf("altered A %d B %d headers", i, j))
			case 7:
				b = slices.Insert(b, j, kgo.Record{Key: fmt.Append(nil, "foreign ", i), Value: fmt.Append(nil, "foreign ", i), Timestamp: time.UnixMilli(1)})
				want = append(want, fmt.Sprintf("extra B %d before %d", j, i))
				shift++
			}
		}
		if diff := cmp.Diff(want, shorts(compareSides(t, side{records: a}, side{records: b}, false))); diff != "" {
			t.Fatalf("findings (-want +got):\n%s", diff)
		}
	}
}
