package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// chunkLength is from how many records on they are handed on, at the end of
	// a batch.
	chunkLength = 4096
	// patience is how long a partition may give nothing.
	patience = time.Minute
)

// errRecreated is returned where a topic turns out to be another one than at
// the start, under the same name.
var errRecreated = errors.New("the topic was deleted and created again")

// expiredError is returned where the log lost its beginning before it was read.
type expiredError struct{ at int64 }

func (e *expiredError) Error() string {
	return fmt.Sprintf("offset %d was deleted before it was read", e.at)
}

// reader fetches from the partitions of one cluster. A consumer of franz-go
// hides how far it came where nothing follows that it would return, as behind
// the last transaction marker; so the requests are made here. What they bring is
// decoded by franz-go, for a proof must not share code with what it judges.
type reader struct {
	name      string
	client    *kgo.Client
	committed bool
	seed      maphash.Seed
	lasting   bool  // entries have a content
	bytes     int32 // of one fetch, at most; the broker exceeds it for one batch only

	mu      sync.Mutex
	leaders map[place]int32
}

type place struct {
	topic     string
	partition int32
}

// brokerLog is a partition that is read through a reader.
type brokerLog struct {
	*reader
	place
	id   [16]byte // of the topic; zero on old brokers
	last int64    // its end
}

func (l *brokerLog) end() int64 { return l.last }

func (l *brokerLog) until(end int64) partitionLog {
	m := *l
	m.last = end
	return &m
}

// open reads ahead in the background until the feed is closed.
func (l *brokerLog) open(ctx context.Context, from int64) feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &brokerFeed{
		log: l, cancel: cancel,
		raw:    make(chan fetched, 1),
		chunks: make(chan []entry, 2),
		free:   make(chan []entry, 4),
	}
	f.wait.Go(func() { f.fetch(ctx, from) })
	f.wait.Go(func() { f.decode(ctx, from) })
	return f
}

// brokerFeed fetches, decodes and hands out at the same time.
type brokerFeed struct {
	log    *brokerLog
	cancel context.CancelFunc
	wait   sync.WaitGroup

	raw    chan fetched // closed after the last one
	chunks chan []entry // closed after the last one
	free   chan []entry
	out    []entry // what next handed out

	fetchErr, err error // set before the channel is closed
}

// fetched is the answer to a fetch.
type fetched struct {
	partition kmsg.FetchResponseTopicPartition
	next      int64
}

func (f *brokerFeed) next() ([]entry, error) {
	f.release(f.out)
	f.out = <-f.chunks
	if f.out == nil {
		return nil, f.err
	}
	return f.out, nil
}

func (f *brokerFeed) close() {
	f.cancel()
	f.wait.Wait()
}

func (f *brokerFeed) fetch(ctx context.Context, from int64) {
	defer close(f.raw)
	for at := from; at < f.log.last; {
		got, err := f.log.fetch(ctx, at)
		if err != nil {
			f.fetchErr = fmt.Errorf("read %s-%d of %s at offset %d: %w", f.log.topic, f.log.partition, f.log.name, at, err)
			return
		}
		select {
		case f.raw <- got:
		case <-ctx.Done():
			f.fetchErr = context.Cause(ctx)
			return
		}
		at = got.next
	}
}

// decode makes entries of the records of each batch in turn, so that no more
// than one is unpacked at a time.
func (f *brokerFeed) decode(ctx context.Context, at int64) {
	defer close(f.chunks)
	d := newDecoder(f.log)
	for got := range f.raw {
		d.begin(&got.partition)
		chunk := f.chunk()
		in := got.partition.RecordBatches
		for frame, _, ok := cutBatch(in); ok; frame, _, ok = cutBatch(in) {
			in = in[len(frame):]
			var err error
			if chunk, err = d.batch(chunk, frame, at); err != nil {
				f.err = fmt.Errorf("read %s-%d of %s at offset %d: %w", f.log.topic, f.log.partition, f.log.name, at, err)
				return
			}
			at = d.at
			if len(chunk) >= chunkLength {
				if f.err = f.send(ctx, chunk); f.err != nil {
					return
				}
				chunk = f.chunk()
			}
		}
		if len(chunk) == 0 {
			f.release(chunk)
		} else if f.err = f.send(ctx, chunk); f.err != nil {
			return
		}
	}
	f.err = f.fetchErr
}

