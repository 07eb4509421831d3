// Package eventsource does what Lambda's Kafka event source mapping does: it
// reads a topic as a consumer group, packs records into the JSON event of
// kafkaevent, and invokes a function with it.
//
//	m, err := eventsource.Start(eventsource.Options{
//		Topic: "orders", Group: "mirrorless/dev/A/B/orders",
//		Invoker: eventsource.InvokerFunc(handler.Handle),
//	})
//	…
//	err = m.Stop(ctx)
//
// Like Lambda's, it reads uncommitted, closes a batch by count, window or
// payload, mixes partitions in one payload, keeps the order of a partition and
// has one invocation in flight for it, sends a failed batch again until it
// succeeds, commits to the group what succeeded, and cannot carry a record whose
// event would be over the payload's cap: that one is dropped.
//
// A topic that is deleted and created again goes on with the start of its new
// log, and what was fetched of the old one is dropped.
//
// Where AWS does not say how theirs behaves, this one does what is hardest for a
// function: of a reply with batchItemFailures, exactly the named records come
// again.
//
// Nothing here filters, bisects batches, or gives up. [Faults] makes the mapping
// misbehave as a real one may.
package eventsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/kafkaevent"
)

// Invoker runs the function. The payload is the invoker's to spoil, and not to
// keep after the return. An error stands for one that the function returned, or
// for its time-out or end; the whole batch then comes again.
type Invoker interface {
	Invoke(ctx context.Context, payload []byte) (reply []byte, err error)
}

// InvokerFunc is a function as an [Invoker].
type InvokerFunc func(ctx context.Context, payload []byte) ([]byte, error)

// Invoke calls f.
func (f InvokerFunc) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	return f(ctx, payload)
}

// The limits and defaults of a Kafka event source mapping, of Lambda's API.
const (
	DefaultBatchSize   = 100
	MaxBatchSize       = 10_000
	DefaultWindow      = 500 * time.Millisecond
	MaxWindow          = 300 * time.Second
	DefaultConcurrency = 5
)

// NoWindow is the [Options.Window] of a mapping that does not wait to fill its
// batches (Lambda's MaximumBatchingWindowInSeconds = 0).
const NoWindow time.Duration = -1

// Options describe a mapping. Topic, Group, Invoker and the addresses of brokers
// in Client are needed, everything else has a default.
type Options struct {
	// Client are the options of the Kafka client: seed brokers, TLS, SASL. What
	// the mapping itself depends on cannot be changed by them.
	Client []kgo.Opt
	// Source, SourceARN and BootstrapServers go into every event. Source is
	// kafkaevent.SourceSelfManaged by default.
	Source, SourceARN, BootstrapServers string

	Topic string
	// Group is the consumer group (Lambda's ConsumerGroupId).
	Group string
	// InstanceID makes the mapping a static member of the group: one that was
	// killed and comes back has its partitions at once, where another waits for
	// the session of the dead one to end. No two live mappings of a group may
	// have the same.
	InstanceID string
	// Start is where partitions begin for which the group has no offset. It is
	// TrimHorizon by default.
	Start StartingPosition

	// BatchSize is the most records of one event, 1 to MaxBatchSize,
	// DefaultBatchSize by default.
	BatchSize int
	// Window is how long the first record of an event that is not full may wait
	// for others (MaximumBatchingWindowInSeconds), up to MaxWindow. 0 means
	// DefaultWindow; see also NoWindow.
	Window time.Duration
	// MaxPayload is the most bytes of one event, kafkaevent.MaxPayload by
	// default.
	MaxPayload int
	// Concurrency is the most invocations in flight, of different partitions,
	// DefaultConcurrency by default.
	Concurrency int
	// Failures says that the mapping has ReportBatchItemFailures among its
	// FunctionResponseTypes. Without it a reply means nothing.
	Failures bool
	// Backoff returns how long to wait before a batch that failed so many times
	// is sent again. By default it doubles from 100 ms to 10 s.
	Backoff func(failed int) time.Duration

	Invoker Invoker
	// Dropped, if not nil, is told of every record that is over the payload's
	// cap by itself, and therefore not delivered.
	Dropped func(Dropped)
	// Log gets what an operator of AWS would find in the mapping's metrics and
	// logs. It is discarded by default.
	Log    *slog.Logger
	Faults Faults
}

// StartingPosition is where a group without offsets begins.
type StartingPosition struct {
	latest    bool
	timestamp time.Time
}

