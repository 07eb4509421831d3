package checkpoint_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/mm2"
	"mirrorless/shared/state"
)

const compat = "mirrorless.compat = mm2"

// The suite holds what MirrorMaker 2 4.3.1 emitted after a sequence of offset
// syncs and commits. Here a sync is the record of that pair being copied, with
// holes around it, so that each is due.
func TestEmitsAsMirrorMakerDoes(t *testing.T) {
	var suite struct {
		Rows []struct {
			ID string
			In struct {
				Name   string
				Topic  string
				Events []struct {
					Event                string
					Upstream, Downstream int64
				}
			}
			Out struct {
				Events []*struct {
					Checkpoint *int64 `json:"checkpoint_downstream"`
				} `json:"per_event"`
			}
		}
	}
	text, err := os.ReadFile("testdata/checkpoint.sequence.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &suite); err != nil {
		t.Fatal(err)
	}
	if len(suite.Rows) == 0 {
		t.Fatal("the suite has no rows")
	}
	for _, row := range suite.Rows {
		t.Run(row.ID+" "+row.In.Name, func(t *testing.T) {
			w := newWorld(t, compat, "offset.lag.max = 0")
			w.topic("orders", 1, 0)
			var want, got []*int64
			for i, event := range row.In.Events {
				if event.Event == "offset_sync" {
					end := w.position(orders).Downstream
					if event.Downstream < end {
						t.Fatal("the suite wants offsets of the target to go back")
					}
					w.b.produce(t, w.remote(orders), int(event.Downstream-end))
					w.copied(orders, event.Upstream)
					continue
				}
				w.a.commit(t, "g", orders, event.Upstream, "")
				before := len(w.checkpoints())
				w.mustRound()
				var emitted *int64
				if all := w.checkpoints(); len(all) > before {
					emitted = &all[before].Downstream
				}
				got = append(got, emitted)
				want = append(want, row.Out.Events[i].Checkpoint)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("checkpoints (-want +got):\n%s", diff)
			}
		})
	}
}

// A hundred dense records, a group in the middle: MirrorMaker 2 knows the first
// record and the last.
func TestCompatTranslatesBySampledSyncs(t *testing.T) {
	w := newWorld(t, compat)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 100)...)
	w.a.commit(t, "g", orders, 50, "")
	w.mustRound()
	w.restart()
	w.mustRound() // emits nothing new
	if diff := cmp.Diff(one("g", 50, 1), w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

// With the whole map in chunks of the store, and after the partition was rewound.
func TestCompatReadsTheWholeMap(t *testing.T) {
	w := newWorld(t, compat)
	w.topic("orders", 1, 0)
	w.copied(orders, 0, 1, 2, 10, 11, 20)
	w.spill(orders)
	w.restart()
	w.a.commit(t, "g", orders, 10, "")
	w.mustRound()
	w.runs[orders] = nil
	if err := w.store.DeleteRuns(t.Context(), orders, 0, 100); err != nil {
		t.Fatal(err)
	}
	w.advance(orders, func(pos *state.Position) { pos.Upstream, pos.Runs = 0, nil })
	w.copied(orders, upTo(0, 5)...)
	w.a.commit(t, "g", orders, 4, "")
	w.mustRound()
	want := []mm2.Checkpoint{one("g", 10, 3)[0], one("g", 4, 10)[0]}
	if diff := cmp.Diff(want, w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}
