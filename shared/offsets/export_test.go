package offsets

// Slots shows the syncs of a store as [first index, upstream, downstream].
func Slots(s *Store64) [][3]int64 {
	var shown [][3]int64
	for i, sync := range s.syncs {
		if s.some && (i == 0 || sync != s.syncs[i-1]) {
			shown = append(shown, [3]int64{int64(i), sync.Upstream, sync.Downstream})
		}
	}
	return shown
}

// Bytes is the memory that a map takes.
func Bytes(m *Map) int { return cap(m.packed) + 24*cap(m.blocks) }
