package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
)

// takenOver is a world in which a MirrorMaker 2 with exactly-once support has copied
// five records, and begun a transaction of four more.
func takenOver(t *testing.T) (*world, *kgo.Client) {
	t.Helper()
	w := newWorld(t)
	pos := w.position()
	pos.ProducerID = target.Unknown
	if _, err := w.store.Advance(t.Context(), map[flow.TopicPartition]state.Position{orders0: pos}); err != nil {
		t.Fatal(err)
	}
	peer, err := kgo.NewClient(kgo.SeedBrokers(w.b.OptValue(kgo.SeedBrokers).([]string)...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("connect-cluster-A-MirrorSourceConnector-0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.Close)
	begin := func(rs []kafkaevent.Record) {
		t.Helper()
		if err := peer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			copied := &kgo.Record{Topic: "A.orders", Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
			if err := peer.ProduceSync(t.Context(), copied).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin(numbered(0, 5))
	if err := peer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	begin(numbered(5, 9))
	return w, peer
}

// committedKeys reads orders-0 of B as a consumer of committed records does.
func (w *world) committedKeys(n int) (keys []string) {
	w.t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.b.OptValue(kgo.SeedBrokers).([]string)...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"A.orders": {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	for len(keys) < n {
		fs := reader.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			w.t.Fatalf("after %v: %v", keys, err)
		}
		for _, r := range fs.Records() {
			keys = append(keys, string(r.Key))
		}
	}
	return keys
}

func TestOnlyWhatIsCommittedIsTakenOver(t *testing.T) {
	for name, end := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		t.Run(name, func(t *testing.T) {
			w, peer := takenOver(t)
			if err := peer.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			w.must(w.cold(), numbered(0, 12))
			if diff := cmp.Diff(keysOf(0, 12), w.committedKeys(12)); diff != "" {
				t.Errorf("committed keys on B (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATakeoverWaitsForATransactionThatIsUndecided(t *testing.T) {
	w, peer := takenOver(t)
	event := kafkaevent.Encode(kafkaevent.Event{Source: kafkaevent.SourceSelfManaged, Records: numbered(0, 12)})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := w.cold().Handle(ctx, event)
	if err == nil || !strings.Contains(err.Error(), "wait for the transaction at offset 6 to end") {
		t.Errorf("got %v, want an error that names the open transaction", err)
	}
	if err := peer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	w.must(w.cold(), numbered(0, 12))
	if diff := cmp.Diff(keysOf(0, 12), w.committedKeys(12)); diff != "" {
		t.Errorf("committed keys on B (-want +got):\n%s", diff)
	}
}