func (f *brokerFeed) send(ctx context.Context, chunk []entry) error {
	select {
	case f.chunks <- chunk:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *brokerFeed) release(chunk []entry) {
	if chunk == nil {
		return
	}
	select {
	case f.free <- chunk:
	default:
	}
}

func (f *brokerFeed) chunk() []entry {
	select {
	case c := <-f.free:
		return c[:0]
	default:
		return make([]entry, 0, chunkLength)
	}
}

// fetch returns what follows from an offset on, which lies before the end.
func (l *brokerLog) fetch(ctx context.Context, at int64) (fetched, error) {
	begun := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		got, err := l.try(ctx, at)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil {
			return fetched{}, context.Cause(ctx)
		}
		if errors.Is(err, kerr.OffsetOutOfRange) {
			return fetched{}, &expiredError{at}
		}
		if e, ok := errors.AsType[*kerr.Error](err); ok && !e.Retriable || errors.Is(err, errRecreated) || time.Since(begun) > patience {
			return fetched{}, err
		}
		l.mu.Lock()
		delete(l.leaders, l.place)
		l.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fetched{}, context.Cause(ctx)
		}
	}
}

var errNothing = errors.New("the broker returns nothing, though its log goes on")

func (l *brokerLog) try(ctx context.Context, at int64) (fetched, error) {
	node, err := l.leader(ctx)
	if err != nil {
		return fetched{}, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = 500
	req.MinBytes = 1
	req.MaxBytes = l.bytes
	req.SessionEpoch = -1 // outside any session
	if l.committed {
		req.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = l.topic, l.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = l.partition, at, l.bytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	answer, err := l.client.Broker(int(node)).RetriableRequest(ctx, req)
	if err != nil {
		return fetched{}, err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fetched{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fetched{}, kerr.UnknownServerError
	}
	got := fetched{partition: resp.Topics[0].Partitions[0], next: at}
	if err := kerr.ErrorForCode(got.partition.ErrorCode); err != nil {
		return fetched{}, err
	}
	in := got.partition.RecordBatches
	for frame, next, ok := cutBatch(in); ok; frame, next, ok = cutBatch(in) {
		in = in[len(frame):]
		got.next = max(got.next, next)
	}
	if got.next == at {
		return fetched{}, errNothing
	}
	return got, nil
}

// leader asks the cluster for the partition's leader where it is not known.
func (l *brokerLog) leader(ctx context.Context) (int32, error) {
	l.mu.Lock()
	node, ok := l.leaders[l.place]
	l.mu.Unlock()
	if ok {
		return node, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = new(l.topic)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 {
		return 0, kerr.UnknownServerError
	}
	got := resp.Topics[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return 0, err
	}
	i := slices.IndexFunc(got.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == l.partition })
	if i < 0 {
		return 0, kerr.UnknownTopicOrPartition
	}
	if got.Partitions[i].Leader < 0 {
		return 0, kerr.LeaderNotAvailable
	}
	if got.TopicID != l.id {
		return 0, errRecreated
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaders[l.place] = got.Partitions[i].Leader
	return got.Partitions[i].Leader, nil
}

// cutBatch returns the record batch, or the message of before Kafka 0.11, at the
// front of a fetched log, and the offset that follows it; not ok is a part of
// one, or nothing.
func cutBatch(log []byte) (frame []byte, next int64, ok bool) {
	const (
		prefix     = 12 // offset and length
		magicAt    = 16
		deltaAt    = 23
		headerSize = 61
	)
	if len(log) <= magicAt {
		return nil, 0, false
	}
	size := int64(int32(binary.BigEndian.Uint32(log[8:]))) + prefix
	if size <= magicAt || size > int64(len(log)) {
		return nil, 0, false
	}
	frame = log[:size:size]
	next = int64(binary.BigEndian.Uint64(frame)) + 1
	if frame[magicAt] >= 2 {
		if size < headerSize {
			return nil, 0, false
		}
		next += int64(int32(binary.BigEndian.Uint32(frame[deltaAt:])))
	}
	return frame, next, true
}
