package topics

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterBatch bounds the topics in a request.
const alterBatch = 200

// alterConfigs changes the configs of copies. A config that the target refuses
// does not keep the others of its topic from being set; it is told once and left
// alone until something else of the topic changes.
func (t *Topics) alterConfigs(ctx context.Context, changes []ConfigChange) []error {
	failed := map[string]error{}
	for batch := range slices.Chunk(changes, alterBatch) {
		answers := t.target.alter(ctx, batch, false)
		for _, change := range batch {
			err := answers[change.Topic]
			if err != nil && !isRefusal(err) && t.target.lacks(ctx, kmsg.IncrementalAlterConfigs) {
				t.memory.noAlter = true
				t.warn(ctx, noAlter(t.target.alias))
				return nil
			}
			if refusesConfig(err) {
				err = t.alterSome(ctx, change, err)
			} else if err == nil {
				delete(t.memory.rejected, change.Topic)
				t.tellAltered(ctx, change.Topic, change.Ops, nil)
			}
			if err != nil {
				failed[change.Topic] = hint(err, "ALTER_CONFIGS", change.Topic, t.target.alias)
			}
		}
	}
	return together("alter the configs of", failed)
}

func noAlter(alias string) Warning {
	return Warning{
		Message: "brokers cannot alter single configs, so topic configs are not synced after creation: Kafka 2.3 can",
		Detail:  []any{"cluster", alias},
	}
}

// alterSome changes what can be changed, after the whole was refused.
func (t *Topics) alterSome(ctx context.Context, change ConfigChange, refused error) error {
	rejected, err := t.bisectConfigs(ctx, change, refused, false)
	t.reject(ctx, change.Topic, rejected)
	t.tellAltered(ctx, change.Topic, change.Ops, rejected)
	return err
}

// bisectConfigs finds the configs that were refused, and changes the others unless
// it is to validate only.
func (t *Topics) bisectConfigs(ctx context.Context, change ConfigChange, refused error, validateOnly bool) (map[ConfigOp]error, error) {
	first := true
	return bisect(change.Ops, refusesConfig, func(some []ConfigOp) error {
		if first { // all of them: the answer is known
			first = false
			return refused
		}
		return t.target.alter(ctx, []ConfigChange{{Topic: change.Topic, Ops: some}}, validateOnly)[change.Topic]
	})
}

// reject remembers what the target refused for a topic, and tells it once.
func (t *Topics) reject(ctx context.Context, topic string, rejected map[ConfigOp]error) {
	ops := make(map[ConfigOp]bool, len(rejected))
	for op, err := range rejected {
		ops[op] = true
		t.tellWarning(ctx, "rejected "+topic+" "+op.Name+"="+op.shown(), rejection(topic, op, err))
	}
	t.memory.rejected[topic] = ops
}

func rejection(topic string, op ConfigOp, err error) Warning {
	return Warning{
		Message: "target refuses a topic config, the others are set: add it to config.properties.exclude",
		Topic:   topic, Detail: []any{"config", op.Name, "value", op.shown(), "error", err.Error()},
	}
}

func (op ConfigOp) shown() string {
	if op.Delete {
		return "the default"
	}
	return op.Value
}

func (t *Topics) tellAltered(ctx context.Context, topic string, ops []ConfigOp, rejected map[ConfigOp]error) {
	var names []string
	for _, op := range ops {
		if _, no := rejected[op]; !no {
			names = append(names, op.Name)
		}
	}
	if len(names) > 0 {
		t.Logger.InfoContext(ctx, "changed topic configs", "topic", topic, "configs", names)
	}
}
