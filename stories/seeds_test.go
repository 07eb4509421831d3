package stories_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/localstack/ministack/ministacktest"
)

// awsEnv points the AWS SDK at an emulator.
func awsEnv(endpoint string) []string {
	return []string{
		"AWS_ENDPOINT_URL=" + endpoint, "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// bootstraps runs the functions as they are deployed, with their state in
// DynamoDB.
func bootstraps(t testing.TB) (env, args []string) {
	if os.Getenv("INPROC") != "" {
		return nil, nil
	}
	s := ministacktest.Start(t)
	return awsEnv(s.Endpoint()), []string{"--functions", "bootstrap"}
}

func create(ctx context.Context, t testing.TB, client *kgo.Client, partitions int32, configs map[string]*string, topics ...string) {
	t.Helper()
	made, err := kadm.NewClient(client).CreateTopics(ctx, partitions, 1, configs, topics...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func produce(ctx context.Context, t testing.TB, client *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func numbered(topic, format string, from, to int) []*kgo.Record {
	var out []*kgo.Record
	for i := from; i < to; i++ {
		out = append(out, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "%d", i), Value: fmt.Appendf(nil, format, i)})
	}
	return out
}

// TestTheFirstConfiguration is what people try first: old records, live ones,
// and a look at B with Kafka's own tools.
func TestTheFirstConfiguration(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	a, b := startBoth(t, kafka.Options{Brokers: 3}, kafka.Options{})
	in := kafkatest.Find(t)
	client := connect(t, a)
	begun := time.Now()
	create(ctx, t, client, 3, nil, "mm2-source-topic")
	produce(ctx, t, client, numbered("mm2-source-topic", "clusterA-msg-%d", 0, 50)...)

	env, args := bootstraps(t)
	printed := filepath.Join(t.TempDir(), "metrics")
	r := run(t, env, seed1(t, a, b, "mirrorless.metrics = topics"), append(args, "--metrics", printed)...)
	read(ctx, t, b, "A.mm2-source-topic", 50)
	live := time.Now()
	produce(ctx, t, client, numbered("mm2-source-topic", "live-msg-%d", 0, 10)...)
	got := read(ctx, t, b, "A.mm2-source-topic", 60)
	t.Logf("ten live records were on B after %v", time.Since(live).Round(time.Millisecond))
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("clusterA-msg-%d", i))
	}
	for i := range 10 {
		want = append(want, fmt.Sprintf("live-msg-%d", i))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records on B (-want +got):\n%s", diff)
	}

	tool := func(name string, args ...string) string {
		t.Helper()
		out, err := in.Tool(ctx, name, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	names := strings.Fields(tool("kafka-topics", "--bootstrap-server", b.Bootstrap(), "--list"))
	for _, name := range []string{"A.checkpoints.internal", "A.heartbeats", "A.mm2-source-topic", "heartbeats", "mm2-offsets.A.internal"} {
		if !slices.Contains(names, name) {
			t.Errorf("kafka-topics on B: got %q, want %s among them", names, name)
		}
	}
	consumed := tool("kafka-console-consumer", "--bootstrap-server", b.Bootstrap(), "--topic", "A.mm2-source-topic",
		"--from-beginning", "--max-messages", "60", "--timeout-ms", "20000")
	lines := strings.Fields(consumed)
	slices.Sort(lines)
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("kafka-console-consumer on B (-want +got):\n%s", diff)
	}
	r.stop(t)

	// The functions have printed what they copied.
	m := metricsOf(t, printed)
	m.wantAll(t)
	const copied = "A.mm2-source-topic"
	values := len(strings.Join(want, ""))
	keys := 50 + 40 + 10 // 0 to 49, and 0 to 9
	m.want(t, copied, "record-count", 60)
	m.want(t, copied, "byte-count", values)
	m.want(t, copied, "copied-bytes", values+keys)
	for _, none := range []string{"duplicates-refused", "duplicates-detected", "holes", "unmirrorable-headers", "dead-letters"} {
		m.want(t, copied, none, 0)
	}
	for _, name := range []string{"record-age-ms", "replication-latency-ms"} {
		if most := slices.Max(m[copied][name]); most <= 0 || most > float64(time.Since(begun).Milliseconds()) {
			t.Errorf("%s: got %v ms at most, want more than none and less than all the test took", name, most)
		}
	}
}

// TestTheSecondConfiguration moves a group's offsets too.
func TestTheSecondConfiguration(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	in := kafkatest.Find(t)
	client := connect(t, a)
	create(ctx, t, client, 1, nil, "orders", "payments")
	produce(ctx, t, client, numbered("orders", "order-%d", 0, 100)...)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "orders", At: 40, LeaderEpoch: -1})
	if _, err := kadm.NewClient(client).CommitOffsets(ctx, "app", offsets); err != nil {
		t.Fatal(err)
	}

	env, args := bootstraps(t)
	r := run(t, env, seed2(t, a, b), args...)
	read(ctx, t, b, "source.orders", 100)
	read(ctx, t, b, "source.heartbeats", 1)
	// A round before the first copy commits the end of what was copied, 0.
	eventually(ctx, t, "group app at offset 40 of 100 on the target", func() bool {
		out, err := in.Tool(ctx, "kafka-consumer-groups", "--bootstrap-server", b.Bootstrap(), "--describe", "--group", "app", "--offsets")
		if err != nil {
			return false
		}
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) >= 5 && f[0] == "app" && f[1] == "source.orders" {
				if f[3] != "0" && f[3] != "40" || f[4] != "100" {
					t.Fatalf("kafka-consumer-groups: got %q, want offset 40 of 100", line)
				}
				return f[3] == "40"
			}
		}
		return false
	})
	names, err := in.Tool(ctx, "kafka-topics", "--bootstrap-server", b.Bootstrap(), "--list")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"source.orders", "source.payments", "source.heartbeats", "source.checkpoints.internal"} {
		if !slices.Contains(strings.Fields(names), name) {
			t.Errorf("kafka-topics on the target: got %q, want %s among them", names, name)
		}
	}
	r.stop(t)
}

