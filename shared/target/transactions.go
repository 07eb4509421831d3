package target

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
)

// Transactions appends like a [Log], with one transaction for each batch, and
// the position record of the source partition inside it: a reader with
// isolation.level = read_committed sees the copies and their position together,
// or neither (KIP-98; exactly.once.source.support of KIP-618).
//
// Every source partition has a transactional id of its own. [Transactions.Standing]
// takes it over: it fences whoever had it before, an invocation that was killed
// or one that is frozen, aborts what that one left open, and then looks how far
// the partition is. From there on nothing is appended that was not committed
// under the epoch it got, so nobody can have come in between, at any age of the
// records. The producer id and the epoch of a [Cursor] are a Log's and stay as
// they are, so that a flow can go back to one.
//
// A commit whose answer was lost is settled by the next Standing and
// [Transactions.Claim], which reads back what is committed.
//
// The end of each transaction takes one offset of the partition.
type Transactions struct {
	*Log
	coordinator coordinator
	flow        flow.Flow
	position    mm2.SourcePosition
	topic       string

	mu       sync.Mutex
	sessions map[flow.TopicPartition]*session
	records  positions
}

// TransactionOptions tune Transactions. All but Options are needed.
type TransactionOptions struct {
	Options
	// Flow is part of the transactional ids.
	Flow flow.Flow
	// Connector and Cluster stand in the position records, as [mm2.SourcePosition]
	// has them; Positions is the topic they are written to.
	Connector, Cluster, Positions string
}

// NewTransactions returns Transactions that go through the client's connections.
// The client must not be limited to other acks than all, nor have a transactional
// id of its own.
func NewTransactions(client *kgo.Client, o TransactionOptions) *Transactions {
	w := newWire(client)
	return newTransactions(newLog(w, o.Options), w, o)
}

func newTransactions(l *Log, c coordinator, o TransactionOptions) *Transactions {
	return &Transactions{
		Log: l, coordinator: c, flow: o.Flow, topic: o.Positions,
		position: mm2.SourcePosition{Connector: o.Connector, Cluster: o.Cluster},
		sessions: map[flow.TopicPartition]*session{},
	}
}

// TransactionalID is the transactional id under which a source partition is
// copied. All ids of a flow begin with "mirrorless/<source>/<target>/", to which
// a right to WRITE and DESCRIBE can be given by a prefix.
func TransactionalID(f flow.Flow, source flow.TopicPartition) string {
	return "mirrorless/" + f.Source + "/" + f.Target + "/" + source.Topic + "/" + strconv.Itoa(int(source.Partition))
}

// coordinator is what transactions need of the target cluster besides its
// partitions. An error of its methods is kerr's where a broker refused, and
// means an unknown outcome else.
type coordinator interface {
	// begin takes a transactional id over: with a new epoch, and with everything
	// decided that was written under older ones.
	begin(ctx context.Context, id string, limit time.Duration) (batch.Producer, error)
	// renew returns the identity for one more transaction after an end that left
	// the epoch as it was. It refuses where somebody else has taken the id over.
	renew(ctx context.Context, id string, producer batch.Producer, limit time.Duration) (batch.Producer, error)
	// write appends batches of one transaction, one to each partition, and returns
	// the brokers' answers in their order.
	write(ctx context.Context, id string, producer batch.Producer, parts []part) []outcome
	// end commits or aborts. It returns the identity for the next transaction,
	// whose sequences begin at 0 where the epoch is another one.
	end(ctx context.Context, id string, producer batch.Producer, commit bool) (batch.Producer, error)
	// offsets are the first offset of each partition or the one after the last.
	offsets(ctx context.Context, ps []Partition, which edge) (map[Partition]int64, error)
	topics(ctx context.Context, names []string) (map[string]Topic, error)
}

// part is the batch of a transaction that goes to one partition.
type part struct {
	Partition
	raw []byte
}

// session is a transactional id that this process has taken over.
type session struct {
	id       string
	producer batch.Producer // of the next batch of copies
	position int32          // sequence of the next position record
	ended    bool           // a transaction was ended under this epoch
	// end is where the caller's cursor has to stand for the next append: a cursor
	// that stands elsewhere does not know what was appended since it was read.
	end int64
	// unsettled says that something lies behind end that has to be claimed first.
	unsettled bool
}

// take removes the partition's session, so that nobody else can append under it,
// or returns nil if there is none for the cursor.
func (t *Transactions) take(p Partition, c Cursor) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[p.TopicPartition]
	delete(t.sessions, p.TopicPartition)
	if s == nil || s.end != c.End {
		return nil
	}
	return s
}

