package verify

const (
	// historyLength is how many copied records are remembered, to tell a record
	// that was copied twice from one that came from elsewhere.
	historyLength = 1 << 18
	// unindexed is how many of the last of them are looked through one by one.
	unindexed = 1 << 12
)

// history is the last records that are on both sides. Most partitions never ask
// for one, so the index is not kept up before somebody does.
type history struct {
	ring  []copied
	added int64

	index   map[uint64]int64 // id to place in the order of add, of those before indexed
	indexed int64
	follow  int64 // place after what was found last: what was copied twice mostly lies in a row; 0 is none
}

type copied struct {
	id      uint64
	source  int64 // offset
	ordinal int64 // of the source's record
}

func (h *history) add(id uint64, source, ordinal int64) {
	c := copied{id, source, ordinal}
	if len(h.ring) < historyLength {
		h.ring = append(h.ring, c)
	} else {
		h.ring[h.added%historyLength] = c
	}
	h.added++
}

func (h *history) clear() { *h = history{ring: h.ring[:0]} }

// at is the record in a place, which has to be a remembered one.
func (h *history) at(place int64) copied { return h.ring[place%historyLength] }

// find returns a remembered record.
func (h *history) find(id uint64) (c copied, ok bool) {
	oldest := h.added - int64(len(h.ring))
	if n := h.follow; n > 0 && n >= oldest && n < h.added && h.at(n).id == id {
		h.follow = n + 1
		return h.at(n), true
	}
	if h.added-h.indexed > unindexed {
		h.extend(oldest)
	}
	n := h.added - 1
	for n >= h.indexed && h.at(n).id != id {
		n--
	}
	if n < h.indexed {
		if n, ok = h.index[id]; !ok || n < oldest {
			return copied{}, false
		}
	}
	h.follow = n + 1
	return h.at(n), true
}

// has reports whether a record is remembered, and leaves the rest as it is.
func (h *history) has(id uint64) bool {
	follow := h.follow
	_, ok := h.find(id)
	h.follow = follow
	return ok
}

// extend brings the index up to date. What is no longer remembered stays in it
// for a while.
func (h *history) extend(oldest int64) {
	if h.index == nil || len(h.index) > 2*historyLength {
		h.index, h.indexed = make(map[uint64]int64, len(h.ring)), oldest
	}
	for n := max(h.indexed, oldest); n < h.added; n++ {
		h.index[h.at(n).id] = n
	}
	h.indexed = h.added
}
