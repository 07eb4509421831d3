package stories_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
)

// entry is a record as the torture's reader knows it: its number, and a digest of
// all that a mirror must keep.
type entry struct {
	n      uint64
	digest [sha256.Size]byte
}

// entries reads every record of a topic, past the proxies, or only those that
// committed transactions wrote. It shares no code with verify, nor with what
// copies.
func entries(ctx context.Context, t testing.TB, c *kafka.Cluster, topic string, committed bool) map[int32][]entry {
	t.Helper()
	all := map[int32][]entry{}
	everyRecord(ctx, t, c, topic, committed, func(r *kgo.Record) {
		all[r.Partition] = append(all[r.Partition], entryOf(r))
	})
	return all
}

// entryOf takes the number from the header "n", where the load has put it.
func entryOf(r *kgo.Record) (e entry) {
	text := fmt.Appendf(nil, "%d %t %q %t %q", r.Timestamp.UnixMilli(), r.Key == nil, r.Key, r.Value == nil, r.Value)
	for _, h := range r.Headers {
		text = fmt.Appendf(text, " %q %t %q", h.Key, h.Value == nil, h.Value)
		if h.Key == "n" {
			e.n = binary.BigEndian.Uint64(h.Value)
		}
	}
	e.digest = sha256.Sum256(text)
	return e
}

// findings are what is wrong with a copy.
type findings struct {
	Records                        int // of the source
	Behind                         int // not there, nor any that comes after them
	Missing, Duplicated, Reordered int // Reordered judges first copies
	Altered, Unknown               int // of the target
}

func (f *findings) add(g findings) {
	f.Records += g.Records
	f.Behind += g.Behind
	f.Missing += g.Missing
	f.Duplicated += g.Duplicated
	f.Reordered += g.Reordered
	f.Altered += g.Altered
	f.Unknown += g.Unknown
}

// compare judges the copies of one partition.
func compare(source, target []entry) findings {
	f := findings{Records: len(source)}
	at := make(map[uint64]int, len(source))
	for i, e := range source {
		at[e.n] = i
	}
	seen, last := make([]bool, len(source)), -1
	for _, e := range target {
		i, ok := at[e.n]
		switch {
		case !ok:
			f.Unknown++
			continue
		case seen[i]:
			f.Duplicated++
			continue
		case i < last:
			f.Reordered++
		}
		if e.digest != source[i].digest {
			f.Altered++
		}
		seen[i], last = true, max(last, i)
	}
	f.Behind = len(source) - 1 - last
	for _, ok := range seen[:last+1] {
		if !ok {
			f.Missing++
		}
	}
	return f
}

func TestCompareFindsWhatIsWrongWithACopy(t *testing.T) {
	log := func(numbers ...uint64) (all []entry) {
		for _, n := range numbers {
			all = append(all, entry{n: n})
		}
		return all
	}
	altered := log(1, 2, 3)
	altered[1].digest[0] = 1
	for name, test := range map[string]struct {
		target []entry
		want   findings
	}{
		"equal":             {log(1, 2, 3), findings{Records: 3}},
		"missing":           {log(1, 3), findings{Records: 3, Missing: 1}},
		"behind":            {nil, findings{Records: 3, Behind: 3}},
		"copied again":      {log(1, 2, 3, 2, 3), findings{Records: 3, Duplicated: 2}},
		"copied again late": {log(1, 2, 1, 2, 3), findings{Records: 3, Duplicated: 2}},
		"swapped":           {log(1, 3, 2), findings{Records: 3, Reordered: 1}},
		"altered":           {altered, findings{Records: 3, Altered: 1}},
		"unknown":           {log(1, 2, 3, 4), findings{Records: 3, Unknown: 1}},
	} {
		if got := compare(log(1, 2, 3), test.target); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
