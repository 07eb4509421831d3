package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/offsets"
	"mirrorless/shared/producer"
	"mirrorless/shared/state"
)

// groupPartition is a group on a partition of a topic; the topic is the target's.
type groupPartition struct {
	group string
	flow.TopicPartition
}

// committed is what a group has committed for a partition.
type committed struct {
	offset   int64
	metadata string
}

// groupsAtOnce bounds how many groups are worked on at a time: their offsets are
// asked for in one request to each coordinator, and are in memory together.
const groupsAtOnce = 250

// translate emits checkpoints and commits offsets, as far as either is due.
func (r *round) translate(ctx context.Context) {
	groups := r.listGroups(ctx)
	if len(groups) == 0 {
		return
	}
	names := map[string]bool{}
	for tp := range r.positions {
		names[r.remotes[tp.Topic]] = true
	}
	if len(names) == 0 {
		return
	}
	var err error
	if r.targets, err = r.describeTargets(ctx, slices.Sorted(maps.Keys(names))); err != nil {
		r.fail(err)
		return
	}
	r.logs = map[flow.TopicPartition]span{}
	for some := range slices.Chunk(groups, groupsAtOnce) {
		if ctx.Err() != nil {
			r.fail(fmt.Errorf("translate the offsets of groups: %w", context.Cause(ctx)))
			return
		}
		checkpoints, err := r.checkpoints(ctx, r.fetch(ctx, r.Source, r.Settings.Source, some))
		if err != nil {
			r.fail(err)
			return
		}
		if r.emits {
			r.write(ctx, checkpoints)
		}
		if r.commits {
			r.commit(ctx, checkpoints)
		}
	}
}

// listGroups returns the consumer groups of the source that pass the filter, of
// either protocol, with members or without.
func (r *round) listGroups(ctx context.Context) []string {
	if r.groups != nil && !r.Settings.RefreshGroups.Enabled {
		return r.groups
	}
	ctx, cancel := r.step(ctx)
	defer cancel()
	listed, err := kadm.NewClient(r.Source).ListGroups(ctx)
	groups := []string{}
	for name, g := range listed {
		if isConsumer(g) && !strings.HasPrefix(name, flow.OwnGroups) && r.Settings.GroupFilter.Match(name) {
			groups = append(groups, name)
		}
	}
	slices.Sort(groups)
	if err != nil {
		// Groups of the brokers that did answer are there nevertheless.
		r.fail(fmt.Errorf("list groups of cluster %s: %w", r.Settings.Source, because(ctx, err)))
	} else {
		r.groups = groups
	}
	return groups
}

// isConsumer leaves out groups of Connect workers, share groups and what else
// commits no offsets of topics. A group without a protocol is one whose offsets
// were committed without membership.
func isConsumer(g kadm.ListedGroup) bool {
	switch strings.ToLower(g.GroupType) {
	case "", "classic", "consumer":
		return g.ProtocolType == "" || g.ProtocolType == "consumer"
	}
	return false
}

// fetch returns what groups have committed on a cluster. A group whose offsets
// cannot be had is a failure and not in the map.
func (r *round) fetch(ctx context.Context, client *kgo.Client, cluster string, groups []string) map[string]map[flow.TopicPartition]committed {
	ctx, cancel := r.step(ctx)
	defer cancel()
	all := make(map[string]map[flow.TopicPartition]committed, len(groups))
	for name, fetched := range kadm.NewClient(client).FetchManyOffsets(ctx, groups...) {
		if fetched.Err != nil && !errors.Is(fetched.Err, kerr.GroupIDNotFound) {
			r.fail(fmt.Errorf("read the offsets of group %s on cluster %s: %w", name, cluster, because(ctx, fetched.Err)))
			continue
		}
		of := map[flow.TopicPartition]committed{}
		complete := true
		fetched.Fetched.Each(func(o kadm.OffsetResponse) {
			switch {
			case o.Err != nil:
				complete = false
				r.fail(fmt.Errorf("read the offset of group %s for %s-%d on cluster %s: %w", name, o.Topic, o.Partition, cluster, o.Err))
			case o.At >= 0: // else there is none
				of[flow.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = committed{offset: o.At, metadata: o.Metadata}
			}
		})
		if complete || client == r.Source {
			all[name] = of
		}
	}
	return all
}

// checkpoints translates what groups have committed, as far as it can be.
func (r *round) checkpoints(ctx context.Context, groups map[string]map[flow.TopicPartition]committed) ([]state.Checkpoint, error) {
	lowest := map[flow.TopicPartition]int64{}
	var remotes []flow.TopicPartition
	for _, of := range groups {
		for tp, c := range of {
			to := r.remote(tp)
			pos, copied := r.positions[tp]
			if !copied || c.offset < pos.First || to.Partition >= r.targets[to.Topic].partitions {
				continue
			}
			if at, seen := lowest[tp]; !seen {
				remotes = append(remotes, to)
				lowest[tp] = c.offset
			} else {
				lowest[tp] = min(at, c.offset)
			}
		}
	}
	r.measure(ctx, remotes)
	if err := r.readWritten(ctx); err != nil {
		return nil, err
	}
	partitions := r.prepare(ctx, lowest)
	var all []state.Checkpoint
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		for _, tp := range slices.SortedFunc(maps.Keys(groups[group]), flow.TopicPartition.Compare) {
			p := partitions[tp]
			log, known := r.logs[r.remote(tp)]
			if p == nil || !known {
				continue
			}
			c := groups[group][tp]
			cp := state.Checkpoint{Group: group, TopicPartition: r.remote(tp), Upstream: c.offset, Metadata: c.metadata, Written: r.now}
			if cp, ok := r.place(p, log, cp); ok {
				all = append(all, cp)
			}
		}
	}
	return all, nil
}

