package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/realtest"
	"mirrorless/shared/verify"
)

// damage is a fault in a copy: at record n of the partition it changes the
// records, and the finding is what verify has to say of it, if d more records
// stand before the place on B than on A.
type damage struct {
	name   string
	change func(records []*kgo.Record, n int) []*kgo.Record
	shifts int
	want   func(n, d int) string
}

// damages are one of each kind.
func damages() map[string]damage {
	all := []damage{
		{
			name: "dropped", shifts: -1,
			change: func(r []*kgo.Record, n int) []*kgo.Record { return slices.Delete(r, n, n+1) },
			want:   func(n, d int) string { return fmt.Sprintf("missing A %d before B %d", n, n+d) },
		},
		{
			name: "doubled", shifts: 1,
			change: func(r []*kgo.Record, n int) []*kgo.Record { return slices.Insert(r, n+1, r[n]) },
			want:   func(n, d int) string { return fmt.Sprintf("duplicated A %d B %d", n, n+d+1) },
		},
		{
			name:   "swapped",
			change: func(r []*kgo.Record, n int) []*kgo.Record { r[n], r[n+1] = r[n+1], r[n]; return r },
			want:   func(n, d int) string { return fmt.Sprintf("reordered A %d B %d", n, n+d+1) },
		},
		altering("header byte", "headers", func(r *kgo.Record) {
			r.Headers = slices.Clone(r.Headers)
			r.Headers[0].Value = slices.Clone(r.Headers[0].Value)
			r.Headers[0].Value[0] ^= 1
		}),
		altering("timestamp", "timestamp", func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(time.Millisecond) }),
		altering("null made empty", "value", func(r *kgo.Record) { r.Value = []byte{} }),
	}
	named := map[string]damage{}
	for _, d := range all {
		named[d.name] = d
	}
	return named
}

func altering(name, field string, change func(*kgo.Record)) damage {
	return damage{
		name: name,
		change: func(records []*kgo.Record, n int) []*kgo.Record {
			r := *records[n]
			change(&r)
			records[n] = &r
			return records
		},
		want: func(n, d int) string { return fmt.Sprintf("altered A %d B %d %s", n, n+d, field) },
	}
}

// TestVerifySaysWhereEachFaultIs damages copies of 60,000 records, or of a
// million, each in places that chance has chosen, and wants verify to name every
// fault by its offsets on both sides, and nothing else.
func TestVerifySaysWhereEachFaultIs(t *testing.T) {
	each := 5_000
	if realtest.Full() {
		each = 83_334
	}
	ctx := within(t, 10*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	seed := rand.Uint64()
	t.Logf("seed %d, %d records", seed, 12*each)
	rng := rand.New(rand.NewPCG(seed, 0))

	// By topic and partition, in the order of their places.
	faults := map[string][][]string{
		"orders": {
			{},
			{"dropped"},
			{"doubled"},
			{"swapped"},
			{"header byte"},
			{"timestamp"},
			{"null made empty"},
			{"dropped", "header byte"},
			{"doubled", "dropped"},
		},
		"payments": {{"swapped", "null made empty"}, {"timestamp", "doubled"}},
		"equal":    {{}},
	}
	onA, onB := connect(t, a, kgo.RecordPartitioner(kgo.ManualPartitioner())), connect(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	known := damages()
	want := map[string][]string{}
	for topic, partitions := range faults {
		forever := map[string]*string{"retention.ms": new("-1")} // the timestamps are old
		create(ctx, t, onA, int32(len(partitions)), forever, topic)
		create(ctx, t, onB, int32(len(partitions)), forever, "A."+topic)
		want[topic] = []string{}
		for p, names := range partitions {
			records := various(topic, int32(p), each)
			produceAll(ctx, t, onA, topic, records)
			places := make([]int, len(names))
			for i := range places {
				// Well apart; each tenth record has no value.
				places[i] = i*(each/20)*10 + 100 + 10*rng.IntN((each/2-200)/10)
				if names[i] != "null made empty" {
					places[i] += rng.IntN(10)
				}
			}
			shifts := 0
			for i, name := range names {
				d := known[name]
				want[topic] = append(want[topic], fmt.Sprintf("%d: %s", p, d.want(places[i], shifts)))
				records = d.change(records, places[i]+shifts)
				shifts += d.shifts
			}
			produceAll(ctx, t, onB, "A."+topic, records)
		}
	}
	file := properties(t, a, b, "clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = orders, payments, equal")

	began := time.Now()
	report := verified(t, file)
	t.Logf("verify of %d records on both sides: %v", 12*each, time.Since(began).Round(time.Millisecond))
	for _, topic := range report.Topics {
		if diff := cmp.Diff(want[topic.Source], foundIn(topic)); diff != "" {
			t.Errorf("findings of %s (-want +got):\n%s", topic.Source, diff)
		}
		for p, names := range faults[topic.Source] {
			if got := topic.Partitions[p].Verdict; (got == verify.VerdictEqual) != (len(names) == 0) {
				t.Errorf("%s-%d: got verdict %s after %q", topic.Source, p, got, names)
			}
		}
	}
	if report.Verdict != verify.VerdictDifferent || len(report.Topics) != len(faults) {
		t.Errorf("got verdict %s of %d topics, want different of %d", report.Verdict, len(report.Topics), len(faults))
	}
	out, err := mirrorless(t, "verify", file).CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 1 {
		t.Errorf("verify ended with %v, want exit code 1", err)
	}
	t.Logf("verify printed:\n%s", out)
}

// various are records with headers, of which each tenth has no value.
func various(topic string, partition int32, n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		r := &kgo.Record{
			Partition: partition, Key: fmt.Appendf(nil, "key %d", i%1000), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i/3)),
			Headers: []kgo.RecordHeader{{Key: "trace", Value: fmt.Appendf(nil, "%s %d %d", topic, partition, i)}},
		}
		if i%10 != 0 {
			r.Value = fmt.Appendf(nil, "%s %d %d %0*d", topic, partition, i, i%200, i)
		}
		records[i] = r
	}
	return records
}

