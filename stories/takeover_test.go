package stories_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
)

// TestWhatIsOnBAlreadyIsTakenOver lets somebody else copy first: a run whose state
// is lost, and a real MirrorMaker 2.
func TestWhatIsOnBAlreadyIsTakenOver(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	in := kafkatest.Find(t)
	onB := connect(t, b, kgo.MetadataMinAge(20*time.Millisecond))
	settings := []string{
		"clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B", "A->B.enabled = true",
		"B.offset.flush.interval.ms = 500", "emit.checkpoints.interval.seconds = 1", "refresh.topics.interval.seconds = 2",
		"replication.factor = 1", "checkpoints.topic.replication.factor = 1", "heartbeats.topic.replication.factor = 1",
		"offset-syncs.topic.replication.factor = 1", "offset.storage.replication.factor = 1",
		"status.storage.replication.factor = 1", "config.storage.replication.factor = 1",
	}
	for name, first := range map[string]func(t *testing.T, file, topic string, copied func(int64)){
		"a run whose state is lost": func(t *testing.T, file, topic string, copied func(int64)) {
			r := run(t, nil, file)
			copied(3000)
			synced(ctx, t, a, topic)
			r.Kill()
			<-r.Done()
			if err := os.RemoveAll(filepath.Join(filepath.Dir(file), ".mirrorless")); err != nil {
				t.Fatal(err)
			}
		},
		"MirrorMaker 2": func(t *testing.T, file, topic string, copied func(int64)) {
			mm2 := mirrorMaker(t, in, file)
			copied(3000)
			synced(ctx, t, a, topic)
			if err := mm2.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			topic := map[bool]string{true: "after-mm2", false: "after-loss"}[name == "MirrorMaker 2"]
			create(ctx, t, connect(t, a), 3, nil, topic)
			l := newLoad(t, a, topic, 3, 200)
			l.write(ctx, t, 3000)
			file := properties(t, a, b, append(settings, "A->B.topics = "+topic)...)
			copied := func(n int64) {
				eventually(ctx, t, "the records on B", func() bool { return exists(ctx, t, onB, "A."+topic) && ends(ctx, t, onB, "A."+topic) >= n })
			}
			first(t, file, topic, copied)
			l.write(ctx, t, 1500)
			r := run(t, nil, file)
			copied(4500)
			r.stop(t)
			l.wantWhole(ctx, t, b, "A."+topic)
		})
	}
}

// synced waits until the offset syncs topic of A names a topic.
func synced(ctx context.Context, t *testing.T, a *kafka.Cluster, topic string) {
	t.Helper()
	reader := connect(t, a, kgo.ConsumeTopics("mm2-offset-syncs.B.internal"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	named := map[int32]bool{}
	for len(named) < 3 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if len(r.Key) > 2+4 && string(r.Key[2:len(r.Key)-4]) == topic {
				named[int32(r.Key[len(r.Key)-1])] = true
			}
		})
	}
}
