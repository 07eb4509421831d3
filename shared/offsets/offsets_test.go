package offsets_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"mirrorless/shared/offsets"
)

// open are the bounds of a copy of everything from offset 0 in a log that lost
// nothing.
func open(next, end int64) offsets.Bounds {
	return offsets.Bounds{Next: next, End: end, LogEnd: end}
}

func TestTranslateAtEveryKindOfPlace(t *testing.T) {
	// Upstream 1000…1049 are records, 1050 is a marker, 1051…1060 records, 1061 a
	// marker, 1062 is yet to be copied. On B somebody else wrote 50 and 51.
	var m offsets.Map
	m.Add(offsets.Run{Upstream: 1000, Downstream: 0, Length: 50})
	m.Add(offsets.Run{Upstream: 1051, Downstream: 52, Length: 10})
	b := offsets.Bounds{First: 1000, Next: 1062, End: 62, LogEnd: 62}
	for _, c := range []struct {
		name  string
		group int64
		b     offsets.Bounds
		want  int64
		ok    bool
	}{
		{"unset", -1, b, 0, false},
		{"before the copy began", 999, b, 0, false},
		{"first record", 1000, b, 0, true},
		{"inside a run", 1049, b, 49, true},
		{"on a marker", 1050, b, 52, true},
		{"after a marker", 1051, b, 52, true},
		{"last record", 1060, b, 61, true},
		{"on the trailing marker", 1061, b, 62, true},
		{"at the end of the copy", 1062, b, 62, true},
		{"ahead of the copy", 5000, b, 62, true},
		{"B's log begins later", 1000, offsets.Bounds{First: 1000, Next: 1062, End: 62, LogStart: 40, LogEnd: 62}, 40, true},
		{"B's log begins between", 1050, offsets.Bounds{First: 1000, Next: 1062, End: 62, LogStart: 40, LogEnd: 62}, 52, true},
		{"B's log is empty", 1000, offsets.Bounds{First: 1000, Next: 1062, End: 62, LogStart: 62, LogEnd: 62}, 62, true},
		{"B's log lost its end", 1060, offsets.Bounds{First: 1000, Next: 1062, End: 62, LogEnd: 30}, 30, true},
		{"B's log lost its end, group ahead", 5000, offsets.Bounds{First: 1000, Next: 1062, End: 62, LogEnd: 30}, 30, true},
		{"runs that the position does not vouch for", 1055, offsets.Bounds{First: 1000, Next: 1051, End: 50, LogEnd: 62}, 50, true},
		{"a record that the position does not vouch for", 1050, offsets.Bounds{First: 1000, Next: 1051, End: 50, LogEnd: 62}, 50, true},
	} {
		if got, ok := m.Translate(c.group, c.b); got != c.want || ok != c.ok {
			t.Errorf("%s: translate %d: got %d, %v, want %d, %v", c.name, c.group, got, ok, c.want, c.ok)
		}
	}
}

func TestOnlyRecordsThatWereCopiedHaveACopy(t *testing.T) {
	var m offsets.Map
	m.Add(offsets.Run{Upstream: 1000, Downstream: 0, Length: 50})
	m.Add(offsets.Run{Upstream: 1051, Downstream: 52, Length: 10})
	for upstream, want := range map[int64]int64{999: -1, 1000: 0, 1049: 49, 1050: -1, 1051: 52, 1060: 61, 1061: -1} {
		got, ok := m.Copy(upstream)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("copy of %d: got %d, want %d (-1 is none)", upstream, got, want)
		}
	}
}

func TestEmptyPartitionIsTranslatedToItsEnd(t *testing.T) {
	// A's records were deleted before the copy began at 100.
	var m offsets.Map
	b := offsets.Bounds{First: 100, Next: 100}
	if got, ok := m.Translate(100, b); got != 0 || !ok {
		t.Errorf("got %d, %v, want 0", got, ok)
	}
	if got, ok := m.Translate(99, b); ok {
		t.Errorf("got %d, want no checkpoint", got)
	}
}

// What MirrorMaker 2 is known for: 100 records, the group at 50, the answer 1.
func TestGroupInTheMiddleOfDenseRecordsIsTranslatedExactly(t *testing.T) {
	var m offsets.Map
	m.Add(offsets.Run{Length: 10_001})
	for _, group := range []int64{50, 3839, 10_000} {
		if got, ok := m.Translate(group, open(10_001, 10_001)); got != group || !ok {
			t.Errorf("got %d, %v, want %d", got, ok, group)
		}
	}
}

// partition is a source partition and its copy, record by record.
type partition struct {
	bounds offsets.Bounds
	end    int64           // A's log end
	copied map[int64]int64 // upstream → downstream
	runs   []offsets.Run   // as they were appended
}

