package offsets_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/offsets"
)

// row is a question that was put to MirrorMaker 2 4.3.1, and its answer.
type row[In, Out any] struct {
	ID  string `json:"id"`
	In  In     `json:"in"`
	Out Out    `json:"out"`
}

func suite[In, Out any](t *testing.T, id string) []row[In, Out] {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", id+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Rows []row[In, Out] }
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatalf("read suite %s: %v", id, err)
	}
	if len(s.Rows) == 0 {
		t.Fatalf("suite %s has no rows", id)
	}
	return s.Rows
}

func syncOf(pair [2]int64) offsets.Sync {
	return offsets.Sync{Upstream: pair[0], Downstream: pair[1]}
}

func TestStoreTranslatesAsKafkaDoes(t *testing.T) {
	type in struct {
		Name     string
		Startup  [][2]int64 `json:"startup_syncs"`
		OnlyLast bool       `json:"initialization_must_read_to_end"`
		Live     [][2]int64 `json:"live_syncs"`
	}
	type out struct {
		AfterStartup [][3]int64   `json:"state_after_startup"`
		AfterEach    [][][3]int64 `json:"state_after_each_live_sync"`
		Final        [][3]int64   `json:"final_state"`
		Translations [][2]*int64
	}
	for _, r := range suite[in, out](t, "checkpoint.offset_sync_store") {
		t.Run(r.ID+" "+r.In.Name, func(t *testing.T) {
			s := offsets.Store64{OnlyLast: r.In.OnlyLast}
			for _, sync := range r.In.Startup {
				s.Add(syncOf(sync))
			}
			if _, ok := s.Translate(1 << 40); ok {
				t.Error("the store translates before it has read to the end")
			}
			s.ReadToEnd()
			state(t, "after startup", &s, r.Out.AfterStartup)
			for i, sync := range r.In.Live {
				s.Add(syncOf(sync))
				if r.Out.AfterEach != nil {
					state(t, "after a live sync", &s, r.Out.AfterEach[i])
				}
			}
			state(t, "in the end", &s, r.Out.Final)
			for _, tr := range r.Out.Translations {
				got, ok := s.Translate(*tr[0])
				switch want := tr[1]; {
				case want == nil && ok, want != nil && (!ok || got != *want):
					t.Errorf("translate %d: got %d, %v, want %v", *tr[0], got, ok, want)
				}
			}
		})
	}
}

// state compares the slots, shown as [first index, upstream, downstream].
func state(t *testing.T, when string, s *offsets.Store64, want [][3]int64) {
	t.Helper()
	if want == nil {
		return
	}
	if diff := cmp.Diff(want, offsets.Slots(s)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

type answer struct {
	Raw        *int64 `json:"raw_translation"`
	Checkpoint *int64 `json:"checkpoint_downstream"`
}

// ask puts a committed offset to the store and compares with what MirrorMaker 2
// answered; it returns the last checkpoint emitted.
func ask(t *testing.T, id string, s *offsets.Store64, group int64, last *offsets.Sync, want answer) *offsets.Sync {
	t.Helper()
	raw, ok := s.Translate(group)
	if want.Raw != nil && (!ok || raw != *want.Raw) {
		t.Errorf("%s: group at %d translates to %d, %v, want %d", id, group, raw, ok, *want.Raw)
	}
	next, emitted := s.NextCheckpoint(group, last)
	switch {
	case emitted != (want.Checkpoint != nil):
		t.Errorf("%s: group at %d: emitted %v, want %v", id, group, emitted, want.Checkpoint)
	case emitted && (next.Downstream != *want.Checkpoint || next.Upstream != group):
		t.Errorf("%s: group at %d: got %+v, want %d", id, group, next, *want.Checkpoint)
	}
	if emitted {
		return &next
	}
	return last
}

func TestCheckpointsFollowEventsAsKafkaDoes(t *testing.T) {
	type event struct {
		Event                string
		Upstream, Downstream int64
	}
	type in struct {
		Name   string
		Events []event
	}
	type out struct {
		PerEvent []*answer `json:"per_event"`
	}
	for _, r := range suite[in, out](t, "checkpoint.sequence") {
		var s offsets.Store64
		s.ReadToEnd()
		var last *offsets.Sync
		for i, e := range r.In.Events {
			switch e.Event {
			case "offset_sync":
				s.Add(offsets.Sync{Upstream: e.Upstream, Downstream: e.Downstream})
			case "group_commit_seen":
				want := r.Out.PerEvent[i]
				if _, ok := s.Translate(e.Upstream); want.Raw == nil && ok {
					t.Errorf("%s: event %d translates", r.ID, i)
				}
				last = ask(t, r.ID, &s, e.Upstream, last, *want)
			default:
				t.Fatalf("unknown event %q", e.Event)
			}
		}
	}
}

func TestCheckpointsFollowARestartAsKafkaDoes(t *testing.T) {
	type in struct {
		Before [][2]int64 `json:"syncs_before"`
		After  [][2]int64 `json:"syncs_after_restart"`
		Loaded *[2]int64  `json:"loaded_checkpoint"`
		Group  int64      `json:"group_offset"`
	}
	for _, r := range suite[in, answer](t, "checkpoint.restart") {
		// Checkpoints were loaded, so the history of the topic is kept.
		var s offsets.Store64
		var last *offsets.Sync
		for _, sync := range append(slices.Clone(r.In.Before), r.In.After...) {
			s.Add(syncOf(sync))
		}
		s.ReadToEnd()
		if r.In.Loaded != nil {
			last = new(syncOf(*r.In.Loaded))
		}
		ask(t, r.ID, &s, r.In.Group, last, r.Out)
	}
}

func TestSyncsAreDueAsInKafka(t *testing.T) {
	type in struct {
		Name     string
		MaxLag   int64 `json:"offset.lag.max"`
		Sequence json.RawMessage
		Reset    *bool `json:"reset_after_emit"`
	}
	type out struct {
		Emit       []bool
		EmittedAt  []int64 `json:"emitted_at_upstream"`
		LastSyncAt []int64 `json:"last_sync_downstream"`
	}
	for _, r := range suite[in, out](t, "source.partition_state") {
		var sequence [][2]int64
		if json.Unmarshal(r.In.Sequence, &sequence) != nil { // "dense 0..404, downstream = upstream"
			for i := range int64(405) {
				sequence = append(sequence, [2]int64{i, i})
			}
		}
		rule := offsets.SyncRule{MaxLag: r.In.MaxLag}
		var got out
		var last int64
		for _, record := range sequence {
			due := rule.Update(syncOf(record))
			if due {
				last = record[1]
				got.EmittedAt = append(got.EmittedAt, record[0])
				if r.In.Reset == nil || *r.In.Reset {
					rule.Sent()
				}
			}
			got.Emit = append(got.Emit, due)
			got.LastSyncAt = append(got.LastSyncAt, last)
		}
		if r.Out.Emit == nil {
			got.Emit = nil
		}
		if r.Out.EmittedAt == nil {
			got.EmittedAt = nil
		}
		if r.Out.LastSyncAt == nil {
			got.LastSyncAt = nil
		}
		if diff := cmp.Diff(r.Out, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", r.ID, r.In.Name, diff)
		}
	}
}
