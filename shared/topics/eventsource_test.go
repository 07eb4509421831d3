package topics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/topics"
)

// quiet leaves the reverse beat out, so that orders is the only topic.
const quiet = "B->A.emit.heartbeats.enabled = false\n"

// mapping is the only one of a topic.
func (m *mappings) of(t *testing.T, topic string) topics.EventSource {
	t.Helper()
	var found []topics.EventSource
	for _, s := range m.all {
		if s.Topic == topic {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d mappings of %s, want one", len(found), topic)
	}
	return found[0]
}

func (w *world) row(topic string) state.EventSource {
	w.t.Helper()
	row, err := w.store.EventSource(w.t.Context(), topic)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		w.t.Fatal(err)
	}
	return row
}

func TestAnEventSourceIsMadeAsConfigured(t *testing.T) {
	in(t, "mirrorless.batch.size = 5000\nmirrorless.batch.window = 2000", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, nil)
		sources := newMappings()
		w.run(w.topics(with(sources), func(o *topics.Options) { o.PartialFailures, o.HeartbeatWindow = true, time.Minute }))
		want := topics.EventSourceSpec{
			Topic: "orders", Group: "mirrorless/test/A/B/orders", BatchSize: 5000, Window: 2 * time.Second, PartialFailures: true, Enabled: true,
		}
		got := sources.of(t, "orders")
		if diff := cmp.Diff(want, got.EventSourceSpec); diff != "" {
			t.Errorf("event source (-want +got):\n%s", diff)
		}
		if got := sources.of(t, "heartbeats").Window; got != time.Minute {
			t.Errorf("got window %s of heartbeats, want a minute", got)
		}
		row := state.EventSource{
			Version: 1, Topic: "orders", ID: got.ID, Group: want.Group, State: "Enabled", PartialFailures: true,
			BatchSize: 5000, Window: 2 * time.Second, Partitions: 2,
		}
		if diff := cmp.Diff(row, w.row("orders"), cmpopts.IgnoreFields(state.EventSource{}, "Updated")); diff != "" {
			t.Errorf("row (-want +got):\n%s", diff)
		}
	})
}

func TestAnEventSourceThatDriftedIsChanged(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		w.run(w.topics(with(sources)))
		sources.take()
		w.configure(quiet + "mirrorless.batch.size = 77")
		w.run(w.topics(with(sources)))
		if diff := cmp.Diff([]string{"update orders"}, sources.take()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if got := sources.of(t, "orders").BatchSize; got != 77 {
			t.Errorf("got batch size %d, want 77", got)
		}
		if got := w.row("orders").BatchSize; got != 77 {
			t.Errorf("got batch size %d in the row, want 77", got)
		}
	})
}

func TestAnEventSourceNobodyWantsIsDisabledThenDeleted(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.create(w.a, "gone", 1, nil)
		sources := newMappings()
		w.run(w.topics(with(sources)))
		sources.take()
		w.configure(quiet + "topics = orders")
		top := w.topics(with(sources))
		w.run(top)
		if got := sources.of(t, "gone"); got.Enabled || w.row("gone").State != topics.StateDisabled {
			t.Errorf("got %+v after one round, want it disabled", got)
		}
		w.run(top)
		w.run(top)
		if diff := cmp.Diff([]string{"delete gone", "update gone"}, sources.take()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if row := w.row("gone"); row.Version != 0 {
			t.Errorf("got row %+v, want none", row)
		}
		if got := w.names(w.b)["A.gone"]; got != 1 {
			t.Errorf("got %d partitions of the copy, want it kept", got)
		}
	})
}

func TestATopicThatComesBackIsEnabledAgain(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		w.run(w.topics(with(sources)))
		id := sources.of(t, "orders").ID
		w.configure(quiet + "topics = none")
		w.run(w.topics(with(sources)))
		w.configure(quiet)
		w.run(w.topics(with(sources)))
		if got := sources.of(t, "orders"); got.ID != id || !got.Enabled {
			t.Errorf("got %+v, want %s enabled", got, id)
		}
	})
}

func TestAnEventSourceOnItsWayWaits(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		sources.slow = true
		partial := func(o *topics.Options) { o.PartialFailures = true }
		top := w.topics(with(sources), partial)
		w.run(top)
		if row := w.row("orders"); row.State != "Creating" || row.PartialFailures {
			t.Errorf("got row %+v, want it Creating and not trusted with partial answers", row)
		}
		w.configure(quiet + "mirrorless.batch.size = 77")
		top = w.topics(with(sources), partial)
		w.run(top)
		if diff := cmp.Diff([]string{"create orders"}, sources.take()); diff != "" {
			t.Errorf("calls while Creating (-want +got):\n%s", diff)
		}
		sources.settle()
		w.run(top)
		if row := w.row("orders"); row.State != "Updating" {
			t.Errorf("got row %+v, want it Updating", row)
		}
		sources.settle()
		w.run(top)
		if row := w.row("orders"); row.State != "Enabled" || !row.PartialFailures || row.BatchSize != 77 {
			t.Errorf("got row %+v, want it Enabled with partial answers", row)
		}
	})
}

