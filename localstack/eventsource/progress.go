package eventsource

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Progress is how far a mapping is, as far as it knows without asking.
type Progress struct {
	Topic, Group string
	// Partitions are those that the group has given to this mapping, by number.
	Partitions []PartitionProgress
	Stats      Stats
	// Err is what keeps the mapping as a whole from working, nil once it works,
	// and LastFailed when that was met last.
	Err        error
	LastFailed time.Time
}

// Stats count since the mapping began.
type Stats struct {
	// Invocations counts invocations that ended, Failures those of which
	// something has to come again.
	Invocations, Failures int64
	// Dropped counts records that were over the payload's cap.
	Dropped int64
}

// PartitionProgress is the state of one partition.
type PartitionProgress struct {
	Partition int32
	// Next is the first offset that the function has not acknowledged, End the
	// high watermark when it was last heard of; each is -1 while unknown.
	Next, End int64
	// Committed is the group's offset, -1 for none.
	Committed int64
	// Waiting counts records that were fetched and are not in flight.
	Waiting int
	// InFlight: an invocation with records of the partition runs, or has failed
	// and will be repeated.
	InFlight bool
	// Delivered counts acknowledged records since the partition was assigned.
	Delivered int64
	// Failed counts the attempts that failed in a row, Err is the last one's,
	// nil after a success. LastFailed is when an attempt failed last.
	Failed     int
	Err        error
	LastFailed time.Time
}

// Behind is how many offsets there are from Next to End, 0 while unknown.
func (p PartitionProgress) Behind() int64 {
	if p.Next < 0 || p.End < p.Next {
		return 0
	}
	return p.End - p.Next
}

// Progress returns where the mapping is. It is cheap; see Refresh.
func (m *Mapping) Progress() Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	progress := Progress{Topic: m.o.Topic, Group: m.o.Group, Stats: m.stats, Err: m.error(), LastFailed: m.trouble.last}
	for _, p := range m.partition {
		progress.Partitions = append(progress.Partitions, PartitionProgress{
			Partition: p.number, Next: p.next, End: p.end, Committed: p.committed,
			Waiting: p.count, InFlight: p.busy, Delivered: p.delivered, Failed: p.failed, Err: p.err, LastFailed: p.lastFailed,
		})
	}
	slices.SortFunc(progress.Partitions, func(a, b PartitionProgress) int { return cmp.Compare(a.Partition, b.Partition) })
	return progress
}

// Refresh asks the source for the ends of the partitions. Progress knows them
// from the fetches anyway, but not of a partition that is paused or has no new
// records.
func (m *Mapping) Refresh(ctx context.Context) error {
	ends, err := m.admin.ListEndOffsets(ctx, m.o.Topic)
	if err != nil {
		return fmt.Errorf("list end offsets of %s: %w", m.o.Topic, err)
	}
	if err := ends.Error(); err != nil && !anyListed(ends) {
		return fmt.Errorf("list end offsets of %s: %w", m.o.Topic, err)
	}
	starts := ends
	if m.beginsUnknown() {
		if starts, err = m.listStarts(ctx, ends); err != nil {
			return fmt.Errorf("list start offsets of %s: %w", m.o.Topic, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.partition {
		if o, ok := ends.Lookup(m.o.Topic, p.number); ok && o.Err == nil {
			p.end = o.Offset
		}
		if o, ok := starts.Lookup(m.o.Topic, p.number); ok && o.Err == nil && p.next < 0 {
			p.next = o.Offset
			// Commit it, in place of an offset of the topic that was before.
			p.acked = p.acked || m.startsOver(p.number)
		}
	}
	m.wake()
	return nil
}

func anyListed(offsets kadm.ListedOffsets) (any bool) {
	offsets.Each(func(o kadm.ListedOffset) { any = any || o.Err == nil })
	return any
}

// beginsUnknown reports partitions of which only the starting position says
// where they begin.
func (m *Mapping) beginsUnknown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.partition {
		if p.next < 0 {
			return true
		}
	}
	return false
}

func (m *Mapping) listStarts(ctx context.Context, ends kadm.ListedOffsets) (kadm.ListedOffsets, error) {
	m.mu.Lock()
	again := m.begun != nil
	m.mu.Unlock()
	switch start := m.o.Start; {
	case again || !start.latest && start.timestamp.IsZero():
		return m.admin.ListStartOffsets(ctx, m.o.Topic)
	case start.latest:
		return ends, nil
	default:
		return m.admin.ListOffsetsAfterMilli(ctx, start.timestamp.UnixMilli(), m.o.Topic)
	}
}
