package verify

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// memoryLog is a partition in memory.
type memoryLog struct {
	entries []entry
	last    int64
}

func (l *memoryLog) end() int64 { return l.last }

func (l *memoryLog) until(end int64) partitionLog { return &memoryLog{l.entries, end} }

func (l *memoryLog) open(_ context.Context, from int64) feed {
	at := func(offset int64) int {
		i, _ := slices.BinarySearchFunc(l.entries, offset, func(e entry, at int64) int { return int(e.offset - at) })
		return i
	}
	return &memoryFeed{l.entries[at(from):max(at(from), at(l.last))]}
}

type memoryFeed struct{ left []entry }

func (f *memoryFeed) next() ([]entry, error) {
	n := min(1000, len(f.left))
	chunk := f.left[:n]
	f.left = f.left[n:]
	return slices.Clone(chunk), nil
}

func (*memoryFeed) close() {}

// sequence is records that are all different, numbered from first.
func sequence(first, n int) []kgo.Record {
	rs := make([]kgo.Record, n)
	for i := range rs {
		rs[i] = record(first + i)
	}
	return rs
}

func record(n int) kgo.Record {
	return kgo.Record{
		Key: fmt.Append(nil, "key ", n%100), Value: fmt.Append(nil, "value ", n),
		Timestamp: time.UnixMilli(1_700_000_000_000 + int64(n/3)),
	}
}

// side is a partition of a test: its log start and its records, with offsets
// from there on. If appended, its timestamps are those of the appends.
type side struct {
	start    int64
	records  []kgo.Record
	appended bool
}

func (s side) log(seed maphash.Seed) *memoryLog {
	d := newDigester(seed, false)
	l := &memoryLog{entries: make([]entry, len(s.records)), last: s.start + int64(len(s.records))}
	for i := range s.records {
		s.records[i].Offset = s.start + int64(i)
		d.entry(&l.entries[i], &s.records[i])
	}
	return l
}

// compareSides compares as Run does.
func compareSides(t testing.TB, a, b side, latest bool) *ledger {
	t.Helper()
	seed := maphash.MakeSeed()
	logA, logB := a.log(seed), b.log(seed)
	for i := range logB.entries {
		logB.entries[i].appended = b.appended
	}
	c := &comparison{
		source: openStream(t.Context(), logA, a.start, func(int64) {}),
		target: openStream(t.Context(), logB, b.start, func(int64) {}),
		ledger: newLedger(0, 1000),
	}
	if b.start > 0 || latest {
		c.notTarget = "gone"
	}
	if a.start > 0 {
		c.notSource = "gone"
	}
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts := c.ledger.counts
	if !counts.balanced() || counts.Source != int64(len(a.records)) || counts.Target != int64(len(b.records)) {
		t.Fatalf("got counts %+v of %d and %d records, want all accounted for", counts, len(a.records), len(b.records))
	}
	return c.ledger
}

// short is a finding in few words: "missing 7 before 7".
func short(f Finding) string {
	var s strings.Builder
	s.WriteString(string(f.Kind))
	if f.Source != nil {
		s.WriteString(" A " + f.Source.String())
	}
	if f.Target != nil {
		s.WriteString(" B " + f.Target.String())
	}
	if f.Before != nil {
		s.WriteString(fmt.Sprint(" before ", *f.Before))
	}
	for _, d := range f.Differences {
		s.WriteString(" " + d.Field)
	}
	return s.String()
}

func shorts(l *ledger) []string {
	out := []string{}
	for _, f := range l.findings {
		out = append(out, short(f))
	}
	return out
}

func header(name string, value []byte) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: value}
}