// odd are records that other tools get wrong.
func odd(topic string, n int) []*kgo.Record {
	rng := rand.New(rand.NewPCG(7, 7))
	some := func() []byte {
		switch rng.IntN(6) {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			return []byte{0xff, 0, 0xfe, 0x80}
		case 3:
			return bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(3000))
		}
		return fmt.Appendf(nil, "text %d", rng.IntN(1000))
	}
	out := make([]*kgo.Record, n)
	for i := range out {
		r := &kgo.Record{Topic: topic, Partition: int32(i % 3), Key: some(), Value: some()}
		switch rng.IntN(4) {
		case 0:
			r.Timestamp = time.UnixMilli(0)
		case 1:
			r.Timestamp = time.UnixMilli(1_000_000_000_000 + rng.Int64N(1_000_000_000))
		default:
			r.Timestamp = time.Now()
		}
		for range rng.IntN(4) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: []string{"", "a", "a", "ключ"}[rng.IntN(4)], Value: some()})
		}
		out[i] = r
	}
	return out
}

// TestOddRecordsArriveAsTheyWere compares with verify and with a reader that
// shares no code with it.
func TestOddRecordsArriveAsTheyWere(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	a, b := startBoth(t, kafka.Options{}, kafka.Options{})
	client := connect(t, a, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	forever := "-1"
	create(ctx, t, client, 3, map[string]*string{"retention.ms": &forever}, "mm2-source-topic")
	produce(ctx, t, client, odd("mm2-source-topic", 2000)...)
	env, args := bootstraps(t)
	file := seed1(t, a, b)
	r := run(t, env, file, args...)
	reader := connect(t, b)
	eventually(ctx, t, "2,000 records on B", func() bool { return ends(ctx, t, reader, "A.mm2-source-topic") == 2000 })
	if diff := cmp.Diff(readAll(ctx, t, a, "mm2-source-topic"), readAll(ctx, t, b, "A.mm2-source-topic")); diff != "" {
		t.Errorf("records on A and B (-A +B):\n%s", diff)
	}
	out, err := mirrorless(t, "verify", file, "--topics", "mm2-source-topic").CombinedOutput()
	if err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	t.Logf("verify printed:\n%s", out)
	r.stop(t)
}
