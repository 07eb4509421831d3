package verify

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// sparse is a compacted partition of a test: records with their offsets.
type sparse []kgo.Record

func (s sparse) log(seed maphash.Seed, end int64) *memoryLog {
	d := newDigester(seed, false)
	l := &memoryLog{entries: make([]entry, len(s)), last: end}
	for i := range s {
		d.entry(&l.entries[i], &s[i])
	}
	return l
}

// value is a record of a key; an empty text is a deletion.
func value(offset int64, key, text string) kgo.Record {
	r := kgo.Record{Offset: offset, Key: []byte(key), Timestamp: time.UnixMilli(1_700_000_000_000 + offset)}
	if text != "" {
		r.Value = []byte(text)
	}
	return r
}

// moved is a record at another offset.
func moved(r kgo.Record, offset int64) kgo.Record {
	r.Offset = offset
	return r
}

// keyedOf compares two compacted partitions, with a few keys in memory.
func keyedOf(t testing.TB, a, b sparse, endA, endB int64, limit int) *keyed {
	t.Helper()
	seed := maphash.MakeSeed()
	var read int64
	passed := func(n int64) { read += n }
	k := &keyed{
		source: keyedSide{log: a.log(seed, endA), passed: passed},
		target: keyedSide{log: b.log(seed, endB), passed: passed},
		limit:  limit, ledger: newLedger(0, 1000),
	}
	if err := k.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !k.balanced() {
		t.Fatalf("got counts %+v, want all keys accounted for", k.ledger.counts)
	}
	if read != endA+endB {
		t.Fatalf("got progress %d, want %d", read, endA+endB)
	}
	return k
}

