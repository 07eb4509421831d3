package dynamo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

func runsKey(tp flow.TopicPartition) string {
	return row.KindRuns + "#" + tp.Topic + "#" + strconv.Itoa(int(tp.Partition))
}

// offsetKey writes an offset so that the order of text is the order of numbers.
func offsetKey(offset int64) string { return fmt.Sprintf("%019d", offset) }

// PutRuns implements state.Store.
func (s *Store) PutRuns(ctx context.Context, tp flow.TopicPartition, chunk state.RunChunk) error {
	if err := row.CheckChunk(tp, chunk); err != nil {
		return err
	}
	i := key(runsKey(tp), offsetKey(chunk.First))
	i["n"] = number(chunk.Next)
	i["p"] = blob(row.AppendChunk(nil, chunk))
	i[attrSchema] = number(row.Schema)
	_, err := request(ctx, s, s.client.PutItem, &dynamodb.PutItemInput{
		TableName:                           &s.table,
		Item:                                i,
		ConditionExpression:                 aws.String(schemaCondition + " AND (attribute_not_exists(#n) OR #n < :n)"),
		ExpressionAttributeNames:            map[string]string{"#s": attrSchema, "#n": "n"},
		ExpressionAttributeValues:           item{":s": number(row.Schema), ":n": number(chunk.Next)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return nil
	}
	found, ok := refused(err)
	if !ok {
		return fmt.Errorf("write runs of %s: %w", tp, err)
	}
	// The stored chunk reaches as far, unless it is a newer program's.
	return checkSchema(row.KindRuns, tp.String(), found)
}

// Runs implements state.Store.
func (s *Store) Runs(ctx context.Context, tp flow.TopicPartition) ([]state.RunChunk, error) {
	var chunks []state.RunChunk
	err := s.query(ctx, runsKey(tp), nil, "", func(i item) error {
		first, err := strconv.ParseInt(textOf(i, "sk"), 10, 64)
		if err != nil {
			return err
		}
		chunk, err := row.Chunk(tp.String(), first, blobOf(i, "p"))
		chunks = append(chunks, chunk)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read runs of %s: %w", tp, err)
	}
	return chunks, nil
}

// DeleteRuns implements state.Store.
func (s *Store) DeleteRuns(ctx context.Context, tp flow.TopicPartition, from, to int64) error {
	from = max(from, 0)
	if to <= from {
		return nil
	}
	last := to - 1
	if to == math.MaxInt64 {
		last = to
	}
	var deletes []types.WriteRequest
	err := s.query(ctx, runsKey(tp), []string{offsetKey(from), offsetKey(last)}, "pk, sk, s", func(i item) error {
		deletes = append(deletes, types.WriteRequest{DeleteRequest: &types.DeleteRequest{
			Key: item{"pk": i["pk"], "sk": i["sk"]},
		}})
		return checkSchema(row.KindRuns, tp.String(), i)
	})
	if err == nil {
		err = s.writeAll(ctx, deletes)
	}
	if err != nil {
		return fmt.Errorf("delete runs of %s: %w", tp, err)
	}
	return nil
}

// writeAll makes unconditional writes.
func (s *Store) writeAll(ctx context.Context, writes []types.WriteRequest) error {
	const mostWrites = 25 // of one BatchWriteItem
	_, bounded := ctx.Deadline()
	for some := range slices.Chunk(writes, mostWrites) {
		for attempt := 0; len(some) > 0; attempt++ {
			out, err := request(ctx, s, s.client.BatchWriteItem, &dynamodb.BatchWriteItemInput{
				RequestItems: map[string][]types.WriteRequest{s.table: some},
			})
			if err != nil {
				return err
			}
			some = out.UnprocessedItems[s.table]
			if len(some) == 0 {
				break
			}
			if !bounded && attempt+1 >= mostAttempts {
				return fmt.Errorf("%w: %d items unwritten", errThrottled, len(some))
			}
			if paused := pause(ctx, attempt); paused != nil {
				return fmt.Errorf("%w: %d items unwritten: %w", errThrottled, len(some), paused)
			}
		}
	}
	return nil
}
