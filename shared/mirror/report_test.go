package mirror_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/mirror"
	"mirrorless/shared/target"
)

// reporting is a Mirror that reports, at a time of its own.
func (w *world) reporting(now *time.Time, reports *[]mirror.Report) *mirror.Mirror {
	return mirror.New(mirror.Options{
		Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}),
		Now:     func() time.Time { return *now },
		Observe: func(r mirror.Report) { *reports = append(*reports, r) },
	})
}

func TestAnInvocationReportsWhatItCopied(t *testing.T) {
	w := newWorld(t)
	now := time.UnixMilli(begun + 1000)
	var reports []mirror.Report
	headers := []kafkaevent.Header{{Name: "name", Value: []byte("12")}, {Lost: true}}
	other := []kafkaevent.Record{{
		Topic: "orders", Partition: 2, Offset: 7, Timestamp: kafkaevent.NoTimestamp, Key: []byte("key"), Value: []byte("value"), Headers: headers,
	}}
	m := w.reporting(&now, &reports)
	w.must(m, numbered(0, 3), numbered(5, 6), other)
	spread := mirror.Spread{Least: 995 * time.Millisecond, Most: time.Second, Sum: (4*1000 - 0 - 1 - 2 - 5) * time.Millisecond, N: 4}
	want := []mirror.Report{{Partitions: []mirror.Copied{
		{TopicPartition: orders0, Remote: "A.orders", Records: 4, ValueBytes: 4 * 2, Bytes: 4 * 4, Holes: 1, Age: spread, Latency: spread},
		{
			TopicPartition: flow.TopicPartition{Topic: "orders", Partition: 2}, Remote: "A.orders",
			Records: 1, ValueBytes: 5, Bytes: 5 + 3 + 4 + 2, Holes: 1, LostHeaders: 1,
		},
	}}}
	if diff := cmp.Diff(want, reports); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}

	// A part of it once more, and then what follows, half a minute later.
	reports, now = nil, now.Add(30*time.Second)
	w.must(m, numbered(2, 3), numbered(5, 8))
	got := reports[0].Partitions[0]
	if len(reports) != 1 || got.Records != 2 || got.Repeated != 2 || got.Found != 0 || got.Age.Most != 31*time.Second-6*time.Millisecond {
		t.Errorf("got reports %+v, want two records and two repeated ones", reports)
	}
}

func TestEachRecordIsReportedOnce(t *testing.T) {
	for name, broken := range map[string]struct{ before, after error }{
		"a position that is not stored":     {before: errors.New("throttled")},
		"a position that may not be stored": {after: errors.New("time-out")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			now := time.UnixMilli(begun + 1000)
			var reports []mirror.Report
			w.must(w.reporting(&now, &reports), numbered(0, 5))
			w.broken.fail(broken.before, broken.after)
			if _, err := handle(w.reporting(&now, &reports), numbered(5, 15)); err == nil {
				t.Fatal("got no error, want the store's")
			}
			w.must(w.reporting(&now, &reports), numbered(5, 20))
			var records, found, repeated int64
			for _, r := range reports {
				for _, p := range r.Partitions {
					records, found, repeated = records+p.Records, found+p.Found, repeated+p.Repeated
				}
			}
			// What was stored and not acknowledged is repeated, else found on B.
			if again := found + repeated; len(reports) != 3 || again != 10 || records+repeated != 20 {
				t.Errorf("got %d records, %d found, %d repeated in %d reports, want 20 records, ten of them known before", records, found, repeated, len(reports))
			}
		})
	}
}

func TestSpreads(t *testing.T) {
	a := mirror.Spread{Least: 2, Most: 6, Sum: 8, N: 2}
	b := mirror.Spread{Least: 1, Most: 5, Sum: 9, N: 3}
	want := mirror.Spread{Least: 1, Most: 6, Sum: 17, N: 5}
	for _, got := range []mirror.Spread{a.Add(b), b.Add(a), want.Add(mirror.Spread{}), mirror.Spread{}.Add(want)} {
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := a.Mean(); got != 4 {
		t.Errorf("got mean %d, want 4", got)
	}
	if got := (mirror.Spread{}).Mean(); got != 0 {
		t.Errorf("got mean %d of none, want 0", got)
	}
}