// TrimHorizon is the oldest record there is.
func TrimHorizon() StartingPosition { return StartingPosition{} }

// Latest skips what is there when the group comes to a partition first; a
// partition that is added later begins with what comes after it was seen.
func Latest() StartingPosition { return StartingPosition{latest: true} }

// AtTimestamp is the first record with this timestamp or a later one.
func AtTimestamp(t time.Time) StartingPosition { return StartingPosition{timestamp: t} }

// Dropped names a record that cannot be carried.
type Dropped struct {
	Topic     string
	Partition int32
	Offset    int64
	// Size is the size in bytes of an event with this record alone.
	Size int
}

// Mapping is an event source mapping at work.
type Mapping struct {
	o        Options
	log      *slog.Logger
	client   *kgo.Client
	admin    *kadm.Client
	envelope kafkaevent.Envelope
	// buffers are payloads that came back, to be written anew.
	buffers chan []byte

	// ctx is done when everything is to be dropped: Kill, or the end of Stop.
	ctx    context.Context
	cancel context.CancelFunc
	// polling is done when no more records are wanted.
	polling  context.Context
	stopPoll context.CancelFunc
	loops    sync.WaitGroup // poll, dispatch, commit, locate
	calls    sync.WaitGroup // invocations
	end      sync.Once

	mu sync.Mutex
	// changed is closed and replaced whenever something below has changed that
	// somebody waits for.
	changed   chan struct{}
	stopping  bool
	partition map[int32]*partition
	inFlight  int
	retries   []*batch
	unlocated bool // partitions are new
	// rebalancing: between a session of the group and the next. A commit would
	// have to wait inside the client.
	rebalancing bool
	committing  bool
	stats       Stats
	trouble     trouble
	// topicID is of the topic that is read. The poll loop alone uses it.
	topicID topicID
	// begun is not nil where the topic was created again while the mapping ran,
	// and says of which partitions the group's offset is one of the new topic.
	begun map[int32]bool
}

// Start begins to read and to invoke. It does not wait for the cluster: what
// hinders the mapping shows in Progress.
func Start(o Options) (*Mapping, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m := &Mapping{
		o:         o,
		log:       o.Log.With("topic", o.Topic, "group", o.Group),
		envelope:  kafkaevent.Envelope{Source: o.Source, SourceARN: o.SourceARN, BootstrapServers: o.BootstrapServers},
		buffers:   make(chan []byte, o.Concurrency),
		changed:   make(chan struct{}),
		partition: make(map[int32]*partition),
		trouble:   trouble{fetch: make(map[int32]fetchFailure)},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.polling, m.stopPoll = context.WithCancel(m.ctx)
	client, err := kgo.NewClient(m.clientOptions()...)
	if err != nil {
		m.cancel()
		return nil, fmt.Errorf("start event source of %s: %w", o.Topic, err)
	}
	m.client, m.admin = client, kadm.NewClient(client)
	m.loops.Go(m.poll)
	m.loops.Go(m.dispatch)
	m.loops.Go(m.commit)
	m.loops.Go(m.locate)
	return m, nil
}

func (o *Options) check() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if o.Source == "" {
		o.Source = kafkaevent.SourceSelfManaged
	}
	if o.BatchSize == 0 {
		o.BatchSize = DefaultBatchSize
	}
	switch o.Window {
	case 0:
		o.Window = DefaultWindow
	case NoWindow:
		o.Window = 0
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = kafkaevent.MaxPayload
	}
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Backoff == nil {
		o.Backoff = backoff
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	need(o.Topic != "", "no topic")
	need(o.Group != "", "no group")
	need(o.Invoker != nil, "no invoker")
	need(o.BatchSize >= 1 && o.BatchSize <= MaxBatchSize, "batch size %d, want 1 to %d", o.BatchSize, MaxBatchSize)
	need(o.Window >= 0 && o.Window <= MaxWindow, "batching window %v, want 0 to %v", o.Window, MaxWindow)
	need(o.MaxPayload > 0 && o.MaxPayload <= kafkaevent.MaxPayload, "payload of %d bytes, want at most %d", o.MaxPayload, kafkaevent.MaxPayload)
	need(o.Concurrency >= 1, "concurrency %d, want at least 1", o.Concurrency)
	if len(errs) > 0 {
		return fmt.Errorf("start event source of %q: %w", o.Topic, errors.Join(errs...))
	}
	return nil
}

func backoff(failed int) time.Duration {
	return min(100*time.Millisecond<<min(failed-1, 10), 10*time.Second)
}

// sessionTimeout is how long a killed member holds its partitions from others.
// Brokers accept nothing under six seconds by default.
const sessionTimeout = 15 * time.Second

func (m *Mapping) clientOptions() []kgo.Opt {
	opts := []kgo.Opt{
		// A new partition should not wait for the five minutes of the default.
		kgo.MetadataMaxAge(30 * time.Second),
		kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.SessionTimeout(sessionTimeout),
	}
	opts = append(opts, m.o.Client...)
	opts = append(opts,
		kgo.ConsumerGroup(m.o.Group),
		kgo.ConsumeTopics(m.o.Topic),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		// Control records are not delivered, but pass: else a group that has
		// read a transactional topic to its end would seem to lag for ever.
		kgo.KeepControlRecords(),
		kgo.OnPartitionsAssigned(m.assigned),
		kgo.OnPartitionsRevoked(m.revoked),
		kgo.OnPartitionsLost(m.lost),
		kgo.OnOffsetsFetched(m.fetched),
		kgo.AdjustFetchOffsetsFn(m.adjust),
	)
	// As Java's auto.offset.reset, which knows no timestamps.
	start, reset := kgo.NewOffset().AtStart(), kgo.NewOffset().AtStart()
	switch {
	case m.o.Start.latest:
		start, reset = kgo.NewOffset().AtEnd(), kgo.NewOffset().AtEnd()
	case !m.o.Start.timestamp.IsZero():
		start = kgo.NewOffset().AfterMilli(m.o.Start.timestamp.UnixMilli())
	}
	opts = append(opts, kgo.ConsumeStartOffset(start), kgo.ConsumeResetOffset(reset))
	if m.o.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(m.o.InstanceID))
	}
	return opts
}

