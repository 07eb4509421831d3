package dynamo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// shards is over how many keys the rows are spread that are listed as a whole.
const shards = 16

// shardKey is the pk under which a row of a listed kind lies.
func shardKey(kind, of string) string {
	hash := fnv.New32a()
	hash.Write([]byte(of))
	return kind + "#" + strconv.Itoa(int(hash.Sum32()%shards))
}

// listShards calls do for every row of a kind, never twice at a time.
func (s *Store) listShards(ctx context.Context, kind string, do func(item) error) error {
	var mu sync.Mutex
	var group errgroup.Group
	for shard := range shards {
		group.Go(func() error {
			return s.query(ctx, kind+"#"+strconv.Itoa(shard), nil, "", func(i item) error {
				mu.Lock()
				defer mu.Unlock()
				return do(i)
			})
		})
	}
	return group.Wait()
}

// checkpointBlockKey is the sort key of a group's block: a topic and a number hold
// no "#", so the group may.
func checkpointBlockKey(group string, b block) string {
	// A text of DynamoDB is UTF-8; a group id comes off the wire.
	name := "=" + group
	if !utf8.ValidString(group) {
		name = "%" + url.QueryEscape(group)
	}
	return name + "#" + b.topic + "#" + strconv.Itoa(int(b.number))
}

var errCheckpointKey = errors.New("key is not a checkpoint's")

// splitCheckpointBlockKey is the inverse of checkpointBlockKey.
func splitCheckpointBlockKey(sk string) (group string, b block, err error) {
	last := strings.LastIndexByte(sk, '#')
	topic := strings.LastIndexByte(sk[:max(last, 0)], '#')
	if topic < 1 || topic+1 == last {
		return "", block{}, errCheckpointKey
	}
	n, err := strconv.ParseInt(sk[last+1:], 10, 32)
	if err != nil || n < 0 {
		return "", block{}, errCheckpointKey
	}
	group = sk[1:topic]
	switch sk[0] {
	case '=':
	case '%':
		if group, err = url.QueryUnescape(group); err != nil {
			return "", block{}, errCheckpointKey
		}
	default:
		return "", block{}, errCheckpointKey
	}
	return group, block{topic: sk[topic+1 : last], number: int32(n)}, nil
}

// Checkpoints implements state.Store.
func (s *Store) Checkpoints(ctx context.Context) ([]state.Checkpoint, error) {
	var all []state.Checkpoint
	err := s.listShards(ctx, row.KindCheckpoint, func(i item) error {
		sk := textOf(i, "sk")
		if err := checkSchema(row.KindCheckpoint, sk, i); err != nil {
			return err
		}
		group, b, err := splitCheckpointBlockKey(sk)
		if err != nil {
			return fmt.Errorf("%q: %w", sk, err)
		}
		for n := range int32(checkpointBlock) {
			tp := flow.TopicPartition{Topic: b.topic, Partition: b.number*checkpointBlock + n}
			c, ok, err := packed(checkpointBlock, row.Checkpoint)(tp, i)
			if err != nil {
				return err
			}
			if ok {
				c.Group, c.TopicPartition = group, tp
				all = append(all, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	slices.SortFunc(all, row.CompareCheckpoints)
	return all, nil
}

// PutCheckpoints implements state.Store.
func (s *Store) PutCheckpoints(ctx context.Context, checkpoints []state.Checkpoint) error {
	type groupBlock struct {
		group string
		block
	}
	parts := make(map[groupBlock][]part)
	var errs []error
	for _, c := range checkpoints {
		if err := row.CheckCheckpoint(c); err != nil {
			errs = append(errs, err)
			continue
		}
		b := groupBlock{c.Group, blockOf(c.TopicPartition, checkpointBlock)}
		parts[b] = append(parts[b], part{c.TopicPartition, row.AppendCheckpoint(nil, c)})
	}
	err := inParallel(parts, func(b groupBlock, parts []part) error {
		k := key(shardKey(row.KindCheckpoint, b.group), checkpointBlockKey(b.group, b.block))
		return s.putParts(ctx, row.KindCheckpoint, k, checkpointBlock, parts)
	})
	return errors.Join(append(errs, err)...)
}

func holeKey(h state.Hole) item {
	sk := fmt.Sprintf("%s#%010d#%s#%s", h.Topic, h.Partition, offsetKey(h.From), h.Kind)
	return key(shardKey(row.KindHole, h.TopicPartition.String()), sk)
}

// Holes implements state.Store.
func (s *Store) Holes(ctx context.Context) ([]state.Hole, error) {
	var all []state.Hole
	err := s.listShards(ctx, row.KindHole, func(i item) error {
		hole, err := row.Hole(textOf(i, "sk"), []byte(textOf(i, attrRow)))
		all = append(all, hole)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read holes: %w", err)
	}
	slices.SortFunc(all, row.CompareHoles)
	return all, nil
}

// PutHoles implements state.Store.
func (s *Store) PutHoles(ctx context.Context, holes []state.Hole) error {
	type id struct {
		flow.TopicPartition
		from int64
		kind string
	}
	last := make(map[id]state.Hole)
	for _, h := range holes {
		last[id{h.TopicPartition, h.From, h.Kind}] = h
	}
	return inParallel(last, func(_ id, h state.Hole) error {
		i := holeKey(h)
		i[attrRow] = text(string(row.MarshalHole(h)))
		i[attrSchema] = number(row.Schema)
		_, err := request(ctx, s, s.client.PutItem, &dynamodb.PutItemInput{
			TableName:                           &s.table,
			Item:                                i,
			ConditionExpression:                 aws.String(schemaCondition),
			ExpressionAttributeNames:            map[string]string{"#s": attrSchema},
			ExpressionAttributeValues:           item{":s": number(row.Schema)},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return s.blindError(row.KindHole, textOf(i, "sk"), err)
	})
}
