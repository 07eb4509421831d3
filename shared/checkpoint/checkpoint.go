// Package checkpoint says, on the target, where the groups of the source go on
// reading, and writes the slow records by which MirrorMaker 2 could take over.
//
//	t := checkpoint.New(checkpoint.Options{
//		Settings: settings, Store: store, Source: a, Target: b, Owner: environment,
//	})
//	err := t.Run(ctx) // one round
//
// A round reads the positions that mirror has stored and
//
//   - writes, for the partitions that have moved since, the latest offset sync and
//     the position in mm2-offsets.<source>.internal;
//   - translates the offsets that groups have committed on the source, exactly,
//     with the run map (package offsets), and writes the checkpoints that have
//     changed to <source>.checkpoints.internal;
//   - with sync.group.offsets.enabled, commits them on the target for groups that
//     have no member there, forward only.
//
// Each of these has its interval; a round does what is due. One owner works at a
// time, by a lease, and the round of another one is left to that. What fails for
// one group or partition does not keep the others back: the errors are joined. A
// round that finds nothing to do writes nothing and logs nothing.
//
// With mirrorless.compat = mm2 groups are translated by MirrorMaker 2's 64 sampled
// offset syncs instead, and its rules say what is emitted and committed.
//
// The package creates no topic and copies no record.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

// Options are what a Translator is made of. All but the last four are needed.
type Options struct {
	Settings       config.Flow
	Store          state.Store
	Source, Target *kgo.Client
	// Owner names this process or environment to others that serve the same flow.
	Owner string
	// OffsetSyncs writes the offset syncs, as Settings.OffsetSyncsClient says; nil
	// for the client of the cluster that holds them.
	OffsetSyncs *kgo.Client
	// Logger takes the one warning that offset syncs cannot be written to the
	// source. It discards if nil.
	Logger *slog.Logger
	// Observe is told how far the copies are and what was written, at the end of a
	// round that has looked or written; nobody if nil.
	Observe func(Report)
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Translator works for one flow. It is safe for concurrent use; rounds come one
// after the other.
type Translator struct {
	Options
	selector flow.Selector

	mu                  sync.Mutex // one round at a time
	slow, emit, commits pace
	looks, prunes       pace
	missed              time.Time // when there was no heartbeat first
	token               int64     // of the lease of the last round
	warned              bool      // that offset syncs cannot be written
	groups              []string

	// What the last round left. It is dropped when another owner has worked since.
	flushed map[flow.TopicPartition]flushed
	written map[groupPartition]state.Checkpoint // nil where it is to be read

	partitions map[flow.TopicPartition]*partition
}

// New returns a Translator. It makes no request.
func New(o Options) *Translator {
	if o.OffsetSyncs == nil {
		o.OffsetSyncs = o.Source
		if o.Settings.OffsetSyncsOnTarget {
			o.OffsetSyncs = o.Target
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Translator{
		Options: o, selector: o.Settings.Selector(),
		flushed: map[flow.TopicPartition]flushed{}, partitions: map[flow.TopicPartition]*partition{},
	}
}

// Interval is how often Run has something to do: the shortest of the intervals
// that are in force.
func Interval(f config.Flow) time.Duration {
	d := f.OffsetFlushInterval
	for _, p := range []config.Periodic{f.EmitCheckpoints, f.SyncGroupOffsets} {
		if p.Enabled {
			d = min(d, p.Interval)
		}
	}
	return d
}

// Run does one round: all that is due, and all of it when it is the first one. An
// error means that something of it is to be done again, which the next round does.
func (t *Translator) Run(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &round{Translator: t, now: t.Now(), report: Report{Heartbeat: unknownAge}}
	slow := t.slow.due(r.now, t.Settings.OffsetFlushInterval)
	r.emits = t.Settings.EmitCheckpoints.Enabled && t.emit.due(r.now, t.Settings.EmitCheckpoints.Interval)
	r.commits = t.Settings.SyncGroupOffsets.Enabled && t.commits.due(r.now, t.Settings.SyncGroupOffsets.Interval)
	looks := t.Observe != nil && t.looks.due(r.now, lookEvery)
	if !slow && !r.emits && !r.commits && !looks {
		return nil
	}
	ctx, release, err := t.lease(ctx)
	if err != nil {
		if errors.Is(err, state.ErrHeld) {
			return nil // another owner is at it
		}
		return err
	}
	defer release()
	if err := r.observe(ctx); err != nil {
		return err
	}
	if slow {
		if err := r.flush(ctx); err != nil {
			r.fail(err)
		} else {
			t.slow.done(r.now, t.Settings.OffsetFlushInterval)
		}
	}
	if looks {
		r.look(ctx)
		t.looks.done(r.now, lookEvery)
	}
	if t.prunes.due(r.now, pruneEvery) {
		r.prune(ctx)
		t.prunes.done(r.now, pruneEvery)
	}
	defer r.tell()
	if r.emits || r.commits {
		before := r.failed()
		r.translate(ctx)
		if r.failed() == before {
			if r.emits {
				t.emit.done(r.now, t.Settings.EmitCheckpoints.Interval)
			}
			if r.commits {
				t.commits.done(r.now, t.Settings.SyncGroupOffsets.Interval)
			}
		}
	}
	return r.err()
}

// pace says when periodic work is due.
type pace struct{ next time.Time }

// due reports whether the interval is over, or so nearly that the round of a
// schedule that is not exact must do the work.
func (p *pace) due(now time.Time, interval time.Duration) bool {
	return !now.Before(p.next.Add(-min(interval/2, 30*time.Second)))
}

// done sets the next time, an interval after the last one rather than after now,
// so that it does not slip.
func (p *pace) done(now time.Time, interval time.Duration) {
	if p.next = p.next.Add(interval); !p.next.After(now) {
		p.next = now.Add(interval)
	}
}

const (
	leaseName = "checkpoint"
	// leaseTime is how long the flow is left alone after its owner was killed.
	leaseTime = 30 * time.Second
	// margin is the part of an invocation's time that is kept for giving the lease
	// back.
	margin = time.Second
)

// lease makes this owner the only one until release is called. The context that
// it returns ends when another one has taken over.
func (t *Translator) lease(parent context.Context) (ctx context.Context, release func(), err error) {
	lease, err := t.Store.Acquire(parent, leaseName, t.Owner, leaseTime)
	if err != nil {
		return nil, nil, fmt.Errorf("lease the checkpoints of %s: %w", t.Settings.Flow, err)
	}
	if lease.Token != t.token+1 {
		clear(t.flushed)
		t.written = nil
	}
	t.token = lease.Token
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.CancelFunc(func() {})
	if deadline, ok := parent.Deadline(); ok {
		ctx, stop = context.WithDeadline(ctx, deadline.Add(-min(margin, time.Until(deadline)/4)))
	}
	var renewing sync.WaitGroup
	renewing.Go(func() { t.renew(ctx, lease, cancel) })
	return ctx, func() {
		stop()
		cancel(nil)
		renewing.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), margin/2)
		defer cancel()
		_ = t.Store.Release(ctx, lease) // it expires by itself
	}, nil
}

func (t *Translator) renew(ctx context.Context, lease state.Lease, lost context.CancelCauseFunc) {
	ticker := time.NewTicker(leaseTime / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if renewed, err := t.Store.Renew(ctx, lease, leaseTime); err == nil {
			lease = renewed
		} else if errors.Is(err, state.ErrHeld) {
			lost(fmt.Errorf("lease the checkpoints of %s: %w", t.Settings.Flow, err))
			return
		}
	}
}

// round is one call of Run.
type round struct {
	*Translator
	now            time.Time
	emits, commits bool

	positions map[flow.TopicPartition]state.Position
	remotes   map[string]string // checkpoint topic, by source topic
	targets   map[string]remote // by topic of the target
	logs      map[flow.TopicPartition]span
	report    Report

	failures
}

// step bounds one administrative step, as admin.timeout.ms says.
func (r *round) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.Settings.AdminTimeout,
		fmt.Errorf("no answer within %s (admin.timeout.ms)", r.Settings.AdminTimeout))
}

