package stories_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/realtest"
)

// TestKilledLeadersLoseDoubleAndReorderNothing kills the leader of a partition of
// B every ten seconds, while records keep coming.
func TestKilledLeadersLoseDoubleAndReorderNothing(t *testing.T) {
	length := 35 * time.Second
	if realtest.Full() {
		length = 2 * time.Minute
	}
	const every, topic = 10 * time.Second, "load"
	ctx := within(t, length+4*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{Brokers: 3, Properties: map[string]string{"min.insync.replicas": "2"}})
	onB := connect(t, b, kgo.MetadataMinAge(100*time.Millisecond))
	create(ctx, t, connect(t, a), 6, nil, topic)
	l := newLoad(t, a, topic, 6, 500)
	env, args := bootstraps(t)
	r := run(t, env, properties(t, a, b, "clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = "+topic, "replication.factor = 3", "refresh.topics.interval.seconds = 2"), args...)

	loading, stop := context.WithTimeout(ctx, length)
	defer stop()
	killed := make(chan int)
	go func() {
		n := 0
		defer func() { killed <- n }()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for rng := rand.New(rand.NewPCG(1, 2)); ; {
			select {
			case <-loading.Done():
				return
			case <-tick.C:
			}
			node := leaderOf(loading, onB, "A."+topic, rng.Int32N(6))
			if node < 0 {
				continue
			}
			if err := b.Kill(node); err != nil {
				t.Errorf("kill node %d: %v", node, err)
				return
			}
			n++
			if err := b.Restart(ctx, node); err != nil {
				t.Errorf("restart node %d: %v", node, err)
				return
			}
		}
	}()
	for loading.Err() == nil {
		l.write(ctx, t, 600)
		sleep(loading, 20*time.Millisecond)
	}
	kills := <-killed
	t.Logf("%d leaders killed while %d records were written", kills, l.written())
	if kills < int(length/every)-1 {
		t.Errorf("got %d kills in %v", kills, length)
	}
	eventually(ctx, t, "all records on B", func() bool { return ends(ctx, t, onB, "A."+topic) >= l.written() })
	r.stop(t)
	l.wantWhole(ctx, t, b, "A."+topic)
}

// sleep is the pace of a load; it says whether there is time for more.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// leaderOf is the node that leads a partition, −1 while none does.
func leaderOf(ctx context.Context, client *kgo.Client, topic string, partition int32) int {
	topics, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return -1
	}
	p, ok := topics[topic].Partitions[partition]
	if !ok || p.Err != nil {
		return -1
	}
	return int(p.Leader)
}
