package stories_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/faultproxy"
	"mirrorless/localstack/kafka"
)

// arena is two clusters with a proxy before each broker, which whatever copies
// has to go through. The test's own clients pass by them.
type arena struct {
	a, b   *kafka.Cluster
	onA    *kgo.Client
	onB    *kgo.Client
	proxyA []*faultproxy.Proxy // of the broker 1, …
	proxyB []*faultproxy.Proxy
	store  []*faultproxy.Proxy // of whoever has one

	began  time.Time
	topics []string // that are copied

	mu     sync.Mutex
	counts map[string]int // faults by kind
	late   map[string]int // what brokers of B said to late batches
}

// brokersOfB is how many brokers B has, with two in-sync replicas at least.
const brokersOfB = 3

func newArena(t *testing.T, seed uint64, topics ...string) *arena {
	t.Helper()
	r := &arena{counts: map[string]int{}, late: map[string]int{}, began: time.Now(), topics: topics}
	front := func(proxies *[]*faultproxy.Proxy, seed uint64) func(int, string) (string, error) {
		return func(node int, address string) (string, error) {
			p, err := faultproxy.Start(faultproxy.Options{Upstream: address, Protocol: faultproxy.Kafka, Seed: seed + uint64(node)})
			if err != nil {
				return "", err
			}
			t.Cleanup(p.Close)
			*proxies = append((*proxies)[:node-1], p)
			return p.Addr(), nil
		}
	}
	r.a, r.b = startBoth(t,
		kafka.Options{Front: front(&r.proxyA, seed), Properties: map[string]string{
			// The load's own records are old too, and A must not forget who writes them.
			"producer.id.expiration.ms": strconv.Itoa(int((24 * 24 * time.Hour).Milliseconds())),
		}},
		kafka.Options{Brokers: brokersOfB, Front: front(&r.proxyB, seed+100), Properties: map[string]string{
			"min.insync.replicas": "2",
			// A broker looks every ten minutes for producers to forget.
			"producer.id.expiration.check.interval.ms": "2000",
		}})
	r.onA = connect(t, r.a)
	r.onB = connect(t, r.b, kgo.MetadataMinAge(100*time.Millisecond))
	return r
}

// phase says how far the test is, and when.
func (r *arena) phase(t *testing.T, what string) {
	t.Helper()
	t.Logf("%4.0f s: %s", time.Since(r.began).Seconds(), what)
}

// under runs a load with faults, for a time that begins when B has the first
// records.
func (r *arena) under(ctx context.Context, t *testing.T, load *stream, length time.Duration, seed uint64, lanes ...lane) {
	loading, stop := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() { load.run(loading, t) })
	r.progress(ctx, time.Minute)
	r.phase(t, "the faults begin")
	faulty, end := context.WithTimeout(ctx, length)
	defer end()
	r.torment(faulty, seed, lanes...)
	stop()
	writing.Wait()
}

// createTopics makes the topics of the load on A.
func (r *arena) createTopics(ctx context.Context, t *testing.T) {
	t.Helper()
	forever, large := "-1", strconv.Itoa(2*largestRecord)
	for _, topic := range r.topics {
		create(ctx, t, r.onA, tortureTopics[topic], map[string]*string{"retention.ms": &forever, "max.message.bytes": &large}, topic)
	}
}

// properties is an mm2.properties file whose clusters are behind the proxies.
func (r *arena) properties(t *testing.T, more ...string) string {
	return properties(t, r.a, r.b, append([]string{
		"clusters = A, B", "A.bootstrap.servers = " + addresses(r.proxyA), "B.bootstrap.servers = " + addresses(r.proxyB),
		"A->B.enabled = true", "A->B.topics = " + strings.Join(r.topics, ", "), "B->A.enabled = false",
		"replication.factor = 3", "refresh.topics.interval.seconds = 5",
	}, more...)...)
}

func addresses(proxies []*faultproxy.Proxy) string {
	var all []string
	for _, p := range proxies {
		all = append(all, p.Addr())
	}
	return strings.Join(all, ",")
}

// count notes n faults of a kind.
func (r *arena) count(kind string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		r.counts[kind] += n
	}
}

// faults lists what was counted, and the sum.
func (r *arena) faults() (lines []string, total int) {
	for name, proxies := range map[string][]*faultproxy.Proxy{"A": r.proxyA, "B": r.proxyB, "store": r.store} {
		for _, p := range proxies {
			r.count(name+": requests that arrived late", p.Counts().Delivered)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, n := range r.counts {
		lines = append(lines, fmt.Sprintf("%5d %s", n, kind))
		total += n
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[6:], b[6:]) })
	return lines, total
}

// copied is the number of records on B, −1 where nobody says.
func (r *arena) copied(ctx context.Context) (n int64) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var topics []string
	for _, topic := range r.topics {
		topics = append(topics, "A."+topic)
	}
	listed, err := kadm.NewClient(r.onB).ListEndOffsets(ctx, topics...)
	if err != nil {
		return -1
	}
	listed.Each(func(o kadm.ListedOffset) { n += max(o.Offset, 0) })
	return n
}

// progress waits until something more has been copied, or for a while.
func (r *arena) progress(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before := r.copied(ctx)
	for sleep(ctx, 100*time.Millisecond) {
		if now := r.copied(ctx); now > before && before >= 0 {
			return
		} else if before < 0 {
			before = now
		}
	}
}

// heal ends all faults of the network, cuts what is half open, and waits until
// what is late has arrived.
func (r *arena) heal(ctx context.Context) {
	all := slices.Concat(r.proxyA, r.proxyB, r.store)
	for _, p := range all {
		p.Heal()
		p.Cut()
	}
	for _, p := range all {
		for c := p.Counts(); c.Held > c.Delivered+c.Dropped && sleep(ctx, 50*time.Millisecond); c = p.Counts() {
		}
	}
}

// settle waits until B has every record of A, or no more come, and judges what
// B's transactions have committed, or all.
func (r *arena) settle(ctx context.Context, t *testing.T, committed bool, patience time.Duration) map[string]findings {
	t.Helper()
	source := map[string]map[int32][]entry{}
	for _, topic := range r.topics {
		source[topic] = entries(ctx, t, r.a, topic, false)
	}
	for deadline := time.Now().Add(patience); ; {
		found, missing := map[string]findings{}, 0
		for topic, partitions := range source {
			target := map[int32][]entry{}
			if exists(ctx, t, r.onB, "A."+topic) {
				target = entries(ctx, t, r.b, "A."+topic, committed)
			}
			var f findings
			for p := range partitions {
				f.add(compare(partitions[p], target[p]))
			}
			found[topic] = f
			missing += f.Missing + f.Behind
		}
		if missing == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return found
		}
		r.progress(ctx, time.Second)
	}
}
