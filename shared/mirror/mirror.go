// Package mirror copies the records of a Kafka event to the target cluster:
// each once, in the order of its partition, to the partition of the same
// number, with key, value, headers and timestamp as they were.
//
//	m := mirror.New(mirror.Options{Settings: settings, Store: store, Target: log, Source: source})
//	reply, err := m.Handle(ctx, payload)
//
// A batch passes six steps: decode; find the position of each partition; look up
// on the source what the event lacks, and put it in its place; append conditionally
// (package target); remember the new positions; answer. Nothing is in flight when
// Handle returns that the next invocation could mistake: what it cannot vouch for,
// the next one settles with the broker.
//
// An event lacks records that are over its cap, and the names of headers without a
// value. Where its offsets have a gap, one read of the source shows what is there:
// such a record, or a marker, or what compaction left; what is gone is reported as
// a hole. Where the source is out of reach the gap is a hole, unexplained. What no
// event brings, because no later record shows the gap, [Mirror.Sweep] copies.
//
// A Mirror keeps the positions of its last invocation in memory and trusts them
// only where it was the last to append and the target cannot have forgotten the
// producer.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state"
)

// Options are what a Mirror is made of. Settings, Store and Target are needed.
type Options struct {
	Settings config.Flow
	Store    state.Store
	Target   Target
	// Source reaches the source cluster; nil where that is out of reach.
	Source *kgo.Client
	// DeadLetters reaches the target; records that it refuses are written to the
	// dead-letter topic by it. Needed where errors.tolerance is all: without it they
	// stop their partition.
	DeadLetters *kgo.Client
	// Logger takes what nobody can be told by an error: holes, headers that did
	// not travel, other writers. It discards if nil.
	Logger *slog.Logger
	// Observe is told what an invocation or a sweep has come to, once, before it is
	// answered; nobody if nil.
	Observe func(Report)
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// ProducerExpiration is the target's producer.id.expiration.ms; a day, which is
	// the brokers' default, if zero.
	ProducerExpiration time.Duration
}

// Mirror copies for one flow. It is safe for concurrent use.
type Mirror struct {
	Options
	selector  flow.Selector
	source    *source
	committed bool // the source is read committed
	room      int  // bytes that a round takes from the source

	mu     sync.Mutex
	memory map[flow.TopicPartition]memory
	told   map[string]bool // what is said once in the life of a Mirror

	sweeper sweeper
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
	switch {
	case o.Settings.ExactlyOnce:
		o.ProducerExpiration = math.MaxInt64 // a transactional id's epoch does not expire with its records
	case o.ProducerExpiration == 0:
		o.ProducerExpiration = 24 * time.Hour
	}
	return &Mirror{
		Options:   o,
		selector:  o.Settings.Selector(),
		source:    newSource(o.Source, o.Now),
		committed: o.Settings.IsolationLevel == "read_committed",
		room:      fillBytes,
		memory:    map[flow.TopicPartition]memory{},
		told:      map[string]bool{},
	}
}

// first says whether something of a topic is to be told for the first time.
func (m *Mirror) first(what, topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := what + " " + topic
	if m.told[key] {
		return false
	}
	m.told[key] = true
	return true
}

const (
	// answering is the part of an invocation's time that is kept for its answer: who
	// is late with it is killed, and begins cold.
	answering = 150 * time.Millisecond
	// margin is kept before that for remembering.
	margin = 850 * time.Millisecond
)

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
	ctx, work, cancel := inTime(ctx)
	defer cancel()

	m.begin(lots)
	for _, l := range lots {
		l.err = m.admit(l)
	}
	m.copy(ctx, work, lots)
	m.observe(lots)
	return m.answer(ctx, lots)
}

// inTime divides an invocation's time: work ends before remembering does, and that
// before ctx.
func inTime(ctx context.Context) (remembering, work context.Context, cancel context.CancelFunc) {
	remembering, cancelAll := earlier(ctx, answering)
	work, cancelWork := earlier(remembering, margin)
	return remembering, work, func() {
		cancelWork()
		cancelAll()
	}
}

// earlier ends before ctx does, by d, or by a quarter of what is left.
func earlier(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, deadline.Add(-min(d, time.Until(deadline)/4)), errTimeUp)
}

// copy works on lots until each is copied or has failed.
func (m *Mirror) copy(ctx, work context.Context, lots []*lot) {
	for {
		open := unfinished(lots)
		if len(open) == 0 {
			return
		}
		m.round(ctx, work, open)
		for _, l := range open {
			if l.more && !l.trusted {
				m.forget(l)
			}
			if l.again == nil || l.err != nil {
				continue
			}
			if l.tries++; l.tries == rounds {
				l.fail(errors.Join(errContended, l.again))
			}
		}
	}
}

var (
	errTimeUp    = errors.New("the function's time is up")
	errContended = errors.New("another invocation keeps moving the position")
)

// round takes lots one step further: positions, appends, memory. A lot that is
// neither done nor failed afterwards wants another round, from the store.
// work ends before ctx does, so that what was achieved can still be stored.
func (m *Mirror) round(ctx, work context.Context, lots []*lot) {
	m.locate(work, lots)
	room := &allowance{left: m.room}
	m.each(lots, func(l *lot) { m.prepare(work, l, room) })
	m.each(lots, func(l *lot) { m.claim(work, l) })
	m.renew(work, lots)
	m.each(lots, func(l *lot) { m.append(work, l) })
	m.each(lots, m.pass)
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
