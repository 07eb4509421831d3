package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"mirrorless/localstack/ministack/ministacktest"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/dynamo"
	"mirrorless/shared/state/statetest"
)

// addressVariable names a DynamoDB endpoint to test against instead of MiniStack.
// Region and credentials come from the environment, as AWS's tools have them. The
// tables mirrorless-test-… are deleted again.
const addressVariable = "MIRRORLESS_DYNAMODB"

// connect returns a client of the DynamoDB to test against.
func connect(t *testing.T) *dynamodb.Client {
	t.Helper()
	if address := os.Getenv(addressVariable); address != "" {
		c, err := config.LoadDefaultConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return dynamodb.NewFromConfig(c, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String(address) })
	}
	return client(ministacktest.Start(t).Endpoint())
}

// client returns a client of an emulator.
func client(endpoint string, options ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "eu-central-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, options...)
}

// tableStore knows its table.
type tableStore struct {
	*dynamo.Store
	client *dynamodb.Client
	table  string
}

var tables atomic.Int64

func newTable(t *testing.T, c *dynamodb.Client, now func() time.Time) *tableStore {
	t.Helper()
	table := fmt.Sprintf("mirrorless-test-%d-%d", time.Now().UnixNano(), tables.Add(1))
	store := dynamo.New(c, table, dynamo.Options{Now: now})
	if err := store.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := c.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
		// Not found: the client's own retry of a deletion whose answer was lost.
		if _, gone := errors.AsType[*types.ResourceNotFoundException](err); err != nil && !gone {
			t.Error(err)
		}
	})
	return &tableStore{store, c, table}
}

func TestContract(t *testing.T) {
	c := connect(t)
	statetest.Run(t, statetest.Harness{
		Open: func(t *testing.T, now func() time.Time) state.Store {
			return newTable(t, c, now)
		},
		Upgrade: upgrade,
	})
	t.Run("lost answers are no conflicts", func(t *testing.T) { lostAnswers(t, c) })
	t.Run("a table is created once", func(t *testing.T) {
		if err := newTable(t, c, nil).CreateTable(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("a missing table is named", func(t *testing.T) {
		_, err := dynamo.New(c, "mirrorless-test-missing", dynamo.Options{}).Flow(t.Context())
		if err == nil || !strings.Contains(err.Error(), "table mirrorless-test-missing does not exist") {
			t.Errorf("got error %v, want it to name the table", err)
		}
	})
}

// flaky loses the answers of some requests that were carried out, and makes some
// fail that were not.
type flaky struct {
	dynamodb.HTTPClient
	mu     sync.Mutex
	random *rand.Rand
}

func (f *flaky) Do(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	n := f.random.IntN(4)
	f.mu.Unlock()
	if n == 0 {
		return nil, syscall.ECONNREFUSED
	}
	answer, err := f.HTTPClient.Do(r)
	if err == nil && n == 1 {
		answer.Body.Close()
		return nil, syscall.ECONNRESET
	}
	return answer, err
}

// lostAnswers lets every partition of a block be written by one writer over a bad
// connection: nobody else writes it, so nobody may see a conflict.
func lostAnswers(t *testing.T, c *dynamodb.Client) {
	ctx := t.Context()
	table := newTable(t, c, nil)
	bad := dynamo.New(dynamodb.New(c.Options(), func(o *dynamodb.Options) {
		o.HTTPClient = &flaky{HTTPClient: o.HTTPClient, random: rand.New(rand.NewPCG(1, 2))}
	}), table.table, dynamo.Options{})
	const partitions, steps = 8, 8
	var wg sync.WaitGroup
	for i := range int32(partitions) {
		wg.Go(func() {
			one, two := flow.TopicPartition{Topic: "orders", Partition: i}, flow.TopicPartition{Topic: "orders", Partition: i + partitions}
			next := map[flow.TopicPartition]state.Position{one: {}, two: {}}
			for range steps {
				stored, err := bad.Advance(ctx, next)
				if err != nil {
					t.Errorf("partition %d: %v", i, err)
					return
				}
				for tp, p := range stored {
					p.Upstream += 10
					next[tp] = p
				}
			}
			got, err := table.Positions(ctx, []flow.TopicPartition{one, two})
			if err != nil || got[one].Version != steps || got[two].Version != steps {
				t.Errorf("partition %d: got %v and error %v, want version %d", i, got, err, steps)
			}
		})
	}
	wg.Wait()
}

// upgrade raises the schema of every row behind the store's back.
func upgrade(t *testing.T, store state.Store) {
	s := store.(*tableStore)
	scan, err := s.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &s.table})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range scan.Items {
		for name, value := range i {
			switch v := value.(type) {
			case *types.AttributeValueMemberB:
				if strings.HasPrefix(name, "p") {
					v.Value[0] = 2
				}
			case *types.AttributeValueMemberS:
				v.Value = strings.Replace(v.Value, `"schema":1`, `"schema":2`, 1)
			case *types.AttributeValueMemberN:
				if name == "s" {
					v.Value = "2"
				}
			}
		}
		if _, err := s.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: i}); err != nil {
			t.Fatal(err)
		}
	}
}
