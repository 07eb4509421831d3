// Package offsets translates offsets of a source partition into offsets of its
// copy, exactly.
//
// Copying is mostly contiguous, so a [Map] keeps [Run] values: a new one only
// where the difference between the two offsets changes. What is copied is added
// as it is appended on the target, and offsets that groups have committed on the
// source are translated:
//
//	var m offsets.Map
//	m.Add(offsets.Run{Upstream: 1000, Downstream: 0, Length: 50})
//	m.Add(offsets.Run{Upstream: 1051, Downstream: 50, Length: 10}) // 1050 is a marker
//	down, ok := m.Translate(1050, offsets.Bounds{
//		First: 1000, Next: 1061, End: 60, LogStart: 0, LogEnd: 60,
//	}) // 50, true
//
// [AppendChunk] packs runs into a few bytes each, for a store; [Map.AddChunk]
// reads them back.
//
// [Store64] and [SyncRule] are what MirrorMaker 2 has in place of the map: 64
// sampled pairs. They are for mirrorless.compat = mm2.
//
// The package does not know where a partition's bounds come from, and keeps
// nothing.
package offsets

import (
	"iter"
	"sort"
)

// blockRuns is the number of packed runs that a lookup may have to unpack.
const blockRuns = 64

// Map is the runs of one partition, in order. The zero Map is empty and ready. A
// run takes about four bytes, and finding one takes a binary search and a short
// walk. A Map may be read by many at a time, and written by one.
type Map struct {
	packed []byte  // all runs but the last
	blocks []block // one for every blockRuns of them
	closed int     // how many there are in packed
	from   edge    // the end of the last packed run

	last Run // the run that may still grow; none if Length is 0
}

// block is where every blockRuns-th packed run begins.
type block struct {
	from edge // the end of the run before it
	at   int  // in packed
}

// Len is the number of runs.
func (m *Map) Len() int {
	if m.last.Length == 0 {
		return 0
	}
	return m.closed + 1
}

// Add adds a run that was copied. A run that goes on where the last one ends
// makes it longer. What the map holds already is passed over, so the same
// chunk may be added twice.
//
// Where r contradicts the map, r is right, and every run from there on is
// dropped: the target has lost those copies, and the records are copied again.
// That includes runs whose downstream offsets are at or behind r's.
func (m *Map) Add(r Run) {
	r.check()
	if end := m.last.end(); m.last.Length == 0 || r.Upstream >= end.upstream && r.Downstream >= end.downstream {
		m.append(r)
		return
	}
	// The run that holds r's first record says where it has its copy.
	held, ok := m.find(r.Upstream)
	if ok && held.Upstream <= r.Upstream && held.Downstream-held.Upstream == r.Downstream-r.Upstream {
		known := held.end().upstream - r.Upstream
		if r.Length > known {
			m.Add(Run{r.Upstream + known, r.Downstream + known, r.Length - known})
		}
		return
	}
	m.cut(edge{r.Upstream, r.Downstream})
	m.append(r)
}

// AddChunk adds the runs of a packed chunk; see [ParseChunk] for its errors. With
// an error nothing is added.
func (m *Map) AddChunk(chunk []byte) error {
	if err := eachRun(chunk, func(Run) {}); err != nil {
		return err
	}
	return eachRun(chunk, m.Add)
}

// Runs iterates over the runs in order.
func (m *Map) Runs() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		from, at := edge{}, 0
		for at < len(m.packed) {
			r, n := m.read(at, from)
			if !yield(r) {
				return
			}
			from, at = r.end(), at+n
		}
		if m.last.Length > 0 {
			yield(m.last)
		}
	}
}

// Bounds is what a translation needs to know of a partition besides its runs.
type Bounds struct {
	First    int64 // upstream offset that copying began with
	Next     int64 // upstream offset that is copied next; everything before it is done
	End      int64 // downstream position after the last copied record
	LogStart int64 // first offset that the target's log still holds
	LogEnd   int64 // the target's log end
}