// order checks, whenever a mapping is changed, what mirror is told at that time.
type order struct {
	*mappings
	before func(topics.EventSourceSpec)
}

func (o order) Update(ctx context.Context, id string, spec topics.EventSourceSpec) (topics.EventSource, error) {
	o.before(spec)
	return o.mappings.Update(ctx, id, spec)
}

func TestPartialAnswersEndBeforeTheirMappingStopsReadingThem(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		w.run(w.topics(with(sources), func(o *topics.Options) { o.PartialFailures = true }))
		if !w.row("orders").PartialFailures {
			t.Fatal("got no partial answers")
		}
		seen := false
		w.run(w.topics(with(order{sources, func(topics.EventSourceSpec) { seen = w.row("orders").PartialFailures }})))
		if seen || w.row("orders").PartialFailures || sources.of(t, "orders").PartialFailures {
			t.Error("got partial answers that nobody reads")
		}
	})
}

func TestPartialAnswersEndWhereSomebodyElseSwitchedThemOff(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		partial := func(o *topics.Options) { o.PartialFailures = true }
		w.run(w.topics(with(sources), partial))
		s := sources.of(t, "orders")
		s.PartialFailures, s.State = false, "Updating"
		sources.all[s.ID] = s
		w.run(w.topics(with(sources), partial))
		if w.row("orders").PartialFailures {
			t.Error("got partial answers while the mapping is being changed to read none")
		}
	})
}

func TestASecondMappingOfATopicIsDeleted(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)
		s := sources.of(t, "orders")
		kept := s.ID
		s.ID = "id-000" // before the kept one in any order but the row's
		sources.all[s.ID] = s
		w.run(top)
		if got := sources.of(t, "orders").ID; got != kept {
			t.Errorf("got mapping %s left, want %s", got, kept)
		}
	})
}

func TestMappingsOfOthersAreLeftAlone(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		sources := newMappings()
		for i, group := range []string{"billing", "mirrorless/test/A/C/orders", "mirrorless/other/A/B/orders"} {
			id := fmt.Sprint("other-", i)
			sources.all[id] = topics.EventSource{ID: id, State: "Enabled", EventSourceSpec: topics.EventSourceSpec{Topic: "orders", Group: group, Enabled: true}}
		}
		top := w.topics(with(sources))
		w.run(top)
		w.run(top)
		if calls := sources.take(); len(calls) > 0 {
			t.Errorf("got calls %q, want none", calls)
		}
	})
}

func TestMappingsThatCannotBeListedDoNotStopTopics(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		sources.fail = func(call string) error { return errors.New("AccessDeniedException") }
		err := w.topics(with(sources)).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "list event sources: AccessDeniedException") {
			t.Errorf("got error %v", err)
		}
		if _, ok := w.position("orders", 0); !ok {
			t.Error("got no position")
		}
	})
}

func TestLongTopicsAreHashedInTheGroup(t *testing.T) {
	f := flow.Flow{Source: "A", Target: "B"}
	long := strings.Repeat("x", 249)
	a, b := topics.Group("dev", f, long), topics.Group("dev", f, long[1:]+"y")
	if len(a) > 200 || a == b || !strings.HasPrefix(a, "mirrorless/dev/A/B/") {
		t.Errorf("got groups %q and %q", a, b)
	}
	fits := strings.Repeat("x", 200-len("mirrorless/dev/A/B/"))
	if got := topics.Group("dev", f, fits); got != "mirrorless/dev/A/B/"+fits {
		t.Errorf("got group %q, want the topic in it", got)
	}
}

func TestOnlyAResultThatIsNewsIsStored(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)
		const problem = "PROBLEM: Function call failed"
		for _, step := range []struct {
			result, want string
			version      int64
		}{
			{"OK", "", 1},
			{"No records processed", "", 1},
			{problem, problem, 2},
			{problem, problem, 2},
			{"OK", "OK", 3},
			{"No records processed", "OK", 3},
		} {
			s := sources.of(t, "orders")
			s.LastResult = step.result
			sources.all[s.ID] = s
			w.run(top)
			if row := w.row("orders"); row.LastResult != step.want || row.Version != step.version {
				t.Errorf("after %q: got %q in version %d, want %q in %d", step.result, row.LastResult, row.Version, step.want, step.version)
			}
		}
	})
}

