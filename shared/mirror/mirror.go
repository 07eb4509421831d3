// Package mirror copies the records of a Kafka event to the target cluster:
// each once, in the order of its partition, to the partition of the same
// number, with key, value, headers and timestamp as they were.
//
//	m := mirror.New(mirror.Options{Settings: settings, Store: store, Target: log, Source: source})
//	reply, err := m.Handle(ctx, payload)
//
// A batch passes six steps: decode; find the position of each partition; name
// the holes in its offsets; append conditionally (package target); remember the
// new positions; answer. Nothing is in flight when Handle returns that the next
// invocation could mistake: what it cannot vouch for, the next one settles with
// the broker.
//
// A Mirror keeps the positions of its last invocation in memory and trusts them
// only where it was the last to append and the target cannot have forgotten the
// producer. It needs the source cluster only to tell a topic from one that was
// created again under its name.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// Options are what a Mirror is made of. Settings, Store and Target are needed.
type Options struct {
	Settings config.Flow
	Store    state.Store
	Target   *target.Log
	// Source reaches the source cluster; nil where that is out of reach.
	Source *kgo.Client
	// Logger takes what nobody can be told by an error: holes, headers that did
	// not travel, other writers. It discards if nil.
	Logger *slog.Logger
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// ProducerExpiration is the target's producer.id.expiration.ms; a day, which is
	// the brokers' default, if zero.
	ProducerExpiration time.Duration
}

// Mirror copies for one flow. It is safe for concurrent use.
type Mirror struct {
	Options
	selector flow.Selector
	source   *source

	mu     sync.Mutex
	memory map[flow.TopicPartition]memory
}

// memory is a partition as the last invocation left it.
type memory struct {
	pos  state.Position
	open openRuns
}

// New returns a Mirror. It makes no request.
func New(o Options) *Mirror {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ProducerExpiration == 0 {
		o.ProducerExpiration = 24 * time.Hour
	}
	return &Mirror{
		Options:  o,
		selector: o.Settings.Selector(),
		source:   &source{client: o.Source, now: o.Now},
		memory:   map[flow.TopicPartition]memory{},
	}
}

// margin is the part of an invocation's time that is kept for remembering and
// answering.
const margin = time.Second

// rounds bounds how often a partition is read again and tried again within one
// invocation, after another one moved it or the target forgot the producer.
const rounds = 5

// Handle copies the batch in the payload, which it owns from then on, and
// returns the reply to the event source. An error means that the whole batch is
// to be sent again, which is always safe. A reply that names failures is given
// only where topics has confirmed that the event source understands it.
func (m *Mirror) Handle(ctx context.Context, payload []byte) ([]byte, error) {
	event, err := kafkaevent.Decode(payload)
	if err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	lots := split(event.Records)
	work, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		keep := min(margin, time.Until(deadline)/4)
		work, cancel = context.WithDeadlineCause(ctx, deadline.Add(-keep), errTimeUp)
	}
	defer cancel()

	for _, l := range lots {
		l.err = m.admit(l)
	}
	for round := 0; ; round++ {
		open := unfinished(lots)
		if len(open) == 0 {
			break
		}
		if round == rounds {
			for _, l := range open {
				l.fail(errors.Join(errContended, l.again))
			}
			break
		}
		m.round(ctx, work, open, round)
	}
	return m.answer(ctx, lots)
}

var (
	errTimeUp    = errors.New("the function's time is up")
	errContended = errors.New("another invocation keeps moving the position")
)

// round takes lots one step further: positions, appends, memory. A lot that is
// neither done nor failed afterwards wants another round, from the store.
// work ends before ctx does, so that what was achieved can still be stored.
func (m *Mirror) round(ctx, work context.Context, lots []*lot, round int) {
	m.locate(work, lots, round > 0)
	m.each(lots, func(l *lot) { m.prepare(work, l) })
	m.each(lots, func(l *lot) { m.claim(work, l) })
	m.renew(work, lots)
	m.each(lots, func(l *lot) { m.append(work, l) })
	m.remember(ctx, lots)
}

// each runs f for every lot that is still to be worked on, all at a time: they
// wait for brokers, which answer many partitions in one response.
func (m *Mirror) each(lots []*lot, f func(*lot)) {
	var wg sync.WaitGroup
	for _, l := range lots {
		if l.err != nil || l.again != nil {
			continue
		}
		wg.Go(func() { f(l) })
	}
	wg.Wait()
}