func TestEachFaultIsOneFinding(t *testing.T) {
	const n = 5000
	whole := func() []kgo.Record { return sequence(0, n) }
	for name, test := range map[string]struct {
		a, b   side
		latest bool
		want   []string
	}{
		"equal":      {a: side{start: 0, records: whole()}, b: side{start: 0, records: whole()}},
		"both empty": {},
		"one dropped": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Delete(whole(), 700, 701)},
			want: []string{"missing A 700 before 700"},
		},
		"a thousand dropped": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Delete(whole(), 700, 1700)},
			want: []string{"missing A 700 to 1699 before 700"},
		},
		"the first dropped": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: whole()[1:]},
			want: []string{"missing A 0 before 0"},
		},
		"one doubled": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Insert(whole(), 701, whole()[700])},
			want: []string{"duplicated A 700 B 701"},
		},
		"a range doubled": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Insert(whole(), 2000, whole()[1000:2000]...)},
			want: []string{"duplicated A 1000 to 1999 B 2000 to 2999"},
		},
		"the last one doubled, and behind": {
			a: side{start: 0, records: headed(whole())}, b: side{start: 0, records: append(headed(whole())[:n-1], headed(whole())[n-2])},
			want: []string{"behind A 4999 before 4999", "duplicated A 4998 B 4999"},
		},
		"the last one doubled": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: append(whole(), whole()[n-1])},
			want: []string{"duplicated A 4999 B 5000"},
		},
		"one doubled before its time": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Insert(whole(), 600, whole()[700])},
			want: []string{"duplicated A 700 B 600"},
		},
		"two swapped": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700], r[701] = r[701], r[700] })},
			want: []string{"reordered A 700 B 701"},
		},
		"the last two swapped": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[n-1], r[n-2] = r[n-2], r[n-1] })},
			want: []string{"reordered A 4999 B 4998"},
		},
		"one far too late": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Insert(slices.Delete(whole(), 700, 701), 4000, whole()[700])},
			want: []string{"reordered A 700 B 4000"},
		},
		"one far too early": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Delete(slices.Insert(whole(), 700, whole()[4000]), 4001, 4002)},
			want: []string{"reordered A 4000 B 700"},
		},
		"a timestamp off by one": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Timestamp = r[700].Timestamp.Add(time.Millisecond) })},
			want: []string{"altered A 700 B 700 timestamp"},
		},
		"a timestamp of a tombstone": {
			a: side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Value = nil })},
			b: side{start: 0, records: edit(whole(), func(r []kgo.Record) {
				r[700].Value, r[700].Timestamp = nil, r[700].Timestamp.Add(time.Millisecond)
			})},
			want: []string{"altered A 700 B 700 timestamp"},
		},
		"a timestamp of a record of nothing": {
			a:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700] = kgo.Record{Timestamp: time.UnixMilli(5)} })},
			b:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700] = kgo.Record{Timestamp: time.UnixMilli(6)} })},
			want: []string{"altered A 700 B 700 timestamp"},
		},
		"a timestamp of a tombstone, beside one dropped": {
			a: side{start: 0, records: edit(whole(), func(r []kgo.Record) {
				r[701].Value, r[701].Headers = nil, []kgo.RecordHeader{header("n", []byte{1})}
			})},
			b: side{start: 0, records: edit(slices.Delete(whole(), 700, 701), func(r []kgo.Record) {
				r[700].Value, r[700].Headers, r[700].Timestamp = nil, []kgo.RecordHeader{header("n", []byte{1})}, time.UnixMilli(7)
			})},
			want: []string{"missing A 700 before 700", "altered A 701 B 700 timestamp"},
		},
		"a null made empty": {
			a:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Value = nil })},
			b:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Value = []byte{} })},
			want: []string{"altered A 700 B 700 value"},
		},
		"a key made null": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Key = nil })},
			want: []string{"altered A 700 B 700 key"},
		},
		"a header byte": {
			a:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Headers = []kgo.RecordHeader{header("a", []byte{1})} })},
			b:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Headers = []kgo.RecordHeader{header("a", []byte{2})} })},
			want: []string{"altered A 700 B 700 headers"},
		},
		"headers in another order": {
			a: side{start: 0, records: edit(whole(), func(r []kgo.Record) {
				r[700].Headers = []kgo.RecordHeader{header("a", nil), header("b", []byte{})}
			})},
			b: side{start: 0, records: edit(whole(), func(r []kgo.Record) {
				r[700].Headers = []kgo.RecordHeader{header("b", []byte{}), header("a", nil)}
			})},
			want: []string{"altered A 700 B 700 headers"},
		},
		"a null header made empty": {
			a:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Headers = []kgo.RecordHeader{header("a", nil)} })},
			b:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Headers = []kgo.RecordHeader{header("a", []byte{})} })},
			want: []string{"altered A 700 B 700 headers"},
		},
		"a null header lost": {
			a: side{start: 0, records: edit(whole(), func(r []kgo.Record) {
				r[700].Headers = []kgo.RecordHeader{header("a", nil), header("b", []byte{1}), header("c", nil)}
			})},
			b:    side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700].Headers = []kgo.RecordHeader{header("b", []byte{1})} })},
			want: []string{"header lost A 700 B 700 headers"},
		},
		"every null header lost, one record dropped": {
			a: side{start: 0, records: edit(whole(), func(r []kgo.Record) {
				for i := range r {
					r[i].Headers = []kgo.RecordHeader{header("a", nil)}
				}
			})},
			b: side{start: 0, records: slices.Delete(whole(), 700, 701)},
			want: []string{
				"header lost A 0 to 699 B 0 to 699 headers", "missing A 700 before 700",
				"header lost A 701 to 4999 B 700 to 4998 headers",
			},
		},
		"behind": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: whole()[:4000]},
			want: []string{"behind A 4000 to 4999 before 4000"},
		},
		"behind by all": {
			a: side{start: 0, records: whole()}, b: side{},
			want: []string{"behind A 0 to 4999 before 0"},
		},
		"a foreign record at the end": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: append(whole(), record(-1))},
			want: []string{"extra B 5000 before 5000"},
		},
		"a foreign record in the middle": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: slices.Insert(whole(), 700, record(-1))},
			want: []string{"extra B 700 before 700"},
		},
		"a foreign record, and behind": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: append(whole()[:4000:4000], record(-1))},
			want: []string{"behind A 4000 to 4999 before 4000", "extra B 4000 before 5000"},
		},
		"a foreign record in place of another": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: edit(whole(), func(r []kgo.Record) { r[700] = kgo.Record{Key: []byte("x"), Value: []byte("y")} })},
			want: []string{"missing A 700 before 700", "extra B 700 before 701"},
		},
		"altered beside dropped": {
			a: side{start: 0, records: whole()},
			b: side{start: 0, records: edit(slices.Delete(whole(), 700, 701), func(r []kgo.Record) { r[700].Value = []byte("other") })},
			want: []string{
				"missing A 700 before 700", "altered A 701 B 700 value",
			},
		},
		"many kinds": {
			a: side{start: 0, records: whole()},
			b: side{start: 0, records: edit(slices.Delete(whole(), 10, 12), func(r []kgo.Record) {
				r[4000], r[4001] = r[4001], r[4000]
				r[200].Key = []byte{}
				r[4500] = r[4400]
			})},
			want: []string{
				"missing A 10 to 11 before 10", "altered A 202 B 200 key", "reordered A 4002 B 4001",
				"missing A 4502 before 4500", "duplicated A 4402 B 4500",
			},
		},
		"log start later on the target": {
			a: side{start: 0, records: whole()}, b: side{start: 300, records: whole()[300:]},
			want: []string{"unprovable A 0 to 299"},
		},
		"log start later on the target, at other offsets": {
			a: side{start: 0, records: whole()}, b: side{start: 4, records: slices.Delete(whole()[300:], 10, 11)},
			want: []string{"unprovable A 0 to 299", "missing A 310 before 14"},
		},
		"log start later on the source": {
			a: side{start: 300, records: whole()[300:]}, b: side{start: 0, records: whole()},
			want: []string{"unprovable B 0 to 299"},
		},
		"log start later on the source, which is empty": {
			a: side{start: 5000, records: nil}, b: side{start: 0, records: whole()},
			want: []string{"unprovable B 0 to 4999"},
		},
		"log start later on the target, which is empty": {
			a: side{start: 0, records: whole()}, b: side{start: 5000, records: nil},
			want: []string{"unprovable A 0 to 4999"},
		},
		"log start later on the target, altered there": {
			a: side{start: 0, records: whole()}, b: side{start: 300, records: edit(whole()[300:], func(r []kgo.Record) { r[0].Value = []byte("other") })},
			want: []string{"unprovable A 0 to 299", "altered A 300 B 300 value"},
		},
		"begun late": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: whole()[300:]}, latest: true,
			want: []string{"unprovable A 0 to 299"},
		},
		"begun late unasked": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: whole()[300:]},
			want: []string{"missing A 0 to 299 before 0"},
		},
		"every timestamp altered, one record dropped": {
			a: side{start: 0, records: whole()},
			b: side{start: 0, records: edit(slices.Delete(whole(), 700, 701), func(r []kgo.Record) {
				for i := range r {
					r[i].Timestamp = r[i].Timestamp.Add(time.Hour)
				}
			})},
			want: []string{
				"altered A 0 to 699 B 0 to 699 timestamp", "missing A 700 before 700",
				"altered A 701 to 4999 B 700 to 4998 timestamp",
			},
		},
		"nothing in common": {
			a: side{start: 0, records: whole()}, b: side{start: 0, records: edit(sequence(100_000, n), func(r []kgo.Record) {
				for i := range r {
					r[i].Key = nil
				}
			})},
			want: []string{"behind A 0 to 4999 before 0", "extra B 0 to 4999 before 5000"},
		},
		"all the same record, one dropped": {
			a: side{start: 0, records: repeat(n)}, b: side{start: 0, records: repeat(n - 1)},
			want: []string{"behind A 4999 before 4999"},
		},
		"all the same record, one doubled": {
			a: side{start: 0, records: repeat(n)}, b: side{start: 0, records: repeat(n + 1)},
			want: []string{"duplicated A 4999 B 5000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := shorts(compareSides(t, test.a, test.b, test.latest))
			if test.want == nil {
				test.want = []string{}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func edit(rs []kgo.Record, f func([]kgo.Record)) []kgo.Record {
	rs = slices.Clone(rs)
	f(rs)
	return rs
}

// headed gives records a header that all have.
func headed(rs []kgo.Record) []kgo.Record {
	for i := range rs {
		rs[i].Headers = []kgo.RecordHeader{header("type", []byte("order"))}
	}
	return rs
}

func repeat(n int) []kgo.Record {
	rs := make([]kgo.Record, n)
	for i := range rs {
		rs[i] = record(7)
	}
	return rs
}

// What lies further away than any window is found by samples.
func TestLargeDifferencesAreOneFinding(t *testing.T) {
	const n = 150_000
	a := sequence(0, n)
	for name, test := range map[string]struct {
		b    []kgo.Record
		want []string
	}{
		"40,000 dropped": {
			slices.Delete(slices.Clone(a), 1000, 41_000), []string{"missing A 1000 to 40999 before 1000"},
		},
		"100,000 dropped": {
			slices.Delete(slices.Clone(a), 20_000, 120_000), []string{"missing A 20000 to 119999 before 20000"},
		},
		"50,000 doubled": {
			slices.Insert(slices.Clone(a), 100_000, a[50_000:100_000]...),
			[]string{"duplicated A 50000 to 99999 B 100000 to 149999"},
		},
		"every value altered": {
			edit(a, func(r []kgo.Record) {
				for i := range r {
					r[i].Value = []byte("other")
				}
			}),
			[]string{"altered A 0 to 149999 B 0 to 149999 value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := shorts(compareSides(t, side{start: 0, records: a}, side{start: 0, records: test.b}, false))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	// Here there are two pieces each: up to a sample that both have, less a
	// window, and the rest.
	t.Run("35,000 in place of 40,000", func(t *testing.T) {
		b := slices.Concat(a[:10_000], sequence(n, 35_000), a[50_000:])
		l := compareSides(t, side{start: 0, records: a}, side{start: 0, records: b}, false)
		if got := l.counts.String(); got != "missing 40000, extra 35000" || len(l.findings) > 4 {
			t.Errorf("got %s in %d findings, want missing 40000, extra 35000 in 4 at most", got, len(l.findings))
		}
	})
}

// Whatever is done to a copy, every record is accounted for, and only an
// untouched copy is equal.
func TestNoDamageIsEqual(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		n := r.IntN(3000)
		a := sequence(0, n)
		if r.IntN(3) == 0 {
			for i := range a {
				a[i] = record(r.IntN(1 + n/10)) // much that repeats itself
			}
		}
		b := slices.Clone(a)
		damage := r.IntN(6)
		for range damage {
			if len(b) == 0 {
				b = append(b, record(-1))
				continue
			}
			i := r.IntN(len(b))
			j := min(len(b), i+1+r.IntN(1+r.IntN(500)))
			switch r.IntN(5) {
			case 0:
				b = slices.Delete(b, i, j)
			case 1:
				b = slices.Insert(b, r.IntN(len(b)), slices.Clone(b[i:j])...)
			case 2:
				b = slices.Insert(b, i, sequence(10_000, j-i)...)
			case 3:
				b[i].Value = append([]byte("x"), b[i].Value...)
			case 4:
				moved := slices.Clone(b[i:j])
				b = slices.Delete(b, i, j)
				b = slices.Insert(b, r.IntN(len(b)+1), moved...)
			}
		}
		same := slices.EqualFunc(a, b, func(x, y kgo.Record) bool { return string(x.Value) == string(y.Value) })
		l := compareSides(t, side{start: 0, records: a}, side{start: 0, records: b}, false)
		if equal := l.counts.Equal == int64(len(a)) && len(a) == len(b) && len(l.findings) == 0; equal != same {
			t.Fatalf("got equal %v after damage, want %v: %+v", equal, same, l.counts)
		}
	}
}

func TestTimestampsThatSayNothingAreNotCompared(t *testing.T) {
	others := func() []kgo.Record {
		return edit(slices.Delete(sequence(0, 3000), 700, 701), func(r []kgo.Record) {
			for i := range r {
				r[i].Timestamp = time.UnixMilli(int64(i))
			}
			r[1000].Value = []byte("other")
			r[2000], r[2001] = r[2001], r[2000]
		})
	}
	none := edit(sequence(0, 3000), func(r []kgo.Record) {
		for i := range r {
			r[i].Timestamp = time.UnixMilli(-1)
		}
	})
	want := []string{"missing A 700 before 700", "altered A 1001 B 1000 value", "reordered A 2001 B 2001"}
	for name, test := range map[string]struct{ a, b side }{
		"the target's broker sets its own": {side{records: sequence(0, 3000)}, side{records: others(), appended: true}},
		"the source has none":              {side{records: none}, side{records: others()}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, shorts(compareSides(t, test.a, test.b, false))); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	const n = 100_000
	seed := maphash.MakeSeed()
	a := side{start: 0, records: sequence(0, n)}.log(seed)
	b.ReportAllocs()
	for b.Loop() {
		c := &comparison{
			source: openStream(b.Context(), a, 0, func(int64) {}),
			target: openStream(b.Context(), a, 0, func(int64) {}),
			ledger: newLedger(0, 10),
		}
		if err := c.run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
