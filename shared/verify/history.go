package verify

// historyLength is how many copied records are remembered, to tell a record
// that was copied twice from one that came from elsewhere.
const historyLength = 1 << 18

// history is the last records that are on both sides.
type history struct {
	ring  []copied
	added int64

	// One that is looked for often is found through an index, which the next
	// add invalidates.
	index   map[uint64]int64 // id to ordinal
	lookups int
	follow  int64 // ordinal after what was found last: what was copied twice mostly lies in a row; 0 is none
}

type copied struct {
	id     uint64
	source int64 // offset
}

func (h *history) add(id uint64, source int64) {
	if h.lookups > 0 {
		h.index, h.lookups = nil, 0
	}
	c := copied{id, source}
	if len(h.ring) < historyLength {
		h.ring = append(h.ring, c)
	} else {
		h.ring[h.added%historyLength] = c
	}
	h.added++
}

func (h *history) clear() { *h = history{ring: h.ring[:0]} }

func (h *history) at(ordinal int64) copied { return h.ring[ordinal%historyLength] }

// find returns the source's offset of a remembered record and its ordinal.
func (h *history) find(id uint64) (source, ordinal int64, ok bool) {
	oldest := h.added - int64(len(h.ring))
	if n := h.follow; n > 0 && n >= oldest && n < h.added && h.at(n).id == id {
		h.follow = n + 1
		return h.at(n).source, n, true
	}
	h.lookups++
	if h.index == nil && h.lookups > 8 {
		h.index = make(map[uint64]int64, len(h.ring))
		for n := oldest; n < h.added; n++ {
			h.index[h.at(n).id] = n
		}
	}
	if h.index != nil {
		if ordinal, ok = h.index[id]; !ok {
			return 0, 0, false
		}
		h.follow = ordinal + 1
		return h.at(ordinal).source, ordinal, true
	}
	for n := h.added - 1; n >= oldest; n-- {
		if h.at(n).id == id {
			h.follow = n + 1
			return h.at(n).source, n, true
		}
	}
	return 0, 0, false
}
