// Package heartbeat emits heartbeats: records that say that a flow runs, and that
// are copied over every hop, so that tools can find upstream clusters by them.
//
//	e := heartbeat.New(heartbeat.Options{Settings: settings, Reverse: &reverse, Source: a, Target: b})
//	err := e.Run(ctx) // one beat
//
// A beat of the flow A->B is what a running MirrorMaker 2 shows: a record in
// heartbeats on B with the key (A, B), and one in heartbeats on A with the key
// (B, A), of the reverse pair. The latter is left to the deployment of B->A where
// the file enables that, and is left out where the file switches it off. With the
// first switched off nothing is written to B.
//
// The package creates no topic and keeps nothing; see MirrorHeartbeatTask of
// Apache Kafka.
package heartbeat

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/batch"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/producer"
)

// Options are what an Emitter is made of. Settings, Source and Target are needed.
type Options struct {
	Settings config.Flow
	// Reverse is what the file says of the other direction, enabled or not; nil
	// leaves MirrorMaker 2's defaults, by which it beats.
	Reverse        *config.Flow
	Source, Target *kgo.Client
	// Logger takes the one warning that the source cannot be written to. It
	// discards if nil.
	Logger *slog.Logger
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Emitter emits the heartbeats of one flow. It is safe for concurrent use.
type Emitter struct {
	logger           *slog.Logger
	now              func() time.Time
	forward, reverse *pulse // nil where nothing is to be emitted

	mu     sync.Mutex
	warned bool
}

// pulse is what is emitted to one cluster.
type pulse struct {
	flow     flow.Flow
	client   *kgo.Client
	cluster  string // alias
	topic    string
	interval time.Duration

	mu   sync.Mutex
	next time.Time
}

// New returns an Emitter. It makes no request.
func New(o Options) *Emitter {
	e := &Emitter{logger: o.Logger, now: o.Now}
	if e.logger == nil {
		e.logger = slog.New(slog.DiscardHandler)
	}
	if e.now == nil {
		e.now = time.Now
	}
	if f := o.Settings; f.EmitHeartbeats.Enabled {
		e.forward = newPulse(f, o.Target)
	}
	reverse := config.Flow{
		Flow: o.Settings.Reverse(), SourceAlias: o.Settings.TargetAlias, TargetAlias: o.Settings.SourceAlias,
		Policy: o.Settings.Policy, EmitHeartbeats: config.Periodic{Enabled: true, Interval: o.Settings.EmitHeartbeats.Interval},
	}
	if o.Reverse != nil {
		reverse = *o.Reverse
	}
	if reverse.EmitHeartbeats.Enabled && !reverse.Enabled {
		e.reverse = newPulse(reverse, o.Source)
	}
	return e
}

func newPulse(f config.Flow, client *kgo.Client) *pulse {
	return &pulse{
		flow:     flow.Flow{Source: f.SourceAlias, Target: f.TargetAlias},
		client:   client,
		cluster:  f.Target,
		topic:    f.Policy.HeartbeatsTopic(),
		interval: f.EmitHeartbeats.Interval,
	}
}

// Run emits one beat to either cluster that is to have one; the reverse one only
// if its own interval is over. An error is the target's. What keeps the source
// from being written to, such as a missing right, is a warning, once until it
// works again: the flow runs without.
func (e *Emitter) Run(ctx context.Context) error {
	now := e.now()
	var wg sync.WaitGroup
	if e.reverse != nil && e.reverse.due(now) {
		wg.Go(func() { e.beatBack(ctx, now) })
	}
	var err error
	if e.forward != nil {
		err = e.forward.beat(ctx, now)
	}
	wg.Wait()
	return err
}

// beat writes one record and waits until the cluster has it.
func (p *pulse) beat(ctx context.Context, now time.Time) error {
	h := mm2.Heartbeat{Source: p.flow.Source, Target: p.flow.Target, Timestamp: now.UnixMilli()}
	err := producer.Send(ctx, p.client, []producer.Record{{
		Partition: flow.TopicPartition{Topic: p.topic},
		Record:    batch.Record{Timestamp: h.Timestamp, Key: h.Key(), Value: h.Value()},
	}})
	if err != nil {
		return fmt.Errorf("emit a heartbeat on cluster %s: %w", p.cluster, err)
	}
	return nil
}

// due reports whether the interval is over, or nearly so: schedules are not
// exact, and a beat too few looks like a flow that stands still.
func (p *pulse) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.next.Add(-min(p.interval/2, 20*time.Second))) {
		return false
	}
	if p.next = p.next.Add(p.interval); !p.next.After(now) {
		p.next = now.Add(p.interval)
	}
	return true
}

const (
	// patience is what the source may take from a beat of the flow itself.
	patience = 5 * time.Second
	// leaveAlone is how long a source is not tried again that cannot be written to.
	leaveAlone = time.Minute
)

// beatBack emits the reverse heartbeat, and warns of the first failure in a row.
func (e *Emitter) beatBack(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := e.reverse.beat(ctx, now)
	if err != nil {
		e.reverse.postpone(now.Add(leaveAlone))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && !e.warned {
		e.logger.WarnContext(ctx, "no heartbeats of the reverse flow", "error", err.Error())
	}
	e.warned = err != nil
}

// postpone puts the next beat off.
func (p *pulse) postpone(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = until
}
