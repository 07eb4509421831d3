package stories_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
)

// peer is a real MirrorMaker 2 with default settings, under torture.
type peer struct {
	t         *testing.T
	arena     *arena
	in        kafka.Installation
	file, dir string
	number    int

	mu      sync.Mutex
	current *kafka.MirrorMaker
	all     []*kafka.MirrorMaker
}

func (p *peer) start() {
	p.number++
	mm2, err := p.in.MirrorMaker(p.file, filepath.Join(p.dir, fmt.Sprintf("mm2-%03d.log", p.number)))
	if err != nil {
		p.t.Error(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.all = mm2, append(p.all, mm2)
}

func (p *peer) run() *kafka.MirrorMaker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *peer) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mm2 := range p.all {
		mm2.Close()
	}
}

// patience is what MirrorMaker 2 gets to copy something after its start, which
// takes it ten seconds where nothing is wrong.
const peerPatience = time.Minute

// lane is the faults of the process: those of our functions and of our run fall
// on the one that there is. A kill that came before it has copied anything again
// would show nothing.
func (p *peer) lane() lane {
	restart := func(ctx context.Context) int {
		p.run().Close()
		p.start()
		p.arena.progress(ctx, peerPatience)
		return 1
	}
	return lane{"processes", 500 * time.Millisecond, 3 * time.Second, []fault{
		{"SIGKILL to MirrorMaker 2", 13, func(ctx context.Context, _ *rand.Rand) int { return restart(ctx) }},
		{"SIGSTOP and SIGCONT to MirrorMaker 2", 5, func(ctx context.Context, rng *rand.Rand) int {
			_ = p.run().Freeze()
			sleep(ctx, between(rng, 50*time.Millisecond, 8*time.Second))
			_ = p.run().Thaw()
			return 1
		}},
		{"SIGKILL while a request is late", 3, func(ctx context.Context, rng *rand.Rand) int {
			n := p.arena.holdProduce(ctx, rng)
			restart(ctx)
			return n
		}},
		{"a frozen MirrorMaker 2 wakes up beside its successor", 1, func(ctx context.Context, rng *rand.Rand) int {
			old := p.run()
			_ = old.Freeze()
			p.start()
			p.arena.progress(ctx, peerPatience)
			_ = old.Thaw()
			sleep(ctx, between(rng, time.Second, 4*time.Second))
			old.Close()
			return 1
		}},
	}}
}

// torturePeerOnce does to MirrorMaker 2 what was done to ours: the same load, and
// faults from the same seed, for as long.
func torturePeerOnce(t *testing.T, seed uint64, length time.Duration) outcome {
	ctx := within(t, length+10*time.Minute)
	r := newArena(t, seed, youngTopic, oddTopic, oldTopic, transactionsTopic) // no large ones: its producer takes none over a megabyte
	r.createTopics(ctx, t)
	p := &peer{t: t, arena: r, in: kafkatest.Find(t), dir: printed(t, "peer")}
	p.file = r.properties(t, "B->A.emit.heartbeats.enabled = false", "offset-syncs.topic.replication.factor = 1")
	t.Cleanup(p.killAll)
	load := newStream(ctx, t, r.a, seed, youngTopic, oddTopic, oldTopic)
	p.start()
	r.phase(t, "the load begins")
	r.under(ctx, t, load, length, seed, p.lane(), r.networkOfB(), r.networkOfA(), r.brokerFaults(t))
	r.phase(t, "the faults are over")
	r.heal(ctx)
	load.last(t)
	// A task that has failed is not started again but with the process.
	p.run().Close()
	p.start()
	r.progress(ctx, peerPatience)
	found := r.settle(ctx, t, false, 2*time.Minute)
	r.phase(t, "B was read")
	faults := printFaults(t, r)
	for _, topic := range r.topics {
		t.Logf("%s: %+v", topic, found[topic])
	}
	return outcomeOf("MirrorMaker 2", faults, found)
}
