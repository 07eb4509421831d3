package dynamo_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/dynamo"
)

// transport is a DynamoDB of one function: operation and body in, status and body
// out, or an error of the connection.
type transport func(ctx context.Context, operation string, in request) (int, any, error)

// request is as much of any request as the tests look at.
type request struct {
	Key                       map[string]value
	UpdateExpression          string
	ConditionExpression       string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues map[string]value
	RequestItems              map[string]json.RawMessage
}

type value = map[string]any

func (f transport) Do(r *http.Request) (*http.Response, error) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	status, out, err := f(r.Context(), operation, in)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:       io.NopCloser(bytes.NewReader(body)),
		Request:    r,
	}, nil
}

func (f transport) store() *dynamo.Store {
	c := client("http://dynamodb.invalid", func(o *dynamodb.Options) { o.HTTPClient = f })
	return dynamo.New(c, "table", dynamo.Options{})
}

// failure is an error answer of DynamoDB.
func failure(kind string) map[string]any {
	return map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + kind, "message": kind}
}

// apply carries out "SET #a = :a, …" on an item.
func apply(item map[string]value, in request) {
	for assignment := range strings.SplitSeq(strings.TrimPrefix(in.UpdateExpression, "SET "), ", ") {
		name, placeholder, _ := strings.Cut(assignment, " = ")
		item[in.ExpressionAttributeNames[name]] = in.ExpressionAttributeValues[placeholder]
	}
}

var orders1 = flow.TopicPartition{Topic: "orders", Partition: 1}

func TestThrottledWriteIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		s := transport(func(context.Context, string, request) (int, any, error) {
			if tries++; tries <= 6 {
				return 400, failure("ProvisionedThroughputExceededException"), nil
			}
			return 200, map[string]any{}, nil
		}).store()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{orders1: {Upstream: 5}})
		if err != nil {
			t.Fatal(err)
		}
		want := map[flow.TopicPartition]state.Position{orders1: {Version: 1, Upstream: 5}}
		if diff := cmp.Diff(want, got); diff != "" || tries != 7 {
			t.Errorf("after %d tries (-want +got):\n%s", tries, diff)
		}
	})
}

func TestThrottlingEndsWithTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := transport(func(context.Context, string, request) (int, any, error) {
			return 400, failure("ThrottlingException"), nil
		}).store()
		const deadline = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		start := time.Now()
		got, err := s.Advance(ctx, map[flow.TopicPartition]state.Position{orders1: {Upstream: 5}})
		if len(got) != 0 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ThrottlingException") {
			t.Errorf("got %v and error %v, want none stored, the deadline and its reason", got, err)
		}
		if d := time.Since(start); d > deadline || d < deadline-2*time.Second {
			t.Errorf("gave up after %v of %v", d, deadline)
		}
		if errors.Is(err, state.ErrConflict) {
			t.Error("throttling is no conflict")
		}
	})
}

func TestNoDeadlineStillEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := transport(func(context.Context, string, request) (int, any, error) {
			return 500, failure("InternalServerError"), nil
		}).store()
		if _, err := s.Flow(t.Context()); err == nil || !strings.Contains(err.Error(), "InternalServerError") {
			t.Errorf("got error %v", err)
		}
		s = transport(func(_ context.Context, _ string, in request) (int, any, error) {
			return 200, map[string]any{"UnprocessedKeys": in.RequestItems}, nil
		}).store()
		if _, err := s.Positions(t.Context(), []flow.TopicPartition{orders1}); err == nil || !strings.Contains(err.Error(), "throttled") {
			t.Errorf("got error %v", err)
		}
	})
}

func TestRefusedRequestIsNotRepeated(t *testing.T) {
	tries := 0
	s := transport(func(context.Context, string, request) (int, any, error) {
		tries++
		return 400, failure("AccessDeniedException"), nil
	}).store()
	if _, err := s.Flow(t.Context()); err == nil || tries != 1 {
		t.Errorf("got error %v after %d tries, want one", err, tries)
	}
}

func TestDeadConnectionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		s := transport(func(ctx context.Context, _ string, _ request) (int, any, error) {
			if tries++; tries == 1 {
				<-ctx.Done() // as a connection that died while the environment was frozen
				return 0, nil, ctx.Err()
			}
			return 200, map[string]any{}, nil
		}).store()
		if _, err := s.Flow(t.Context()); !errors.Is(err, state.ErrNotFound) || tries != 2 {
			t.Errorf("got error %v after %d tries, want an answer to the second", err, tries)
		}
	})
}

func TestUnprocessedKeysAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reads := make(map[string]int) // answers by pk
		s := transport(func(_ context.Context, operation string, in request) (int, any, error) {
			mu.Lock()
			defer mu.Unlock()
			if operation != "BatchGetItem" {
				return 0, nil, fmt.Errorf("unexpected %s", operation)
			}
			var keys struct {
				Keys           []map[string]value
				ConsistentRead bool
			}
			if err := json.Unmarshal(in.RequestItems["table"], &keys); err != nil {
				return 0, nil, err
			}
			if len(keys.Keys) > 100 || !keys.ConsistentRead {
				return 400, failure("ValidationException"), nil
			}
			most := min(7, len(keys.Keys))
			var items []map[string]value
			for _, k := range keys.Keys[:most] {
				reads[k["pk"]["S"].(string)]++
				// Partition 0 of every block, at version 3.
				part := []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
				items = append(items, map[string]value{
					"pk": k["pk"], "sk": k["sk"], "v0": {"N": "3"}, "u0": {"N": "0"},
					"p0": {"B": base64.StdEncoding.EncodeToString(part)},
				})
			}
			out := map[string]any{"Responses": map[string]any{"table": items}}
			if rest := keys.Keys[most:]; len(rest) > 0 {
				out["UnprocessedKeys"] = map[string]any{"table": map[string]any{"Keys": rest, "ConsistentRead": true}}
			}
			return 200, out, nil
		}).store()
		var partitions []flow.TopicPartition
		for i := range int32(250) {
			partitions = append(partitions, flow.TopicPartition{Topic: "orders", Partition: 16 * i}, flow.TopicPartition{Topic: "orders", Partition: 16*i + 1})
		}
		got, err := s.Positions(t.Context(), partitions)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 250 || got[flow.TopicPartition{Topic: "orders", Partition: 160}].Version != 3 {
			t.Errorf("got %d positions, want 250 of version 3", len(got))
		}
		for pk, n := range reads {
			if n != 1 {
				t.Errorf("%s was read %d times", pk, n)
			}
		}
	})
}

