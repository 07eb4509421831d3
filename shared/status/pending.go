package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"mirrorless/shared/batch"
	"mirrorless/shared/config"
	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// pending is what is still to be copied of a partition.
type pending struct {
	from, end, behind int64
	expired           int64
	oldest            time.Time
	note              string
}

const (
	// readers is how many partitions of A are looked into at a time.
	readers = 16
	// batches is how many batches without a record are passed over in search of
	// the first one with a record.
	batches = 16
)

// lookAhead finds out what is still to be copied. Where offsets are left it reads
// one batch of A: they may be the end of a transaction and nothing else, which
// no event source ever delivers; and the first record says since when B waits.
func (g *gatherer) lookAhead(ctx context.Context) {
	g.pending = map[flow.TopicPartition]pending{}
	var left []flow.TopicPartition
	for name, n := range g.partitions {
		for p := range n {
			tp := flow.TopicPartition{Topic: name, Partition: p}
			todo := g.todo(tp)
			g.pending[tp] = todo
			if todo.behind > 0 {
				left = append(left, tp)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	turn := make(chan struct{}, readers)
	for _, tp := range left {
		mu.Lock()
		todo := g.pending[tp]
		mu.Unlock()
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			first, ok, err := g.a.first(ctx, tp, todo.from, todo.end)
			switch {
			case err != nil:
				return // the count of offsets stands
			case !ok:
				todo.behind = 0
			default:
				todo.behind = todo.end - first.Offset
				if first.Timestamp > 0 {
					todo.oldest = time.UnixMilli(first.Timestamp).UTC()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			g.pending[tp] = todo
		})
	}
	wg.Wait()
}

// todo compares a position with A's log.
func (g *gatherer) todo(tp flow.TopicPartition) pending {
	unknown := pending{end: -1, behind: -1}
	t, there := g.a.topics[tp.Topic]
	b, measured := g.a.ends[tp.Topic][tp.Partition]
	switch {
	case g.a.err != nil:
		unknown.note = g.Settings.Source + " does not answer"
		return unknown
	case !there:
		return pending{end: -1} // nothing of it is left to be copied
	case b.err != nil:
		unknown.note = fmt.Sprintf("%s does not say where it ends: %v", g.Settings.Source, b.err)
		return unknown
	case !measured || b.end < 0 || b.start < 0:
		unknown.note = g.Settings.Source + " does not say where it ends"
		return unknown
	}
	pos, prepared := g.positions[tp]
	none := state.TopicID{}
	todo := pending{from: pos.Upstream, end: b.end}
	switch {
	case !prepared && g.Settings.AutoOffsetReset == "latest":
		return todo // it begins with what comes after it is prepared
	case !prepared:
		todo.from = b.start
	case t.id != none && pos.SourceTopicID != none && t.id != pos.SourceTopicID:
		todo.from = b.start
		todo.note = "created again on " + g.Settings.Source
		if g.Settings.Recreated == config.RecreatedStop {
			todo.note += ", and mirrorless.recreated is stop"
		}
	case pos.Upstream > b.end:
		todo.note = fmt.Sprintf("%s ends at %d, before the position %d: it has lost records", g.Settings.Source, b.end, pos.Upstream)
	case b.start > pos.Upstream:
		todo.from, todo.expired = b.start, b.start-pos.Upstream
		todo.note = fmt.Sprintf("%s deleted offsets %d to %d before they were copied", g.Settings.Source, pos.Upstream, b.start-1)
	}
	todo.behind = max(0, todo.end-todo.from)
	return todo
}

// first returns the first record of a partition with from ≤ offset < end, which
// is none if only the ends of transactions, and what compaction left, are there.
func (s *side) first(ctx context.Context, tp flow.TopicPartition, from, end int64) (batch.Placed, bool, error) {
	for range batches {
		got, err := s.fetch(ctx, tp, from)
		if err != nil {
			return batch.Placed{}, false, err
		}
		before := from
		for b, err := range got.Batches() {
			if err != nil {
				return batch.Placed{}, false, err
			}
			if !b.Control() && !b.Aborted {
				records, err := b.Records(fetch.Decompress)
				if err != nil {
					return batch.Placed{}, false, err
				}
				for _, r := range records {
					if r.Offset >= from && r.Offset < end {
						return r, true, nil
					}
				}
			}
			from = max(from, b.NextOffset())
		}
		if from >= end {
			return batch.Placed{}, false, nil
		}
		if from == before {
			return batch.Placed{}, false, fmt.Errorf("read %s from %d: nothing is there", tp, from)
		}
	}
	return batch.Placed{}, false, fmt.Errorf("read %s: no record in %d batches", tp, batches)
}

// fetch reads the batch that holds an offset: at least one comes whatever the
// limit.
func (s *side) fetch(ctx context.Context, tp flow.TopicPartition, offset int64) (fetch.Response, error) {
	t := s.topics[tp.Topic]
	got, err := fetch.Read(ctx, s.client.Broker(int(t.leaders[tp.Partition])), fetch.Request{
		TopicPartition: tp, TopicID: t.id, Offset: offset, MaxBytes: 1, Committed: s.committed,
	})
	if err != nil {
		return got, fmt.Errorf("read %s: %w", tp, err)
	}
	return got, nil
}
