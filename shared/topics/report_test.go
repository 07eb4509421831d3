package topics_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/topics"
)

func TestEventSourcesThatAreNotEnabledAreCounted(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		var reports []topics.Report
		observed := func(o *topics.Options) { o.Observe = func(r topics.Report) { reports = append(reports, r) } }
		expect := func(when string, want ...topics.Report) {
			t.Helper()
			if diff := cmp.Diff(want, reports); diff != "" {
				t.Errorf("reports %s (-want +got):\n%s", when, diff)
			}
			reports = nil
		}
		sources := newMappings()
		top := w.topics(with(sources), observed)
		w.run(top)
		expect("of nothing to copy", topics.Report{})

		w.create(w.a, "orders", 1, nil)
		w.create(w.a, "invoices", 1, nil)
		w.run(top)
		expect("of mappings that are Enabled at once", topics.Report{})

		sources.slow = true
		w.create(w.a, "new", 1, nil)
		w.run(top)
		expect("while one is Creating", topics.Report{NotEnabled: 1})
		sources.settle()
		w.run(top)
		expect("when it is Enabled", topics.Report{})

		// Somebody has switched one off, and it cannot be switched on.
		sources.slow = false
		off := sources.of(t, "orders")
		off.State, off.Enabled = topics.StateDisabled, false
		sources.all[off.ID] = off
		sources.fail = func(call string) error {
			if call == "update orders" {
				return errors.New("no right to")
			}
			return nil
		}
		if err := top.Run(t.Context()); err == nil {
			t.Error("got no error, want that of the update")
		}
		expect("while one is Disabled", topics.Report{NotEnabled: 1})
		sources.fail = nil
		w.run(top)
		expect("when it was switched on again", topics.Report{})

		// One that nobody wants is none that should be Enabled.
		w.configure(quiet + "topics = orders")
		w.run(w.topics(with(sources), observed))
		expect("of topics that are copied no more", topics.Report{})

		sources.fail = func(string) error { return errors.New("throttled") }
		if err := top.Run(t.Context()); err == nil {
			t.Error("got no error, want that of the list")
		}
		expect("of event sources that nobody knows")

		w.run(w.topics(observed))
		expect("where topics keeps none", topics.Report{})
	})
}