// observe finds the topics of the source that are copied, and how far.
func (r *round) observe(ctx context.Context) error {
	asking, cancel := r.step(ctx)
	defer cancel()
	topics, err := kadm.NewClient(r.Source).ListTopicsWithInternal(asking)
	if err != nil {
		return fmt.Errorf("list topics of cluster %s: %w", r.Settings.Source, because(asking, err))
	}
	var partitions []flow.TopicPartition
	r.remotes = map[string]string{}
	for name, topic := range topics {
		if !r.selector.Select(name).Copy {
			continue
		}
		r.remotes[name] = r.selector.CheckpointTopic(name)
		for p := range topic.Partitions {
			partitions = append(partitions, flow.TopicPartition{Topic: name, Partition: p})
		}
	}
	r.positions, err = r.Store.Positions(ctx, partitions)
	if err != nil {
		err = fmt.Errorf("read positions: %w", err)
		if len(r.positions) == 0 {
			return err
		}
		r.fail(err)
	}
	for tp := range r.partitions {
		if _, ok := r.positions[tp]; !ok && err == nil {
			delete(r.partitions, tp)
		}
	}
	return nil
}

// because is err, with the reason why a context ended where it is that.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// failures collects independent errors, and counts those that are too many to
// be told. It is safe for concurrent use.
type failures struct {
	mu   sync.Mutex
	errs []error
	n    int
}

const mostFailures = 20

func (f *failures) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if len(f.errs) < mostFailures {
		f.errs = append(f.errs, err)
	}
}

func (f *failures) failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if more := f.n - len(f.errs); more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more errors", more))...)
	}
	return errors.Join(f.errs...)
}
