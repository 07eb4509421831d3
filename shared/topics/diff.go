package topics

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// rules are what a flow wants, and what this process has learned about the
// target. They say nothing of what is there; an observation does.
type rules struct {
	settings        config.Flow
	reverse         *config.Flow
	selector        flow.Selector
	stack           string
	partialFailures bool
	heartbeatWindow time.Duration
	// rejected are changes that the target refused, by its topic's name. They are
	// not tried again on their own.
	rejected map[string]map[ConfigOp]bool
	// updated are mappings that were Outdated and have been updated, by their ID. What
	// is still so may be Lambda's way of telling it, and is left alone.
	updated map[string]bool
}

// topic is a selected topic of the source.
type topic struct {
	name   string
	remote string // its name on the target
	topicView
	// prepared is the number of leading partitions that are known to have a
	// position, without a look at positions.
	prepared int32
}

// observation is what a round starts from.
type observation struct {
	now            time.Time
	source, target view
	// flow is the flow's row, of version 0 if there is none yet.
	flow    state.FlowRow
	topics  []topic // by name
	skipped []Skipped
	// configs are those of topics of the source, remoteConfigs those of the
	// target, both by name, as far as they were needed.
	configs, remoteConfigs map[string]described
	syncConfigs            bool
	// internalConfigs are those of internal topics that exist, by cluster alias.
	internalConfigs map[string]map[string]described
	// positions are those of partitions that are not prepared.
	positions map[flow.TopicPartition]state.Position

	// rivals are groups of other deployments of the flow that have members, by topic.
	rivals        map[string]string
	rivalsUnknown bool

	// keepsSources: this function keeps event sources, and knows them.
	keepsSources bool
	sources      []EventSource
	rows         map[string]state.EventSource

	// acls and remoteACLs are nil where there is nothing to sync.
	acls, remoteACLs []ACL
	syncACLs         bool

	// errs are the parts that could not be observed, warnings those that nothing
	// depends on.
	errs     []error
	warnings []Warning
}

// diff is what separates the clusters from what the flow wants. It asks nobody.
func (r rules) diff(o observation) Plan {
	p := Plan{Skipped: o.skipped, Warnings: slices.Clone(o.warnings), Problems: slices.Clone(o.errs)}
	for _, t := range o.topics {
		p.Copies = append(p.Copies, Copy{Source: t.name, Name: t.remote, Partitions: t.partitions()})
	}
	r.diffInternal(o, &p)
	r.diffTopics(o, &p)
	if o.syncConfigs {
		r.diffConfigs(o, &p)
	}
	if o.keepsSources {
		r.diffSources(o, &p)
	}
	if o.syncACLs {
		r.diffACLs(o, &p)
	}
	return p
}

// diffTopics finds the copies that are to be created or grown, and the partitions
// that have no position.
func (r rules) diffTopics(o observation, p *Plan) {
	p.bookkeeping.blocked = map[string]bool{}
	r.diffCollisions(o, p)
	r.diffRivals(o, p)
	var create []NewTopic
	for _, t := range o.topics {
		if p.bookkeeping.blocked[t.name] {
			continue
		}
		n, err := r.diffTopic(o, t, p)
		if err != nil {
			p.Problems = append(p.Problems, err)
			p.bookkeeping.blocked[t.name] = true
			continue
		}
		if n != nil {
			create = append(create, *n)
		}
	}
	p.Create = r.withFactor(create, r.settings.ReplicationFactor, o.target.brokers, p)
	if len(p.Create) < len(create) {
		for _, n := range create {
			p.bookkeeping.blocked[n.Source] = true
		}
	}
	for _, t := range o.topics {
		for n := t.prepared; n < t.partitions() && !p.bookkeeping.blocked[t.name]; n++ {
			tp := flow.TopicPartition{Topic: t.name, Partition: n}
			pos, ok := o.positions[tp]
			if !ok || unused(pos, o.target.topics[t.remote]) {
				p.Begin = append(p.Begin, tp)
			}
		}
	}
}

// diffTopic returns the copy of t that is to be created, or plans its growth.
func (r rules) diffTopic(o observation, t topic, p *Plan) (*NewTopic, error) {
	if t.err != nil {
		return nil, fmt.Errorf("read topic %s of cluster %s: %w", t.name, r.settings.Source, hint(t.err, "DESCRIBE", t.name, r.settings.Source))
	}
	there, ok := o.target.topics[t.remote]
	r.warnOfTopic(o, t, p)
	switch {
	case !ok:
		d := o.configs[t.name]
		if d.err != nil {
			return nil, fmt.Errorf("create %s: read the configs of %s: %w", t.remote, t.name, hint(d.err, "DESCRIBE_CONFIGS", t.name, r.settings.Source))
		}
		rule := configRule{filter: r.settings.ConfigFilter, compat: r.settings.Compat}
		return &NewTopic{
			Cluster: r.settings.Target, Name: t.remote, Source: t.name,
			Partitions: t.partitions(), Configs: rule.atCreation(d.entries),
		}, nil
	case there.err != nil:
		return nil, fmt.Errorf("read topic %s of cluster %s: %w", t.remote, r.settings.Target, hint(there.err, "DESCRIBE", t.remote, r.settings.Target))
	case there.partitions() < t.partitions():
		p.Grow = append(p.Grow, Growth{Topic: t.remote, Source: t.name, From: there.partitions(), To: t.partitions()})
	}
	return nil, nil
}

