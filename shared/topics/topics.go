// Package topics makes the topics of the target look like those of the source,
// gives each new partition its first position, and keeps one event source per
// topic.
//
//	t := topics.New(topics.Options{
//		Settings: settings, Reverse: &reverse, Store: store,
//		Source: source, Target: target, Log: log, EventSources: mappings, Stack: "dev",
//	})
//	err := t.Run(ctx) // one round
//
// A round observes both clusters, the state and the event sources in a few
// batched requests; finds the differences, which asks nobody; and applies them:
// internal topics as MirrorMaker 2 makes them, copies with their configs in the
// create request, more partitions, first positions, configs, event sources, ACLs.
// [Topics.Plan] stops before the last step.
//
// Whatever a round did not get to, the next one does: a crash between any two
// calls leaves nothing that it would not see. Errors of one topic do not stop the
// others. A round that finds nothing to do writes nothing and logs nothing.
//
// The package deletes no topic, no partition, no ACL and no consumer group.
package topics

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// Options are what Topics is made of. Settings, Store, Source and Target are
// needed.
type Options struct {
	Settings config.Flow
	// Reverse are the settings of the opposite direction; nil where the file knows
	// none. Where it is off and yet emits heartbeats, as is MirrorMaker 2's
	// default, its heartbeats topic on the source is made here.
	Reverse *config.Flow
	Store   state.Store
	// Source and Target are clients for admin requests.
	Source, Target *kgo.Client
	// Log allocates the flow's producer id; made of Target if nil.
	Log *target.Log
	// EventSources is nil where this function keeps none.
	EventSources EventSources
	// Stack names the deployment in the groups of event sources.
	Stack string
	// PartialFailures asks for event sources with ReportBatchItemFailures.
	PartialFailures bool
	// HeartbeatWindow is the batching window of heartbeats topics where it is
	// longer than mirrorless.batch.window: a beat is no hurry.
	HeartbeatWindow time.Duration
	// Observe is told what a round has come to, at its end; nobody if nil. A round
	// that cannot go on, or does not know the event sources, has come to nothing.
	Observe func(Report)
	// Logger discards if nil.
	Logger *slog.Logger
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Topics keeps the topics of one flow. It is safe for concurrent use; rounds wait
// for each other.
type Topics struct {
	Options
	source, target cluster

	mu     sync.Mutex // held for a round
	rules  rules
	memory memory
}

// memory is what a process has learned. All of it can be learned again.
type memory struct {
	said map[string]bool
	// configs and acls are the times of the last complete syncs.
	configs, acls time.Time
	// prepared is the number of partitions of a source topic that have positions.
	prepared map[string]int32
	// settled: a round has given every topic its positions.
	settled bool
	// looked: the internal topics' configs have been looked at.
	looked bool
	// limits are the most topics in a create request, by cluster.
	limits map[string]*int
	// rejected is rules.rejected.
	rejected map[string]map[ConfigOp]bool
	// updated is rules.updated.
	updated map[string]bool
	noAlter bool
}

func (m memory) limitOf(alias string) *int {
	if m.limits[alias] == nil {
		m.limits[alias] = new(mostTopics)
	}
	return m.limits[alias]
}

// New returns Topics. It makes no request.
func New(o Options) *Topics {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = target.New(o.Target, target.Options{})
	}
	m := memory{
		said: map[string]bool{}, prepared: map[string]int32{},
		limits: map[string]*int{}, rejected: map[string]map[ConfigOp]bool{},
		updated: map[string]bool{},
	}
	return &Topics{
		Options: o,
		source:  cluster{o.Settings.Source, o.Source, o.Settings.AdminTimeout},
		target:  cluster{o.Settings.Target, o.Target, o.Settings.AdminTimeout},
		rules: rules{
			settings: o.Settings, reverse: o.Reverse, selector: o.Settings.Selector(), stack: o.Stack,
			partialFailures: o.PartialFailures, heartbeatWindow: o.HeartbeatWindow, rejected: m.rejected, updated: m.updated,
		},
		memory: m,
	}
}

// Interval is how often Run should be called: the shortest of the intervals that
// the settings ask for, 0 where everything is done once at the start.
func (t *Topics) Interval() time.Duration {
	var shortest time.Duration
	for _, p := range []config.Periodic{t.Settings.RefreshTopics, t.Settings.SyncTopicConfigs, t.Settings.SyncTopicACLs} {
		if p.Enabled && (shortest == 0 || p.Interval < shortest) {
			shortest = p.Interval
		}
	}
	return shortest
}

