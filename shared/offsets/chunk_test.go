package offsets_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/offsets"
)

func TestChunkIsReadBack(t *testing.T) {
	for name, runs := range map[string][]offsets.Run{
		"none":               nil,
		"one from zero":      {{0, 0, 1}},
		"one from afar":      {{1 << 40, 7, 1 << 30}},
		"markers":            {{0, 0, 100}, {101, 100, 100}, {202, 200, 1}},
		"another writer":     {{0, 0, 100}, {100, 103, 5}},
		"a gap on each side": {{5, 9, 1}, {1000, 1_000_000, 1}},
		"the largest":        {{math.MaxInt64 - 1, math.MaxInt64 - 1, 1}},
		"the longest":        {{0, 0, math.MaxInt64}},
		"a wide gap":         {{0, 0, 1}, {math.MaxInt64 - 1, 1, 1}},
	} {
		chunk := offsets.AppendChunk([]byte("x"), runs)
		got, err := offsets.ParseChunk(chunk[1:])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(runs, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestChunkJoinsRunsThatContinueEachOther(t *testing.T) {
	got, err := offsets.ParseChunk(offsets.AppendChunk(nil, []offsets.Run{{0, 0, 5}, {5, 5, 5}, {10, 10, 1}, {12, 11, 1}, {13, 12, 1}}))
	want := []offsets.Run{{0, 0, 11}, {12, 11, 2}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// The bytes are stored, so they are pinned.
func TestChunkBytes(t *testing.T) {
	got := offsets.AppendChunk(nil, []offsets.Run{{10, 0, 100}, {111, 100, 300}, {411, 402, 1}})
	want := []byte{1, 20, 100, 2, 0xac, 2, 1, 2, 1}
	if !bytes.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHostileChunksAreErrors(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	overlong := bytes.Repeat([]byte{0x80}, 11)
	for name, chunk := range map[string][]byte{
		"version 0":         {0, 0, 1},
		"truncated gap":     {1, 0x80},
		"no length":         {1, 0},
		"no downstream gap": {1, 1},
		"truncated length":  {1, 0, 0x80},
		"empty run":         {1, 0, 0},
		"second run empty":  {1, 0, 1, 2, 0},
		"joined run":        {1, 0, 1, 0, 1},
		"overlong varint":   append([]byte{1}, overlong...),
		"huge length":       append([]byte{1, 0}, huge...),
		"huge gap":          append(append([]byte{1}, huge...), 1, 1),
		"huge downstream":   append(append([]byte{1, 1}, huge...), 1),
		"sum past the end":  append(append([]byte{1}, binary.AppendUvarint(nil, math.MaxInt64<<1)...), 1),
		"second past the end": slices.Concat([]byte{1}, binary.AppendUvarint(nil, (math.MaxInt64-1)<<1), []byte{1},
			binary.AppendUvarint(nil, 2), []byte{1}),
	} {
		runs, err := offsets.ParseChunk(chunk)
		if _, ok := errors.AsType[*offsets.ChunkError](err); !ok || runs != nil {
			t.Errorf("%s: got %v, %v, want a ChunkError", name, runs, err)
		}
		var m offsets.Map
		m.Add(offsets.Run{Length: 3})
		if err := m.AddChunk(chunk); err == nil || m.Len() != 1 {
			t.Errorf("%s: the map took it", name)
		}
	}
	_, err := offsets.ParseChunk([]byte{2, 0, 1})
	if e, ok := errors.AsType[*offsets.ChunkVersionError](err); !ok || e.Version != 2 {
		t.Errorf("got %v, want a ChunkVersionError", err)
	}
}

func TestRunsOutOfOrderPanic(t *testing.T) {
	for name, runs := range map[string][]offsets.Run{
		"upstream":     {{5, 5, 2}, {6, 10, 1}},
		"downstream":   {{5, 5, 2}, {10, 6, 1}},
		"empty":        {{0, 0, 0}},
		"negative":     {{-1, 0, 1}},
		"past the end": {{math.MaxInt64, 0, 1}},
		"empty behind": {{0, 0, 1}, {5, 5, -1}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			offsets.AppendChunk(nil, runs)
		}()
	}
}

func FuzzChunk(f *testing.F) {
	f.Add(offsets.AppendChunk(nil, []offsets.Run{{10, 0, 100}, {111, 100, 300}, {411, 402, 1}}), int64(111))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 1}, int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, chunk []byte, group int64) {
		runs, err := offsets.ParseChunk(chunk)
		if err != nil {
			return
		}
		again, err := offsets.ParseChunk(offsets.AppendChunk(nil, runs))
		if err != nil || !slices.Equal(again, runs) {
			t.Fatalf("got %v, %v, want %v", again, err, runs)
		}
		var m offsets.Map
		for range 2 { // the second time nothing is new
			if err := m.AddChunk(chunk); err != nil {
				t.Fatal(err)
			}
			if got := slices.Collect(m.Runs()); !slices.Equal(got, runs) || m.Len() != len(runs) {
				t.Fatalf("the map has %d runs, %v, want %v", m.Len(), got, runs)
			}
		}
		m.Translate(group, offsets.Bounds{Next: math.MaxInt64, LogEnd: math.MaxInt64})
	})
}