func (t *Transactions) keep(p Partition, s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions[p.TopicPartition] = s
}

// errNoSession is an [ErrFenced]: the caller has to ask how the partition stands.
var errNoSession = fmt.Errorf("no transaction is prepared: %w", ErrFenced)

const (
	// afterDeadline is how long after its invocation's deadline a transaction that
	// was left open is aborted by its coordinator.
	afterDeadline = 2 * time.Second
	// longest is the brokers' default of transaction.max.timeout.ms, and as long as
	// a function may run.
	longest = 15 * time.Minute
)

// limit is a transaction's time-out: an invocation that is killed must not hold
// up readers of committed records for longer than it could have run.
func limit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Minute
	}
	return min(max(time.Until(deadline), 0)+afterDeadline, longest)
}

// Standing takes the partitions over from whoever had them, and says how the
// cursors stand to what is committed then. [Ahead] is about offsets here: there
// is something behind the cursor, of whatever kind, which has to be claimed
// before the partition is appended to. A partition that cannot be taken over has
// an error for itself.
func (t *Transactions) Standing(ctx context.Context, probes []Probe) (map[flow.TopicPartition]Standing, error) {
	out := make(map[flow.TopicPartition]Standing, len(probes))
	var mu sync.Mutex
	var taken []Partition
	sessions := map[Partition]*session{}
	var wg sync.WaitGroup
	for _, q := range probes {
		wg.Go(func() {
			s := &session{id: TransactionalID(t.flow, q.Partition.Source), end: q.Cursor.End}
			producer, err := t.coordinator.begin(ctx, s.id, limit(ctx))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out[q.Partition.TopicPartition] = Standing{Err: fmt.Errorf("take over transactional id %s: %w", s.id, because(ctx, err))}
				return
			}
			s.producer = producer
			s.producer.Transactional, s.producer.Sequence = true, 0
			sessions[q.Partition] = s
			taken = append(taken, q.Partition)
		})
	}
	wg.Wait()
	ends, err := t.coordinator.offsets(ctx, taken, logEnd)
	if err != nil {
		return nil, fmt.Errorf("find the end of what is on the target: %w", because(ctx, err))
	}
	for p, s := range sessions {
		end, ok := ends[p]
		switch {
		case !ok:
			out[p.TopicPartition] = Standing{Err: errors.New("find the end of what is on the target: no leader answered")}
			continue
		case end > s.end:
			s.unsettled = true
			out[p.TopicPartition] = Standing{Verdict: Ahead, Records: int32(min(end-s.end, 1<<31-1))}
		case end < s.end:
			out[p.TopicPartition] = Standing{Verdict: Behind, Records: int32(min(s.end-end, 1<<31-1))}
			continue
		default:
			out[p.TopicPartition] = Standing{Verdict: Agrees}
		}
		t.keep(p, s)
	}
	return out, nil
}

// because adds what ended a context to an error that only says that it did.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (last answer: %w)", cause, err)
	}
	return err
}

// positions is what is known of the topic of position records.
type positions struct {
	id         [16]byte
	partitions int32 // 0 where nothing is known
}

// positionsTopic is where position records go.
func (t *Transactions) positionsTopic(ctx context.Context) (positions, error) {
	t.mu.Lock()
	known := t.records
	t.mu.Unlock()
	if known.partitions > 0 {
		return known, nil
	}
	topics, err := t.coordinator.topics(ctx, []string{t.topic})
	if err != nil {
		return positions{}, err
	}
	found := topics[t.topic]
	if found.Err != nil {
		return positions{}, fmt.Errorf("find %s: %w; topics creates it at its next refresh", t.topic, found.Err)
	}
	known = positions{id: found.ID, partitions: found.Partitions}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records = known
	return known, nil
}

// forgetPositionsTopic makes the next transaction look it up again.
func (t *Transactions) forgetPositionsTopic() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records = positions{}
}

// of is the partition that a source partition's position record belongs to.
func (ps positions) of(topic string, position mm2.SourcePosition) Partition {
	return Partition{
		TopicPartition: flow.TopicPartition{Topic: topic, Partition: position.RecordPartition(ps.partitions)},
		TopicID:        ps.id,
	}
}

// positionOf is the position record's content after a source offset.
func (t *Transactions) positionOf(source flow.TopicPartition, offset int64) mm2.SourcePosition {
	p := t.position
	p.Topic, p.Partition, p.Offset = source.Topic, source.Partition, offset
	return p
}