// due reports whether work with an interval is to be done. A schedule that fires
// a little early counts, or every second time would be missed.
func due(last, now time.Time, interval time.Duration) bool {
	return last.IsZero() || now.Sub(last) >= interval-interval/10
}

// Plan returns what Run would do now, and changes nothing. The syncs of configs
// and ACLs are in it if they are due.
func (t *Topics) Plan(ctx context.Context) (Plan, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, err := t.observe(ctx)
	if err != nil {
		return Plan{}, err
	}
	return t.rules.diff(o), nil
}

// Run does one round. Its error joins what went wrong; the rest is done.
//
// Errors that stop a round before it changes anything: [ErrSameCluster],
// [ErrForeignState], a [*ClusterChangedError], and those of the clusters and the
// store. A [*FactorError] keeps topics from being created.
func (t *Topics) Run(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, p, err := t.look(ctx)
	if err != nil {
		return err
	}
	copied, errs := t.createInternal(ctx, p.Internal)
	if copied {
		// It is a topic of the source from now on.
		if o, p, err = t.look(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(append(errs, t.apply(ctx, o, p)...)...)
}

// look observes and finds the differences. The flow has its row from then on.
func (t *Topics) look(ctx context.Context) (observation, Plan, error) {
	o, err := t.observe(ctx)
	if err != nil {
		return o, Plan{}, err
	}
	if o.flow, err = t.settleFlow(ctx, o); err != nil {
		return o, Plan{}, err
	}
	p := t.rules.diff(o)
	t.tellPlan(ctx, p)
	t.memory.looked = true
	return o, p, nil
}

// apply does what the plan says about copies: first what mirror waits for.
func (t *Topics) apply(ctx context.Context, o observation, p Plan) []error {
	errs := p.Problems
	failed := map[string]bool{} // topics of the source
	errs = append(errs, t.createCopies(ctx, p.Create, failed)...)
	errs = append(errs, t.growCopies(ctx, p.Grow, failed)...)
	copies, late := t.await(ctx, o, p, failed)
	errs = append(errs, late...)
	ready, starts, unready := t.begin(ctx, o, p, copies, failed)
	errs = append(errs, unready...)
	t.remember(o, ready)
	if o.keepsSources {
		errs = append(errs, t.reconcile(ctx, p, ready, starts)...)
	}
	if t.Observe != nil && (o.keepsSources || t.EventSources == nil) {
		t.Observe(p.report())
	}
	if o.syncConfigs {
		bad := t.alterConfigs(ctx, p.Configs)
		if errs = append(errs, bad...); len(bad) == 0 {
			t.memory.configs = o.now
		}
	}
	if o.syncACLs {
		bad := t.createACLs(ctx, p.ACLs)
		if errs = append(errs, bad...); len(bad) == 0 {
			t.memory.acls = o.now
		}
	}
	return errs
}

// remember notes which partitions have positions.
func (t *Topics) remember(o observation, ready map[string]bool) {
	all := true
	for _, tp := range o.topics {
		if ready[tp.name] {
			t.memory.prepared[tp.name] = tp.partitions()
		} else {
			all = false
		}
	}
	t.memory.settled = t.memory.settled || all
}

// tellPlan logs what a plan noticed, each thing once in the life of the process.
func (t *Topics) tellPlan(ctx context.Context, p Plan) {
	for _, s := range p.Skipped {
		t.tell(ctx, "skipped "+s.Topic, "topic is not copied", "topic", s.Topic, "reason", string(s.Reason), "why", s.Reason.Explain())
	}
	for _, w := range p.Warnings {
		t.warn(ctx, w)
	}
}

// tell logs once.
func (t *Topics) tell(ctx context.Context, key, message string, detail ...any) {
	if !t.memory.said[key] {
		t.memory.said[key] = true
		t.Logger.InfoContext(ctx, message, detail...)
	}
}

// warn logs a warning once.
func (t *Topics) warn(ctx context.Context, w Warning) { t.tellWarning(ctx, w.key(), w) }

func (t *Topics) tellWarning(ctx context.Context, key string, w Warning) {
	if t.memory.said[key] {
		return
	}
	t.memory.said[key] = true
	detail := w.Detail
	if w.Topic != "" {
		detail = append([]any{"topic", w.Topic}, detail...)
	}
	t.Logger.WarnContext(ctx, w.Message, detail...)
}

// margin is the time that a round leaves unused at the end of its function's.
const margin = 3 * time.Second

// outOfTime reports that nothing new should be begun.
func (t *Topics) outOfTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < margin
}
