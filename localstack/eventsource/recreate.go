package eventsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topicID is Kafka's id of a topic, zero if unknown.
type topicID [16]byte

// goneTopic returns the id of the topic that brokers do not know any more, if the
// poll says so. The client never turns to a topic of the same name by itself.
func (m *Mapping) goneTopic(fetches kgo.Fetches) (id topicID, gone bool) {
	fetches.EachTopic(func(t kgo.FetchTopic) {
		if t.Topic != m.o.Topic {
			return
		}
		if t.TopicID != (topicID{}) {
			m.topicID = t.TopicID
		}
		for _, p := range t.Partitions {
			gone = gone || errors.Is(p.Err, kerr.UnknownTopicID)
		}
	})
	return m.topicID, gone
}

// turn goes on with the topic that has taken the place of old, from its start,
// if there is one. Nobody polls meanwhile.
//
// The group's offsets may be those of the old topic, since a broker before Kafka
// 4.2 commits by name: until the group has one of the new topic, they do not
// count.
func (m *Mapping) turn(old topicID) error {
	id, err := m.lookUp()
	switch {
	case err != nil:
		return err
	case id == old || id == topicID{}:
		return nil // slow to be known to all brokers
	}
	m.log.Warn("topic was deleted and created again, its records are read from the start")
	m.mu.Lock()
	resume := m.retire()
	if old != (topicID{}) {
		m.begun = make(map[int32]bool)
	}
	m.topicID = id
	m.wake()
	m.mu.Unlock()
	// An invocation with records of the old topic ends before one with records
	// of the new begins.
	if err := m.wait(m.polling, func() bool { return m.inFlight == 0 && !m.committing }); err != nil {
		return err
	}
	m.resume(resume)
	m.client.PurgeTopicsFromClient(m.o.Topic)
	m.client.AddConsumeTopics(m.o.Topic)
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.trouble.fetch)
	m.readsAgain()
	return nil
}

// lookUp asks for the id of the topic that has the name now.
func (m *Mapping) lookUp() (topicID, error) {
	ctx, cancel := context.WithTimeout(m.polling, probeEvery)
	defer cancel()
	topics, err := m.admin.ListTopics(ctx, m.o.Topic)
	if err == nil {
		err = topics[m.o.Topic].Err
	}
	if err != nil {
		return topicID{}, fmt.Errorf("look up %s: %w", m.o.Topic, err)
	}
	return topicID(topics[m.o.Topic].ID), nil
}

// retire gives up all partitions; what is in flight of them counts no more. It
// returns those that are paused, and needs m.mu.
func (m *Mapping) retire() (paused []int32) {
	for number, p := range m.partition {
		p.leaving, p.gone = true, true
		p.drop()
		if p.paused {
			paused = append(paused, number)
		}
	}
	m.dropRetries()
	clear(m.partition)
	return paused
}

// adjust is called by the client with the offsets that it has fetched of the
// group, before it uses them.
func (m *Mapping) adjust(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, number := range slices.Collect(maps.Keys(offsets[m.o.Topic])) {
		if !m.startsOver(number) {
			continue
		}
		offsets[m.o.Topic][number] = kgo.NewOffset().AtStart()
		if p := m.partition[number]; p != nil {
			p.next = -1 // Refresh says where the start is
		}
	}
	return offsets, nil
}

// startsOver reports a partition of a topic that was created again, of which the
// group has no offset yet. It needs m.mu.
func (m *Mapping) startsOver(number int32) bool { return m.begun != nil && !m.begun[number] }
