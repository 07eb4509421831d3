// Package producer writes a few keyed records to the compacted topics that
// replication keeps: heartbeats, checkpoints, offset syncs, positions.
//
//	err := producer.Send(ctx, client, []producer.Record{{
//		Partition: flow.TopicPartition{Topic: "heartbeats"},
//		Record:    batch.Record{Timestamp: now, Key: beat.Key(), Value: beat.Value()},
//	}})
//
// It sends Produce requests of its own, with acks=all and without a producer id.
// kgo's producer does not end a record that is in flight with the caller's
// context, and buffers; a function must return with neither. What was sent and
// not answered is sent again, so a record can be in the log twice, with the same
// key and value. It is not for copied records: that is package target's.
package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/batch"
	"mirrorless/shared/flow"
)

// Record is a record and the partition that it is for.
type Record struct {
	Partition flow.TopicPartition
	batch.Record
}

// ErrNoTopic is returned for a topic, or a partition, that the cluster does not
// have.
var ErrNoTopic = errors.New("topic is not there: the topics function creates it at its next refresh")

// Error is returned by [Send]: some partitions do not hold all their records.
type Error struct {
	// Failed says why, by partition. Those that are not here hold all of theirs.
	Failed map[flow.TopicPartition]error
}

func (e *Error) Error() string {
	const most = 3
	var parts []string
	failed := slices.SortedFunc(maps.Keys(e.Failed), flow.TopicPartition.Compare)
	for _, tp := range failed[:min(most, len(failed))] {
		parts = append(parts, fmt.Sprintf("produce %s: %v", tp, e.Failed[tp]))
	}
	if more := len(failed) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more partitions", more))
	}
	return strings.Join(parts, "; ")
}

// Unwrap gives the partitions' errors to errors.Is, by partition.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, tp := range slices.SortedFunc(maps.Keys(e.Failed), flow.TopicPartition.Compare) {
		errs = append(errs, e.Failed[tp])
	}
	return errs
}

const (
	// limit bounds a Send whose context has no earlier deadline.
	limit = 30 * time.Second
	// requestTime bounds one request, so that another attempt has a chance.
	requestTime = 10 * time.Second
	// batchBytes is just below the brokers' message.max.bytes of 1,048,588.
	batchBytes = 1_000_000
	// leadersFor is how long the leaders of an earlier call are believed.
	leadersFor = time.Minute
)

// Send writes the records, those of a partition in their order, and returns when
// every partition holds all of its own or cannot. The error is then an [*Error];
// of a partition that failed, leading records may have been written. Nothing is
// in flight after it that anybody waits for, and it takes no longer than ctx.
func Send(ctx context.Context, client *kgo.Client, records []Record) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s := sending{client: client, lanes: split(records)}
	s.find(ctx, s.cached)
	if slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.leader == noLeader }) {
		for _, l := range s.lanes {
			l.fatal = nil
		}
		s.find(ctx, s.fresh)
	}
	for wait := 50 * time.Millisecond; s.round(ctx); wait = min(2*wait, 2*time.Second) {
		if !sleep(ctx, wait) {
			break
		}
		s.find(ctx, s.fresh)
	}
	failed := map[flow.TopicPartition]error{}
	for _, l := range s.lanes {
		switch {
		case l.fatal != nil:
			failed[l.TopicPartition] = l.fatal
		case len(l.records) > 0:
			failed[l.TopicPartition] = fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), cmp.Or(l.last, errNone))
		}
	}
	if len(failed) > 0 {
		return &Error{Failed: failed}
	}
	return nil
}

// lane is what is still to be written to one partition.
type lane struct {
	flow.TopicPartition
	records []batch.Record
	bytes   int // most bytes of a batch

	id     [16]byte
	leader int32 // noLeader where it is to be found
	last   error // of the last attempt
	fatal  error // ends the lane
}

const noLeader = -1

var errNone = errors.New("none")

func split(records []Record) []*lane {
	var lanes []*lane
	at := map[flow.TopicPartition]*lane{}
	for _, r := range records {
		l := at[r.Partition]
		if l == nil {
			l = &lane{TopicPartition: r.Partition, bytes: batchBytes, leader: noLeader}
			at[r.Partition] = l
			lanes = append(lanes, l)
		}
		l.records = append(l.records, r.Record)
	}
	return lanes
}

func (l *lane) open() bool { return l.fatal == nil && len(l.records) > 0 }

type sending struct {
	client *kgo.Client
	lanes  []*lane
}

