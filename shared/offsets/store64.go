package offsets

import "math"

// slots is the number of syncs that MirrorMaker 2 keeps of a partition.
const slots = 64

// Sync is a pair of offsets of one record, upstream and downstream.
type Sync struct{ Upstream, Downstream int64 }

// TooOld is what [Store64.Translate] answers for an offset before every sync it
// has kept. There is no checkpoint then.
const TooOld = -1

// Store64 translates as MirrorMaker 2 does, from 64 syncs of one partition that
// lie the farther apart the older they are (OffsetSyncStore of Kafka 4.3.1,
// KAFKA-12468 and KAFKA-15202). It answers with the first offset after a sync at
// or before the one asked for, so a group can be set back by half of what it has
// ever read. [Map] is exact.
type Store64 struct {
	// OnlyLast keeps only the newest sync until ReadToEnd, as MirrorMaker 2 does
	// when it starts without checkpoints to hold on to.
	OnlyLast bool

	// syncs[0] is the newest. Neighbours that differ are at most 2^j − 2^i apart
	// (recent), and at least 2^max(i−2, 0) (separated).
	syncs   [slots]Sync
	some    bool
	started bool
}

// ReadToEnd says that the syncs of the topic, as it was at the start, are all
// added. Nothing is translated before that.
func (s *Store64) ReadToEnd() { s.started = true }

// Add takes in the next record of the offset syncs topic.
func (s *Store64) Add(sync Sync) {
	if !s.some || sync.Upstream < s.syncs[0].Upstream || s.OnlyLast && !s.started {
		for i := range s.syncs {
			s.syncs[i] = sync
		}
		s.some = true
		return
	}
	earlier := s.syncs
	s.syncs[0] = sync
	refill := sync
	candidate := 0 // earlier[candidate] is the newest that has not been placed
	for j := 1; j < slots; j++ {
		i := j - 1
		for passed := true; passed && candidate < j; {
			old := earlier[candidate]
			apart := separated(s.syncs[i], old, i)
			fits := apart && recent(s.syncs[i], old, i, j) &&
				(j+1 == slots || separated(old, s.syncs[j+1], j))
			if fits {
				refill = old
			}
			// One that is repeated, or too near, is of no use behind here either.
			passed = !apart || old == earlier[candidate+1]
			if fits || passed {
				candidate++
			}
		}
		if recent(s.syncs[i], s.syncs[j], i, j) {
			return // and so are all behind it
		}
		s.syncs[j] = refill
	}
}

// Translate is where a group goes on on the target that has committed the
// upstream offset group; [TooOld] where that is before every sync kept, and ok is
// false while there is nothing to translate with.
func (s *Store64) Translate(group int64) (downstream int64, ok bool) {
	if !s.started || !s.some {
		return 0, false
	}
	for _, sync := range s.syncs {
		switch {
		case sync.Upstream == group:
			return sync.Downstream, true
		case sync.Upstream < group:
			return sync.Downstream + 1, true
		}
	}
	return TooOld, true
}

// recent is invariant B of OffsetSyncStore: the sync in slot j is not too old
// for the one in slot i.
func recent(newer, older Sync, i, j int) bool {
	bound := add(older.Upstream, 1<<j-1<<i)
	return newer == older || newer.Upstream <= bound
}

// separated is invariant C of OffsetSyncStore: the sync in slot i is far enough
// from the one behind it.
func separated(newer, older Sync, i int) bool {
	if newer == older {
		return true
	}
	step := int64(1) << max(i-2, 0)
	return older.Upstream <= math.MaxInt64-step && newer.Upstream >= older.Upstream+step
}

// add stops at the largest offset.
func add(offset int64, n uint64) int64 {
	if n > uint64(math.MaxInt64-offset) {
		return math.MaxInt64
	}
	return offset + int64(n)
}

// NextCheckpoint is the checkpoint that MirrorMaker 2 emits when it sees that a
// group has committed the upstream offset group, after the last one that it
// emitted, if any. It emits the first, one of a group that went back, and one
// that moves forward downstream (MirrorCheckpointTask.checkpointIsMoreRecent).
func (s *Store64) NextCheckpoint(group int64, last *Sync) (Sync, bool) {
	downstream, ok := s.Translate(group)
	if !ok || downstream < 0 {
		return Sync{}, false
	}
	next := Sync{Upstream: group, Downstream: downstream}
	return next, last == nil || next.Upstream < last.Upstream || next.Downstream > last.Downstream
}

// SyncRule says after which copied records of a partition MirrorMaker 2 emits an
// offset sync (MirrorSourceTask.PartitionState). The zero SyncRule with its
// MaxLag is ready.
type SyncRule struct {
	MaxLag int64 // offset.lag.max

	previous Sync // the last record
	synced   int64
	begun    bool
	due      bool
}

// Update takes in that a record was copied, and reports whether a sync is due:
// now, or since an earlier record, until Sent. It is for the first record, where a
// translation would be MaxLag behind, after an upstream gap, and where the
// downstream offsets went back.
func (r *SyncRule) Update(record Sync) bool {
	if !r.begun || record.Downstream-(r.synced+1) >= r.MaxLag ||
		record.Upstream != r.previous.Upstream+1 || record.Downstream < r.previous.Downstream {
		r.synced, r.due = record.Downstream, true
	}
	r.previous, r.begun = record, true
	return r.due
}

// Sent says that a sync was emitted.
func (r *SyncRule) Sent() { r.due = false }
