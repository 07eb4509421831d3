// Package dynamo keeps the state of a flow in a DynamoDB table of its own.
//
//	store := dynamo.New(dynamodb.NewFromConfig(config), "mirrorless-a-b", dynamo.Options{})
//
// The table has the string keys pk and sk, is billed on demand and needs nothing
// else: no index, no stream, no TTL (a lease keeps its token after it has expired).
//
//	pk                        sk                             holds
//	flow                      -                              the flow
//	position#<topic>#<block>  -                              16 partitions: v<n> version, u<n> upstream
//	                                                         offset, p<n> the rest, t<hash> topic ids
//	runs#<topic>#<partition>  <first, 19 digits>             a run chunk
//	lease#<name>              -                              a lease
//	checkpoint#<shard>        =<group>#<topic>#<block>       32 partitions: p<n>
//	flushed#<topic>#<block>   -                              64 partitions: p<n>
//	eventsource               <topic>                        an event source
//	hole#<shard>              <topic>#<partition>#<from>#…   a hole
//
// A write costs by the kilobyte of the whole item, and one item takes a thousand
// such units a second. Sixteen positions of partitions without gaps fit one (unless
// the topic's name is very long), so a topic's writes spread over its blocks, and
// none is hot before its partitions see sixty batches a second each.
//
// Throttling, server errors and lost connections are tried again with backoff for
// as long as the context's deadline allows. A write that may have been carried out
// before its answer was lost is recognised, and is no conflict.
package dynamo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"mirrorless/shared/state"
	"mirrorless/shared/state/internal/row"
)

const (
	// parallel is the most requests in flight for one call.
	parallel = 16
	// attemptTimeout bounds one request: a connection that died while its Lambda
	// environment was frozen answers nothing, not even an error.
	attemptTimeout = 2 * time.Second
	// Backoff doubles from first to most, and varies below.
	firstBackoff = 25 * time.Millisecond
	mostBackoff  = time.Second
	// mostAttempts is for a context without a deadline.
	mostAttempts = 12
)

// Options of New. The zero value is the usual.
type Options struct {
	// Now is the clock of leases, time.Now unless set.
	Now func() time.Time
}

// A Store is the state of one flow in a table.
type Store struct {
	client *dynamodb.Client
	table  string
	now    func() time.Time
}

var _ state.Store = (*Store)(nil)

// New returns the store of a table. It makes no request; the table must exist.
// Region, credentials and endpoint are the client's. The store retries by itself,
// whatever the client's retry settings are.
func New(client *dynamodb.Client, table string, options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Store{client: client, table: table, now: options.Now}
}

// Close does nothing: the client is the caller's.
func (s *Store) Close() error { return nil }

// CreateTable makes the table if there is none, and waits until it can be used.
// In AWS the table is the stack's; this is for emulators.
func (s *Store) CreateTable(ctx context.Context) error {
	key := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: aws.String(name), KeyType: kind}
	}
	attribute := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS}
	}
	_, err := request(ctx, s, s.client.CreateTable, &dynamodb.CreateTableInput{
		TableName:            &s.table,
		BillingMode:          types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{key("pk", types.KeyTypeHash), key("sk", types.KeyTypeRange)},
		AttributeDefinitions: []types.AttributeDefinition{attribute("pk"), attribute("sk")},
	})
	if err != nil && !isA[*types.ResourceInUseException](err) {
		return fmt.Errorf("create table %s: %w", s.table, err)
	}
	for attempt := 0; ; attempt++ {
		out, err := request(ctx, s, s.client.DescribeTable, &dynamodb.DescribeTableInput{TableName: &s.table})
		switch {
		case err == nil && out.Table.TableStatus == types.TableStatusActive:
			return nil
		case err != nil && !isA[*types.ResourceNotFoundException](err):
			return fmt.Errorf("create table %s: %w", s.table, err)
		}
		if err := pause(ctx, attempt); err != nil {
			return fmt.Errorf("create table %s: wait until it is active: %w", s.table, err)
		}
	}
}

// A call is a method of the client.
type call[In, Out any] func(context.Context, *In, ...func(*dynamodb.Options)) (*Out, error)

// request makes one request of DynamoDB until it is answered: it goes on after
// throttling, server errors and lost connections until the context's deadline
// leaves no room for another attempt, and then returns the last error.
func request[In, Out any](ctx context.Context, s *Store, do call[In, Out], in *In) (*Out, error) {
	_, bounded := ctx.Deadline()
	for attempt := 0; ; attempt++ {
		out, err := once(ctx, do, in)
		switch {
		case err == nil:
			return out, nil
		case isA[*types.ResourceNotFoundException](err):
			return nil, fmt.Errorf("table %s does not exist: %w", s.table, err)
		case !passes(err), !bounded && attempt+1 >= mostAttempts:
			return nil, fmt.Errorf("table %s: %w", s.table, err)
		}
		if paused := pause(ctx, attempt); paused != nil {
			return nil, fmt.Errorf("table %s: %w; gave up after %d attempts: %w", s.table, err, attempt+1, paused)
		}
	}
}

// once makes one attempt.
func once[In, Out any](ctx context.Context, do call[In, Out], in *In) (*Out, error) {
	limited, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errNoAnswer)
	defer cancel()
	out, err := do(limited, in, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errNoAnswer) {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return out, err
}

// errNoAnswer ends one attempt.
var errNoAnswer = fmt.Errorf("no answer within %v", attemptTimeout)

// passes says whether an error may be gone with the next attempt.
func passes(err error) bool {
	if errors.Is(err, errNoAnswer) {
		return true
	}
	return retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}

// pause waits before the attempt that follows attempt. It refuses where the
// context ends earlier: better the last answer than none.
func pause(ctx context.Context, attempt int) error {
	longest := mostBackoff
	if attempt < 10 {
		longest = min(mostBackoff, firstBackoff<<attempt)
	}
	d := longest/2 + rand.N(longest/2)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// An item is a row as DynamoDB has it.
type item = map[string]types.AttributeValue

// Attributes that several kinds share.
const (
	attrSchema  = "s"   // the newest schema in the item, where values are put blindly
	attrVersion = "v"   // of a row with an optimistic lock
	attrRow     = "row" // the text of a JSON row
)

func text(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
func blob(v []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: v} }
func number[N int | int64](v N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(v), 10)}
}

// only is the sort key of a pk that has one row.
const only = "-"

func key(pk, sk string) item { return item{"pk": text(pk), "sk": text(sk)} }

// schemaCondition lets a blind write pass unless a newer program wrote the item.
const schemaCondition = "(attribute_not_exists(#s) OR #s <= :s)"

// refused tells what a failed condition found: the item as it was, nil if there
// was none. ok is false for any other error.
func refused(err error) (found item, ok bool) {
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, false
	}
	return failed.Item, true
}

// checkSchema refuses an item with a newer schema; one without any passes.
func checkSchema(kind, name string, found item) error {
	if _, ok := found[attrSchema]; !ok {
		return nil
	}
	return row.CheckSchema(kind, name, int(numberOf(found, attrSchema)))
}

// textOf, blobOf and numberOf read an attribute, its zero value if it is missing or
// of another type: the row's decoder says then what is wrong.
func textOf(i item, name string) string {
	if v, ok := i[name].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	return ""
}

func blobOf(i item, name string) []byte {
	if v, ok := i[name].(*types.AttributeValueMemberB); ok {
		return v.Value
	}
	return nil
}

func numberOf(i item, name string) int64 {
	v, ok := i[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
