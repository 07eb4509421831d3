package topics

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
)

// ConfigOp sets a config of a topic to a value, or deletes it, so that the
// broker's default is in force.
type ConfigOp struct {
	Name, Value string
	Delete      bool
}

// configRule says which configs of a topic of the source are written to its
// copy (facts: MirrorSourceConnector, targetConfig and its callers).
//
// It is stricter than MirrorMaker 2's in one thing: a value that the source's
// brokers have for all topics does not become a config of one topic on the
// target, unless use.defaults.from = source asks for the source's defaults.
// compat takes that back.
type configRule struct {
	filter flow.ConfigFilter
	compat bool
}

// atCreation returns the configs of the create request.
func (r configRule) atCreation(entries []configEntry) map[string]string {
	configs := map[string]string{}
	for _, e := range entries {
		if op, ok := r.wanted(e); ok && !op.Delete {
			configs[e.name] = e.value
		}
	}
	return configs
}

// wanted is what the copy's config should be. ok is false for one that is the
// target's own business.
func (r configRule) wanted(e configEntry) (op ConfigOp, ok bool) {
	switch {
	case e.readOnly, e.sensitive, e.source == kmsg.ConfigSourceStaticBrokerConfig, !r.filter.Match(e.name):
		return ConfigOp{}, false
	case e.source == kmsg.ConfigSourceDefaultConfig && !r.filter.MatchDefault(e.name):
		return ConfigOp{Name: e.name, Delete: true}, true
	case e.source != kmsg.ConfigSourceDefaultConfig && e.source != kmsg.ConfigSourceDynamicTopicConfig &&
		!r.compat && !r.filter.DefaultsFromSource:
		return ConfigOp{}, false
	}
	return ConfigOp{Name: e.name, Value: e.value}, true
}

// changes returns what makes the configs of the copy equal to those of the
// source, by name; nothing where they are. A config counts as equal whoever set
// the value: some vendors take a SET and go on showing the value as a default.
// A config is deleted only where the copy's topic has one.
func (r configRule) changes(source, copied []configEntry) []ConfigOp {
	there := make(map[string]configEntry, len(copied))
	for _, e := range copied {
		there[e.name] = e
	}
	var ops []ConfigOp
	for _, e := range source {
		op, ok := r.wanted(e)
		if !ok {
			continue
		}
		now, known := there[e.name]
		switch {
		case op.Delete && now.source != kmsg.ConfigSourceDynamicTopicConfig:
		case !op.Delete && known && !now.sensitive && now.value == op.Value:
		default:
			ops = append(ops, op)
		}
	}
	slices.SortFunc(ops, func(a, b ConfigOp) int { return cmp.Compare(a.Name, b.Name) })
	return ops
}

// valuesOf picks the values that ops are about to change, as far as they are told.
func valuesOf(entries []configEntry, ops []ConfigOp) map[string]string {
	values := map[string]string{}
	for _, e := range entries {
		if !e.sensitive && slices.ContainsFunc(ops, func(op ConfigOp) bool { return op.Name == e.name }) {
			values[e.name] = e.value
		}
	}
	return values
}

// keepsRecords names the configs without which a copy may lose records that the
// source keeps: the copy is not created where the target refuses one of them.
func keepsRecords(config string) bool {
	switch config {
	case "cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms", "min.compaction.lag.ms":
		return true
	}
	return false
}