// Translate says where on the target a group goes on that has committed the
// upstream offset group on the source. That is the copy of the first record at or
// after it; where no such record is copied, because the group has read all there
// is or is ahead of the copy, it is the end of what is copied. The answer lies
// within the target's log, whatever the map says, so that no client resets.
//
// ok is false where copying began after the group's offset: nothing is known of
// the records that it has yet to read.
func (m *Map) Translate(group int64, b Bounds) (downstream int64, ok bool) {
	if group < b.First || group < 0 {
		return 0, false
	}
	downstream = b.End
	if group < b.Next {
		// A chunk is stored before the position, so the map may know of records that
		// the position does not vouch for.
		if r, found := m.find(group); found && r.Upstream < b.Next {
			downstream = r.Downstream + max(group-r.Upstream, 0)
		}
	}
	return max(min(downstream, b.LogEnd), b.LogStart), true
}

// Copy is where the copy of the record at an upstream offset is. ok is false where
// the map knows of none.
func (m *Map) Copy(upstream int64) (downstream int64, ok bool) {
	r, found := m.find(upstream)
	if !found || r.Upstream > upstream {
		return 0, false
	}
	return r.Downstream + upstream - r.Upstream, true
}

// find is the first run that ends after an upstream offset.
func (m *Map) find(upstream int64) (Run, bool) {
	if m.last.end().upstream <= upstream {
		return Run{}, false
	}
	if m.from.upstream > upstream {
		// The run sought is packed, in the last block that begins at or before it.
		i := sort.Search(len(m.blocks), func(i int) bool { return m.blocks[i].from.upstream > upstream }) - 1
		from, at := m.blocks[max(i, 0)].from, m.blocks[max(i, 0)].at
		for at < len(m.packed) {
			r, n := m.read(at, from)
			if r.end().upstream > upstream {
				return r, true
			}
			from, at = r.end(), at+n
		}
	}
	return m.last, m.last.Length > 0
}

// append adds a run behind all others.
func (m *Map) append(r Run) {
	switch end := m.last.end(); {
	case m.last.Length == 0:
		m.last = r
	case end == edge{r.Upstream, r.Downstream}:
		m.last.Length += r.Length
	default:
		if m.closed%blockRuns == 0 {
			m.blocks = append(m.blocks, block{from: m.from, at: len(m.packed)})
		}
		m.packed = appendRun(m.packed, m.from, m.last)
		m.closed++
		m.from, m.last = end, r
	}
}

// cut drops every record at or behind an upstream or a downstream offset.
func (m *Map) cut(at edge) {
	// All runs of the blocks before i end before both; one block more is walked, so
	// that a run is left to be the last one.
	i := sort.Search(len(m.blocks), func(i int) bool {
		from := m.blocks[i].from
		return from.upstream > at.upstream || from.downstream > at.downstream
	}) - 2
	var kept Map
	var from edge
	var pos int
	if i > 0 {
		from, pos = m.blocks[i].from, m.blocks[i].at
		kept = Map{packed: m.packed[:pos:pos], blocks: m.blocks[:i:i], closed: i * blockRuns, from: from}
	}
	rest := func(yield func(Run) bool) {
		for pos < len(m.packed) {
			r, n := m.read(pos, from)
			if !yield(r) {
				return
			}
			from, pos = r.end(), pos+n
		}
		if m.last.Length > 0 {
			yield(m.last)
		}
	}
	for r := range rest {
		length := min(r.Length, at.upstream-r.Upstream, at.downstream-r.Downstream)
		if length > 0 {
			kept.append(Run{r.Upstream, r.Downstream, length})
		}
		if length < r.Length {
			break
		}
	}
	*m = kept
}

// read unpacks a run of our own packing.
func (m *Map) read(at int, from edge) (Run, int) {
	r, n, err := readRun(m.packed[at:], from)
	if err != nil {
		panic("offsets: the map is broken: " + err.Error())
	}
	return r, n
}
