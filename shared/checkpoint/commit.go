package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// standing is what the target shows of a group.
type standing int

const (
	doubtful standing = iota // nothing certain: hands off
	active                   // it has members
	empty                    // it has offsets and no member
	dead                     // it is not there
)

// commitsAtOnce bounds the OffsetCommit requests that are under way; each is one
// group's.
const commitsAtOnce = 8

// commit gives groups of the target the offsets of their checkpoints, where they
// have no member there, and forward only. A broker refuses a group that somebody
// joins in between.
func (r *round) commit(ctx context.Context, checkpoints []state.Checkpoint) {
	byGroup := map[string][]state.Checkpoint{}
	for _, cp := range checkpoints {
		byGroup[cp.Group] = append(byGroup[cp.Group], cp)
	}
	if len(byGroup) == 0 {
		return
	}
	standings := r.describeGroups(ctx, slices.Sorted(maps.Keys(byGroup)))
	var ask []string
	for group := range byGroup {
		if s := standings[group]; s == empty || s == dead && !r.Settings.Compat {
			ask = append(ask, group)
		}
	}
	var current map[string]map[flow.TopicPartition]committed
	if len(ask) > 0 {
		current = r.fetch(ctx, r.Target, r.Settings.Target, ask)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, commitsAtOnce)
	for group, cps := range byGroup {
		of, known := current[group]
		if !known && !r.Settings.Compat {
			continue
		}
		cps = slices.DeleteFunc(cps, func(cp state.Checkpoint) bool {
			at, set := of[cp.TopicPartition]
			return set && at.offset >= cp.Downstream
		})
		if len(cps) == 0 {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := r.commitGroup(ctx, group, cps); err != nil {
				r.fail(fmt.Errorf("commit offsets of group %s on cluster %s: %w", group, r.Settings.Target, err))
			}
		})
	}
	wg.Wait()
}

// commitGroup commits offsets as somebody who is no member of the group. The
// leader epoch does not travel: it is the source's.
func (r *round) commitGroup(ctx context.Context, group string, checkpoints []state.Checkpoint) error {
	ctx, cancel := r.step(ctx)
	defer cancel()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	at := map[string]int{}
	for _, cp := range checkpoints {
		i, ok := at[cp.Topic]
		if !ok {
			i = len(req.Topics)
			at[cp.Topic] = i
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = cp.Topic, r.targets[cp.Topic].id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = cp.Partition, cp.Downstream, new(cp.Metadata)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	resp, err := req.RequestWith(ctx, r.Target)
	if err != nil {
		return because(ctx, err)
	}
	refused := map[error]int{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !hasJoined(err) {
				refused[err]++
			}
		}
	}
	var errs []error
	for err, n := range refused {
		errs = append(errs, fmt.Errorf("%d partitions: %w", n, err))
	}
	return errors.Join(errs...)
}

// hasJoined: the group has a member after all, so its offsets are its own.
func hasJoined(err error) bool {
	for _, refusal := range []error{
		kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// describeGroups looks at groups of the target, of either protocol, one request
// to each coordinator.
func (r *round) describeGroups(ctx context.Context, groups []string) map[string]standing {
	standings := map[string]standing{}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = groups
	var absent []string
	r.shards(ctx, req, func(resp kmsg.Response) {
		for _, g := range resp.(*kmsg.DescribeGroupsResponse).Groups {
			s := r.judge(g.Group, g.ErrorCode, g.State, len(g.Members))
			standings[g.Group] = s
			if s == dead {
				absent = append(absent, g.Group)
			}
		}
	})
	if len(absent) == 0 {
		return standings
	}
	// A group of the newer protocol (KIP-848) is none to this request.
	for _, group := range absent {
		standings[group] = doubtful
	}
	newer := kmsg.NewPtrConsumerGroupDescribeRequest()
	newer.Groups = absent
	if !r.knows(ctx, newer.Key()) {
		for _, group := range absent {
			standings[group] = dead
		}
		return standings
	}
	r.shards(ctx, newer, func(resp kmsg.Response) {
		for _, g := range resp.(*kmsg.ConsumerGroupDescribeResponse).Groups {
			code := g.ErrorCode
			if code == kerr.UnsupportedVersion.Code { // the protocol is switched off
				code = kerr.GroupIDNotFound.Code
			}
			standings[g.Group] = r.judge(g.Group, code, g.State, len(g.Members))
		}
	})
	return standings
}

// judge reads a group's description; an error is a failure and leaves doubt.
func (r *round) judge(group string, code int16, name string, members int) standing {
	err := kerr.ErrorForCode(code)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return dead
	case err != nil:
		r.fail(fmt.Errorf("describe group %s on cluster %s: %w", group, r.Settings.Target, err))
		return doubtful
	case members > 0:
		return active
	case strings.EqualFold(name, "Empty"):
		return empty
	case strings.EqualFold(name, "Dead"):
		return dead
	}
	return active // a rebalance is under way
}

// shards calls use for every broker's part of the answer. A broker that does not
// answer is a failure.
func (r *round) shards(ctx context.Context, req kmsg.Request, use func(kmsg.Response)) {
	ctx, cancel := r.step(ctx)
	defer cancel()
	for _, shard := range r.Target.RequestSharded(ctx, req) {
		if shard.Err != nil {
			r.fail(fmt.Errorf("describe groups of cluster %s: %w", r.Settings.Target, because(ctx, shard.Err)))
			continue
		}
		use(shard.Resp)
	}
}

// knows reports whether the target's brokers have a request. In doubt they have.
func (r *round) knows(ctx context.Context, key int16) bool {
	ctx, cancel := r.step(ctx)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, r.Target)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key })
}
