package verify

import "context"

// partitionLog is the records of one partition, up to where it ended when the
// comparison began.
type partitionLog interface {
	// open reads from an offset on.
	open(ctx context.Context, from int64) feed
	// end is the offset after the last record to be read.
	end() int64
	// until is the same log with another end.
	until(end int64) partitionLog
}

// feed hands out records in order.
type feed interface {
	// next returns records that follow; none at the end. They are valid until
	// the next call.
	next() ([]entry, error)
	close()
}

// stream is a feed with a window that looks ahead.
type stream struct {
	log   partitionLog
	feed  feed
	buf   []entry
	head  int   // of the window, in buf
	ended bool  // nothing follows the window
	taken int64 // records that were passed

	told   int64         // the offset up to which passed was told
	passed func(n int64) // is told of offsets that were read

	noTimestamp bool // some record so far has no timestamp
	appended    bool // some record so far bears the time of its append
}

// openStream reads log from an offset on, and tells passed how many offsets it
// has read, in all as many as there are.
func openStream(ctx context.Context, log partitionLog, from int64, passed func(n int64)) *stream {
	return &stream{log: log, feed: log.open(ctx, from), told: from, passed: passed}
}

func (s *stream) close() { s.feed.close() }

// buffered is the length of the window.
func (s *stream) buffered() int { return len(s.buf) - s.head }

// fill makes the window at least n records long, if there are so many, and
// returns its length, though at most n.
func (s *stream) fill(n int) (int, error) {
	for !s.ended && s.buffered() < n {
		chunk, err := s.feed.next()
		if err != nil {
			return 0, err
		}
		if len(chunk) == 0 {
			s.ended = true
			s.tell(s.log.end())
			break
		}
		s.tell(chunk[len(chunk)-1].offset + 1)
		if s.head > 0 {
			s.buf = s.buf[:copy(s.buf, s.buf[s.head:])]
			s.head = 0
		}
		for i := range chunk {
			s.noTimestamp = s.noTimestamp || chunk[i].timestamp == noTimestamp
			s.appended = s.appended || chunk[i].appended
		}
		s.buf = append(s.buf, chunk...)
	}
	return min(n, s.buffered()), nil
}

func (s *stream) tell(offset int64) {
	if n := offset - s.told; n > 0 {
		s.told = offset
		s.passed(n)
	}
}

// at is record i of the window.
func (s *stream) at(i int) *entry { return &s.buf[s.head+i] }

// offset is that of record i of the window, or the end of the log.
func (s *stream) offset(i int) int64 {
	if i < s.buffered() {
		return s.at(i).offset
	}
	return s.log.end()
}

// ends reports whether nothing follows the first n records of the window.
func (s *stream) ends(n int) bool { return s.ended && n == s.buffered() }

// advance passes n records of the window.
func (s *stream) advance(n int) {
	s.head += n
	s.taken += int64(n)
}
