package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
)

// source asks the source cluster for topic ids, and reads it. Many functions can
// reach the target only, so a source that does not answer is left alone for a
// while.
type source struct {
	client *kgo.Client
	now    func() time.Time
	turns  chan struct{} // one for each read under way
	bytes  int32         // of one Fetch request

	mu        sync.Mutex
	ids       map[string]state.TopicID
	leaders   map[flow.TopicPartition]int32
	hidden    map[string]bool // topics that the source does not let us see
	answered  bool            // at least once
	questions int             // that were not answered
	dark      time.Time       // no question before this time
	unhelpful error           // why
}

const (
	askFor = 3 * time.Second
	// leaveAlone is for a source that has never answered, which may be out of reach
	// for good; one that has is back soon.
	leaveAlone, leaveShortly = time.Minute, 3 * time.Second
	// mostQuestions is how many a source that has never answered may leave open
	// before it counts as out of reach. They take half a minute: an environment may
	// begin while a broker is restarted, and what it took for a hole would be lost.
	mostQuestions = 6
	// readers is how many partitions are read at a time. Each holds what one Fetch
	// request brings, and what the batch at hand unpacks to.
	readers = 4
	// readBytes bounds one Fetch request, but for a batch that is larger.
	readBytes = 4 << 20
	// readFor is how long one read is tried again.
	readFor = 10 * time.Second
)

var (
	errNoSource = errors.New("no client of the source cluster")
	// errOutOfReach is returned where the source cannot be read from here, as far as
	// is known: it has not answered to mostQuestions, or refuses. A source that has
	// answered before is only away for a time, which is another error.
	errOutOfReach = errors.New("source is out of reach")
)

// errHidden is returned where the source does not even let us see the topic. That
// is a right that was forgotten, and no source out of reach.
var errHidden = fmt.Errorf("grant READ on the topic to the user of the source's consumer: %w", kerr.TopicAuthorizationFailed)

func newSource(client *kgo.Client, now func() time.Time) *source {
	return &source{
		client: client, now: now, turns: make(chan struct{}, readers), bytes: readBytes,
		ids: map[string]state.TopicID{}, leaders: map[flow.TopicPartition]int32{}, hidden: map[string]bool{},
	}
}

// ask reads the ids of topics from the cluster; id returns them then.
func (s *source) ask(ctx context.Context, topics ...string) error {
	if s.client == nil {
		return fmt.Errorf("%w: %w", errOutOfReach, errNoSource)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.dark) {
		return s.unhelpful
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(topic)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		err = fmt.Errorf("ask the source for metadata: %w", err)
		if s.questions++; s.answered || s.questions < mostQuestions {
			s.dark, s.unhelpful = s.now().Add(leaveShortly), err
		} else {
			s.dark, s.unhelpful = s.now().Add(leaveAlone), fmt.Errorf("%w: %w", errOutOfReach, err)
		}
		return s.unhelpful
	}
	s.answered = true
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		s.ids[*t.Topic] = t.TopicID
		s.hidden[*t.Topic] = t.ErrorCode == kerr.TopicAuthorizationFailed.Code
		for _, p := range t.Partitions {
			tp := flow.TopicPartition{Topic: *t.Topic, Partition: p.Partition}
			if p.Leader >= 0 {
				s.leaders[tp] = p.Leader
			} else {
				delete(s.leaders, tp)
			}
		}
	}
	return nil
}

// id is what ask last heard of a topic; zero if nothing.
func (s *source) id(topic string) state.TopicID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[topic]
}

// leader is the broker to read a partition from.
func (s *source) leader(ctx context.Context, tp flow.TopicPartition) (int32, error) {
	for range 2 {
		s.mu.Lock()
		node, ok := s.leaders[tp]
		hidden := s.hidden[tp.Topic]
		delete(s.hidden, tp.Topic) // the next call asks again
		s.mu.Unlock()
		if ok {
			return node, nil
		}
		if hidden {
			return 0, errHidden
		}
		if err := s.ask(ctx, tp.Topic); err != nil {
			return 0, err
		}
	}
	return 0, kerr.LeaderNotAvailable
}

func (s *source) forget(tp flow.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leaders, tp)
}