// warnOfTopic tells of copies that cannot be like their source.
func (r rules) warnOfTopic(o observation, t topic, p *Plan) {
	there, ok := o.target.topics[t.remote]
	if at, before := copiedBefore(o, t, there); before {
		p.Warnings = append(p.Warnings, Warning{
			Message: "copy was deleted or created again: what was copied before is not copied again, for an event source does not go back; mirrorless.recreated says whether copying goes on",
			Topic:   t.remote, Detail: []any{"partition", at.Partition, "offset", o.positions[at].Upstream},
		})
	}
	if ok && there.err == nil && there.partitions() > t.partitions() {
		p.Warnings = append(p.Warnings, Warning{
			Message: "copy has more partitions than its source, so producers spread keys differently over the two",
			Topic:   t.remote, Detail: []any{"partitions", there.partitions(), "source", t.partitions()},
		})
	}
	if d := o.configs[t.name]; d.err == nil {
		p.Warnings = append(p.Warnings, tooLarge(t.name, d.entries, r.envelope())...)
	}
	if row, ok := o.rows[t.name]; ok && row.Partitions > t.partitions() {
		p.Warnings = append(p.Warnings, Warning{
			Message: "source topic has fewer partitions than before: it was created again",
			Topic:   t.name, Detail: []any{"partitions", t.partitions(), "before", row.Partitions},
		})
	}
}

// copiedBefore finds a partition with records that were copied to another topic of
// the copy's name than the one that is there now.
func copiedBefore(o observation, t topic, there topicView) (flow.TopicPartition, bool) {
	for n := range t.partitions() {
		tp := flow.TopicPartition{Topic: t.name, Partition: n}
		pos, ok := o.positions[tp]
		if ok && elsewhere(pos, there) && !unused(pos, there) {
			return tp, true
		}
	}
	return flow.TopicPartition{}, false
}

// elsewhere reports a position in another topic than the copy that is there now.
func elsewhere(pos state.Position, there topicView) bool {
	return pos.TargetTopicID != (state.TopicID{}) && pos.TargetTopicID != there.id && there.err == nil
}

// unused reports a position that nothing was copied under: it serves a copy that
// was created again.
func unused(pos state.Position, there topicView) bool {
	return elsewhere(pos, there) && pos.Copied == 0 && pos.Upstream == pos.First
}

// withFactor gives topics their replication factor: a default is lowered to what
// the cluster can give, a wish that is too high is a problem.
func (r rules) withFactor(topics []NewTopic, f config.ReplicationFactor, brokers int, p *Plan) []NewTopic {
	if len(topics) == 0 {
		return nil
	}
	factor := f.Value
	if int(factor) > brokers && brokers > 0 {
		if f.Written {
			e := &FactorError{Key: f.Key, Factor: factor, Cluster: topics[0].Cluster, Brokers: brokers}
			for _, t := range topics {
				e.Topics = append(e.Topics, t.Name)
			}
			p.Problems = append(p.Problems, e)
			return nil
		}
		factor = int16(brokers)
		p.Warnings = append(p.Warnings, Warning{
			Message: "default replication factor is lowered to the number of brokers",
			Detail:  []any{"cluster", topics[0].Cluster, "key", f.Key, "default", f.Value, "brokers", brokers},
		})
	}
	for i := range topics {
		topics[i].ReplicationFactor = factor
	}
	return topics
}

// diffConfigs compares the configs of copies with those of their sources.
func (r rules) diffConfigs(o observation, p *Plan) {
	rule := configRule{filter: r.settings.ConfigFilter, compat: r.settings.Compat}
	for _, t := range o.topics {
		source, known := o.configs[t.name]
		copied, there := o.remoteConfigs[t.remote]
		if !known || !there {
			continue
		}
		if err := errors.Join(
			hint(source.err, "DESCRIBE_CONFIGS", t.name, r.settings.Source),
			hint(copied.err, "DESCRIBE_CONFIGS", t.remote, r.settings.Target)); err != nil {
			p.Problems = append(p.Problems, fmt.Errorf("sync the configs of %s: %w", t.remote, err))
			continue
		}
		ops := rule.changes(source.entries, copied.entries)
		rejected := r.rejected[t.remote]
		if slices.ContainsFunc(ops, func(op ConfigOp) bool { return !rejected[op] }) {
			p.Configs = append(p.Configs, ConfigChange{Topic: t.remote, Ops: ops, Was: valuesOf(copied.entries, ops)})
		}
	}
}

// together makes one error of those that have the same text.
func together(verb string, failed map[string]error) []error {
	byText := map[string][]string{}
	errs := map[string]error{}
	for name, err := range failed {
		byText[err.Error()] = append(byText[err.Error()], name)
		errs[err.Error()] = err
	}
	out := make([]error, 0, len(errs))
	for _, text := range slices.SortedFunc(maps.Keys(byText), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Min(byText[a]), slices.Min(byText[b])), cmp.Compare(a, b))
	}) {
		names := byText[text]
		slices.Sort(names)
		out = append(out, fmt.Errorf("%s %s: %w", verb, some(names), errs[text]))
	}
	return out
}
