package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/verify"
)

// since compares with ranges of 100 records, and builds on a report if there is
// one, which has been to a file.
func since(t *testing.T, o verify.Options, earlier *verify.Report) verify.Report {
	t.Helper()
	o.Keep = true
	if earlier != nil {
		text, err := json.Marshal(earlier)
		if err != nil {
			t.Fatal(err)
		}
		o.Since = &verify.Report{}
		if err := json.Unmarshal(text, o.Since); err != nil {
			t.Fatal(err)
		}
	}
	report, err := verify.New(o).Ranges(100).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestAReportSparesReadingAgain(t *testing.T) {
	testAReportSparesReadingAgain(t, start(t), start(t))
}

func testAReportSparesReadingAgain(t *testing.T, a, b *cluster) {
	a.create("kept", 1, nil)
	b.create("A.kept", 1, nil)
	rs := records(1500)
	a.write("kept", 0, rs[:1050])
	b.write("A.kept", 0, rs[:1020])
	o := options(a, b, "kept")
	first := since(t, o, nil)
	p := first.Topics[0].Partitions[0]
	if p.Known != 0 || len(p.Ranges) != 11 || p.Ranges[10].Records != 20 || first.Verdict != verify.VerdictBehind {
		t.Fatalf("got %s, %d ranges, %+v, want behind after 11 ranges", first.Verdict, len(p.Ranges), p)
	}
	if r := p.Ranges[3]; r.Source != (verify.Range{First: 300, Last: 399}) || r.Target != r.Source || r.SourceDigest != r.TargetDigest || len(r.SourceDigest) != 64 {
		t.Errorf("got range %+v, want equal ones of offsets 300 to 399", r)
	}

	// The rest comes, with a fault.
	a.write("kept", 0, rs[1050:])
	rest := slices.Clone(rs[1020:])
	rest = slices.Insert(slices.Delete(rest, 300, 301), 400, rs[950])
	b.write("A.kept", 0, rest)
	second := since(t, o, &first)
	if diff := cmp.Diff([]string{"0: missing A 1320", "0: duplicated A 950 B 1420"}, found(second.Topics[0])); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	p = second.Topics[0].Partitions[0]
	if want := (verify.Counts{Source: 1500, Target: 1500, Equal: 1499, Missing: 1, Duplicated: 1}); p.Counts != want || p.Known != 1000 || len(p.Ranges) != 14 {
		t.Errorf("got %d ranges, %d known, counts %+v, want 14, 1000, %+v", len(p.Ranges), p.Known, p.Counts, want)
	}
	// A difference does not go away by being known.
	third := since(t, o, &second)
	if diff := cmp.Diff(found(second.Topics[0])[:1], found(third.Topics[0])[:1]); diff != "" || third.Topics[0].Partitions[0].Known != 1300 {
		t.Errorf("findings (-before +after), %d known:\n%s", third.Topics[0].Partitions[0].Known, diff)
	}
}

// An interrupted comparison proves less, but the file it leaves proves what it did.
func TestAnInterruptLeavesUnreadPartitionsTheirProof(t *testing.T) {
	a, b := start(t), start(t)
	a.create("orders", 2, nil)
	b.create("A.orders", 2, nil)
	for n := range int32(2) {
		a.write("orders", n, records(1020))
		b.write("A.orders", n, records(1020))
		b.trim("A.orders", n, 20) // A's first ones are unprovable
	}
	o := options(a, b, "orders")
	first := since(t, o, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The first partition is interrupted where its proof is looked at.
	a.fake.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, false
	})
	interrupted := o
	interrupted.Keep, interrupted.Since, interrupted.Parallel = true, &first, 1
	second, err := verify.New(interrupted).Ranges(100).Run(ctx)
	if !errors.Is(err, context.Canceled) || second.Verdict != verify.VerdictFailed {
		t.Fatalf("got %s, %v, want a failed comparison", second.Verdict, err)
	}
	for n, p := range second.Topics[0].Partitions {
		if diff := cmp.Diff(first.Topics[0].Partitions[n].Ranges, p.Ranges); diff != "" || p.Error == "" {
			t.Errorf("partition %d: error %q, ranges (-before +after):\n%s", n, p.Error, diff)
		}
	}
	third := since(t, o, &second)
	if third.Verdict != verify.VerdictUnprovable || third.Counts != first.Counts {
		t.Errorf("got %s, %+v, want unprovable, %+v", third.Verdict, third.Counts, first.Counts)
	}
	for _, p := range third.Topics[0].Partitions {
		if p.Known != 1000 {
			t.Errorf("partition %d: got %d known, want 1000", p.Partition, p.Known)
		}
	}
}

