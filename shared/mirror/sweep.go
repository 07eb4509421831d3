package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/shared/batch"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state"
)

// Sweep copies records that no event will ever bring: those over the payload's cap
// that are the last of their partition, behind which no later record shows a gap.
// It reads them from the source, and appends them as Handle does; beside Handle,
// also in other processes, it is safe by the conditional append.
//
// It takes records that the event source's group has passed, and records that are
// too large for any event, from the position on, and stops at the first one that
// an event can bring: whether that one is late, or its event source disabled, is
// not its business.
//
// It looks every ten seconds at most, however often it is called, and looks closely
// only at partitions whose end has not moved between two looks, each of them once.
// So a source at rest costs a ListOffsets request to each broker and nothing of the
// store.
func (m *Mirror) Sweep(ctx context.Context) error {
	if m.Source == nil {
		return nil
	}
	s := &m.sweeper
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.Now()
	if deadline, ok := ctx.Deadline(); now.Before(s.next) || ok && time.Until(deadline) < atLeast {
		return nil
	}
	s.next = now.Add(sweepEvery)
	ctx, work, cancel := inTime(ctx)
	defer cancel()
	lots, err := m.overlooked(work, now)
	if err != nil {
		return fmt.Errorf("look for records that no event brings: %w", err)
	}
	m.begin(lots)
	m.copy(ctx, work, lots)
	m.observe(lots)
	var errs []error
	for _, l := range lots {
		look := s.seen[l.TopicPartition]
		if l.err != nil {
			look.close = false // the next sweep tries again
			errs = append(errs, fmt.Errorf("copy %s at offset %d, which no event brings: %w", l.TopicPartition, l.pos.Upstream, l.err))
		}
		look.settled = l.err == nil && !l.sweep.waits
		s.seen[l.TopicPartition] = look
	}
	return errors.Join(errs...)
}

const (
	// sweepEvery is less than the minute after which a schedule comes again.
	sweepEvery = 10 * time.Second
	// lookAgain is how long a partition is left alone that is not at rest, or waits
	// for its event source.
	lookAgain = 5 * time.Minute
	// atLeast is the time that a sweep wants to have.
	atLeast = 5 * time.Second
	// overCap is the size of an event of one record from which on the record is
	// copied without waiting for the event. It lies below the cap of 6,291,556 bytes
	// because what else is in such an event is not known here, and because copying
	// a record before its event comes does no harm.
	overCap = kafkaevent.MaxPayload / 8 * 7
)

// sweeper is what Sweep remembers of partitions.
type sweeper struct {
	mu   sync.Mutex
	next time.Time
	seen map[flow.TopicPartition]look
}

// look is what was seen of a partition.
type look struct {
	end      int64     // of the source
	upstream int64     // the position, as far as it was read
	settled  bool      // nothing was left up to end
	close    bool      // end has been looked at closely
	due      time.Time // when to do that although end moves
}

// sweeping makes a lot of what no event brings.
type sweeping struct {
	group int64 // what the event source's group has committed, −1 if unknown
	end   int64 // of the source
	waits bool  // for the event source
}

// overlooked finds partitions that hold something behind the position.
func (m *Mirror) overlooked(ctx context.Context, now time.Time) ([]*lot, error) {
	adm := kadm.NewClient(m.Source)
	ends, err := m.ends(ctx, adm)
	if err != nil || len(ends) == 0 {
		return nil, err
	}
	s := &m.sweeper
	if s.seen == nil {
		s.seen = map[flow.TopicPartition]look{}
	}
	maps.DeleteFunc(s.seen, func(tp flow.TopicPartition, _ look) bool { _, ok := ends[tp]; return !ok })
	var near []flow.TopicPartition
	moved := map[flow.TopicPartition]bool{}
	for tp, end := range ends {
		l, known := s.seen[tp]
		moved[tp] = l.end != end
		switch {
		case !known || l.settled && moved[tp]:
			l = look{end: end, upstream: -1, due: now.Add(lookAgain)}
		case l.settled:
		default:
			l.end, l.close = end, l.close && !moved[tp]
			if !moved[tp] && !l.close || !now.Before(l.due) {
				l.close, l.due = !moved[tp], now.Add(lookAgain)
				near = append(near, tp)
			}
		}
		s.seen[tp] = l
	}
	if len(near) == 0 {
		return nil, nil
	}
	positions, err := m.Store.Positions(ctx, near)
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	var lots []*lot
	for tp, pos := range positions {
		l := s.seen[tp]
		flows := moved[tp] && pos.Upstream != l.upstream // events come
		l.upstream, l.settled = pos.Upstream, pos.Upstream >= l.end
		s.seen[tp] = l
		if !l.settled && !flows {
			lots = append(lots, &lot{TopicPartition: tp, more: true, sweep: &sweeping{group: -1, end: l.end}})
		}
	}
	return lots, m.passedByGroups(ctx, adm, lots)
}

