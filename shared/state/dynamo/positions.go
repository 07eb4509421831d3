package dynamo

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// Positions implements state.Store.
func (s *Store) Positions(ctx context.Context, partitions []flow.TopicPartition) (map[flow.TopicPartition]state.Position, error) {
	return readBlocks(ctx, s, row.KindPosition, positionBlock, partitions, position)
}

// position takes a partition's position out of its block. The version and the
// upstream offset have attributes of their own, for the conditions.
func position(tp flow.TopicPartition, i item) (state.Position, bool, error) {
	name := attr("p", tp, positionBlock)
	if _, ok := i[name]; !ok {
		return state.Position{}, false, nil
	}
	version := numberOf(i, attr("v", tp, positionBlock))
	upstream := numberOf(i, attr("u", tp, positionBlock))
	p, err := row.Part(tp.String(), blobOf(i, name), version, upstream, func(ref row.TopicRef) []byte {
		return blobOf(i, attrTopic(ref))
	})
	return p, err == nil, err
}

// attrTopic names the attribute of a block that holds what ref stands for. It is
// written with every position, always the same, so it needs no condition.
func attrTopic(ref row.TopicRef) string {
	return "t" + base64.RawURLEncoding.EncodeToString(ref[:])
}

// Advance implements state.Store.
func (s *Store) Advance(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	return s.advance(ctx, next, false)
}

// Rewind implements state.Store.
func (s *Store) Rewind(ctx context.Context, next map[flow.TopicPartition]state.Position) (map[flow.TopicPartition]state.Position, error) {
	return s.advance(ctx, next, true)
}

func (s *Store) advance(ctx context.Context, next map[flow.TopicPartition]state.Position, rewind bool) (map[flow.TopicPartition]state.Position, error) {
	o := row.NewOutcome(rewind)
	err := inParallel(blocks(o.Admit(next), positionBlock), func(b block, tps []flow.TopicPartition) error {
		return s.advanceBlock(ctx, o, b, tps, next)
	})
	if err != nil {
		o.Fail(err)
	}
	return o.Result()
}

// advanceBlock writes positions of one block. A condition that fails fails the
// whole request, so those whose own condition holds are written by another try.
// Each try settles at least one partition, unless someone else writes between the
// refusal and our look at it.
func (s *Store) advanceBlock(ctx context.Context, o *row.Outcome, b block, tps []flow.TopicPartition, next map[flow.TopicPartition]state.Position) error {
	const mostTries = 2*positionBlock + 1
	for range mostTries {
		found, ok, err := s.updatePositions(ctx, b, tps, next, o.Rewinds())
		if err != nil {
			return fmt.Errorf("advance %s, partitions from %d: %w", b.topic, b.number*positionBlock, err)
		}
		var rest []flow.TopicPartition
		for _, tp := range tps {
			if ok {
				o.Store(tp, next[tp])
				continue
			}
			stored, _, err := position(tp, found)
			if err != nil {
				o.Fail(err)
			} else if o.Decide(tp, stored, next[tp]) {
				rest = append(rest, tp)
			}
		}
		if len(rest) == 0 {
			return nil
		}
		tps = rest
	}
	return fmt.Errorf("advance %s, partitions from %d: refused %d times without a reason", b.topic, b.number*positionBlock, mostTries)
}

// updatePositions makes one conditional write. If it is refused, ok is false and
// found is the block as it is, nil if there is none.
func (s *Store) updatePositions(ctx context.Context, b block, tps []flow.TopicPartition, next map[flow.TopicPartition]state.Position, rewind bool) (found item, ok bool, err error) {
	names, values := make(map[string]string), make(item)
	var set, conditions []string
	assign := func(short, name string, value types.AttributeValue) {
		names["#"+short], values[":"+short] = name, value
		set = append(set, "#"+short+" = :"+short)
	}
	topics := make(map[row.TopicRef]string)
	for _, tp := range tps {
		p := next[tp]
		v, u := attr("v", tp, positionBlock), attr("u", tp, positionBlock)
		assign(v, v, number(p.Version+1))
		assign(u, u, number(p.Upstream))
		name := attr("p", tp, positionBlock)
		assign(name, name, blob(row.AppendPart(nil, p)))
		if ref, ids := row.Ref(p); ids != nil && topics[ref] == "" {
			topics[ref] = fmt.Sprintf("t%d", len(topics))
			assign(topics[ref], attrTopic(ref), blob(ids))
		}
		if p.Version == 0 {
			conditions = append(conditions, fmt.Sprintf("attribute_not_exists(#%s)", v))
			continue
		}
		old := "old" + v
		values[":"+old] = number(p.Version)
		conditions = append(conditions, fmt.Sprintf("#%s = :%s", v, old))
		if !rewind {
			conditions = append(conditions, fmt.Sprintf("#%s <= :%s", u, u))
		}
	}
	k := b.key(row.KindPosition)
	_, err = request(ctx, s, s.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 k,
		UpdateExpression:                    aws.String("SET " + strings.Join(set, ", ")),
		ConditionExpression:                 aws.String(strings.Join(conditions, " AND ")),
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return nil, true, nil
	}
	found, ok = refused(err)
	if !ok {
		return nil, false, err
	}
	if found != nil {
		return found, false, nil
	}
	// Nothing is stored, or an emulator does not return it.
	found, err = s.get(ctx, k)
	return found, false, err
}
