package mirror_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/flow"
	"mirrorless/shared/mirror"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// withoutSource returns a Mirror that can tell a topic by its copy only.
func (w *world) withoutSource() *mirror.Mirror {
	return mirror.New(mirror.Options{Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}), DeadLetters: w.b})
}

// A dead letter has no copy, which says nothing of the topic.
func TestWithoutTheSourceADeadLetterThatComesAgainIsNoNewTopic(t *testing.T) {
	w := newWorld(t, "errors.tolerance = all", "errors.deadletterqueue.topic.name = letters")
	w.deadLetters(nil)
	rs := w.poisoned(0, 10, 4)
	w.must(w.withoutSource(), rs)
	w.must(w.withoutSource(), rs[:5])  // ends with the dead letter
	w.must(w.withoutSource(), rs[4:5]) // is nothing else
	if diff := cmp.Diff(without(keysOf(0, 10), "k4"), w.keys()); diff != "" {
		t.Errorf("keys on B (-want +got):\n%s", diff)
	}
	if got := w.position(); got.Upstream != 10 {
		t.Errorf("got position %d, want 10", got.Upstream)
	}
}

// Where nothing is left to compare with, a guess would lose records or double them.
func TestWithoutTheSourceRecordsWhoseCopiesAreUnknownStopThePartition(t *testing.T) {
	w := newWorld(t)
	w.must(w.withoutSource(), numbered(0, 10))
	pos := w.position()
	pos.Runs = offsets.AppendChunk(nil, []offsets.Run{{Upstream: 5, Downstream: 5, Length: 5}}) // the rest has expired
	if _, err := w.store.Rewind(t.Context(), map[flow.TopicPartition]state.Position{orders0: pos}); err != nil {
		t.Fatal(err)
	}
	_, err := handle(w.withoutSource(), numbered(0, 5))
	if want := "no copy is left on B to tell whether topic orders is still the same: let mirror reach cluster A"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
	w.must(w.withoutSource(), numbered(3, 12)) // ends with what can be compared
	w.wantKeys(0, 12)
}

// meddling lets somebody else store a position before the first write.
type meddling struct {
	state.Store
	before func()
}

func (m *meddling) Advance(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	if before := m.before; before != nil {
		m.before = nil
		before()
	}
	return m.Store.Advance(ctx, next)
}

func TestAnEpochThatAnotherInvocationWasFasterWithLeavesNoGap(t *testing.T) {
	w := newWorld(t)
	w.must(w.cold(), numbered(0, 1)) // the topic's first position
	w.broken.fail(context.DeadlineExceeded, nil)
	if _, err := handle(w.cold(), numbered(1, 5)); err == nil {
		t.Fatal("got no error, want the store's")
	}
	store := &meddling{Store: w.store}
	store.before = func() { w.must(w.cold(), numbered(1, 3)) }
	var records int64
	m := mirror.New(mirror.Options{
		Settings: w.settings, Store: store, Target: target.New(w.b, target.Options{}),
		Observe: func(r mirror.Report) { records += r.Partitions[0].Records },
	})
	w.must(m, numbered(1, 10))
	w.wantKeys(0, 10)
	if store.before != nil {
		t.Error("nobody stored a position before the first write")
	}
	if records != 7 {
		t.Errorf("got %d records counted, want the 7 that the other one had not", records)
	}
	holes, err := w.store.Holes(t.Context())
	if err != nil || len(holes) > 0 {
		t.Errorf("got holes %v, %v; want none", holes, err)
	}
	runs, err := offsets.ParseChunk(w.position().Runs)
	if want := []offsets.Run{{Length: 10}}; err != nil || !cmp.Equal(runs, want) {
		t.Errorf("got runs %v, %v; want %v", runs, err, want)
	}
}
