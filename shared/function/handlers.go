package function

import (
	"context"
	"encoding/json"
	"errors"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/config"
	"mirrorless/shared/heartbeat"
	"mirrorless/shared/mirror"
	"mirrorless/shared/topics"
)

// Mirror copies the records of a Kafka event.
func Mirror(p *Parts) (Handler, error) {
	m, err := p.mirror()
	if err != nil {
		return nil, err
	}
	return HandlerFunc(func(ctx context.Context, payload []byte) ([]byte, error) {
		reply, err := m.Handle(ctx, payload)
		return reply, p.explain(err)
	}), nil
}

func (p *Parts) mirror() (*mirror.Mirror, error) {
	a, b, err := p.both(config.Consumer, config.Producer)
	if err != nil {
		return nil, err
	}
	log, err := p.log(b)
	if err != nil {
		return nil, err
	}
	o := mirror.Options{Settings: p.Settings, Store: p.Store, Target: log, Source: a, DeadLetters: b, Logger: p.Logger}
	if w := p.writer(); w != nil {
		o.Observe = w.Mirrored
	}
	return mirror.New(o), nil
}

// Topics keeps topics, their configs and the event sources in step.
func Topics(p *Parts) (Handler, error) {
	o, err := p.topics()
	if err != nil {
		return nil, err
	}
	all := topics.New(o)
	o.EventSources = nil
	bare := topics.New(o)
	return HandlerFunc(func(ctx context.Context, payload []byte) ([]byte, error) {
		var event struct {
			// EventSources is "none" where the stack has made the one that is wanted.
			EventSources string `json:"eventSources"`
		}
		t := all
		if err := json.Unmarshal(payload, &event); err == nil && event.EventSources == "none" {
			t = bare
		}
		return nil, p.explain(t.Run(ctx))
	}), nil
}

// Heartbeat emits one beat.
func Heartbeat(p *Parts) (Handler, error) {
	a, b, err := p.both(config.Producer, config.Producer)
	if err != nil {
		return nil, err
	}
	h := heartbeat.New(heartbeat.Options{Settings: p.Settings, Reverse: p.reverse(), Source: a, Target: b, Logger: p.Logger})
	return p.scheduled(h.Run), nil
}

// Checkpoint translates group offsets and writes the slow internal records. It
// also sweeps: it copies what no event brings.
func Checkpoint(p *Parts) (Handler, error) {
	a, b, err := p.both(config.Admin, config.Admin)
	if err != nil {
		return nil, err
	}
	syncs, err := p.offsetSyncs()
	if err != nil {
		return nil, err
	}
	o := checkpoint.Options{
		Settings: p.Settings, Store: p.Store, Source: a, Target: b, OffsetSyncs: syncs, Owner: p.Owner, Logger: p.Logger,
	}
	if w := p.writer(); w != nil {
		o.Observe = w.Checkpointed
	}
	c := checkpoint.New(o)
	m, err := p.mirror()
	if err != nil {
		return nil, err
	}
	return p.scheduled(func(ctx context.Context) error {
		return errors.Join(c.Run(ctx), m.Sweep(ctx))
	}), nil
}

// scheduled is a function that a schedule invokes: its event says nothing.
func (p *Parts) scheduled(run func(context.Context) error) Handler {
	return HandlerFunc(func(ctx context.Context, _ []byte) ([]byte, error) {
		return nil, p.explain(run(ctx))
	})
}
