package function

import (
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/config"
	"mirrorless/shared/mapping"
	"mirrorless/shared/topics"
)

// Plan returns what the topics function would do at its next round, as far as
// both clusters would take it, with the rights that the flow's functions lack
// among its problems. It changes nothing.
func Plan(ctx context.Context, p *Parts) (topics.Plan, error) {
	o, err := p.topics()
	if err != nil {
		return topics.Plan{}, err
	}
	plan, err := topics.New(o).Rehearse(ctx)
	if err != nil {
		return topics.Plan{}, p.explain(err)
	}
	needs, err := p.needs(plan)
	if err != nil {
		return topics.Plan{}, err
	}
	missing, err := topics.MissingRights(ctx, needs...)
	if err != nil {
		plan.Problems = append(plan.Problems, p.explain(err))
	}
	for _, right := range missing {
		plan.Problems = append(plan.Problems, right)
	}
	return plan, nil
}

// topics are the options of the function that keeps topics.
func (p *Parts) topics() (topics.Options, error) {
	a, b, err := p.both(config.Admin, config.Admin)
	if err != nil {
		return topics.Options{}, err
	}
	o := topics.Options{
		Settings: p.Settings, Reverse: p.reverse(), Store: p.Store, Source: a, Target: b,
		EventSources: p.EventSources, Stack: p.Stack, PartialFailures: p.Settings.Mapping.PartialFailures, Logger: p.Logger,
	}
	if w := p.writer(); w != nil {
		o.Observe = w.Reconciled
	}
	if o.EventSources == nil && p.AWS != nil {
		o.EventSources, err = p.mappings(*p.AWS)
	}
	return o, err
}

// MirrorOf is the name of a stack's mirror function, as template.yaml gives it.
func MirrorOf(stack string) string { return stack + "-mirror" }

// mappings are Lambda's, of the mirror function of this stack.
func (p *Parts) mappings(sdk aws.Config) (topics.EventSources, error) {
	c, _ := p.Config.Cluster(p.Settings.Source)
	return mapping.New(lambda.NewFromConfig(sdk), mapping.Options{
		Function: MirrorOf(p.Stack), Cluster: c, Window: p.Settings.BatchDelay,
		Metrics: p.Settings.Mapping.Metrics, Pollers: p.Settings.Mapping.Pollers, Logger: p.Logger,
	})
}

// needs are the rights on topics and groups without which the flow's functions
// cannot work, with the clients that need them.
func (p *Parts) needs(plan topics.Plan) ([]topics.Need, error) {
	const read, write = kmsg.ACLOperationRead, kmsg.ACLOperationWrite
	s := p.Settings
	var sources, copies, groups []string
	for _, c := range plan.Copies {
		sources, copies = append(sources, c.Source), append(copies, c.Name)
		groups = append(groups, topics.Group(p.Stack, s.Flow, c.Source))
	}
	var needs []topics.Need
	var errs []error
	add := func(cluster, why string, client func() (*kgo.Client, error), topicNames, groupNames []string, ops ...kmsg.ACLOperation) {
		if len(topicNames) == 0 {
			return
		}
		c, err := client()
		errs = append(errs, err)
		needs = append(needs, topics.Need{Cluster: cluster, Client: c, For: why, Topics: topicNames, Groups: groupNames, Operations: ops})
	}
	as := func(dial func(config.Role) (*kgo.Client, error), role config.Role) func() (*kgo.Client, error) {
		return func() (*kgo.Client, error) { return dial(role) }
	}
	add(s.Source, "the event source reads with it", as(p.source, config.Consumer), sources, groups, read)
	add(s.Target, "mirror appends there, and reads back what it has appended", as(p.target, config.Producer), copies, nil, read, write)
	if s.EmitOffsetSyncs {
		at := s.Source
		if s.OffsetSyncsOnTarget {
			at = s.Target
		}
		add(at, "checkpoint writes offset syncs", p.offsetSyncs, existing(plan, at, s.OffsetSyncsTopic()), nil, write)
	}
	kept := []string{s.PositionsTopic}
	if s.EmitCheckpoints.Enabled {
		kept = append(kept, s.CheckpointsTopic())
	}
	add(s.Target, "checkpoint writes there", as(p.target, config.Admin), existing(plan, s.Target, kept...), nil, write)
	if s.EmitHeartbeats.Enabled {
		add(s.Target, "heartbeat writes there", as(p.target, config.Producer), existing(plan, s.Target, s.Policy.HeartbeatsTopic()), nil, write)
	}
	return needs, errors.Join(errs...)
}

// existing leaves out the topics that the plan creates: who creates one is asked
// about it with the next plan.
func existing(plan topics.Plan, cluster string, names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(plan.Internal, func(n topics.NewTopic) bool { return n.Cluster == cluster && n.Name == name })
	})
}