func (r *round) remote(tp flow.TopicPartition) flow.TopicPartition {
	return flow.TopicPartition{Topic: r.remotes[tp.Topic], Partition: tp.Partition}
}

// place fills in where the checkpoint's group goes on. With MirrorMaker 2's rules
// the answer can be an older checkpoint, which stands.
func (r *round) place(p *partition, log span, cp state.Checkpoint) (_ state.Checkpoint, ok bool) {
	if !r.Settings.Compat {
		cp.Downstream, ok = p.runs.Translate(cp.Upstream, offsets.Bounds{
			First: p.pos.First, Next: p.pos.Upstream, End: p.pos.Downstream, LogStart: log.start, LogEnd: log.end,
		})
		return cp, ok
	}
	var last *offsets.Sync
	w, ok := r.written[groupPartition{cp.Group, cp.TopicPartition}]
	if ok {
		last = &offsets.Sync{Upstream: w.Upstream, Downstream: w.Downstream}
	}
	next, due := p.sampled.store.NextCheckpoint(cp.Upstream, last)
	if !due {
		return w, ok
	}
	cp.Downstream = next.Downstream
	return cp, true
}

// readWritten reads which checkpoints were written last, where the last round has
// not left them in memory.
func (r *round) readWritten(ctx context.Context) error {
	if r.written != nil {
		return nil
	}
	stored, err := r.Store.Checkpoints(ctx)
	if err != nil {
		return fmt.Errorf("read checkpoints: %w", err)
	}
	r.written = make(map[groupPartition]state.Checkpoint, len(stored))
	for _, cp := range stored {
		r.written[groupPartition{cp.Group, cp.TopicPartition}] = cp
	}
	return nil
}

// write emits the checkpoints that differ from the last ones, and stores them.
func (r *round) write(ctx context.Context, checkpoints []state.Checkpoint) {
	topic := flow.TopicPartition{Topic: r.Settings.CheckpointsTopic()}
	var changed []state.Checkpoint
	var records []producer.Record
	for _, cp := range checkpoints {
		w, ok := r.written[groupPartition{cp.Group, cp.TopicPartition}]
		if ok && w.Upstream == cp.Upstream && w.Downstream == cp.Downstream && w.Metadata == cp.Metadata {
			continue
		}
		changed = append(changed, cp)
		m := mm2.Checkpoint{
			Group: cp.Group, Topic: cp.Topic, Partition: cp.Partition,
			Upstream: cp.Upstream, Downstream: cp.Downstream, Metadata: cp.Metadata,
		}
		records = append(records, r.record(topic, m.Key(), m.Value()))
	}
	if len(changed) == 0 {
		return
	}
	if err := producer.Send(ctx, r.Target, records); err != nil {
		r.fail(fmt.Errorf("write checkpoints on cluster %s: %w", r.Settings.Target, err))
		return
	}
	took := r.Now().Sub(r.now)
	for _, cp := range changed {
		r.report.Checkpoints = append(r.report.Checkpoints, Latency{Group: cp.Group, TopicPartition: cp.TopicPartition, Took: took})
		r.written[groupPartition{cp.Group, cp.TopicPartition}] = cp
	}
	// What is too large for a row is written once more after a restart.
	stored := slices.DeleteFunc(changed, func(cp state.Checkpoint) bool {
		return len(cp.Group) > state.MaxGroup || len(cp.Metadata) > state.MaxMetadata
	})
	if err := r.Store.PutCheckpoints(ctx, stored); err != nil {
		r.written = nil
		r.fail(fmt.Errorf("store checkpoints: %w", err))
	}
}
