package stories_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/localstack/faultproxy"
)

// lane is a row of faults, one after the other, beside those of other lanes. What
// it chooses follows from the seed alone.
type lane struct {
	name        string
	least, most time.Duration // between two faults
	faults      []fault
}

// fault is something that may happen.
type fault struct {
	kind   string
	weight int
	// do lets it happen, undoes it where it lasts, and returns how often it took
	// effect.
	do func(ctx context.Context, rng *rand.Rand) int
}

// torment runs lanes until ctx ends.
func (r *arena) torment(ctx context.Context, seed uint64, lanes ...lane) {
	var running sync.WaitGroup
	for i, l := range lanes {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		running.Go(func() {
			for sleep(ctx, between(rng, l.least, l.most)) {
				f := l.choose(rng)
				// A generator of its own: how long a fault takes must not change the next.
				n := f.do(ctx, rand.New(rand.NewPCG(seed, rng.Uint64())))
				r.count(l.name+": "+f.kind, n)
			}
		})
	}
	running.Wait()
}

func (l lane) choose(rng *rand.Rand) fault {
	total := 0
	for _, f := range l.faults {
		total += f.weight
	}
	n := rng.IntN(total)
	for _, f := range l.faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// counted is what proxies have counted of one thing.
func counted(proxies []*faultproxy.Proxy, of func(faultproxy.Counts) int) (n int) {
	for _, p := range proxies {
		n += of(p.Counts())
	}
	return n
}

// network is the lane of a group of proxies; of requests, those that match may be
// late, and told gets the answers to them. A fault counts where it took effect: a
// connection has to have been there, or bytes that were to move.
func network(name string, proxies []*faultproxy.Proxy, least, most time.Duration, requests func([]byte) bool, told func(request, answer []byte), more ...fault) lane {
	// some is one of them, or all.
	some := func(rng *rand.Rand) []*faultproxy.Proxy {
		if n := rng.IntN(len(proxies) + 1); n < len(proxies) {
			return proxies[n : n+1]
		}
		return proxies
	}
	lasting := func(kind string, weight int, of func(faultproxy.Counts) int, on, off func(*faultproxy.Proxy, *rand.Rand), least, most time.Duration) fault {
		return fault{kind, weight, func(ctx context.Context, rng *rand.Rand) int {
			chosen := some(rng)
			before := counted(chosen, of)
			for _, p := range chosen {
				on(p, rng)
				defer off(p, rng)
			}
			sleep(ctx, between(rng, least, most))
			return min(counted(chosen, of)-before, 1)
		}}
	}
	momentary := func(kind string, weight int, do func(*faultproxy.Proxy) int) fault {
		return fault{kind, weight, func(_ context.Context, rng *rand.Rand) int {
			n := 0
			for _, p := range some(rng) {
				n += do(p)
			}
			return min(n, 1)
		}}
	}
	// What is late counts when it arrives; some wait long for a request to come.
	late := func(kind string, weight int, cut bool) fault {
		return fault{kind, weight, func(ctx context.Context, rng *rand.Rand) int {
			for _, p := range proxies {
				p.Late(faultproxy.Late{Match: requests, Cut: cut, After: between(rng, 0, 5*time.Second), Told: told})
			}
			sleep(ctx, between(rng, 500*time.Millisecond, 2*time.Second))
			return 0
		}}
	}
	return lane{name, least, most, append([]fault{
		momentary("connections cut", 3, (*faultproxy.Proxy).Cut),
		momentary("half open, answers lost", 2, func(p *faultproxy.Proxy) int { return p.HalfOpen(faultproxy.Down) }),
		momentary("half open, requests lost", 1, func(p *faultproxy.Proxy) int { return p.HalfOpen(faultproxy.Up) }),
		lasting("refused", 2, func(c faultproxy.Counts) int { return c.Refused + c.Cut }, func(p *faultproxy.Proxy, _ *rand.Rand) { p.Refuse(true); p.Cut() },
			func(p *faultproxy.Proxy, _ *rand.Rand) { p.Refuse(false) }, 200*time.Millisecond, 3*time.Second),
		lasting("stalled", 2, func(c faultproxy.Counts) int { return c.Stalled }, func(p *faultproxy.Proxy, _ *rand.Rand) { p.Stall(true) },
			func(p *faultproxy.Proxy, _ *rand.Rand) { p.Stall(false) }, 200*time.Millisecond, 5*time.Second),
		lasting("delayed", 2, func(c faultproxy.Counts) int { return c.Delayed }, func(p *faultproxy.Proxy, rng *rand.Rand) {
			p.Delay(0, between(rng, 10*time.Millisecond, 800*time.Millisecond))
		},
			func(p *faultproxy.Proxy, _ *rand.Rand) { p.Delay(0, 0) }, time.Second, 5*time.Second),
		lasting("slow", 1, func(c faultproxy.Counts) int { return c.Limited }, func(p *faultproxy.Proxy, rng *rand.Rand) { p.Limit(50_000 + rng.IntN(500_000)) },
			func(p *faultproxy.Proxy, _ *rand.Rand) { p.Limit(0) }, time.Second, 4*time.Second),
		late("late requests, their sender cut off", 5, true),
		late("late requests, their sender waiting", 1, false),
	}, more...)}
}

// Keys of Kafka's requests.
const (
	keyProduce        = 0
	keyInitProducer   = 22
	keyAddPartitions  = 24
	keyEndTransaction = 26
)

// networkOfA makes late whatever is sent, a group's commits among it.
func (r *arena) networkOfA() lane {
	return network("A", r.proxyA, 2*time.Second, 7*time.Second, nil, nil)
}

func (r *arena) networkOfB() lane {
	return network("B", r.proxyB, 300*time.Millisecond, 2*time.Second, faultproxy.Requests(keyProduce, keyInitProducer, keyAddPartitions, keyEndTransaction), r.toldLate)
}

// storeFaults is the lane of DynamoDB.
func storeFaults(p *faultproxy.Proxy) lane {
	answers := func(kind, response string) fault {
		return fault{kind, 2, func(ctx context.Context, rng *rand.Rand) int {
			before := p.Counts().Answered
			p.Answer([]byte(response))
			defer p.Answer(nil)
			sleep(ctx, between(rng, 200*time.Millisecond, 4*time.Second))
			return min(p.Counts().Answered-before, 1)
		}}
	}
	writes := func(head []byte) bool {
		for _, operation := range []string{"UpdateItem", "PutItem", "TransactWriteItems", "DeleteItem"} {
			if bytes.Contains(head, []byte("DynamoDB_20120810."+operation)) {
				return true
			}
		}
		return false
	}
	return network("store", []*faultproxy.Proxy{p}, 2*time.Second, 6*time.Second, writes, nil,
		answers("server errors", dynamoAnswer("500 Internal Server Error", "InternalServerError")),
		answers("throttled", dynamoAnswer("400 Bad Request", "ProvisionedThroughputExceededException")))
}

func dynamoAnswer(status, kind string) string {
	body := `{"__type":"com.amazonaws.dynamodb.v20120810#` + kind + `","message":"a fault of the test"}`
	return "HTTP/1.1 " + status + "\r\nContent-Type: application/x-amz-json-1.0\r\nConnection: close\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// brokerFaults is the lane of the brokers: at most one is away at a time.
func (r *arena) brokerFaults(t *testing.T) lane {
	node := func(rng *rand.Rand) int { return r.b.Nodes()[rng.IntN(brokersOfB)] }
	back := func(ctx context.Context, n int) int {
		// Also when time is up: the rest needs its brokers.
		if err := r.b.Restart(context.WithoutCancel(ctx), n); err != nil {
			t.Errorf("restart node %d of B: %v", n, err)
			return 0
		}
		return 1
	}
	return lane{"brokers", 3 * time.Second, 12 * time.Second, []fault{
		{"leader of B changed", 4, func(ctx context.Context, rng *rand.Rand) int { return r.changeLeaders(ctx, rng) }},
		{"broker of B killed", 3, func(ctx context.Context, rng *rand.Rand) int {
			n := node(rng)
			if err := r.b.Kill(n); err != nil {
				t.Error(err)
				return 0
			}
			sleep(ctx, between(rng, 0, 2*time.Second))
			return back(ctx, n)
		}},
		{"broker of B restarted", 2, func(ctx context.Context, rng *rand.Rand) int {
			n := node(rng)
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			_ = r.b.Stop(limit, n) // a broker that takes too long is killed
			return back(ctx, n)
		}},
		{"broker of B frozen", 2, func(ctx context.Context, rng *rand.Rand) int {
			p, err := r.b.Process(node(rng))
			if err != nil || p.Freeze() != nil {
				return 0
			}
			sleep(ctx, between(rng, time.Second, 8*time.Second))
			_ = p.Thaw()
			return 1
		}},
		{"broker of A killed", 1, func(ctx context.Context, _ *rand.Rand) int {
			if err := r.a.Restart(context.WithoutCancel(ctx), r.a.Nodes()[0]); err != nil {
				t.Errorf("restart A: %v", err)
				return 0
			}
			return 1
		}},
	}}
}

// changeLeaders gives the partitions of one topic of B other leaders, and
// returns how many.
func (r *arena) changeLeaders(ctx context.Context, rng *rand.Rand) (n int) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	topic := "A." + []string{youngTopic, oddTopic, oldTopic, transactionsTopic}[rng.IntN(4)]
	admin := kadm.NewClient(r.onB)
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return 0
	}
	var assign kadm.AlterPartitionAssignmentsReq
	elect := kadm.TopicsSet{}
	for _, p := range topics[topic].Partitions {
		if len(p.Replicas) < 2 {
			continue
		}
		assign.Assign(topic, p.Partition, append(p.Replicas[1:len(p.Replicas):len(p.Replicas)], p.Replicas[0]))
		elect.Add(topic, p.Partition)
	}
	if _, err := admin.AlterPartitionAssignments(ctx, assign); err != nil {
		return 0
	}
	for range 20 {
		// The new order is known to the controller a little later.
		if !sleep(ctx, 100*time.Millisecond) {
			return 0
		}
		results, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect)
		if err != nil {
			return 0
		}
		for _, partitions := range results {
			for _, p := range partitions {
				if p.Err == nil {
					n++
				}
			}
		}
		if n > 0 {
			return 1
		}
	}
	return 0
}
