package row

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"mirrorless/shared/state"
)

// AppendPosition packs a whole position: about 70 bytes and its runs.
func AppendPosition(dst []byte, p state.Position) []byte {
	dst = append(dst, Schema)
	dst = binary.AppendVarint(dst, p.Version)
	dst = binary.AppendVarint(dst, p.Upstream)
	dst = append(dst, p.SourceTopicID[:]...)
	dst = append(dst, p.TargetTopicID[:]...)
	return appendRest(dst, p)
}

// Position is the inverse of AppendPosition; key names the partition in errors.
func Position(key string, data []byte) (state.Position, error) {
	r, err := open(KindPosition, key, data)
	if err != nil {
		return state.Position{}, err
	}
	p := state.Position{
		Version:       r.within(1, math.MaxInt64),
		Upstream:      r.int64(),
		SourceTopicID: r.topicID(),
		TargetTopicID: r.topicID(),
	}
	r.part(&p)
	if err := r.done(KindPosition, key); err != nil {
		return state.Position{}, err
	}
	return p, nil
}

// A TopicRef stands for the topic ids of a position: sixteen partitions of a topic
// have the same, and their block keeps them once. Zero stands for no ids.
type TopicRef [4]byte

// Ref returns the reference of p's topic ids and what it stands for.
func Ref(p state.Position) (ref TopicRef, ids []byte) {
	if p.SourceTopicID == (state.TopicID{}) && p.TargetTopicID == (state.TopicID{}) {
		return ref, nil
	}
	ids = append(p.SourceTopicID[:], p.TargetTopicID[:]...)
	sum := sha256.Sum256(ids)
	copy(ref[:], sum[:])
	return ref, ids
}

// AppendPart packs what a position block does not keep beside it: all but the
// version, the upstream offset and the topic ids. About 25 bytes and the runs, so
// that sixteen positions without gaps fit the kilobyte by which DynamoDB counts.
func AppendPart(dst []byte, p state.Position) []byte {
	ref, _ := Ref(p)
	dst = append(dst, Schema)
	dst = append(dst, ref[:]...)
	return appendRest(dst, p)
}

// Part is the inverse of AppendPart. topicIDs returns what a reference stands for,
// nil if that is unknown.
func Part(key string, data []byte, version, upstream int64, topicIDs func(TopicRef) []byte) (state.Position, error) {
	r, err := open(KindPosition, key, data)
	if err != nil {
		return state.Position{}, err
	}
	p := state.Position{Version: version, Upstream: upstream}
	if version < 1 {
		return state.Position{}, corrupt(KindPosition, key, errNumber)
	}
	if ref := r.ref(); ref != (TopicRef{}) {
		ids := topicIDs(ref)
		if len(ids) != len(p.SourceTopicID)+len(p.TargetTopicID) {
			return state.Position{}, corrupt(KindPosition, key, errTopicIDs)
		}
		copy(p.SourceTopicID[:], ids)
		copy(p.TargetTopicID[:], ids[len(p.SourceTopicID):])
	}
	r.part(&p)
	if err := r.done(KindPosition, key); err != nil {
		return state.Position{}, err
	}
	return p, nil
}

// appendRest keeps offsets as differences, which are small. They wrap around, so
// any numbers come back.
func appendRest(dst []byte, p state.Position) []byte {
	for _, v := range [...]int64{
		p.First, p.Downstream - p.Upstream, p.ProducerID, int64(p.Epoch),
		int64(p.Sequence), p.Newest, p.Copied - (p.Upstream - p.First),
	} {
		dst = binary.AppendVarint(dst, v)
	}
	return append(dst, p.Runs...)
}

// part is the inverse of appendRest.
func (r *reader) part(p *state.Position) {
	p.First = r.int64()
	p.Downstream = r.int64() + p.Upstream
	p.ProducerID = r.int64()
	p.Epoch = int16(r.within(math.MinInt16, math.MaxInt16))
	p.Sequence = int32(r.within(math.MinInt32, math.MaxInt32))
	p.Newest = r.int64()
	p.Copied = r.int64() + (p.Upstream - p.First)
	p.Runs = r.tail()
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
