package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/offsets"
	"mirrorless/shared/state"
)

// source asks the source cluster for topic ids. Many functions can reach the
// target only, so a source that does not answer is left alone for a while.
type source struct {
	client *kgo.Client
	now    func() time.Time

	mu        sync.Mutex
	ids       map[string]state.TopicID
	dark      time.Time // no question before this time
	unhelpful error     // why
}

const (
	askFor     = 3 * time.Second
	leaveAlone = time.Minute
)

var errNoSource = errors.New("no client of the source cluster")

// ask reads the ids of topics from the cluster; id returns them then.
func (s *source) ask(ctx context.Context, topics ...string) error {
	if s.client == nil {
		return errNoSource
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
		s.dark, s.unhelpful = s.now().Add(leaveAlone), fmt.Errorf("ask the source for topic ids: %w", err)
		return s.unhelpful
	}
	if s.ids == nil {
		s.ids = map[string]state.TopicID{}
	}
	for _, t := range resp.Topics {
		if t.Topic != nil {
			s.ids[*t.Topic] = t.TopicID
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
	last := below[len(below)-1]
	if last.Offset < l.pos.First {
		return true, nil // was never to be copied
	}
	var runs offsets.Map
	chunks, err := m.Store.Runs(ctx, l.TopicPartition)
	if err != nil {
		return false, err
	}
	for _, c := range chunks {
		if err := runs.AddChunk(c.Data); err != nil {
			return false, err
		}
	}
	for _, r := range l.open {
		runs.Add(r)
	}
	at, ok := runs.Translate(last.Offset, offsets.Bounds{
		First: l.pos.First, Next: l.pos.Upstream, End: l.pos.Downstream, LogEnd: l.pos.Downstream,
	})
	if !ok || at >= l.pos.Downstream {
		return true, nil // behind the last copied record there was nothing to compare with
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