// ends are the offsets up to which the flow's partitions may be read.
func (m *Mirror) ends(ctx context.Context, adm *kadm.Client) (map[flow.TopicPartition]int64, error) {
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics of cluster %s: %w", m.Settings.Source, err)
	}
	names := slices.DeleteFunc(topics.Names(), func(name string) bool { return !m.selector.Select(name).Copy })
	if len(names) == 0 {
		return nil, nil
	}
	list := adm.ListEndOffsets
	if m.committed {
		list = adm.ListCommittedOffsets
	}
	listed, err := list(ctx, names...)
	if err != nil && len(listed) == 0 {
		return nil, fmt.Errorf("list end offsets of cluster %s: %w", m.Settings.Source, err)
	}
	ends := map[flow.TopicPartition]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil { // a partition without a leader is looked at when it has one
			ends[flow.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
	})
	return ends, nil
}

// passedByGroups looks up how far the event sources are. Where that is not known,
// only what is too large for any event is taken.
func (m *Mirror) passedByGroups(ctx context.Context, adm *kadm.Client, lots []*lot) error {
	if len(lots) == 0 {
		return nil
	}
	sources, err := m.Store.EventSources(ctx)
	if err != nil {
		return fmt.Errorf("read event sources: %w", err)
	}
	of := map[string]string{}
	for _, source := range sources {
		of[source.Topic] = source.Group
	}
	var groups []string
	for _, l := range lots {
		if g := of[l.Topic]; g != "" && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	committed := adm.FetchManyOffsets(ctx, groups...)
	for _, l := range lots {
		if o, ok := committed[of[l.Topic]].Fetched.Lookup(l.Topic, l.Partition); ok && o.Err == nil {
			l.sweep.group = o.At
		}
	}
	return nil
}

// fillSweep makes records of what the source holds behind the position, as far as
// no event brings it.
func (m *Mirror) fillSweep(ctx context.Context, l *lot, room *allowance) {
	w := l.sweep
	if none := (state.TopicID{}); l.sourceID != none && l.pos.SourceTopicID != none && l.sourceID != l.pos.SourceTopicID {
		w.waits = true // for the first event of a new topic
		return
	}
	if l.pos.Upstream >= w.end {
		return
	}
	known, err := m.source.scan(ctx, question{
		TopicPartition: l.TopicPartition, topicID: l.pos.SourceTopicID, committed: m.committed,
		spans: []span{{l.pos.Upstream, w.end}},
		record: func(r *batch.Placed) bool {
			switch {
			case r.Offset >= w.group && eventSize(l.TopicPartition, r) < overCap:
				w.waits = true
			case !room.take(sizeOf(r)):
				l.more = true
			default:
				l.records = append(l.records, l.recordOf(r))
				return true
			}
			return false
		},
		gone: func(s span, why string) bool {
			if s.to > w.group {
				w.waits = true
				return false
			}
			if m.Settings.Holes == config.HoleStop {
				l.limit = errHoleStop(s, why, m.Settings.Source)
				return false
			}
			m.addHole(l, why, s, s.to-s.from)
			return true
		},
	})
	switch {
	case errors.Is(err, errUndecided), errors.Is(err, errNewTopic):
		w.waits = true
	case err != nil:
		l.fail(fmt.Errorf("read offset %d of cluster %s: %w", known, m.Settings.Source, err))
		return
	}
	if m.committed || len(l.holes) > 0 {
		l.through = known
	}
}

// eventSize is what a record takes in an event, by itself.
func eventSize(tp flow.TopicPartition, r *batch.Placed) int {
	e := kafkaevent.Record{
		Topic: tp.Topic, Partition: tp.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		TimestampType: kafkaevent.CreateTime, Key: r.Key, Value: r.Value,
	}
	for _, h := range r.Headers {
		e.Headers = append(e.Headers, kafkaevent.Header{Name: h.Name, Value: h.Value})
	}
	return kafkaevent.RecordSize(&e)
}
