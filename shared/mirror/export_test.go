package mirror

// Narrow lets a round, and a request, take no more than so many bytes from the
// source.
func (m *Mirror) Narrow(bytes int) { m.room, m.source.bytes = bytes, int32(bytes) }
