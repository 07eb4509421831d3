package topics

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
)

// Rehearse returns what Run would do now, as Plan does, after asking both clusters
// whether they would take it; they check such a request and change nothing. What
// one would refuse is left out of the plan and is among its problems, or among its
// warnings where Run goes on without it. Whether ACLs would be taken can only be
// asked of all.
func (t *Topics) Rehearse(ctx context.Context) (Plan, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, err := t.observe(ctx)
	if err != nil {
		return Plan{}, err
	}
	p := t.rules.diff(o)
	failed := map[string]bool{} // topics of the source
	t.rehearseInternal(ctx, &p)
	t.rehearseCreate(ctx, &p, failed)
	t.rehearseGrow(ctx, &p, failed)
	t.rehearseConfigs(ctx, &p)
	if len(p.ACLs) > 0 && !t.target.mayCreateACLs(ctx) {
		p.ACLs = nil
		p.Warnings = append(p.Warnings, noACLs(t.target.alias))
	}
	p.Begin = slices.DeleteFunc(p.Begin, func(tp flow.TopicPartition) bool { return failed[tp.Topic] })
	p.EventSources = slices.DeleteFunc(p.EventSources, func(c EventSourceChange) bool {
		return c.Action == ActionCreate && failed[c.To.Topic]
	})
	return p, nil
}

func (t *Topics) rehearseInternal(ctx context.Context, p *Plan) {
	failed := map[string]error{}
	var would []NewTopic
	for _, c := range []cluster{t.source, t.target} {
		mine := slices.DeleteFunc(slices.Clone(p.Internal), func(n NewTopic) bool { return n.Cluster != c.alias })
		if len(mine) == 0 {
			continue
		}
		answers := t.send(ctx, c, mine, true)
		for _, n := range mine {
			assumed, err := created(answers[n.Name])
			switch {
			case is(err, kerr.ThrottlingQuotaExceeded):
				would = append(would, n)
			case err != nil:
				failed[fmt.Sprintf("%s on cluster %s", n.Name, c.alias)] = err
			case assumed != nil:
				p.Warnings = append(p.Warnings, assumedThere(n, assumed))
			default:
				would = append(would, n)
			}
		}
	}
	p.Internal = would
	p.Problems = append(p.Problems, together("create internal topic", failed)...)
}

func (t *Topics) rehearseCreate(ctx context.Context, p *Plan, failed map[string]bool) {
	if len(p.Create) == 0 {
		return
	}
	errs := map[string]error{}
	answers := t.send(ctx, t.target, p.Create, true)
	would := p.Create[:0:0]
	for _, n := range p.Create {
		err := answers[n.Name]
		if refusesConfig(err) && len(n.Configs) > 0 {
			var rejected map[ConfigOp]error
			n, rejected, err = t.acceptable(ctx, n, err)
			p.Warnings = append(p.Warnings, rejections(n.Name, rejected)...)
		}
		switch {
		case err == nil, is(err, kerr.TopicAlreadyExists, kerr.ThrottlingQuotaExceeded):
			would = append(would, n)
		default:
			failed[n.Source] = true
			errs[n.Name] = hint(err, "CREATE", n.Name, t.target.alias)
		}
	}
	p.Create = would
	p.Problems = append(p.Problems, together("create", errs)...)
}

func (t *Topics) rehearseGrow(ctx context.Context, p *Plan, failed map[string]bool) {
	errs := map[string]error{}
	answers := t.sendGrowth(ctx, p.Grow, true)
	p.Grow = slices.DeleteFunc(p.Grow, func(g Growth) bool {
		err := answers[g.Topic]
		if err == nil || is(err, kerr.InvalidPartitions, kerr.ThrottlingQuotaExceeded) {
			return false
		}
		failed[g.Source] = true
		errs[g.Topic] = hint(err, "ALTER", g.Topic, t.target.alias)
		return true
	})
	p.Problems = append(p.Problems, together("add partitions to", errs)...)
}

func (t *Topics) rehearseConfigs(ctx context.Context, p *Plan) {
	errs := map[string]error{}
	var would []ConfigChange
	for batch := range slices.Chunk(p.Configs, alterBatch) {
		answers := t.target.alter(ctx, batch, true)
		for _, change := range batch {
			err := answers[change.Topic]
			if err != nil && !isRefusal(err) && t.target.lacks(ctx, kmsg.IncrementalAlterConfigs) {
				p.Configs = nil
				p.Warnings = append(p.Warnings, noAlter(t.target.alias))
				return
			}
			if refusesConfig(err) {
				var rejected map[ConfigOp]error
				rejected, err = t.bisectConfigs(ctx, change, err, true)
				p.Warnings = append(p.Warnings, rejections(change.Topic, rejected)...)
				change.Ops = slices.DeleteFunc(slices.Clone(change.Ops), func(op ConfigOp) bool { _, no := rejected[op]; return no })
			}
			switch {
			case err != nil:
				errs[change.Topic] = hint(err, "ALTER_CONFIGS", change.Topic, t.target.alias)
			case len(change.Ops) > 0:
				would = append(would, change)
			}
		}
	}
	p.Configs = would
	p.Problems = append(p.Problems, together("alter the configs of", errs)...)
}

// rejections are warnings of configs that a target refuses for a topic.
func rejections(topic string, rejected map[ConfigOp]error) []Warning {
	var out []Warning
	for _, op := range slices.SortedFunc(maps.Keys(rejected), func(a, b ConfigOp) int { return strings.Compare(a.Name, b.Name) }) {
		out = append(out, rejection(topic, op, rejected[op]))
	}
	return out
}
