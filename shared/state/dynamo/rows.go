package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// get reads an item consistently, nil if there is none.
func (s *Store) get(ctx context.Context, k item) (item, error) {
	out, err := request(ctx, s, s.client.GetItem, &dynamodb.GetItemInput{
		TableName: &s.table, Key: k, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}

// query calls do for every item of a pk by rising sk, consistently. between, if not
// empty, holds the first and the last sk.
func (s *Store) query(ctx context.Context, pk string, between []string, projection string, do func(item) error) error {
	in := &dynamodb.QueryInput{
		TableName:                 &s.table,
		ConsistentRead:            aws.Bool(true),
		KeyConditionExpression:    aws.String("pk = :pk"),
		ExpressionAttributeValues: item{":pk": text(pk)},
	}
	if len(between) > 0 {
		in.KeyConditionExpression = aws.String("pk = :pk AND sk BETWEEN :from AND :to")
		in.ExpressionAttributeValues[":from"] = text(between[0])
		in.ExpressionAttributeValues[":to"] = text(between[1])
	}
	if projection != "" {
		in.ProjectionExpression = &projection
	}
	for {
		out, err := request(ctx, s, s.client.Query, in)
		if err != nil {
			return err
		}
		for _, i := range out.Items {
			if err := do(i); err != nil {
				return err
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// putVersioned writes a JSON row if the stored one has the version expected, none
// if that is 0. same says whether a stored row is what is being written.
func (s *Store) putVersioned(ctx context.Context, name string, k item, expected int64, data []byte, same func(item) (bool, error)) error {
	i := item{"pk": k["pk"], "sk": k["sk"], attrVersion: number(expected + 1), attrRow: text(string(data))}
	in := &dynamodb.PutItemInput{
		TableName:                           &s.table,
		Item:                                i,
		ConditionExpression:                 aws.String("attribute_not_exists(#v)"),
		ExpressionAttributeNames:            map[string]string{"#v": attrVersion},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if expected != 0 {
		in.ConditionExpression = aws.String("#v = :v")
		in.ExpressionAttributeValues = item{":v": number(expected)}
	}
	_, err := request(ctx, s, s.client.PutItem, in)
	if err == nil {
		return nil
	}
	found, ok := refused(err)
	if !ok {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if found == nil {
		if found, err = s.get(ctx, k); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	if found != nil {
		if equal, err := same(found); err != nil || equal {
			return err
		}
	}
	return fmt.Errorf("write %s: %w", name, state.ErrConflict)
}

// Flow implements state.Store.
func (s *Store) Flow(ctx context.Context) (state.FlowRow, error) {
	found, err := s.get(ctx, key(row.KindFlow, only))
	switch {
	case err != nil:
		return state.FlowRow{}, fmt.Errorf("read flow: %w", err)
	case found == nil:
		return state.FlowRow{}, fmt.Errorf("read flow: %w", state.ErrNotFound)
	}
	return row.Flow([]byte(textOf(found, attrRow)))
}

// PutFlow implements state.Store.
func (s *Store) PutFlow(ctx context.Context, next state.FlowRow) (state.FlowRow, error) {
	expected := next.Version
	next.Version++
	next.Created = row.Time(row.Millis(next.Created))
	k := key(row.KindFlow, only)
	err := s.putVersioned(ctx, "flow", k, expected, row.MarshalFlow(next), func(found item) (bool, error) {
		stored, err := row.Flow([]byte(textOf(found, attrRow)))
		return row.SameFlow(stored, next), err
	})
	if err != nil {
		return state.FlowRow{}, err
	}
	return next, nil
}

func eventSourceKey(topic string) item { return key(row.KindEventSource, topic) }

// EventSource implements state.Store.
func (s *Store) EventSource(ctx context.Context, topic string) (state.EventSource, error) {
	found, err := s.get(ctx, eventSourceKey(topic))
	switch {
	case err != nil:
		return state.EventSource{}, fmt.Errorf("read event source of %s: %w", topic, err)
	case found == nil:
		return state.EventSource{}, fmt.Errorf("read event source of %s: %w", topic, state.ErrNotFound)
	}
	return row.EventSource(topic, []byte(textOf(found, attrRow)))
}

// EventSources implements state.Store.
func (s *Store) EventSources(ctx context.Context) ([]state.EventSource, error) {
	var all []state.EventSource
	err := s.query(ctx, row.KindEventSource, nil, "", func(i item) error {
		one, err := row.EventSource(textOf(i, "sk"), []byte(textOf(i, attrRow)))
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read event sources: %w", err)
	}
	return all, nil
}

// PutEventSource implements state.Store.
func (s *Store) PutEventSource(ctx context.Context, next state.EventSource) (state.EventSource, error) {
	expected := next.Version
	next.Version++
	next.Updated = row.Time(row.Millis(next.Updated))
	next.Window = next.Window.Truncate(time.Millisecond)
	name := "event source of " + next.Topic
	err := s.putVersioned(ctx, name, eventSourceKey(next.Topic), expected, row.MarshalEventSource(next), func(found item) (bool, error) {
		stored, err := row.EventSource(next.Topic, []byte(textOf(found, attrRow)))
		return row.SameEventSource(stored, next), err
	})
	if err != nil {
		return state.EventSource{}, err
	}
	return next, nil
}

// DeleteEventSource implements state.Store.
func (s *Store) DeleteEventSource(ctx context.Context, source state.EventSource) error {
	_, err := request(ctx, s, s.client.DeleteItem, &dynamodb.DeleteItemInput{
		TableName:                           &s.table,
		Key:                                 eventSourceKey(source.Topic),
		ConditionExpression:                 aws.String("attribute_not_exists(#v) OR #v = :v"),
		ExpressionAttributeNames:            map[string]string{"#v": attrVersion},
		ExpressionAttributeValues:           item{":v": number(source.Version)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return nil
	}
	found, ok := refused(err)
	if !ok {
		return fmt.Errorf("delete event source of %s: %w", source.Topic, err)
	}
	if data := textOf(found, attrRow); data != "" {
		if err := row.CheckJSON(row.KindEventSource, source.Topic, []byte(data)); err != nil {
			return err
		}
	}
	return fmt.Errorf("delete event source of %s: %w", source.Topic, state.ErrConflict)
}
