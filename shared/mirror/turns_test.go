package mirror_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/flow"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/target"
)

// second returns another deployment of the flow, with a state of its own that knows
// of no copy, as after topics has taken over what is there.
func (w *world) second() *world {
	w.t.Helper()
	file, err := embedded.Open(filepath.Join(w.t.TempDir(), "second.db"), embedded.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { file.Close() })
	store, err := file.Store(w.settings.Flow)
	if err != nil {
		w.t.Fatal(err)
	}
	first := state.Position{ProducerID: target.Unknown, SourceTopicID: w.id(w.a, "orders"), TargetTopicID: w.id(w.b, "A.orders")}
	if _, err := store.Advance(w.t.Context(), map[flow.TopicPartition]state.Position{orders0: first}); err != nil {
		w.t.Fatal(err)
	}
	other := *w
	other.store = store
	return &other
}

func TestDeploymentsThatTakeTurnsCopyNothingTwice(t *testing.T) {
	w := newWorld(t)
	other := w.second()
	w.must(w.cold(), numbered(0, 10))
	other.must(other.cold(), numbered(0, 10))
	other.must(other.cold(), numbered(10, 30))
	w.wantKeys(0, 30)

	// The first one comes back, and its event source goes on where it was: with what
	// was copied, in several batches, and more.
	back := w.cold()
	w.must(back, numbered(10, 18))
	w.must(back, numbered(18, 40))
	w.must(back, numbered(40, 45))
	w.wantKeys(0, 45)
	if got := w.position(); got.Upstream != 45 || got.Downstream != 45 || got.Copied != 45 {
		t.Errorf("got position %+v, want 45 records copied to offsets 0 to 44", got)
	}

	// So does the other one, and then the first one again, after a rest in which it
	// kept its memory.
	other.must(other.cold(), numbered(30, 60))
	w.wantKeys(0, 60)
	later := time.Now()
	rested := mirror.New(mirror.Options{
		Settings: w.settings, Store: w.store, Target: target.New(w.b, target.Options{}), Source: w.a,
		Now: func() time.Time { return later },
	})
	w.must(rested, numbered(45, 61))
	other.must(other.cold(), numbered(60, 70))
	later = later.Add(2 * time.Minute)
	w.must(rested, numbered(61, 80))
	w.wantKeys(0, 80)
}

// TestWhatAnotherApplicationWritesIsNoTurn also lets a record be there that only
// looks like one to be copied.
func TestWhatAnotherApplicationWritesIsNoTurn(t *testing.T) {
	w := newWorld(t)
	w.must(w.cold(), numbered(0, 5))
	foreign := []*kgo.Record{
		{Topic: "A.orders", Partition: 0, Key: []byte("mine"), Value: []byte("x")},
		{Topic: "A.orders", Partition: 0, Key: []byte("k5"), Value: []byte("v5"), Timestamp: time.UnixMilli(begun + 4)},
	}
	writer, err := kgo.NewClient(kgo.SeedBrokers(w.b.OptValue(kgo.SeedBrokers).([]string)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.ProduceSync(t.Context(), foreign...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w.must(w.cold(), numbered(5, 9))
	want := append(append(keysOf(0, 5), "mine", "k5"), keysOf(5, 9)...)
	if diff := cmp.Diff(want, w.keys()); diff != "" {
		t.Errorf("keys on B (-want +got):\n%s", diff)
	}
}

// TestWhatExpiredBehindThePositionIsNoObstacle: records with old timestamps are gone
// within minutes, also those that an attempt has appended and could not remember.
func TestWhatExpiredBehindThePositionIsNoObstacle(t *testing.T) {
	w := newWorld(t)
	w.must(w.cold(), numbered(0, 5))
	w.broken.fail(errors.New("throttled"), nil)
	if _, err := handle(w.cold(), numbered(5, 9)); err == nil {
		t.Fatal("got no error, want that of the store")
	}
	expired := kadm.Offsets{}
	expired.AddOffset("A.orders", 0, 9, -1)
	if _, err := kadm.NewClient(w.b).DeleteRecords(t.Context(), expired); err != nil {
		t.Fatal(err)
	}
	w.must(w.cold(), numbered(5, 12))
	if got := w.position(); got.Upstream != 12 || got.Downstream != 16 {
		t.Errorf("got position %+v, want upstream 12 behind four records that expired", got)
	}
}
