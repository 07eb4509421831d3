package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"mirrorless/shared/flow"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
)

// pruneEvery is how often the run map is freed of what the target does not hold
// any more. It costs a read of each partition's chunks.
const pruneEvery = time.Hour

// prune deletes the chunks of the run map whose copies have all expired on the
// target, all but the last: groups in or before it go on at the target's log start,
// and not where the next chunk begins.
func (r *round) prune(ctx context.Context) {
	names, candidates := map[string]bool{}, []flow.TopicPartition{}
	for tp, pos := range r.positions {
		if spilled(pos) {
			names[r.remotes[tp.Topic]] = true
			candidates = append(candidates, tp)
		}
	}
	if len(candidates) == 0 {
		return
	}
	targets, err := r.describeTargets(ctx, slices.Sorted(maps.Keys(names)))
	if err != nil {
		r.fail(err)
		return
	}
	var asked []flow.TopicPartition
	for _, tp := range candidates {
		if to := r.remote(tp); to.Partition < targets[to.Topic].partitions {
			asked = append(asked, to)
		}
	}
	starts := r.listOffsets(ctx, asked, earliest)
	var pruning errgroup.Group
	pruning.SetLimit(loads)
	for _, tp := range candidates {
		start := starts[r.remote(tp)] // 0 where it is not known
		if start == 0 {
			continue
		}
		pruning.Go(func() error {
			if err := r.pruneOne(ctx, tp, start); err != nil {
				r.fail(fmt.Errorf("prune the run map of %s: %w", tp, err))
			}
			return nil
		})
	}
	_ = pruning.Wait()
}

// spilled reports whether chunks of a position's runs may be in the store.
func spilled(pos state.Position) bool {
	open, err := offsets.ParseChunk(pos.Runs)
	return err == nil && len(open) > 0 && open[0].Upstream > pos.First
}

func (r *round) pruneOne(ctx context.Context, tp flow.TopicPartition, start int64) error {
	chunks, err := r.Store.Runs(ctx, tp)
	if err != nil {
		return err
	}
	last := int64(math.MinInt64) // of those that have expired
	for _, c := range chunks {
		runs, err := offsets.ParseChunk(c.Data)
		if err != nil {
			return fmt.Errorf("chunk at upstream offset %d: %w", c.First, err)
		}
		if len(runs) > 0 && runs[len(runs)-1].Downstream+runs[len(runs)-1].Length > start {
			break
		}
		last = c.First
	}
	if len(chunks) == 0 || last <= chunks[0].First {
		return nil
	}
	return r.Store.DeleteRuns(ctx, tp, math.MinInt64, last)
}