// read returns what the source has of a partition from an offset on. It asks
// again for readFor where that may help. Errors: kerr.OffsetOutOfRange,
// [errOutOfReach], [errNewTopic], [errHidden], the context's, or another one, after
// which the source is to be asked again later.
func (s *source) read(ctx context.Context, q question, offset int64) (fetch.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readFor, fmt.Errorf("no answer within %s", readFor))
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		got, err := s.readOnce(ctx, q, offset)
		if err == nil || errors.Is(err, kerr.OffsetOutOfRange) || errors.Is(err, errOutOfReach) || errors.Is(err, errNewTopic) || errors.Is(err, errHidden) {
			return got, err
		}
		if refusal, ok := errors.AsType[*kerr.Error](err); ok && !refusal.Retriable {
			return got, fmt.Errorf("%w: %w", errOutOfReach, err)
		}
		s.forget(q.TopicPartition)
		select {
		case <-ctx.Done():
			return got, fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

func (s *source) readOnce(ctx context.Context, q question, offset int64) (fetch.Response, error) {
	node, err := s.leader(ctx, q.TopicPartition)
	if err != nil {
		return fetch.Response{}, err
	}
	id, none := s.id(q.Topic), state.TopicID{}
	if id != q.topicID && id != none && q.topicID != none {
		return fetch.Response{}, errNewTopic
	}
	return fetch.Read(ctx, s.client.Broker(int(node)), fetch.Request{
		TopicPartition: q.TopicPartition, TopicID: id, Offset: offset, MaxBytes: s.bytes, Committed: q.committed,
	})
}

// start is a partition's log start offset.
func (s *source) start(ctx context.Context, tp flow.TopicPartition) (int64, error) {
	// Is it there at all? A source out of reach is asked for askFor at most.
	if _, err := s.leader(ctx, tp); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = tp.Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = tp.Partition, logStart
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return 0, fmt.Errorf("ask the source for the log start: %w", err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("ask the source for the log start: %w", kerr.UnknownServerError)
	}
	got := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return 0, fmt.Errorf("ask the source for the log start: %w", err)
	}
	return got.Offset, nil
}

// logStart is the timestamp of a ListOffsets request for it.
const logStart = -2

// sameTopic says whether records that lie below the position are the ones that
// were copied, and not the first of a topic that was created again under the
// name. Where the source cannot be asked, the copy on the target decides.
func (m *Mirror) sameTopic(ctx context.Context, l *lot, below []kafkaevent.Record) (bool, error) {
	asked := m.source.ask(ctx, l.Topic)
	id, none := m.source.id(l.Topic), state.TopicID{}
	if asked == nil {
		l.sourceID = id
	}
	if asked == nil && id != none && l.pos.SourceTopicID != none {
		return id == l.pos.SourceTopicID, nil
	}
	if below[len(below)-1].Offset < l.pos.First {
		return true, nil // was never to be copied
	}
	runs, err := m.runMap(ctx, l)
	if err != nil {
		return false, err
	}
	last, at, ok := lastCopy(&runs, l, below)
	if !ok {
		return m.uncopied(ctx, l, &runs, below)
	}
	want := batch.Record{Timestamp: last.Timestamp, Key: last.Key, Value: last.Value}
	for _, h := range last.Headers {
		if !h.Lost {
			want.Headers = append(want.Headers, batch.Header{Name: h.Name, Value: h.Value})
		}
	}
	same, err := m.Target.Holds(ctx, l.remote, at, want)
	if err != nil {
		return false, errors.Join(err, asked)
	}
	return same, nil
}

// runMap reads the whole run map of a partition.
func (m *Mirror) runMap(ctx context.Context, l *lot) (runs offsets.Map, err error) {
	chunks, err := m.Store.Runs(ctx, l.TopicPartition)
	if err != nil {
		return runs, fmt.Errorf("read the run map: %w", err)
	}
	for _, c := range chunks {
		if err := runs.AddChunk(c.Data); err != nil {
			return runs, fmt.Errorf("read the run map: %w", err)
		}
	}
	for _, r := range l.open {
		runs.Add(r)
	}
	return runs, nil
}

// lastCopy is the last of records below the position that has a copy, and where.
func lastCopy(runs *offsets.Map, l *lot, below []kafkaevent.Record) (r kafkaevent.Record, at int64, ok bool) {
	for _, r := range slices.Backward(below) {
		// A chunk is stored before the position, so that the map may know more.
		if at, ok := runs.Copy(r.Offset); ok && at < l.pos.Downstream {
			return r, at, true
		}
	}
	return r, 0, false
}

// uncopied judges records below the position of which none has a copy that could be
// compared. Behind the last copied record that is nothing new; before it they are
// in the ledger, as dead letters are, or have been aborted on the source. Of any
// others nothing is known, and a guess would lose records or double them.
func (m *Mirror) uncopied(ctx context.Context, l *lot, runs *offsets.Map, below []kafkaevent.Record) (bool, error) {
	last := below[len(below)-1].Offset
	at, ok := runs.Translate(last, offsets.Bounds{
		First: l.pos.First, Next: l.pos.Upstream, End: l.pos.Downstream, LogEnd: l.pos.Downstream,
	})
	if !ok || at >= l.pos.Downstream || m.committed {
		return true, nil
	}
	holes, err := m.Store.Holes(ctx)
	if err != nil {
		return false, fmt.Errorf("read the ledger: %w", err)
	}
	for _, h := range holes {
		if h.TopicPartition == l.TopicPartition && h.From <= last && last < h.To && h.Kind != SecondCopy {
			return true, nil
		}
	}
	return false, fmt.Errorf("the event brings offset %d again, before the position %d, and no copy is left on %s to tell whether topic %s is still the same: let mirror reach cluster %s",
		last, l.pos.Upstream, m.Settings.Target, l.Topic, m.Settings.Source)
}