// lostAnswer carries out the first write of an item, loses its answer and refuses
// later ones as DynamoDB does once the item has moved on.
func lostAnswer(t *testing.T, change func(item map[string]value)) *dynamo.Store {
	item := make(map[string]value)
	tries := 0
	return transport(func(_ context.Context, operation string, in request) (int, any, error) {
		tries++
		switch {
		case operation != "UpdateItem":
			return 0, nil, fmt.Errorf("unexpected %s", operation)
		case tries == 1:
			apply(item, in)
			change(item)
			return 0, nil, syscall.ECONNRESET
		case tries == 2:
			out := failure("ConditionalCheckFailedException")
			out["Item"] = item
			return 400, out, nil
		}
		apply(item, in)
		return 200, map[string]any{}, nil
	}).store()
}

func TestOwnWriteIsNoConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := map[flow.TopicPartition]state.Position{
			orders1:                         {Version: 4, Upstream: 5, TargetTopicID: state.TopicID{1}},
			{Topic: "orders", Partition: 2}: {Upstream: 9, Runs: []byte{1}},
		}
		got, err := lostAnswer(t, func(map[string]value) {}).Advance(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		want := make(map[flow.TopicPartition]state.Position)
		for tp, p := range next {
			p.Version++
			want[tp] = p
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestAnothersWriteIsAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := map[flow.TopicPartition]state.Position{orders1: {Version: 4, Upstream: 5}}
		_, err := lostAnswer(t, func(item map[string]value) {
			item["u1"] = value{"N": "6"} // the same version, other content
		}).Advance(t.Context(), next)
		conflict, ok := errors.AsType[*state.ConflictError](err)
		if !ok || conflict.Current[orders1].Version != 5 || conflict.Current[orders1].Upstream != 6 {
			t.Errorf("got error %v, want a conflict with what is stored", err)
		}
	})
}

// TestNoHotKey is a topic of 200 partitions that see 50 batches a second each, every
// one in an invocation of its own: no key takes more than DynamoDB's thousand write
// units a second.
func TestNoHotKey(t *testing.T) {
	const partitions, batches, limit = 200, 50, 1000
	topic := strings.Repeat("t", 80)
	items := make(map[string]map[string]value)
	units := make(map[string]int)
	var mu sync.Mutex
	s := transport(func(_ context.Context, _ string, in request) (int, any, error) {
		mu.Lock()
		defer mu.Unlock()
		pk := in.Key["pk"]["S"].(string)
		if items[pk] == nil {
			items[pk] = map[string]value{"pk": in.Key["pk"], "sk": in.Key["sk"]}
		}
		apply(items[pk], in)
		units[pk] += (size(items[pk]) + 1023) / 1024
		return 200, map[string]any{}, nil
	}).store()
	position := make(map[flow.TopicPartition]state.Position)
	for i := range int32(partitions) {
		position[flow.TopicPartition{Topic: topic, Partition: i}] = state.Position{
			Version: 100_000, First: 123_456_789, Upstream: 12_345_678_901, Downstream: 12_222_222_112,
			ProducerID: 4000, Epoch: 2, Sequence: 2_000_000_000 - i, Newest: 1_790_000_000_000,
			Copied: 12_222_222_112, Runs: []byte("12345678"),
			SourceTopicID: state.TopicID{1}, TargetTopicID: state.TopicID{2},
		}
	}
	advance := func(next map[flow.TopicPartition]state.Position) {
		if _, err := s.Advance(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
	advance(position)
	clear(units)
	for tp, p := range position { // one of the second's batches; all cost the same
		advance(map[flow.TopicPartition]state.Position{tp: p})
	}
	for pk, n := range units {
		if n*batches > limit {
			t.Errorf("%s takes %d units a second, its item has %d bytes", pk, n*batches, size(items[pk]))
		}
	}
	// One invocation with all of them writes each block once.
	clear(units)
	advance(position)
	for pk, n := range units {
		if n != 1 {
			t.Errorf("%s takes %d units of one Advance, its item has %d bytes", pk, n, size(items[pk]))
		}
	}
	if len(units) != 13 {
		t.Errorf("got %d writes of 200 partitions, want 13", len(units))
	}
}

// size is what DynamoDB counts: names, and values by their kind.
func size(item map[string]value) int {
	n := 0
	for name, v := range item {
		n += len(name)
		for kind, text := range v {
			switch text := text.(string); kind {
			case "N":
				n += (len(text)+1)/2 + 1
			case "B":
				n += base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(text, "=")))
			default:
				n += len(text)
			}
		}
	}
	return n
}
