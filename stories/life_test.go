package stories_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/localstack/ministack/ministacktest"
	"mirrorless/localstack/runtimeapi"
	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state"
	"mirrorless/shared/state/dynamo"
)

const lifeTable = "mirrorless-life"

// inTable is a store in a DynamoDB that is not Amazon's.
func inTable(ctx context.Context, t testing.TB, endpoint string) func(flow.Flow) state.Store {
	return func(flow.Flow) state.Store {
		client := dynamodb.New(dynamodb.Options{
			Region: "us-east-1", BaseEndpoint: aws.String(endpoint), Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		})
		store := dynamo.New(client, lifeTable, dynamo.Options{})
		if err := store.CreateTable(ctx); err != nil {
			t.Fatal(err)
		}
		return store
	}
}

// deployed starts the mirror function's own binary.
func deployed(t testing.TB, b *kafka.Cluster, endpoint string, o runtimeapi.Options) *runtimeapi.Function {
	t.Helper()
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mm2.properties")
	text := "clusters = A, B\nA.bootstrap.servers = localhost:1\nB.bootstrap.servers = " + b.Bootstrap() + "\nA->B.enabled = true\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Path = filepath.Join(bin, "mirror", "bootstrap")
	o.Env = map[string]string{"MIRRORLESS_CONFIG": file, "MIRRORLESS_FLOW": "A->B", "MIRRORLESS_TABLE": lifeTable}
	for _, line := range awsEnv(endpoint) {
		name, value, _ := strings.Cut(line, "=")
		o.Env[name] = value
	}
	f, err := runtimeapi.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestAFunctionsLife is of what Lambda does to functions: it gives them little
// memory, freezes them, and starts many at once.
func TestAFunctionsLife(t *testing.T) {
	ctx := within(t, 8*time.Minute)
	b := kafkatest.Start(t, kafka.Options{Properties: map[string]string{"connections.max.idle.ms": "1500"}})
	dynamodb := ministacktest.Start(t)
	h := newHalf(t, b, inTable(ctx, t, dynamodb.Endpoint()))
	const partitions = 500
	h.prepare(ctx, "wide", partitions, 1, nil)

	t.Run("ten thousand records of five hundred partitions need less than 128 MB", func(t *testing.T) {
		f := deployed(t, b, dynamodb.Endpoint(), runtimeapi.Options{MemoryMB: 128, Timeout: 2 * time.Minute, Logs: t.Output()})
		var rs []kafkaevent.Record
		for p := range int32(partitions) {
			rs = append(rs, sized("wide", p, 20, 280)...)
		}
		event := payloadOf(rs)
		begun := time.Now()
		if _, err := f.Invoke(ctx, event); err != nil {
			t.Fatal(err)
		}
		took, peak := time.Since(begun), peakMemory(t, f.Environments()[0].PID())
		t.Logf("an event of %d bytes took %v and, at its peak, %d MiB", len(event), took.Round(time.Millisecond), peak>>20)
		if peak >= 128<<20 {
			t.Errorf("took %d bytes of memory, want less than 128 MiB", peak)
		}
		if got := ends(ctx, t, connect(t, b), "A.wide"); got != int64(len(rs)) {
			t.Errorf("got %d records on B, want %d", got, len(rs))
		}
	})

	t.Run("a function that was frozen until brokers hung up goes on at once", func(t *testing.T) {
		h.prepare(ctx, "frozen", 1, 1, nil)
		f := deployed(t, b, dynamodb.Endpoint(), runtimeapi.Options{Freeze: true, Timeout: 30 * time.Second})
		rs := sized("frozen", 0, 30, 10)
		for i := range 3 {
			begun := time.Now()
			if _, err := f.Invoke(ctx, payloadOf(rs[:10*i+10])); err != nil {
				t.Fatalf("invocation %d: %v", i, err)
			}
			if took := time.Since(begun); i > 0 && took > 2*time.Second {
				t.Errorf("invocation %d took %v after the thaw, want less than 2 s", i, took)
			} else {
				t.Logf("invocation %d took %v", i, took.Round(time.Millisecond))
			}
			environments := f.Environments()
			if len(environments) != 1 {
				t.Fatalf("got %d environments, want the one that was frozen", len(environments))
			}
			pid := environments[0].PID()
			eventually(ctx, t, "brokers to hang up", func() bool {
				open, closed := sockets(t, pid, b)
				return open == 0 && closed > 0
			})
		}
		h.wantKeys(ctx, b, "frozen", len(rs))
	})

	t.Run("two hundred cold starts at once against a broker that limits connections", func(t *testing.T) {
		const starts, perSecond = 200, 60
		// Brokers close what comes too fast (KIP-612).
		limit := func(op kadm.AlterClientQuotaOp) {
			t.Helper()
			if _, err := h.admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
				Entity: kadm.ClientQuotaEntity{{Type: "ip"}}, Ops: []kadm.AlterClientQuotaOp{op},
			}}); err != nil {
				t.Fatal(err)
			}
		}
		limit(kadm.AlterClientQuotaOp{Key: "connection_creation_rate", Value: perSecond})
		defer limit(kadm.AlterClientQuotaOp{Key: "connection_creation_rate", Remove: true})
		h := newHalf(t, b, inFile(t))
		h.prepare(ctx, "crowd", starts, 1, nil)
		begun := time.Now()
		took := make([]time.Duration, starts)
		var wg sync.WaitGroup
		for p := range starts {
			wg.Go(func() {
				if err := invoke(ctx, h.function(), time.Minute, sized("crowd", int32(p), 10, 100)); err != nil {
					t.Errorf("cold start %d: %v", p, err)
				}
				took[p] = time.Since(begun)
			})
		}
		wg.Wait()
		slices.Sort(took)
		t.Logf("%d cold starts: half within %v, all within %v", starts, took[starts/2].Round(time.Millisecond), took[starts-1].Round(time.Millisecond))
		if got := ends(ctx, t, connect(t, b), "A.crowd"); got != 10*starts {
			t.Errorf("got %d records on B, want %d", got, 10*starts)
		}
	})
}

// peakMemory is the most that a process has had in memory, in bytes.
func peakMemory(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatal("no VmHWM in the process's status")
	return 0
}

// sockets counts a process's connections to a cluster: those that are open, and
// those that the other side has closed.
func sockets(t testing.TB, pid int, c *kafka.Cluster) (open, closed int) {
	t.Helper()
	own := map[string]bool{}
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	descriptors, err := os.ReadDir(folder)
	if err != nil {
		t.Skip("no /proc here")
	}
	for _, d := range descriptors {
		if link, err := os.Readlink(filepath.Join(folder, d.Name())); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
		}
	}
	ports := map[string]bool{}
	for _, seed := range c.Seeds() {
		_, port, _ := strings.Cut(seed, ":")
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		ports[fmt.Sprintf("%04X", n)] = true
	}
	for _, table := range []string{"tcp", "tcp6"} {
		file, err := os.Open("/proc/net/" + table)
		if err != nil {
			continue
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			f := strings.Fields(lines.Text()) // sl local remote state … inode
			if len(f) < 10 || !own[f[9]] {
				continue
			}
			if _, port, _ := strings.Cut(f[2], ":"); !ports[port] {
				continue
			}
			switch f[3] {
			case "01": // ESTABLISHED
				open++
			case "08": // CLOSE_WAIT
				closed++
			}
		}
	}
	return open, closed
}
