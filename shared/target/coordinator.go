package target

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
	"github.com/twmb/franz-go/pkg/kversion"

	"mirrorless/shared/batch"
	"mirrorless/shared/mm2"
)

// edge names an end of a log, as the timestamp of a ListOffsets request does.
type edge int64

const (
	logEnd   edge = -1
	logStart edge = -2
)

// protocol is how transactions are spoken of with a cluster.
type protocol struct {
	client *kgo.Client
	// implicit: a partition becomes part of the transaction by the first batch that
	// is written to it, and every end of a transaction brings a new epoch
	// (KIP-890, transaction.version 2).
	implicit bool
}

// protocol asks once which of the two protocols the cluster has finalized. The
// versions of requests decide which one is spoken, and a broker that can speak the
// newer one offers its versions whatever is finalized. Kafka 4.3.1 with
// transaction.version 0 takes a transactional batch of Produce version 13 for the
// begin of a transaction that it can then neither commit nor abort, ever.
func (w *wire) protocol(ctx context.Context) (protocol, error) {
	w.mu.Lock()
	known := w.transactions
	w.mu.Unlock()
	if known.client != nil {
		return known, nil
	}
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, w.client)
	if err != nil {
		return protocol{}, fmt.Errorf("ask for the version of transactions: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.transactions.client != nil:
	case slices.ContainsFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
		return f.Name == "transaction.version" && f.MaxVersionLevel >= 2
	}):
		w.transactions = protocol{client: w.client, implicit: true}
	case slices.ContainsFunc(resp.ApiKeys, func(key kmsg.ApiVersionsResponseApiKey) bool {
		return key.ApiKey == kmsg.EndTxn.Int16() && key.MaxVersion > olderEndTxn
	}):
		older := kversion.Stable()
		older.SetMaxKeyVersion(kmsg.Produce.Int16(), olderProduce)
		older.SetMaxKeyVersion(kmsg.EndTxn.Int16(), olderEndTxn)
		client, err := kgo.NewClient(append(w.client.Opts(), kgo.MaxVersions(older))...)
		if err != nil {
			return protocol{}, fmt.Errorf("set up a client for transactions: %w", err)
		}
		w.transactions = protocol{client: client}
	default:
		w.transactions = protocol{client: w.client}
	}
	return w.transactions, nil
}

// The last versions before KIP-890's second part.
const (
	olderProduce = 11
	olderEndTxn  = 4
)

