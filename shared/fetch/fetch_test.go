package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/fetch"
	"mirrorless/shared/flow"
)

var orders0 = flow.TopicPartition{Topic: "orders", Partition: 0}

func start(t *testing.T) (client *kgo.Client, connect func(...kgo.Opt) *kgo.Client, id [16]byte) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	connect = func(opts ...kgo.Opt) *kgo.Client {
		t.Helper()
		client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("orders"))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	client = connect()
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return client, connect, topics["orders"].ID
}

func produce(ctx context.Context, t *testing.T, client *kgo.Client, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := client.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTransactionsAreToldApart(t *testing.T) {
	ctx := t.Context()
	client, connect, id := start(t)
	one, other := connect(kgo.TransactionalID("one")), connect(kgo.TransactionalID("other"))
	begin := func(c *kgo.Client) {
		t.Helper()
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(c *kgo.Client, how kgo.TransactionEndTry) {
		t.Helper()
		if err := c.EndTransaction(ctx, how); err != nil {
			t.Fatal(err)
		}
	}
	produce(ctx, t, client, "plain")
	begin(one)
	produce(ctx, t, one, "aborted")
	begin(other)
	produce(ctx, t, other, "committed")
	produce(ctx, t, client, "between")
	produce(ctx, t, one, "aborted too")
	end(one, kgo.TryAbort)
	end(other, kgo.TryCommit)
	begin(one)
	produce(ctx, t, one, "committed by the one who aborted")
	end(one, kgo.TryCommit)
	begin(other)
	produce(ctx, t, other, "undecided")
	produce(ctx, t, client, "behind what is undecided")

	leader := client.Broker(0)
	if err := client.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	read := func(offset int64, committed bool) (fetch.Response, []string) {
		t.Helper()
		got, err := fetch.Read(ctx, leader, fetch.Request{TopicPartition: orders0, TopicID: id, Offset: offset, MaxBytes: 1 << 20, Committed: committed})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for b, err := range got.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case b.Control():
				lines = append(lines, fmt.Sprintf("%d marker", b.BaseOffset()))
				continue
			case b.Aborted:
				lines = append(lines, fmt.Sprintf("%d aborted", b.BaseOffset()))
				continue
			}
			records, err := b.Records(fetch.Decompress)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				lines = append(lines, fmt.Sprintf("%d %s", r.Offset, r.Value))
			}
		}
		return got, lines
	}
	got, lines := read(0, true)
	want := []string{
		"0 plain", "1 aborted", "2 committed", "3 between", "4 aborted", "5 marker", "6 marker",
		"7 committed by the one who aborted", "8 marker",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("committed (-want +got):\n%s", diff)
	}
	if got.Stable != 9 || got.End != 11 || got.Start != 0 {
		t.Errorf("got log from %d to %d, stable up to %d; want 0, 11, 9", got.Start, got.End, got.Stable)
	}
	// From the middle of a transaction on, its beginning is told with the index.
	if _, lines = read(4, true); len(lines) == 0 || lines[0] != "4 aborted" {
		t.Errorf("from the middle of an aborted transaction: got %q", lines)
	}
	if _, lines = read(9, true); len(lines) != 0 {
		t.Errorf("undecided: got %q, want nothing", lines)
	}
	if _, lines = read(9, false); len(lines) != 2 {
		t.Errorf("uncommitted: got %q, want two records", lines)
	}
}

func TestAnOffsetThatTheLogDoesNotHoldIsKafkasError(t *testing.T) {
	ctx := t.Context()
	client, _, id := start(t)
	produce(ctx, t, client, "0", "1", "2")
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "orders", At: 2})
	if _, err := kadm.NewClient(client).DeleteRecords(ctx, offsets); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{1, 4} {
		_, err := fetch.Read(ctx, client.Broker(0), fetch.Request{TopicPartition: orders0, TopicID: id, Offset: offset, MaxBytes: 1})
		if !errors.Is(err, kerr.OffsetOutOfRange) {
			t.Errorf("offset %d: got %v, want OFFSET_OUT_OF_RANGE", offset, err)
		}
	}
}
