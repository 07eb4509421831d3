package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/localstack/faultproxy"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/localstack/ministack/ministacktest"
	"mirrorless/localstack/process"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state/dynamo"
	"mirrorless/shared/verify"
)

var (
	tortureLength = flag.Duration("torture.length", 0, "how long TestTorture lets faults happen; 0 leaves it out")
	tortureSeed   = flag.Uint64("torture.seed", 0, "the seed of TestTorture's faults; 0 chooses one")
	tortureMode   = flag.String("torture.mode", "all", "how TestTorture copies: all, "+strings.Join(modeNames(), ", "))
	torturePeer   = flag.Bool("torture.peer", false, "let TestTorture torture MirrorMaker 2 beside")
	tortureDir    = flag.String("torture.dir", "", "where TestTorture leaves what the runs print")
)

// mode is a way to copy.
type mode struct {
	properties []string
	// residual allows second copies of records that are older than the target's
	// producer expiry, each of which the flow's ledger has to count.
	residual bool
	// committed: only what transactions have committed on the target counts.
	committed bool
}

var modes = map[string]mode{
	"default":      {residual: true},
	"transactions": {properties: []string{"B.exactly.once.source.support = enabled"}, committed: true},
}

func modeNames() (names []string) {
	for name := range modes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ours is "mirrorless run" with its functions as processes, under torture.
type ours struct {
	t         *testing.T
	arena     *arena
	file, dir string // of the properties and of what the runs print
	env       []string
	number    int

	mu      sync.Mutex
	current *process.Process
	all     []*process.Process
}

// start begins another run with the same state.
func (o *ours) start() {
	o.number++
	log, err := os.Create(filepath.Join(o.dir, fmt.Sprintf("run-%03d.log", o.number)))
	if err != nil {
		o.t.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(bin, "mirrorless"), "run", o.file, "--functions", "bootstrap")
	cmd.Env = append(os.Environ(), o.env...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Start(cmd)
	if err != nil {
		o.t.Error(err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current, o.all = p, append(o.all, p)
}

func (o *ours) run() *process.Process {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current
}

func (o *ours) killAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.all {
		p.Kill()
	}
}

// functions are the processes of some functions.
func (o *ours) functions(names ...string) (pids []int) {
	for _, name := range names {
		pids = append(pids, processes(filepath.Join(bin, name, "bootstrap"))...)
	}
	return pids
}

func signalAll(pids []int, s syscall.Signal) (n int) {
	for _, pid := range pids {
		if syscall.Kill(pid, s) == nil {
			n++
		}
	}
	return n
}

func one(rng *rand.Rand, pids []int) []int {
	if len(pids) == 0 {
		return nil
	}
	i := rng.IntN(len(pids))
	return pids[i : i+1]
}

// lane is the faults of the processes.
func (o *ours) lane() lane {
	others := []string{"topics", "checkpoint", "heartbeat"}
	freeze := func(names []string, most time.Duration) func(context.Context, *rand.Rand) int {
		return func(ctx context.Context, rng *rand.Rand) int {
			pids := one(rng, o.functions(names...))
			n := signalAll(pids, syscall.SIGSTOP)
			sleep(ctx, between(rng, 50*time.Millisecond, most))
			signalAll(pids, syscall.SIGCONT)
			return n
		}
	}
	return lane{"processes", 500 * time.Millisecond, 3 * time.Second, []fault{
		{"SIGKILL to a mirror function", 6, func(_ context.Context, rng *rand.Rand) int {
			return signalAll(one(rng, o.functions("mirror")), syscall.SIGKILL)
		}},
		{"SIGKILL to all mirror functions", 2, func(context.Context, *rand.Rand) int {
			return min(signalAll(o.functions("mirror"), syscall.SIGKILL), 1)
		}},
		{"SIGKILL to another function", 2, func(_ context.Context, rng *rand.Rand) int {
			return signalAll(one(rng, o.functions(others...)), syscall.SIGKILL)
		}},
		{"SIGSTOP and SIGCONT to a mirror function", 4, freeze([]string{"mirror"}, 8*time.Second)},
		{"SIGSTOP and SIGCONT to another function", 1, freeze(others, 3*time.Second)},
		{"SIGKILL while a request is late", 3, func(ctx context.Context, rng *rand.Rand) int {
			n := o.arena.holdProduce(ctx, rng)
			signalAll(o.functions("mirror"), syscall.SIGKILL)
			return n
		}},
		{"SIGKILL to the run", 3, func(ctx context.Context, rng *rand.Rand) int {
			o.run().Kill()
			sleep(ctx, between(rng, 0, 2*time.Second))
			o.start()
			o.arena.progress(ctx, 20*time.Second)
			return 1
		}},
		{"a frozen run wakes up beside its successor", 1, func(ctx context.Context, rng *rand.Rand) int {
			old := o.run()
			_ = old.Freeze()
			pids := o.functions("mirror", "topics", "checkpoint")
			signalAll(pids, syscall.SIGSTOP)
			o.start()
			o.arena.progress(ctx, 15*time.Second)
			_ = old.Thaw()
			signalAll(pids, syscall.SIGCONT)
			sleep(ctx, between(rng, time.Second, 4*time.Second))
			old.Kill()
			return 1
		}},
		{"a second run beside the first", 1, func(ctx context.Context, rng *rand.Rand) int {
			old := o.run()
			o.start()
			o.arena.progress(ctx, 15*time.Second)
			sleep(ctx, between(rng, time.Second, 4*time.Second))
			old.Kill()
			return 1
		}},
	}}
}

// TestTorture lets everything happen to a flow that can happen, at random points,
// and then wants every record on B, once, and in order.
func TestTorture(t *testing.T) {
	if *tortureLength == 0 {
		t.Skip("make torture runs it")
	}
	kafkatest.Find(t)
	names := []string{*tortureMode}
	if *tortureMode == "all" {
		names = modeNames()
	} else if _, ok := modes[*tortureMode]; !ok {
		t.Fatalf("-torture.mode is %q: set all or one of %s", *tortureMode, strings.Join(modeNames(), ", "))
	}
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64N(1_000_000) + 1
	}
	length := *tortureLength
	var all []outcome
	for _, name := range names {
		again := fmt.Sprintf("make torture LENGTH=%s SEED=%d MODE=%s", length, seed, name)
		t.Run(name, func(t *testing.T) {
			t.Logf("repeat with: %s", again)
			all = append(all, tortureOurs(t, name, seed, length))
			if t.Failed() {
				t.Logf("repeat with: %s", again)
			}
		})
	}
	if *torturePeer {
		t.Run("MirrorMaker 2", func(t *testing.T) { all = append(all, torturePeerOnce(t, seed, length)) })
	}
	t.Logf("%-40s %7s %8s %7s %8s %10s %9s %7s", "", "faults", "records", "behind", "missing", "duplicated", "reordered", "altered")
	for _, o := range all {
		for _, f := range []struct {
			of string
			findings
		}{{"young", o.young}, {"old", o.old}} {
			t.Logf("%-40s %7d %8d %7d %8d %10d %9d %7d", o.who+", "+f.of+" records", o.faults, f.Records, f.Behind, f.Missing, f.Duplicated, f.Reordered, f.Altered+f.Unknown)
		}
	}
}

// outcome is what the reader found: of records younger than B's producer expiry,
// and of older ones.
type outcome struct {
	who        string
	faults     int
	young, old findings
}

func outcomeOf(who string, faults int, found map[string]findings) outcome {
	o := outcome{who: who, faults: faults}
	for topic, f := range found {
		if topic == oldTopic {
			o.old.add(f)
		} else {
			o.young.add(f)
		}
	}
	return o
}

func tortureOurs(t *testing.T, name string, seed uint64, length time.Duration) outcome {
	m := modes[name]
	ctx := within(t, length+10*time.Minute)
	r := newArena(t, seed, youngTopic, oddTopic, oldTopic, transactionsTopic, largeTopic)
	r.createTopics(ctx, t)
	store := ministacktest.Start(t)
	beforeStore, err := faultproxy.Start(faultproxy.Options{Upstream: strings.TrimPrefix(store.Endpoint(), "http://"), Protocol: faultproxy.HTTP, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(beforeStore.Close)
	r.store = []*faultproxy.Proxy{beforeStore}
	o := &ours{t: t, arena: r, dir: printed(t, name), env: awsEnv("http://" + beforeStore.Addr())}
	o.file = r.properties(t, m.properties...)
	mirrorless(t) // builds
	t.Cleanup(o.killAll)

	load := newStream(ctx, t, r.a, seed, youngTopic, oddTopic, oldTopic, largeTopic)
	o.start()
	r.phase(t, "the load begins")
	r.under(ctx, t, load, length, seed, o.lane(), r.networkOfB(), r.networkOfA(), storeFaults(beforeStore), r.brokerFaults(t))
	r.phase(t, "the faults are over")
	r.heal(ctx)
	r.phase(t, "nothing is late any more")
	// Second copies show by the offset of what comes after them.
	for range 3 {
		load.last(t)
		r.progress(ctx, 10*time.Second)
	}
	found := r.settle(ctx, t, m.committed, 3*time.Minute)
	r.phase(t, "B was read")
	faults := printFaults(t, r)

	ledger := o.ledger(ctx, t, store.Endpoint())
	for _, at := range slices.Sorted(maps.Keys(ledger)) {
		t.Logf("the flow itself counted: %s: %d", at, ledger[at])
	}
	all := outcomeOf("mirrorless, "+name, faults, found)
	young, old := all.young, all.old
	t.Logf("young records: %+v", young)
	t.Logf("old records: %+v", old)
	want := findings{Records: young.Records}
	if young != want {
		t.Errorf("young records: got %+v, want %+v", young, want)
	}
	want = findings{Records: old.Records}
	if m.residual {
		want.Duplicated = int(ledger[oldTopic+": "+mirror.SecondCopy])
	}
	if old != want {
		t.Errorf("old records: got %+v, want %+v", old, want)
	}
	o.wantMode(ctx, t, m)
	o.verify(t, old)
	r.phase(t, "verified")
	if err := o.run().Stop(ctx); err != nil {
		t.Errorf("stop the run: %v", err)
	}
	if t.Failed() {
		t.Logf("what the runs printed is in %s", o.dir)
	}
	return all
}

// printed is the folder for what runs print: it stays where one was asked for.
func printed(t *testing.T, name string) string {
	if *tortureDir == "" {
		return t.TempDir()
	}
	dir := filepath.Join(*tortureDir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func printFaults(t *testing.T, r *arena) int {
	lines, n := r.faults()
	t.Logf("faults: %d\n%s", n, strings.Join(lines, "\n"))
	for _, what := range slices.Sorted(maps.Keys(r.late)) {
		t.Logf("late batches of records: %5d %s", r.late[what], what)
	}
	return n
}

// wantMode looks whether B was written to in transactions, which no reader sees.
func (o *ours) wantMode(ctx context.Context, t *testing.T, m mode) {
	t.Helper()
	listed, err := kadm.NewClient(o.arena.onB).ListTransactions(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for id := range listed {
		if strings.HasPrefix(id, "mirrorless/A/B/") {
			n++
		}
	}
	if m.committed != (n > 0) {
		t.Errorf("got %d transactional ids of the flow on B, although transactions are wanted: %v", n, m.committed)
	}
}

// ledger reads from the flow's table how many records are concerned by what was
// noticed, by topic and kind.
func (o *ours) ledger(ctx context.Context, t *testing.T, endpoint string) map[string]int64 {
	t.Helper()
	id, err := os.ReadFile(filepath.Join(filepath.Dir(o.file), ".mirrorless", "id"))
	if err != nil {
		t.Fatal(err)
	}
	client := dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(endpoint), Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	holes, err := dynamo.New(client, "mirrorless-"+strings.TrimSpace(string(id))+"-A-B", dynamo.Options{}).Holes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for _, h := range holes {
		all[h.Topic+": "+h.Kind] += h.Records
	}
	return all
}

// verify asks the command that users have, which has to agree with the reader.
func (o *ours) verify(t *testing.T, old findings) {
	t.Helper()
	out, err := mirrorless(t, "verify", o.file, "--json", "--timeout", "2m").Output()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	var report struct{ Flows []verify.Report }
	if err := json.Unmarshal(out, &report); err != nil || len(report.Flows) != 1 {
		t.Fatalf("verify printed %v: %s", err, out)
	}
	c := report.Flows[0].Counts
	t.Logf("verify: %d records equal, %s", c.Equal, c)
	if got := int(c.Duplicated); got != old.Duplicated || c.Different() != c.Duplicated {
		t.Errorf("verify: got %s; the reader found %+v", c, old)
	}
	for _, topic := range report.Flows[0].Topics {
		if t.Failed() || topic.Source != oldTopic && topic.Verdict != verify.VerdictEqual {
			text, _ := json.Marshal(topic.Findings)
			t.Logf("verify of %s: %s: %s: %.2000s", topic.Source, topic.Verdict, topic.Counts, text)
		}
	}
}