// produceAll writes copies of records to a topic.
func produceAll(ctx context.Context, t testing.TB, client *kgo.Client, topic string, records []*kgo.Record) {
	t.Helper()
	for _, r := range records {
		r := *r
		r.Topic = topic
		client.Produce(ctx, &r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// verified is what verify says of the only flow of a file.
func verified(t testing.TB, file string, args ...string) verify.Report {
	t.Helper()
	out, err := mirrorless(t, append([]string{"verify", file, "--json"}, args...)...).Output()
	var report struct{ Flows []verify.Report }
	if e, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || e.ExitCode() != 1) {
		t.Fatalf("verify: %v: %s", err, out)
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Flows) != 1 {
		t.Fatalf("verify printed %v: %s", err, out)
	}
	return report.Flows[0]
}

// foundIn lists findings in few words.
func foundIn(topic verify.Topic) []string {
	out := []string{}
	for _, f := range topic.Findings {
		var s strings.Builder
		fmt.Fprintf(&s, "%d: %s", f.Partition, f.Kind)
		if f.Source != nil {
			fmt.Fprintf(&s, " A %s", f.Source)
		}
		if f.Target != nil {
			fmt.Fprintf(&s, " B %s", f.Target)
		}
		if f.Before != nil {
			fmt.Fprintf(&s, " before B %d", *f.Before)
		}
		for _, d := range f.Differences {
			s.WriteString(" " + d.Field)
		}
		out = append(out, s.String())
	}
	return out
}

// TestVerifyTakesLessTimeThanCopying copies a million records of 1 KB and
// compares them, on brokers as they come.
func TestVerifyTakesLessTimeThanCopying(t *testing.T) {
	if !realtest.Full() {
		t.Skip("takes the machine for itself: MIRRORLESS_REAL=full")
	}
	const records, size, partitions = 1_000_000, 1000, 4
	ctx := within(t, 10*time.Minute)
	a, b := startBoth(t, kafka.Options{Production: true}, kafka.Options{Production: true})
	create(ctx, t, connect(t, a), partitions, nil, "load")
	newLoad(t, a, "load", partitions, size).write(ctx, t, records)
	file := properties(t, a, b, "clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = load")
	r := run(t, nil, file)
	onB := connect(t, b)
	var first time.Time
	eventually(ctx, t, "the copy", func() bool {
		if !exists(ctx, t, onB, "A.load") {
			return false
		}
		n := ends(ctx, t, onB, "A.load")
		if n > 0 && first.IsZero() {
			first = time.Now()
		}
		return n >= records
	})
	copied := time.Since(first)
	r.stop(t)

	began := time.Now()
	report := verified(t, file)
	compared := time.Since(began)
	if report.Verdict != verify.VerdictEqual || report.Counts.Equal != records {
		t.Errorf("got %s, %+v, want %d equal records", report.Verdict, report.Counts, records)
	}
	t.Logf("%d records of %d B: copied in %.1f s (from the first on B to the last), compared in %.1f s (the whole command)",
		records, size, copied.Seconds(), compared.Seconds())
	if compared >= copied {
		t.Errorf("got %v for verify, want less than the %v of the copy", compared, copied)
	}
}