// Stop ends the mapping as a deletion does: nothing more is sent, what is in
// flight may end, what succeeded is committed, and the group is left. Where ctx
// is done first, the invocations in flight are cancelled and given up (their
// records come again), and the error says so.
func (m *Mapping) Stop(ctx context.Context) error {
	var errs []error
	m.end.Do(func() {
		m.mu.Lock()
		m.stopping = true
		m.retries = nil
		m.wake()
		m.mu.Unlock()
		m.stopPoll()
		if err := m.wait(ctx, func() bool { return m.inFlight == 0 }); err != nil {
			errs = append(errs, fmt.Errorf("stop event source of %s: an invocation did not end: %w", m.o.Topic, err))
		} else if err := m.wait(ctx, m.allCommitted); err != nil {
			errs = append(errs, fmt.Errorf("stop event source of %s: offsets are not committed: %w", m.o.Topic, err))
		}
		m.cancel()
		if m.o.InstanceID != "" {
			// The client does not send a static member's leave.
			_, err := m.admin.LeaveGroup(ctx, kadm.LeaveGroup(m.o.Group).InstanceIDs(m.o.InstanceID).Reason("stopped"))
			if err != nil {
				errs = append(errs, fmt.Errorf("stop event source of %s: leave group %s: %w", m.o.Topic, m.o.Group, err))
			}
		}
		m.close(ctx)
	})
	return errors.Join(errs...)
}

// Kill ends the mapping as a crash of the process does: what is in flight is
// cancelled, nothing is committed, and nobody waits. It differs in one thing:
// the group is told, so that a test need not wait for the end of the session.
func (m *Mapping) Kill() {
	m.end.Do(func() {
		m.mu.Lock()
		m.stopping = true
		m.mu.Unlock()
		m.cancel()
		ended, end := context.WithCancel(context.Background())
		end()
		m.close(ended)
	})
}

// close needs m.ctx to be done. The client leaves the group, and waits for that
// no longer than ctx.
func (m *Mapping) close(ctx context.Context) {
	m.client.AllowRebalance()
	_ = m.client.LeaveGroupContext(ctx) // if it fails, the session ends by itself
	m.client.CloseAllowingRebalance()
	m.loops.Wait()
}

// wake tells all that wait for a change. It needs m.mu.
func (m *Mapping) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// wait returns when done, which is called with m.mu held, is true.
func (m *Mapping) wait(ctx context.Context, done func() bool) error {
	for {
		m.mu.Lock()
		ok, changed := done(), m.changed
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