// What a report says of another topic, or of a side that lost its end, is worth
// nothing, and what has expired stays unprovable.
func TestWhatAReportProvesHasToBeThere(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(report *verify.Report, a, b *cluster)
		known   int64
	}{
		"nothing": {func(*verify.Report, *cluster, *cluster) {}, 1000},
		// As after an unclean election: ranges 6 and on are others.
		"an end that is another one": {func(r *verify.Report, _, _ *cluster) {
			for i := 6; i < 10; i++ {
				r.Topics[0].Partitions[0].Ranges[i].TargetDigest = r.Topics[0].Partitions[0].Ranges[0].TargetDigest
			}
		}, 600},
		"an end that is gone": {func(r *verify.Report, _, _ *cluster) {
			ranges := r.Topics[0].Partitions[0].Ranges
			ranges[9].Target.Last += 400
		}, 900},
		"everything is another one": {func(r *verify.Report, _, _ *cluster) {
			for i := range r.Topics[0].Partitions[0].Ranges {
				r.Topics[0].Partitions[0].Ranges[i].SourceDigest = "00"
			}
		}, 0},
		"another topic":               {func(r *verify.Report, _, _ *cluster) { r.Topics[0].TargetID = "00" }, 0},
		"another isolation level":     {func(r *verify.Report, _, _ *cluster) { r.Kept.SourceCommitted = true }, 0},
		"a report of a later version": {func(r *verify.Report, _, _ *cluster) { r.Kept.Version++ }, 0},
		"a report that was not kept":  {func(r *verify.Report, _, _ *cluster) { r.Kept = nil }, 0},
		"ranges that overlap":         {func(r *verify.Report, _, _ *cluster) { r.Topics[0].Partitions[0].Ranges[4].Source.First -= 50 }, 0},
		"a beginning that expires":    {func(_ *verify.Report, a, _ *cluster) { a.trim("orders", 0, 450) }, 1000},
		"nearly all expires":          {func(_ *verify.Report, a, _ *cluster) { a.trim("orders", 0, 1015) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t), start(t)
			a.create("orders", 1, nil)
			b.create("A.orders", 1, nil)
			a.write("orders", 0, records(1020))
			b.write("A.orders", 0, records(1020))
			b.trim("A.orders", 0, 20) // A's first ones are unprovable
			o := options(a, b, "orders")
			first := since(t, o, nil)
			if first.Counts.UnprovableSource != 20 || first.Verdict != verify.VerdictUnprovable {
				t.Fatalf("got %s, %+v, want 20 records of A unprovable", first.Verdict, first.Counts)
			}
			test.happens(&first, a, b)
			got := since(t, o, &first)
			p := got.Topics[0].Partitions[0]
			if p.Known != test.known || got.Verdict != verify.VerdictUnprovable {
				t.Errorf("got %s, %d known, want unprovable, %d known: %+v", got.Verdict, p.Known, test.known, p.Counts)
			}
			if name != "nearly all expires" {
				if want := (verify.Counts{Source: 1020, Target: 1000, Equal: 1000, UnprovableSource: 20}); p.Counts != want {
					t.Errorf("got counts %+v, want %+v", p.Counts, want)
				}
			}
		})
	}
}

// Reports are files that anybody may have written.
func FuzzSince(f *testing.F) {
	a := start(f)
	a.create("orders", 1, nil)
	a.create("A.orders", 1, nil)
	rs := make([]kgo.Record, 30)
	for i := range rs {
		rs[i] = kgo.Record{Value: []byte{byte(i)}, Timestamp: time.UnixMilli(int64(i))}
	}
	a.write("orders", 0, rs)
	a.write("A.orders", 0, rs[:20])
	o := options(a, a, "orders")
	o.Keep = true
	report, err := verify.New(o).Ranges(7).Run(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		var earlier verify.Report
		if json.Unmarshal(text, &earlier) != nil {
			return
		}
		o.Since = &earlier
		got, err := verify.New(o).Ranges(7).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Verdict == verify.VerdictEqual || got.Verdict == verify.VerdictUnprovable || got.Counts.Behind != 10 {
			t.Errorf("got %s, %+v, want 10 behind whatever the report says", got.Verdict, got.Counts)
		}
	})
}