// crash makes the call with number n fail, before or after it has its effect, and
// every later one: the process is gone.
type crash struct {
	calls, at int
	after     bool
}

type crashStore struct {
	state.Store
	*crash
}

type crashSources struct {
	topics.EventSources
	*crash
}

var errCrash = errors.New("crash")

func (c *crash) step(call func() error) error {
	c.calls++
	switch {
	case c.calls > c.at, c.calls == c.at && !c.after:
		return errCrash
	case c.calls == c.at:
		_ = call()
		return errCrash
	}
	return call()
}

func step[T any](c *crash, call func() (T, error)) (out T, err error) {
	err = c.step(func() error { out, err = call(); return err })
	if errors.Is(err, errCrash) {
		return *new(T), err
	}
	return out, err
}

func (c crashStore) PutFlow(ctx context.Context, row state.FlowRow) (state.FlowRow, error) {
	return step(c.crash, func() (state.FlowRow, error) { return c.Store.PutFlow(ctx, row) })
}

func (c crashStore) Advance(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	return step(c.crash, func() (map[flow.TopicPartition]state.Position, error) { return c.Store.Advance(ctx, next) })
}

func (c crashStore) PutEventSource(ctx context.Context, s state.EventSource) (state.EventSource, error) {
	return step(c.crash, func() (state.EventSource, error) { return c.Store.PutEventSource(ctx, s) })
}

func (c crashStore) DeleteEventSource(ctx context.Context, s state.EventSource) error {
	return c.step(func() error { return c.Store.DeleteEventSource(ctx, s) })
}

func (c crashSources) Create(ctx context.Context, spec topics.EventSourceSpec) (topics.EventSource, error) {
	return step(c.crash, func() (topics.EventSource, error) { return c.EventSources.Create(ctx, spec) })
}

func (c crashSources) Update(ctx context.Context, id string, spec topics.EventSourceSpec) (topics.EventSource, error) {
	return step(c.crash, func() (topics.EventSource, error) { return c.EventSources.Update(ctx, id, spec) })
}

func (c crashSources) Delete(ctx context.Context, id string) error {
	return c.step(func() error { return c.EventSources.Delete(ctx, id) })
}

func TestACrashAtAnyCallConvergesAtTheNextRounds(t *testing.T) {
	// The story: two topics; then one is excluded and the other's batches change.
	const changed = quiet + "topics = orders\nmirrorless.batch.size = 77"
	for at := 1; ; at++ {
		calls := 0
		for _, after := range []bool{false, true} {
			in(t, quiet+latest, func(t *testing.T, w *world) {
				w.create(w.a, "orders", 2, nil)
				w.produce(w.a, "orders", 0, 5)
				w.create(w.a, "gone", 1, nil)
				time.Sleep(time.Minute)
				sources := newMappings()
				c := &crash{at: at, after: after}
				crashing := func(o *topics.Options) {
					o.Store, o.EventSources, o.PartialFailures = crashStore{w.store, c}, crashSources{sources, c}, true
				}
				sound := func(o *topics.Options) { o.EventSources, o.PartialFailures = sources, true }
				_ = w.topics(crashing).Run(t.Context())
				if c.calls >= c.at { // the next process
					w.run(w.topics(sound))
				}
				w.configure(changed + "\n" + latest)
				for range 3 {
					_ = w.topics(crashing).Run(t.Context())
				}
				calls = c.calls
				for range 3 {
					w.run(w.topics(sound))
				}
				if got := sources.of(t, "orders"); got.BatchSize != 77 || !got.Enabled || len(sources.all) != 1 {
					t.Errorf("crash at call %d, after its effect %t: got mappings %+v", at, after, sources.all)
				}
				if row := w.row("orders"); row.BatchSize != 77 || !row.PartialFailures || row.Partitions != 2 || w.row("gone").Version != 0 {
					t.Errorf("crash at call %d, after its effect %t: got rows %+v and %+v", at, after, row, w.row("gone"))
				}
				if got := []int64{w.upstream("orders", 0), w.upstream("orders", 1)}; !cmp.Equal(got, []int64{5, 0}) {
					t.Errorf("crash at call %d, after its effect %t: got orders beginning at %v, want 5 and 0", at, after, got)
				}
				sources.take()
				w.logs.take("")
				onB := w.b.changes()
				w.run(w.topics(sound))
				if calls, lines := sources.take(), w.logs.take(""); len(calls) > 0 || len(lines) > 0 || onB.Hits() > 0 {
					t.Errorf("crash at call %d, after its effect %t: got calls %q, lines %q, %d requests after it has converged", at, after, calls, lines, onB.Hits())
				}
			})
		}
		if calls < at {
			if at < 10 {
				t.Errorf("got a story of %d calls only", calls)
			}
			return
		}
		if t.Failed() {
			return
		}
	}
}