// grow makes up a partition: gaps of markers and compaction on A, other writers
// on B, a copy that begins and stops somewhere.
func grow(r *rand.Rand, records int) partition {
	p := partition{copied: map[int64]int64{}}
	up := r.Int64N(3) * r.Int64N(50)
	down := r.Int64N(2) * r.Int64N(20)
	p.bounds.First = up + r.Int64N(2)*r.Int64N(5)
	gaps := []int{0, 2, 5, 40}[r.IntN(4)]   // how often A has one, in records
	others := []int{0, 0, 3, 60}[r.IntN(4)] // and B
	stop := records - r.IntN(2)*r.IntN(records+1)
	p.bounds.Next = p.bounds.First
	for i := range records {
		if gaps > 0 && r.IntN(gaps) == 0 {
			up += 1 + r.Int64N(3)
		}
		if others > 0 && r.IntN(others) == 0 {
			down += 1 + r.Int64N(3)
		}
		if i < stop && up >= p.bounds.First {
			p.copied[up] = down
			p.runs = append(p.runs, offsets.Run{Upstream: up, Downstream: down, Length: 1})
			p.bounds.Next = up + 1
			down++
			p.bounds.End = down
		}
		up++
	}
	if stop == records && r.IntN(2) == 0 { // trailing markers that are passed
		up += r.Int64N(4)
		p.bounds.Next = max(p.bounds.Next, up)
	}
	p.end = up
	p.bounds.LogEnd = max(p.bounds.End, down) + r.Int64N(2)*r.Int64N(9)
	p.bounds.LogStart = r.Int64N(2) * r.Int64N(p.bounds.LogEnd+1)
	return p
}

// translate is the rule, spelled out.
func (p partition) translate(group int64) (int64, bool) {
	if group < p.bounds.First {
		return 0, false
	}
	down := p.bounds.End
	for up := group; up < p.bounds.Next; up++ {
		if d, ok := p.copied[up]; ok {
			down = d
			break
		}
	}
	return max(p.bounds.LogStart, min(down, p.bounds.LogEnd)), true
}

func (p partition) check(t *testing.T, how string, m *offsets.Map) {
	t.Helper()
	for group := int64(-1); group <= p.end+2; group++ {
		want, wantOK := p.translate(group)
		if got, ok := m.Translate(group, p.bounds); got != want || ok != wantOK {
			t.Fatalf("%s: translate %d with %+v: got %d, %v, want %d, %v", how, group, p.bounds, got, ok, want, wantOK)
		}
	}
	// What is translated and copied meet: at the answer for a record lies its copy.
	for up, down := range p.copied {
		if down < p.bounds.LogStart {
			continue
		}
		if got, _ := m.Translate(up, p.bounds); got != down {
			t.Fatalf("%s: record %d has its copy at %d, and is translated to %d", how, up, down, got)
		}
	}
}

func TestTranslationEqualsTheModelAtEveryOffset(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := grow(r, []int{0, 1, 5, 50, 600}[r.IntN(5)])
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			var m offsets.Map
			for _, run := range p.runs {
				m.Add(run)
			}
			p.check(t, "record by record", &m)

			// The same out of a store: chunks, one of them read twice, and an open
			// chunk that the last of them already holds.
			runs := slices.Collect(m.Runs())
			var stored offsets.Map
			for len(runs) > 0 {
				n := 1 + r.IntN(len(runs))
				chunk := offsets.AppendChunk(nil, runs[:n])
				for range 1 + r.IntN(2) {
					if err := stored.AddChunk(chunk); err != nil {
						t.Fatal(err)
					}
				}
				older := slices.Clone(runs[r.IntN(n):n])
				older[len(older)-1].Length = 1 + r.Int64N(older[len(older)-1].Length)
				if err := stored.AddChunk(offsets.AppendChunk(nil, older)); err != nil {
					t.Fatal(err)
				}
				runs = runs[n:]
			}
			p.check(t, "from chunks", &stored)
			if stored.Len() != m.Len() {
				t.Errorf("got %d runs from chunks, want %d", stored.Len(), m.Len())
			}
		})
	}
}