// initProducer asks for an epoch with a time-out for transactions, of which the
// brokers' transaction.max.timeout.ms is the limit. Nobody without a right to
// describe the cluster is told what that is, so a lower one is tried.
func (w *wire) initProducer(ctx context.Context, client *kgo.Client, req *kmsg.InitProducerIDRequest, limit time.Duration) (*kmsg.InitProducerIDResponse, error) {
	for {
		w.mu.Lock()
		if w.longest > 0 {
			limit = min(limit, w.longest)
		}
		w.mu.Unlock()
		req.TransactionTimeoutMillis = int32(max(limit, time.Second) / time.Millisecond)
		resp, err := req.RequestWith(ctx, client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if !errors.Is(err, kerr.InvalidTransactionTimeout) || limit <= time.Second {
			return resp, err
		}
		w.mu.Lock()
		w.longest = limit / 2
		w.mu.Unlock()
	}
}

func (w *wire) begin(ctx context.Context, id string, limit time.Duration) (batch.Producer, error) {
	spoken, err := w.protocol(ctx)
	if err != nil {
		return batch.Producer{}, err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = new(id)
	for wait := newBackoff(); ; {
		resp, err := w.initProducer(ctx, spoken.client, req, limit)
		if err == nil {
			return batch.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}, nil
		}
		if ke, ok := errors.AsType[*kerr.Error](err); ok && !ke.Retriable && !errors.Is(err, kerr.ConcurrentTransactions) {
			return batch.Producer{}, err
		}
		// What the one before left open is being ended, or the coordinator moves.
		if !wait.next(ctx) {
			return batch.Producer{}, fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
		}
	}
}

// renew bumps the epoch (KIP-360). A broker before 2.5 would not compare the
// epoch with the one that it has, so there it is another invocation's begin.
func (w *wire) renew(ctx context.Context, id string, producer batch.Producer, limit time.Duration) (batch.Producer, error) {
	spoken, err := w.protocol(ctx)
	if err != nil || spoken.implicit {
		return producer, err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = new(id)
	req.ProducerID, req.ProducerEpoch = producer.ID, producer.Epoch
	resp, err := w.initProducer(ctx, spoken.client, req, limit)
	const compares = 3
	switch {
	case err != nil:
		return producer, err
	case resp.Version < compares:
		return producer, kerr.ProducerFenced
	}
	return batch.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}, nil
}

func (w *wire) end(ctx context.Context, id string, producer batch.Producer, commit bool) (batch.Producer, error) {
	spoken, err := w.protocol(ctx)
	if err != nil {
		return producer, err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, producer.ID, producer.Epoch, commit
	resp, err := req.RequestWith(ctx, spoken.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return producer, err
	}
	if resp.Version > olderEndTxn && resp.ProducerID >= 0 {
		producer.ID, producer.Epoch = resp.ProducerID, resp.ProducerEpoch
	}
	return producer, nil
}

// write sends one Produce request to each leader of the partitions. A request
// holds the batches of one transactional id, so they are not shared with others
// as a [sender] does.
func (w *wire) write(ctx context.Context, id string, producer batch.Producer, parts []part) []outcome {
	out := make([]outcome, len(parts))
	spoken, err := w.protocol(ctx)
	if err == nil && !spoken.implicit {
		err = w.add(ctx, spoken.client, id, producer, parts)
	}
	if err != nil {
		for i := range out {
			if ke, ok := errors.AsType[*kerr.Error](err); ok {
				out[i] = outcome{ans: answer{code: ke.Code, bad: -1}}
			} else {
				out[i] = outcome{err: err}
			}
		}
		return out
	}
	byLeader := map[int32][]int{}
	for i, p := range parts {
		node, err := w.leader(ctx, p.Partition)
		if err != nil {
			out[i] = outcome{err: err}
			continue
		}
		byLeader[node] = append(byLeader[node], i)
	}
	var wg sync.WaitGroup
	for node, indexes := range byLeader {
		wg.Go(func() { w.writeTo(ctx, spoken.client.Broker(int(node)), id, parts, indexes, out) })
	}
	wg.Wait()
	for i, o := range out {
		if o.err != nil || transient(o.ans.code) {
			w.forget(parts[i].Partition)
		}
	}
	return out
}

// writeTo writes those parts that one broker leads, and their outcomes to out.
func (w *wire) writeTo(ctx context.Context, broker *kgo.Broker, id string, parts []part, indexes []int, out []outcome) {
	round := make([]*submission, len(indexes))
	for i, at := range indexes {
		round[i] = &submission{ctx: ctx, p: parts[at].Partition, raw: parts[at].raw, done: make(chan outcome, 1)}
	}
	request(ctx, broker, new(id), round)
	for i, at := range indexes {
		out[at] = <-round[i].done
	}
}

// add makes partitions a part of the transaction. Doing it again changes nothing.
func (w *wire) add(ctx context.Context, client *kgo.Client, id string, producer batch.Producer, parts []part) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, producer.ID, producer.Epoch
	for _, p := range parts {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = p.Topic, []int32{p.Partition.Partition}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("add partitions to the transaction: %w", err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			// Where one is refused, the others are not attempted.
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !errors.Is(err, kerr.OperationNotAttempted) {
				return err
			}
		}
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (w *wire) offsets(ctx context.Context, ps []Partition, which edge) (map[Partition]int64, error) {
	out := make(map[Partition]int64, len(ps))
	pending := ps
	var last error
	for wait := newBackoff(); len(pending) > 0; {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		at := map[string]int{}
		of := map[string]map[int32]Partition{}
		for _, p := range pending {
			i, ok := at[p.Topic]
			if !ok {
				i = len(req.Topics)
				at[p.Topic] = i
				t := kmsg.NewListOffsetsRequestTopic()
				t.Topic = p.Topic
				req.Topics = append(req.Topics, t)
				of[p.Topic] = map[int32]Partition{}
			}
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p.Partition, int64(which)
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
			of[p.Topic][p.Partition] = p
		}
		for _, shard := range w.client.RequestSharded(ctx, req) {
			if shard.Err != nil {
				last = shard.Err
				continue
			}
			for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
				for _, rp := range t.Partitions {
					p, ok := of[t.Topic][rp.Partition]
					if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
						last = fmt.Errorf("%s: %w", p.TopicPartition, err)
						if !kerr.IsRetriable(err) {
							return nil, last
						}
					} else if ok {
						out[p] = rp.Offset
					}
				}
			}
		}
		pending = slices.DeleteFunc(slices.Clone(pending), func(p Partition) bool { _, ok := out[p]; return ok })
		if len(pending) > 0 && !wait.next(ctx) {
			return nil, fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), last)
		}
	}
	return out, nil
}

// positionOffset is the source offset in a position record, −1 in one that says
// nothing.
func positionOffset(r batch.Record) (int64, error) {
	p, err := mm2.ParseSourcePosition(r.Key, r.Value)
	return p.Offset, err
}
