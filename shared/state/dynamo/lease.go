package dynamo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

// Attributes of a lease: plain ones, as its conditions need them.
var leaseNames = map[string]string{"#s": attrSchema, "#o": "owner", "#e": "expires", "#t": "token"}

func leaseKey(name string) item { return key(row.KindLease+"#"+name, only) }

func leaseOf(name string, i item) state.Lease {
	return state.Lease{
		Name:    name,
		Owner:   textOf(i, "owner"),
		Expires: row.Time(numberOf(i, "expires")),
		Token:   numberOf(i, "token"),
	}
}

// Acquire implements state.Store.
func (s *Store) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (state.Lease, error) {
	now := s.now()
	found, ok, err := s.updateLease(ctx, name, &dynamodb.UpdateItemInput{
		UpdateExpression:    aws.String("SET #s = :s, #o = :o, #e = :e, #t = if_not_exists(#t, :zero) + :one"),
		ConditionExpression: aws.String(schemaCondition + " AND (attribute_not_exists(#o) OR #o = :o OR #e <= :now)"),
		ExpressionAttributeValues: item{
			":s": number(row.Schema), ":o": text(owner), ":e": number(row.Millis(now.Add(ttl))),
			":now": number(row.Millis(now)), ":zero": number(0), ":one": number(1),
		},
	})
	if err != nil {
		return state.Lease{}, fmt.Errorf("acquire lease %s: %w", name, err)
	}
	if !ok {
		return state.Lease{}, &state.HeldError{Name: name, Owner: found.Owner, Expires: found.Expires}
	}
	return found, nil
}

// held lets a write pass if the lease is still the caller's.
const held = schemaCondition + " AND #o = :o AND #t = :t"

// Renew implements state.Store.
func (s *Store) Renew(ctx context.Context, lease state.Lease, ttl time.Duration) (state.Lease, error) {
	found, ok, err := s.updateLease(ctx, lease.Name, &dynamodb.UpdateItemInput{
		UpdateExpression:    aws.String("SET #e = :e"),
		ConditionExpression: aws.String(held),
		ExpressionAttributeValues: item{
			":s": number(row.Schema), ":o": text(lease.Owner), ":t": number(lease.Token),
			":e": number(row.Millis(s.now().Add(ttl))),
		},
	})
	if err != nil {
		return state.Lease{}, fmt.Errorf("renew lease %s: %w", lease.Name, err)
	}
	if !ok {
		return state.Lease{}, &state.HeldError{Name: lease.Name, Owner: found.Owner, Expires: found.Expires}
	}
	return found, nil
}

// Release implements state.Store.
func (s *Store) Release(ctx context.Context, lease state.Lease) error {
	_, _, err := s.updateLease(ctx, lease.Name, &dynamodb.UpdateItemInput{
		UpdateExpression:    aws.String("REMOVE #o, #e"),
		ConditionExpression: aws.String(held),
		ExpressionAttributeValues: item{
			":s": number(row.Schema), ":o": text(lease.Owner), ":t": number(lease.Token),
		},
	})
	if err != nil {
		return fmt.Errorf("release lease %s: %w", lease.Name, err)
	}
	return nil
}

// updateLease makes one conditional write and returns the lease as it is after it;
// ok is false if the write was refused.
func (s *Store) updateLease(ctx context.Context, name string, in *dynamodb.UpdateItemInput) (found state.Lease, ok bool, err error) {
	in.TableName, in.Key = &s.table, leaseKey(name)
	in.ExpressionAttributeNames = make(map[string]string)
	for short, long := range leaseNames {
		// DynamoDB refuses a name that no expression uses.
		if strings.Contains(*in.UpdateExpression+*in.ConditionExpression, short) {
			in.ExpressionAttributeNames[short] = long
		}
	}
	in.ReturnValues = types.ReturnValueAllNew
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	out, err := request(ctx, s, s.client.UpdateItem, in)
	if err == nil {
		return leaseOf(name, out.Attributes), true, nil
	}
	i, refused := refused(err)
	if !refused {
		return state.Lease{}, false, err
	}
	if i == nil {
		if i, err = s.get(ctx, leaseKey(name)); err != nil {
			return state.Lease{}, false, err
		}
	}
	return leaseOf(name, i), false, checkSchema(row.KindLease, name, i)
}