// TestAddEqualsTheModel adds what overlaps, repeats and contradicts.
func TestAddEqualsTheModel(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 2))
		var m offsets.Map
		model := map[int64]int64{}
		var up, down int64
		for step := range 40 + r.IntN(400) {
			run := offsets.Run{Upstream: up, Downstream: down, Length: 1 + r.Int64N(4)}
			switch r.IntN(40) {
			case 0: // B lost its end
				run.Downstream = max(0, down-r.Int64N(200))
				run.Upstream = max(0, up-r.Int64N(200))
			case 1: // said before, and more
				if back := min(up, down); back > 0 {
					back = r.Int64N(back)
					run = offsets.Run{Upstream: up - back, Downstream: down - back, Length: back + r.Int64N(3) + 1}
				}
			case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11:
				run.Upstream += r.Int64N(3)
			case 12, 13, 14:
				run.Downstream += r.Int64N(3)
			case 15: // B was made anew
				if r.IntN(20) == 0 {
					run.Downstream = 0
				}
			}
			m.Add(run)
			agrees := true
			for i := range run.Length {
				u, d := run.Upstream+i, run.Downstream+i
				if agrees {
					if have, ok := model[u]; ok && have == d {
						continue
					}
					agrees = false
					maps.DeleteFunc(model, func(mu, md int64) bool { return mu >= u || md >= d })
				}
				model[u] = d
			}
			up, down = 0, 0
			for u, d := range model {
				up, down = max(up, u+1), max(down, d+1)
			}
			got := map[int64]int64{}
			var last offsets.Run
			for run := range m.Runs() {
				if run.Upstream < last.Upstream+last.Length || run.Downstream < last.Downstream+last.Length {
					t.Fatalf("seed %d, step %d: %+v comes after %+v", seed, step, run, last)
				}
				last = run
				for i := range run.Length {
					got[run.Upstream+i] = run.Downstream + i
				}
			}
			if !maps.Equal(got, model) {
				t.Fatalf("seed %d, step %d: after %+v got\n%v, want\n%v", seed, step, run, got, model)
			}
		}
		if n := len(slices.Collect(m.Runs())); n != m.Len() {
			t.Fatalf("seed %d: got length %d, want %d", seed, m.Len(), n)
		}
	}
}

// B can lose its end at any run, in any block of packed runs.
func TestEveryPlaceCanBeContradicted(t *testing.T) {
	const n = 200
	for k := range int64(n) {
		for inside := range int64(3) {
			m := markers(n)
			m.Add(offsets.Run{Upstream: 1_000_000, Downstream: k*100 + inside, Length: 7})
			runs := int(k) + 1 // those before, and the new one
			if inside > 0 {
				runs++ // what is left of run k
			}
			got := slices.Collect(m.Runs())
			if len(got) != runs || m.Len() != runs || got[runs-1].Length != 7 {
				t.Fatalf("run %d, record %d: got %d runs (%d), want %d", k, inside, len(got), m.Len(), runs)
			}
			if inside > 0 && got[k] != (offsets.Run{Upstream: k * 101, Downstream: k * 100, Length: inside}) {
				t.Fatalf("run %d, record %d: got %+v", k, inside, got[k])
			}
		}
	}
}

func TestRunsCanBeLeftEarly(t *testing.T) {
	var m offsets.Map
	for i := range int64(100) {
		m.Add(offsets.Run{Upstream: 2 * i, Downstream: i, Length: 1})
	}
	n := 0
	for range m.Runs() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 || m.Len() != 100 {
		t.Errorf("got %d of %d", n, m.Len())
	}
}

// markers is a partition of n transactions of a hundred records.
func markers(n int64) *offsets.Map {
	var m offsets.Map
	for i := range n {
		m.Add(offsets.Run{Upstream: i * 101, Downstream: i * 100, Length: 100})
	}
	return &m
}

func TestMillionRunsTakeAFewMegabytes(t *testing.T) {
	const n = 1_000_000
	m := markers(n)
	if m.Len() != n {
		t.Fatalf("got %d runs, want %d", m.Len(), n)
	}
	if got := offsets.Bytes(m); got > 4*n {
		t.Errorf("the map takes %d bytes", got)
	}
	b := offsets.Bounds{Next: n * 101, End: n * 100, LogEnd: n * 100}
	for _, i := range []int64{0, 1, 63, 64, 65, n / 3, n - 2, n - 1} {
		for group, want := range map[int64]int64{i * 101: i * 100, i*101 + 99: i*100 + 99, i*101 + 100: (i + 1) * 100} {
			if got, ok := m.Translate(group, b); got != want || !ok {
				t.Errorf("translate %d: got %d, %v, want %d", group, got, ok, want)
			}
		}
	}
	chunk := offsets.AppendChunk(nil, slices.Collect(m.Runs()))
	if len(chunk) > 4*n {
		t.Errorf("the chunk takes %d bytes", len(chunk))
	}
}

func BenchmarkTranslate(b *testing.B) {
	const n = 1_000_000
	m := markers(n)
	bounds := offsets.Bounds{Next: n * 101, End: n * 100, LogEnd: n * 100}
	r := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		m.Translate(r.Int64N(n*101), bounds)
	}
}

func BenchmarkAddChunk(b *testing.B) {
	chunk := offsets.AppendChunk(nil, slices.Collect(markers(100_000).Runs()))
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		var m offsets.Map
		if err := m.AddChunk(chunk); err != nil {
			b.Fatal(err)
		}
	}
}
