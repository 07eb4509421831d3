package row

import (
	"encoding/binary"
	"math"

	"mirrorless/shared/state"
)

// AppendPosition packs a position: about 70 bytes and its runs.
func AppendPosition(dst []byte, p state.Position) []byte {
	dst = append(dst, Schema)
	for _, v := range [...]int64{
		p.Version, p.First, p.Upstream, p.Downstream, p.ProducerID,
		int64(p.Epoch), int64(p.Sequence), p.Newest, p.Copied,
	} {
		dst = binary.AppendVarint(dst, v)
	}
	dst = append(dst, p.SourceTopicID[:]...)
	dst = append(dst, p.TargetTopicID[:]...)
	return append(dst, p.Runs...)
}

// Position is the inverse of AppendPosition; key names the partition in errors.
func Position(key string, data []byte) (state.Position, error) {
	r, err := open(KindPosition, key, data)
	if err != nil {
		return state.Position{}, err
	}
	p := state.Position{
		Version:       r.within(1, math.MaxInt64),
		First:         r.int64(),
		Upstream:      r.int64(),
		Downstream:    r.int64(),
		ProducerID:    r.int64(),
		Epoch:         int16(r.within(math.MinInt16, math.MaxInt16)),
		Sequence:      int32(r.within(math.MinInt32, math.MaxInt32)),
		Newest:        r.int64(),
		Copied:        r.int64(),
		SourceTopicID: r.topicID(),
		TargetTopicID: r.topicID(),
		Runs:          r.tail(),
	}
	if err := r.done(KindPosition, key); err != nil {
		return state.Position{}, err
	}
	return p, nil
}

// AppendChunk packs a run chunk without its First, which is its key.
func AppendChunk(dst []byte, c state.RunChunk) []byte {
	dst = append(dst, Schema)
	dst = binary.AppendVarint(dst, c.Next)
	return append(dst, c.Data...)
}

// Chunk is the inverse of AppendChunk.
func Chunk(key string, first int64, data []byte) (state.RunChunk, error) {
	r, err := open(KindRuns, key, data)
	if err != nil {
		return state.RunChunk{}, err
	}
	c := state.RunChunk{First: first, Next: r.int64(), Data: r.tail()}
	if err := r.done(KindRuns, key); err != nil {
		return state.RunChunk{}, err
	}
	return c, nil
}

// AppendCheckpoint packs a checkpoint without its group and partition, which are
// its key.
func AppendCheckpoint(dst []byte, c state.Checkpoint) []byte {
	dst = append(dst, Schema)
	for _, v := range [...]int64{c.Upstream, c.Downstream, Millis(c.Written)} {
		dst = binary.AppendVarint(dst, v)
	}
	return append(dst, c.Metadata...)
}

// Checkpoint is the inverse of AppendCheckpoint.
func Checkpoint(key string, data []byte) (state.Checkpoint, error) {
	r, err := open(KindCheckpoint, key, data)
	if err != nil {
		return state.Checkpoint{}, err
	}
	c := state.Checkpoint{
		Upstream:   r.int64(),
		Downstream: r.int64(),
		Written:    Time(r.int64()),
		Metadata:   string(r.tail()),
	}
	if err := r.done(KindCheckpoint, key); err != nil {
		return state.Checkpoint{}, err
	}
	return c, nil
}

// AppendFlushed packs a Flushed.
func AppendFlushed(dst []byte, f state.Flushed) []byte {
	dst = append(dst, Schema)
	dst = binary.AppendVarint(dst, f.Sync)
	return binary.AppendVarint(dst, f.Position)
}

// Flushed is the inverse of AppendFlushed.
func Flushed(key string, data []byte) (state.Flushed, error) {
	r, err := open(KindFlushed, key, data)
	if err != nil {
		return state.Flushed{}, err
	}
	f := state.Flushed{Sync: r.int64(), Position: r.int64()}
	if err := r.done(KindFlushed, key); err != nil {
		return state.Flushed{}, err
	}
	return f, nil
}
