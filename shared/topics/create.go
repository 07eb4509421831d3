package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// send creates topics in as few requests as the cluster takes, or asks whether it
// would. The answers are by name.
func (t *Topics) send(ctx context.Context, c cluster, topics []NewTopic, validateOnly bool) map[string]error {
	limit := t.memory.limitOf(c.alias)
	return split(topics, limit,
		func(n NewTopic) int { return 1 + int(n.Partitions) + len(n.Configs) },
		func(n NewTopic) string { return n.Name },
		func(batch []NewTopic) map[string]error { return c.create(ctx, batch, validateOnly) })
}

// createCopies creates copies and adds the topics of the source whose copy does
// not exist to failed. A copy that the target wants later is no error: the next
// round goes on.
func (t *Topics) createCopies(ctx context.Context, topics []NewTopic, failed map[string]bool) []error {
	errs := map[string]error{}
	answers := t.send(ctx, t.target, topics, false)
	for _, n := range topics {
		err := answers[n.Name]
		if refusesConfig(err) && len(n.Configs) > 0 {
			n, err = t.createWithout(ctx, n, err)
		}
		switch {
		case err == nil:
			t.tellCreated(ctx, n)
		case is(err, kerr.TopicAlreadyExists): // another round was faster
		case is(err, kerr.ThrottlingQuotaExceeded):
			failed[n.Source] = true
			t.tellThrottled(ctx, t.target.alias)
		default:
			failed[n.Source] = true
			errs[n.Name] = hint(err, "CREATE", n.Name, t.target.alias)
		}
	}
	return together("create", errs)
}

// createWithout creates a copy that the target refused, without the configs that
// it refuses, unless it is refused for another reason.
func (t *Topics) createWithout(ctx context.Context, n NewTopic, refused error) (NewTopic, error) {
	n, rejected, err := t.acceptable(ctx, n, refused)
	if err != nil {
		return n, err
	}
	if err := t.target.create(ctx, []NewTopic{n}, false)[n.Name]; err != nil {
		return n, err
	}
	t.reject(ctx, n.Name, rejected)
	return n, nil
}

// acceptable finds what the target would take of a copy that it refused: n
// without the rejected configs, with the reasons. The error says why it takes
// none.
func (t *Topics) acceptable(ctx context.Context, n NewTopic, refused error) (NewTopic, map[ConfigOp]error, error) {
	validate := func(n NewTopic) error { return t.target.create(ctx, []NewTopic{n}, true)[n.Name] }
	bare := n
	bare.Configs = nil
	if validate(bare) != nil {
		return n, nil, refused
	}
	var ops []ConfigOp
	for _, name := range slices.Sorted(maps.Keys(n.Configs)) {
		ops = append(ops, ConfigOp{Name: name, Value: n.Configs[name]})
	}
	rejected, err := bisect(ops, refusesConfig, func(some []ConfigOp) error { return validate(n.with(some)) })
	if err != nil {
		return n, nil, err
	}
	if len(rejected) == 0 {
		return n, nil, refused // they are refused together only
	}
	var needed []error
	var accepted []ConfigOp
	for _, op := range ops {
		switch err, no := rejected[op]; {
		case !no:
			accepted = append(accepted, op)
		case keepsRecords(op.Name):
			needed = append(needed, fmt.Errorf("%s = %s is refused, and without it the copy may lose records that the source keeps: add %s to config.properties.exclude to create it all the same: %w",
				op.Name, op.Value, op.Name, err))
		}
	}
	if needed != nil {
		return n, nil, errors.Join(needed...)
	}
	return n.with(accepted), rejected, nil
}

func (n NewTopic) with(configs []ConfigOp) NewTopic {
	n.Configs = make(map[string]string, len(configs))
	for _, op := range configs {
		n.Configs[op.Name] = op.Value
	}
	return n
}

// growCopies adds partitions, and adds the topics of the source whose copy is too
// small still to failed.
func (t *Topics) growCopies(ctx context.Context, topics []Growth, failed map[string]bool) []error {
	errs := map[string]error{}
	answers := t.sendGrowth(ctx, topics, false)
	for _, g := range topics {
		switch err := answers[g.Topic]; {
		case err == nil:
			t.Logger.InfoContext(ctx, "added partitions", "topic", g.Topic, "partitions", g.To, "before", g.From)
		case is(err, kerr.InvalidPartitions): // another round was faster; await will see
		case is(err, kerr.ThrottlingQuotaExceeded):
			failed[g.Source] = true
			t.tellThrottled(ctx, t.target.alias)
		default:
			failed[g.Source] = true
			errs[g.Topic] = hint(err, "ALTER", g.Topic, t.target.alias)
		}
	}
	return together("add partitions to", errs)
}

// sendGrowth adds partitions to topics of the target, or asks whether it would.
func (t *Topics) sendGrowth(ctx context.Context, topics []Growth, validateOnly bool) map[string]error {
	return split(topics, t.memory.limitOf(t.target.alias),
		func(g Growth) int { return int(g.To - g.From) },
		func(g Growth) string { return g.Topic },
		func(batch []Growth) map[string]error { return t.target.grow(ctx, batch, validateOnly) })
}

// await returns the target's view once the partitions that were created or added
// have leaders. A produce before that is lost or reordered on brokers without the
// fix of KAFKA-15591.
func (t *Topics) await(ctx context.Context, o observation, p Plan, failed map[string]bool) (view, []error) {
	v := o.target
	v.topics = maps.Clone(v.topics)
	wanted := map[string]int32{}
	source := map[string]string{}
	for _, n := range p.Create {
		wanted[n.Name], source[n.Name] = n.Partitions, n.Source
	}
	for _, g := range p.Grow {
		wanted[g.Topic], source[g.Topic] = g.To, g.Source
	}
	maps.DeleteFunc(wanted, func(name string, _ int32) bool { return failed[source[name]] })
	if len(wanted) == 0 {
		return v, nil
	}
	limited, cancel := context.WithTimeout(ctx, min(t.target.timeout, patience))
	defer cancel()
	var asked error
	for wait := newBackoff(); ; {
		now, err := t.target.metadata(limited, false, slices.Sorted(maps.Keys(wanted))...)
		if asked = err; err == nil {
			for name, n := range wanted {
				if there := now.topics[name]; there.led(n) {
					v.topics[name] = there
					delete(wanted, name)
				}
			}
		}
		if len(wanted) == 0 || !wait.next(limited) {
			break
		}
	}
	errs := map[string]error{}
	for name := range wanted {
		failed[source[name]] = true
		errs[name] = errors.Join(errLeaderless, asked)
	}
	return v, together("wait for", errs)
}

var errLeaderless = errors.New("some of its partitions have no leader yet; the next round looks again")

func (t *Topics) tellCreated(ctx context.Context, n NewTopic) {
	t.Logger.InfoContext(ctx, "created topic", "cluster", n.Cluster, "topic", n.Name,
		"partitions", n.Partitions, "replication.factor", n.ReplicationFactor)
}

// tellThrottled: the controller's quota (KIP-599) is nobody's mistake.
func (t *Topics) tellThrottled(ctx context.Context, alias string) {
	t.tell(ctx, "throttled "+alias, "cluster throttles the creation of topics, the others follow at the next rounds", "cluster", alias)
}
