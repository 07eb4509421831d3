package offsets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// chunkVersion begins every chunk.
const chunkVersion = 1

// ChunkVersionError is returned by [ParseChunk] for a chunk that a newer version
// of this program wrote. It must not be overwritten.
type ChunkVersionError struct{ Version byte }

func (e *ChunkVersionError) Error() string {
	return fmt.Sprintf("parse run chunk: version %d is newer than %d", e.Version, chunkVersion)
}

// ChunkError is returned by [ParseChunk] for bytes that are no chunk.
type ChunkError struct {
	Offset int // of the run at fault, in bytes
	Err    error
}

func (e *ChunkError) Error() string {
	return fmt.Sprintf("parse run chunk at byte %d: %v", e.Offset, e.Err)
}

// Unwrap is what is wrong.
func (e *ChunkError) Unwrap() error { return e.Err }

var (
	errRunTruncated = errors.New("a run is truncated")
	errRunRange     = errors.New("an offset is out of range")
	errRunEmpty     = errors.New("a run has no records")
	errRunJoined    = errors.New("a run continues the one before it")
)

// AppendChunk appends runs, packed, to dst; no runs take no bytes. Runs must be
// in order, upstream and downstream; a run that continues the one before it
// becomes part of it. Runs that are not in order are a programmer's mistake, and
// panic; those of a [Map] or of a chunk are in order.
//
// A chunk is a version byte, then of each run three varints: the upstream gap to
// the end of the run before it (to 0 for the first), doubled, odd if a downstream
// gap follows; that gap; the length. A transaction marker every hundred records
// costs two bytes a run.
func AppendChunk(dst []byte, runs []Run) []byte {
	if len(runs) == 0 {
		return dst
	}
	dst = append(dst, chunkVersion)
	var from edge
	last := runs[0]
	last.check()
	for _, r := range runs[1:] {
		r.check()
		end := last.end()
		if r.Upstream < end.upstream || r.Downstream < end.downstream {
			panic(fmt.Sprintf("offsets: %+v does not come after %+v", r, last))
		}
		if (edge{r.Upstream, r.Downstream}) == end {
			last.Length += r.Length
			continue
		}
		dst = appendRun(dst, from, last)
		from, last = end, r
	}
	return appendRun(dst, from, last)
}

// ParseChunk unpacks what [AppendChunk] packed. Nothing is an empty chunk. It is
// safe for any bytes, and what it returns is always in order.
func ParseChunk(chunk []byte) ([]Run, error) {
	var runs []Run
	err := eachRun(chunk, func(r Run) {
		if runs == nil {
			runs = make([]Run, 0, len(chunk)/3+1)
		}
		runs = append(runs, r)
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// eachRun calls f with every run of a chunk, until one is at fault.
func eachRun(chunk []byte, f func(Run)) error {
	if len(chunk) == 0 {
		return nil
	}
	switch v := chunk[0]; {
	case v > chunkVersion:
		return &ChunkVersionError{Version: v}
	case v < chunkVersion:
		return &ChunkError{Err: fmt.Errorf("unknown version %d", v)}
	}
	var from edge
	for at := 1; at < len(chunk); {
		r, n, err := readRun(chunk[at:], from)
		if err == nil && at > 1 && (edge{r.Upstream, r.Downstream}) == from {
			err = errRunJoined
		}
		if err != nil {
			return &ChunkError{Offset: at, Err: err}
		}
		f(r)
		from, at = r.end(), at+n
	}
	return nil
}

// appendRun packs r, which comes after from.
func appendRun(dst []byte, from edge, r Run) []byte {
	gap := uint64(r.Upstream-from.upstream) << 1
	if behind := r.Downstream - from.downstream; behind != 0 {
		dst = binary.AppendUvarint(dst, gap|1)
		dst = binary.AppendUvarint(dst, uint64(behind))
	} else {
		dst = binary.AppendUvarint(dst, gap)
	}
	return binary.AppendUvarint(dst, uint64(r.Length))
}

// readRun unpacks a run that comes after from, and says how many bytes it took.
func readRun(b []byte, from edge) (Run, int, error) {
	n := 0
	var err error
	next := func() uint64 {
		v, size := binary.Uvarint(b[n:])
		if size <= 0 && err == nil {
			err = errRunTruncated
			if size < 0 {
				err = errRunRange
			}
		}
		n += max(size, 0)
		return v
	}
	head := next()
	var behind uint64
	if head&1 != 0 {
		behind = next()
	}
	length := next()
	if err != nil {
		return Run{}, 0, err
	}
	if length == 0 {
		return Run{}, 0, errRunEmpty
	}
	// Every sum below fits 64 bits, if not as an offset.
	up, down := uint64(from.upstream)+head>>1, uint64(from.downstream)+behind
	if behind > math.MaxInt64 || length > math.MaxInt64 ||
		up > math.MaxInt64-length || down > math.MaxInt64-length {
		return Run{}, 0, errRunRange
	}
	return Run{Upstream: int64(up), Downstream: int64(down), Length: int64(length)}, n, nil
}
