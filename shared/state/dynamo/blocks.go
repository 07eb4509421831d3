package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// Partitions per item. A number never changes: another one needs other keys, and a
// flow row whose schema keeps older programs away.
const (
	positionBlock   = 16
	checkpointBlock = 32 // times MaxMetadata, within an item's 400 KB
	flushedBlock    = 64
)

// A block is the item of some partitions of a topic.
type block struct {
	topic  string
	number int32
}

func blockOf(tp flow.TopicPartition, size int32) block {
	return block{topic: tp.Topic, number: tp.Partition / size}
}

func (b block) key(kind string) item {
	return key(kind+"#"+b.topic+"#"+strconv.Itoa(int(b.number)), only)
}

// blocks sorts partitions into blocks, each in the given order.
func blocks(partitions []flow.TopicPartition, size int32) map[block][]flow.TopicPartition {
	sorted := make(map[block][]flow.TopicPartition)
	for _, tp := range partitions {
		b := blockOf(tp, size)
		sorted[b] = append(sorted[b], tp)
	}
	return sorted
}

// attr names the attribute of a partition in its block.
func attr(name string, tp flow.TopicPartition, size int32) string {
	return name + strconv.Itoa(int(tp.Partition%size))
}

// readBlocks reads the blocks of partitions consistently and decodes each
// partition's part; decode says whether it is there.
func readBlocks[T any](ctx context.Context, s *Store, kind string, size int32, partitions []flow.TopicPartition, decode func(flow.TopicPartition, item) (T, bool, error)) (map[flow.TopicPartition]T, error) {
	wanted := make(map[string][]flow.TopicPartition) // by pk
	var keys []item
	for b, tps := range blocks(partitions, size) {
		k := b.key(kind)
		keys = append(keys, k)
		wanted[textOf(k, "pk")] = tps
	}
	var mu sync.Mutex
	read := make(map[flow.TopicPartition]T, len(partitions))
	var errs []error
	err := s.getAll(ctx, keys, func(i item) {
		mu.Lock()
		defer mu.Unlock()
		for _, tp := range wanted[textOf(i, "pk")] {
			value, ok, err := decode(tp, i)
			if newer := checkSchema(kind, tp.String(), i); newer != nil {
				err = newer
			}
			switch {
			case err != nil:
				errs = append(errs, err)
			case ok:
				read[tp] = value
			}
		}
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("read %s: %w", kind, err))
	}
	if len(errs) > 0 && len(read) == 0 {
		read = nil
	}
	return read, errors.Join(errs...)
}

// getAll reads items consistently, in parallel; a missing one is not found.
func (s *Store) getAll(ctx context.Context, keys []item, found func(item)) error {
	const mostKeys = 100 // of one BatchGetItem
	var group errgroup.Group
	group.SetLimit(parallel)
	for some := range slices.Chunk(keys, mostKeys) {
		group.Go(func() error { return s.getSome(ctx, some, found) })
	}
	return group.Wait()
}

func (s *Store) getSome(ctx context.Context, keys []item, found func(item)) error {
	_, bounded := ctx.Deadline()
	for attempt := 0; ; attempt++ {
		out, err := request(ctx, s, s.client.BatchGetItem, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{
				s.table: {Keys: keys, ConsistentRead: aws.Bool(true)},
			},
		})
		if err != nil {
			return err
		}
		for _, i := range out.Responses[s.table] {
			found(i)
		}
		// Left over for their size there is progress; for throttling, a pause.
		left := out.UnprocessedKeys[s.table].Keys
		if len(left) == 0 {
			return nil
		}
		if len(left) < len(keys) {
			attempt = 0
		}
		keys = left
		if !bounded && attempt+1 >= mostAttempts {
			return fmt.Errorf("%w: %d items unread", errThrottled, len(left))
		}
		if paused := pause(ctx, attempt); paused != nil {
			return fmt.Errorf("%w: %d items unread: %w", errThrottled, len(left), paused)
		}
	}
}

// errThrottled is DynamoDB's answer to a batch that it leaves in part.
var errThrottled = errors.New("throttled")

// packed decodes the attribute p<n> of a block.
func packed[T any](size int32, decode func(string, []byte) (T, error)) func(flow.TopicPartition, item) (T, bool, error) {
	return func(tp flow.TopicPartition, i item) (value T, ok bool, err error) {
		name := attr("p", tp, size)
		if _, ok := i[name]; !ok {
			return value, false, nil
		}
		value, err = decode(tp.String(), blobOf(i, name))
		return value, err == nil, err
	}
}

// A part is the packed value of one partition in a block.
type part struct {
	flow.TopicPartition
	data []byte
}

// putParts writes parts of an item without a look at what is there, unless a newer
// program wrote it.
func (s *Store) putParts(ctx context.Context, kind string, k item, size int32, parts []part) error {
	names := map[string]string{"#s": attrSchema}
	values := item{":s": number(row.Schema)}
	set := []string{"#s = :s"}
	for _, p := range parts {
		name := attr("p", p.TopicPartition, size)
		if _, twice := names["#"+name]; !twice {
			set = append(set, "#"+name+" = :"+name)
		}
		names["#"+name] = name
		values[":"+name] = blob(p.data)
	}
	_, err := request(ctx, s, s.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 k,
		UpdateExpression:                    aws.String("SET " + strings.Join(set, ", ")),
		ConditionExpression:                 aws.String(schemaCondition),
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return s.blindError(kind, textOf(k, "pk")+" "+textOf(k, "sk"), err)
}

// blindError tells a refusal by schemaCondition from other errors.
func (s *Store) blindError(kind, name string, err error) error {
	if err == nil {
		return nil
	}
	if found, ok := refused(err); ok {
		if err := checkSchema(kind, name, found); err != nil {
			return err
		}
		// Some emulators do not return the item.
		return &state.SchemaError{Kind: kind, Key: name, Schema: row.Schema + 1, Known: row.Schema}
	}
	return fmt.Errorf("write %s %s: %w", kind, name, err)
}

// Flushed implements state.Store.
func (s *Store) Flushed(ctx context.Context, partitions []flow.TopicPartition) (map[flow.TopicPartition]state.Flushed, error) {
	return readBlocks(ctx, s, row.KindFlushed, flushedBlock, partitions, packed(flushedBlock, row.Flushed))
}

// PutFlushed implements state.Store.
func (s *Store) PutFlushed(ctx context.Context, flushed map[flow.TopicPartition]state.Flushed) error {
	partitions := slices.SortedFunc(maps.Keys(flushed), flow.TopicPartition.Compare)
	return inParallel(blocks(partitions, flushedBlock), func(b block, tps []flow.TopicPartition) error {
		var parts []part
		for _, tp := range tps {
			parts = append(parts, part{tp, row.AppendFlushed(nil, flushed[tp])})
		}
		return s.putParts(ctx, row.KindFlushed, b.key(row.KindFlushed), flushedBlock, parts)
	})
}

// inParallel does all of them and joins what goes wrong.
func inParallel[K comparable, V any](all map[K]V, do func(K, V) error) error {
	var mu sync.Mutex
	var errs []error
	var group errgroup.Group
	group.SetLimit(parallel)
	for k, v := range all {
		group.Go(func() error {
			if err := do(k, v); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // every error is in errs
	return errors.Join(errs...)
}
