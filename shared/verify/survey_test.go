package verify_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/verify"
)

func TestCompactedTopicsAreComparedByKey(t *testing.T) {
	testCompactedTopicsAreComparedByKey(t, start(t), start(t))
}

func testCompactedTopicsAreComparedByKey(t *testing.T, a, b *cluster) {
	for name, test := range map[string]struct{ a, b, note string }{
		"source": {"compact", "delete", "compared by the last record of each key, for compacted-source is compacted on A"},
		"target": {"delete", "compact,delete", "compared by the last record of each key, for A.compacted-target is compacted on B"},
	} {
		topic := "compacted-" + name
		a.create(topic, 2, map[string]*string{"cleanup.policy": new(test.a)})
		b.create("A."+topic, 2, map[string]*string{"cleanup.policy": new(test.b)})
		// Twenty keys again and again, then a deletion and a key of the end.
		var all []kgo.Record
		for i := range 400 {
			all = append(all, kgo.Record{Key: fmt.Append(nil, i%20), Value: fmt.Append(nil, i), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i))})
		}
		all = append(all, kgo.Record{Key: []byte("3"), Timestamp: time.UnixMilli(1_700_000_000_400)}, kgo.Record{Key: []byte("end"), Value: []byte("x"), Timestamp: time.UnixMilli(1_700_000_000_401)})
		a.write(topic, 0, all)
		a.write(topic, 1, all)
		b.write("A."+topic, 0, slices.Concat(all[200:300], all[380:])) // as if it had been compacted before
		damaged := slices.Clone(all)
		damaged[399].Value = []byte("damaged")
		damaged = slices.DeleteFunc(damaged, func(r kgo.Record) bool { return string(r.Key) == "7" })
		b.write("A."+topic, 1, damaged)
		got := run(t, options(a, b, topic)).Topics[0]
		if diff := cmp.Diff([]string{"1: missing A 387", "1: altered A 399 B 379 value 3/7"}, found(got)); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
		if want := (verify.Counts{Source: 20, Target: 20, Equal: 20}); got.Partitions[0].Counts != want || got.Compared != verify.ByKey {
			t.Errorf("got %s %+v, want by key %+v", got.Compared, got.Partitions[0].Counts, want)
		}
		if diff := cmp.Diff([]string{test.note}, got.Notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
	}
}