func TestTheLastRecordOfEachKeyDecides(t *testing.T) {
	last := func() sparse { return sparse{value(9, "z", "last")} } // is on both sides
	for name, test := range map[string]struct {
		a, b sparse
		want []string
	}{
		"equal, at other offsets": {a: sparse{value(3, "x", "1")}, b: sparse{moved(value(3, "x", "1"), 0)}},
		"older ones on one side only": {
			a: sparse{value(3, "x", "1"), value(5, "x", "2")}, b: sparse{moved(value(5, "x", "2"), 1)},
		},
		"deleted on both, with a tombstone on one": {a: sparse{value(3, "x", "1"), value(5, "x", "")}, b: sparse{}},
		"deleted on the target only": {
			a: sparse{value(3, "x", "1")}, b: sparse{value(3, "x", "1"), value(4, "x", "")},
			want: []string{"altered A 3 B 4 value timestamp"},
		},
		"deleted on the source only": {
			a: sparse{value(3, "x", "1"), value(4, "x", "")}, b: sparse{value(3, "x", "1")},
			want: []string{"altered A 4 B 3 value timestamp"},
		},
		"missing": {a: sparse{value(3, "x", "1")}, b: sparse{}, want: []string{"missing A 3"}},
		"extra":   {a: sparse{}, b: sparse{value(3, "x", "1")}, want: []string{"extra B 3"}},
		"altered": {
			a: sparse{value(3, "x", "1")}, b: sparse{value(3, "x", "2")}, want: []string{"altered A 3 B 3 value"},
		},
		"an older value on the target": {
			a: sparse{value(3, "x", "1"), value(5, "x", "2")}, b: sparse{value(3, "x", "1")},
			want: []string{"altered A 5 B 3 value timestamp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := keyedOf(t, append(test.a, last()...), append(test.b, last()...), 10, 10, 100)
			if test.want == nil {
				test.want = []string{}
			}
			if diff := cmp.Diff(test.want, shorts(k.ledger)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeysOfTheEndAreBehind(t *testing.T) {
	a := sparse{value(1, "x", "1"), value(2, "y", "1"), value(3, "x", "2"), value(4, "new", "1"), value(5, "y", "")}
	b := sparse{value(1, "x", "1"), value(2, "y", "1")}
	k := keyedOf(t, append(sparse{value(0, "w", "1")}, a...), append(sparse{value(0, "w", "1")}, b...), 6, 3, 100)
	want := []string{"behind A 3 before 3", "behind A 4 before 3", "behind A 5 before 3"}
	if diff := cmp.Diff(want, shorts(k.ledger)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	// The last record of all, altered in place, is not behind: it bears the time.
	k = keyedOf(t, sparse{value(0, "w", "1")}, sparse{value(0, "w", "2")}, 1, 1, 100)
	if diff := cmp.Diff([]string{"altered A 0 B 0 value"}, shorts(k.ledger)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// What one side no longer has cannot be asked of the other.
func TestKeysFromBeforeALogStartAreUnprovable(t *testing.T) {
	seed := maphash.MakeSeed()
	k := &keyed{
		source:    keyedSide{log: sparse{value(1, "x", "1"), value(2, "y", "1"), value(3, "z", "1")}.log(seed, 4), passed: func(int64) {}},
		target:    keyedSide{log: sparse{value(2, "y", "1")}.log(seed, 4), start: 2, passed: func(int64) {}},
		notTarget: "gone", limit: 100, ledger: newLedger(0, 1000),
	}
	if err := k.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"unprovable A 1", "behind A 3 before 4"}, shorts(k.ledger)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// compact drops records that later ones supersede, each with a chance, and
// tombstones that are the last of their key, though only with all before them.
func compact(r *rand.Rand, log sparse) sparse {
	last, forgotten := map[string]int64{}, map[string]bool{}
	for _, record := range log {
		last[string(record.Key)] = record.Offset
		forgotten[string(record.Key)] = record.Value == nil && r.IntN(4) == 0
	}
	return slices.DeleteFunc(slices.Clone(log), func(record kgo.Record) bool {
		if last[string(record.Key)] == record.Offset || forgotten[string(record.Key)] {
			return forgotten[string(record.Key)]
		}
		return r.IntN(3) > 0
	})
}

// Whatever is written, and whenever either side is compacted, a copy is equal; and
// each fault is found, with memory for few keys as for many.
func TestFaultsOfCompactedTopicsAreFoundWhateverWasCompacted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var log sparse
		n := 1 + r.IntN(400)
		keys := 1 + r.IntN(60)
		for i := range n {
			text := ""
			if r.IntN(5) > 0 {
				text = fmt.Sprint("value ", i)
			}
			log = append(log, value(int64(i), fmt.Sprint("key ", r.IntN(keys)), text))
		}
		log = append(log, value(int64(n), "the last", "one"))
		a := compact(r, log)
		var b sparse
		for i, record := range a {
			b = append(b, moved(record, int64(i)))
		}
		endB := int64(len(b))
		a, b = compact(r, a), compact(r, b)
		limit := 1 + r.IntN(2*keys)
		if got := keyedOf(t, a, b, int64(n)+1, endB, limit).ledger.counts; got.Different() > 0 || got.Behind > 0 || got.Source != got.Equal {
			t.Fatalf("got %+v of a copy, want all equal", got)
		}

		// The last records of living keys, by the side's index.
		living := func(log sparse) map[string]int {
			all := map[string]int{}
			for i, record := range log {
				all[string(record.Key)] = i
				if record.Value == nil {
					delete(all, string(record.Key))
				}
			}
			return all
		}
		onA, onB := living(a), living(b)
		names := slices.Sorted(maps.Keys(onB))
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		want := []string{}
		var gone []int64
		for _, name := range names[:min(len(names), 3)] {
			if name == "the last" {
				continue
			}
			from, to := a[onA[name]].Offset, b[onB[name]].Offset
			if r.IntN(2) == 0 {
				b[onB[name]].Value = []byte("another")
				want = append(want, fmt.Sprintf("altered A %d B %d value", from, to))
				continue
			}
			for _, record := range b {
				if string(record.Key) == name {
					gone = append(gone, record.Offset)
				}
			}
			want = append(want, fmt.Sprintf("missing A %d", from))
		}
		b = slices.DeleteFunc(b, func(record kgo.Record) bool { return slices.Contains(gone, record.Offset) })
		got := shorts(keyedOf(t, a, b, int64(n)+1, endB, limit).ledger)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("findings (-want +got):\n%s", diff)
		}
	}
}

// A record may be compacted away while the partition is compared, because of one
// that has come since.
func TestKeysWrittenDuringTheComparisonAreNotJudged(t *testing.T) {
	seed := maphash.MakeSeed()
	a := sparse{value(1, "x", "1"), value(2, "y", "1"), value(3, "z", "1"), value(4, "last", "1"), value(6, "y", "2")}
	b := sparse{value(3, "z", "other"), value(4, "last", "1"), value(6, "x", "2"), value(7, "z", "2")}
	grown := func(context.Context) (int64, error) { return 8, nil }
	k := &keyed{
		source: keyedSide{log: a.log(seed, 5), grown: grown, passed: func(int64) {}},
		target: keyedSide{log: b.log(seed, 5), grown: grown, passed: func(int64) {}},
		limit:  100, ledger: newLedger(0, 1000),
	}
	if err := k.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"unprovable A 1", "unprovable A 2", "unprovable A 3"}, shorts(k.ledger)); diff != "" || !k.balanced() {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if got := k.ledger.findings[0].Reason; got != superseded {
		t.Errorf("got reason %q, want %q", got, superseded)
	}
}