// find looks up the leaders of the lanes that lack one.
func (s *sending) find(ctx context.Context, ask func(context.Context, *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error)) {
	req := kmsg.NewPtrMetadataRequest()
	asked := map[string]bool{}
	for _, l := range s.lanes {
		if l.open() && l.leader == noLeader && !asked[l.Topic] {
			asked[l.Topic] = true
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = new(l.Topic)
			req.Topics = append(req.Topics, t)
		}
	}
	if len(asked) == 0 {
		return
	}
	resp, err := ask(ctx, req)
	if err != nil {
		for _, l := range s.lanes {
			if l.open() && l.leader == noLeader {
				l.last = fmt.Errorf("find the leader: %w", err)
			}
		}
		return
	}
	topics := map[string]*kmsg.MetadataResponseTopic{}
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			topics[*t.Topic] = t
		}
	}
	for _, l := range s.lanes {
		if l.open() && l.leader == noLeader {
			l.learn(topics[l.Topic])
		}
	}
}

// learn takes the leader from what metadata says of the topic.
func (l *lane) learn(t *kmsg.MetadataResponseTopic) {
	if t == nil {
		l.last = fmt.Errorf("find the leader: %w", kerr.UnknownTopicOrPartition)
		return
	}
	l.id = t.TopicID
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		l.fail(err)
		return
	}
	for _, p := range t.Partitions {
		if p.Partition != l.Partition {
			continue
		}
		if p.Leader >= 0 {
			l.leader = p.Leader
			return
		}
		l.last = kerr.LeaderNotAvailable
		return
	}
	l.fail(kerr.UnknownTopicOrPartition)
}

// fail takes an error of Kafka's: it ends the lane unless another attempt can
// help.
func (l *lane) fail(err error) {
	l.leader, l.last = noLeader, err
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		// Brokers say so too when they have just lost the partition to another, but
		// metadata says it only of what is not there.
		l.fatal = fmt.Errorf("%w (%w)", ErrNoTopic, err)
	case !kerr.IsRetriable(err):
		l.fatal = err
	}
}

// cached asks with what the client knows, and fresh the brokers.
func (s *sending) cached(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	return s.client.RequestCachedMetadata(ctx, req, leadersFor)
}

func (s *sending) fresh(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	return req.RequestWith(ctx, s.client)
}

// round sends to every leader, until each of its lanes is written or has failed
// once. It reports whether another one is needed.
func (s *sending) round(ctx context.Context) bool {
	byLeader := map[int32][]*lane{}
	for _, l := range s.lanes {
		if l.open() && l.leader != noLeader {
			byLeader[l.leader] = append(byLeader[l.leader], l)
		}
	}
	var wg sync.WaitGroup
	for leader, lanes := range byLeader {
		wg.Go(func() {
			for len(lanes) > 0 && ctx.Err() == nil {
				s.request(ctx, leader, lanes)
				lanes = slices.DeleteFunc(lanes, func(l *lane) bool { return !l.open() || l.leader == noLeader })
			}
		})
	}
	wg.Wait()
	return slices.ContainsFunc(s.lanes, (*lane).open)
}

// request sends one Produce request with a batch of each lane, which is all that
// magic 2 allows, and takes the written records off the lanes.
func (s *sending) request(ctx context.Context, leader int32, lanes []*lane) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(requestTime / time.Millisecond)
	topics := map[string]int{}
	sent := map[flow.TopicPartition]int{}
	waiting := map[flow.TopicPartition]*lane{}
	names := map[[16]byte]string{}
	for _, l := range lanes {
		i, ok := topics[l.Topic]
		if !ok {
			i = len(req.Topics)
			topics[l.Topic] = i
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = l.Topic, l.id
			req.Topics = append(req.Topics, t)
			names[l.id] = l.Topic
		}
		n := batch.Fit(l.records, l.bytes)
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition = l.Partition
		p.Records = batch.Append(nil, batch.Producer{ID: -1, Epoch: -1, Sequence: -1}, l.records[:n], nil)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
		sent[l.TopicPartition], waiting[l.TopicPartition] = n, l
	}
	resp, err := s.client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		for _, l := range lanes {
			l.leader, l.last = noLeader, err
		}
		return
	}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		name := t.Topic
		if name == "" { // since version 13 an answer bears the id alone
			name = names[t.TopicID]
		}
		for _, p := range t.Partitions {
			tp := flow.TopicPartition{Topic: name, Partition: p.Partition}
			if l := waiting[tp]; l != nil {
				delete(waiting, tp)
				l.answered(kerr.ErrorForCode(p.ErrorCode), sent[tp])
			}
		}
	}
	for _, l := range waiting {
		l.leader, l.last = noLeader, kerr.UnknownServerError
	}
}

// answered takes in what a broker says of the lane's first n records.
func (l *lane) answered(err error, n int) {
	switch {
	case err == nil:
		l.records = l.records[n:]
	case n > 1 && (errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)):
		l.bytes = max(l.bytes/2, batch.Overhead)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		l.leader, l.last = noLeader, err // metadata will tell
	default:
		l.fail(err)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
