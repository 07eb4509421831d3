package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/status"
)

// The stories in testdata/status have two clusters, a state of A->B in
// .mirrorless, and mm2.properties that names them. In lag.properties A has a
// thousand records more than the state knows of; in dark.properties A is not
// there, in unlit.properties B is not, and in behind.properties, where A has the
// thousand. The commands serve, hold and silent stand for a mirrorless that runs.
func TestStatusScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/status",
		Setup: func(env *testscript.Env) error { return setUpStatus(t, env) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  scriptServe,
			"hold":   scriptHold,
			"silent": scriptSilent,
			// timeless FILE keeps the last output, without the time of day.
			"timeless": func(ts *testscript.TestScript, _ bool, args []string) {
				text := timeOfDay.ReplaceAllString(ts.ReadFile("stdout"), "12:03:07.412")
				text = strings.ReplaceAll(text, fmt.Sprint(os.Getpid()), "4711")
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
		},
	})
}

var timeOfDay = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d\d\d`)

func setUpStatus(t *testing.T, env *testscript.Env) error {
	a, lag, b := fakeCluster(t, "orders"), fakeCluster(t, "orders"), fakeCluster(t, "A.orders")
	now := time.Now()
	fillTopic(t, a, "orders", 1500, now)
	fillTopic(t, lag, "orders", 1500, now)
	fillTopic(t, lag, "orders", 1000, now.Add(-4*time.Minute-30*time.Second))
	fillTopic(t, b, "A.orders", 1500, now)
	dark := closedAddress(t)
	for name, at := range map[string]struct{ a, b string }{
		"mm2": {a, b}, "lag": {lag, b}, "dark": {dark, b}, "unlit": {a, dark}, "behind": {lag, dark},
	} {
		text := strings.Join([]string{
			"clusters = A, B", "A.bootstrap.servers = " + at.a, "B.bootstrap.servers = " + at.b,
			"A->B.enabled = true", "A->B.topics = orders", "B->A.emit.heartbeats.enabled = false",
			`A.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="secret";`, "",
		}, "\n")
		if err := os.WriteFile(filepath.Join(env.WorkDir, name+".properties"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return prepareState(t, filepath.Join(env.WorkDir, ".mirrorless", stateFile), topicID(t, b, "A.orders"))
}

func fakeCluster(t *testing.T, topics ...string) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func fillTopic(t *testing.T, address, topic string, n int, at time.Time) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Timestamp: at, Value: []byte("secret")}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func topicID(t *testing.T, address, topic string) state.TopicID {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return state.TopicID(topics[topic].ID)
}

// closedAddress is one at which nothing listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func prepareState(t *testing.T, path string, target state.TopicID) error {
	file, err := embedded.Open(path, embedded.Options{})
	if err != nil {
		return err
	}
	defer file.Close()
	store, err := file.Store(flow.Flow{Source: "A", Target: "B"})
	if err != nil {
		return err
	}
	ctx := t.Context()
	ago := time.Now().Add(-3*time.Hour - 30*time.Minute - 30*time.Second)
	position := state.Position{Upstream: 1500, Downstream: 1500, Copied: 1500, Newest: ago.UnixMilli(), TargetTopicID: target}
	if _, err := store.Advance(ctx, map[flow.TopicPartition]state.Position{
		{Topic: "orders"}: position, {Topic: "orders", Partition: 1}: {TargetTopicID: target},
	}); err != nil {
		return err
	}
	if _, err := store.PutEventSource(ctx, state.EventSource{
		Topic: "orders", Group: "mirrorless/dev/A/B/orders", State: "Enabled", PartialFailures: true, Partitions: 2,
	}); err != nil {
		return err
	}
	if err := store.PutHoles(ctx, []state.Hole{
		{TopicPartition: flow.TopicPartition{Topic: "orders"}, From: 1000, To: 1017, Kind: "null headers", Records: 17, Seen: ago},
	}); err != nil {
		return err
	}
	return store.PutCheckpoints(ctx, []state.Checkpoint{
		{Group: "app", TopicPartition: flow.TopicPartition{Topic: "A.orders"}, Upstream: 1400, Downstream: 1390, Written: ago},
		{Group: "app", TopicPartition: flow.TopicPartition{Topic: "A.orders", Partition: 1}, Written: ago},
	})
}

// scriptServe serves a report of A->B until the end of the script: serve DIR.
func scriptServe(ts *testscript.TestScript, _ bool, args []string) {
	failed := status.Failure{Error: "produce A.orders-1: nothing listens there\nsecond line", At: time.Now().Add(-2 * time.Second), Attempts: 12}
	stop, err := serveStatus(ts.MkAbs(args[0]), func(context.Context) []status.Report {
		r := status.Report{
			Flow: "A->B", At: time.Now(), Running: true,
			Source: status.Cluster{Alias: "A"}, Target: status.Cluster{Alias: "B", Error: "nothing listens there"},
			Topics: []status.Topic{{Topic: "orders", Remote: "A.orders"}},
		}
		for p := range int32(60) {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, status.Partition{Partition: p, Prepared: true})
		}
		r.Topics[0].Partitions[1].Behind, r.Topics[0].Partitions[1].LastError = 1234567, &failed
		r.Answer, r.Sentence = status.Judge(r)
		return []status.Report{r}
	}, http.NotFoundHandler())
	ts.Check(err)
	ts.Defer(stop)
}

// scriptHold holds the state file as a run does, until the end: hold DIR.
func scriptHold(ts *testscript.TestScript, _ bool, args []string) {
	file, err := embedded.Open(filepath.Join(ts.MkAbs(args[0]), stateFile), embedded.Options{})
	ts.Check(err)
	ts.Defer(func() { file.Close() })
}

// scriptSilent leaves the file of a process that is stopped, or gone: silent DIR
// stopped|gone.
func scriptSilent(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	if args[1] == "gone" {
		ts.Check(l.Close())
	} else {
		ts.Defer(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go io.Copy(io.Discard, conn)
			}
		}()
	}
	ts.Check(writeRunFile(ts.MkAbs(args[0]), status.Endpoint{Address: l.Addr().String(), PID: 4711, Token: "t"}))
}

func TestTheRunFileIsItsOwnersAndGoesWithIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, ok, err := readRunFile(dir); ok || err != nil {
		t.Errorf("without a file: got %t, %v", ok, err)
	}
	want := []status.Report{{Flow: "A->B"}}
	stop, err := serveStatus(dir, func(context.Context) []status.Report { return want }, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	at, ok, err := readRunFile(dir)
	if err != nil || !ok || at.PID != os.Getpid() || !strings.HasPrefix(at.Address, "127.0.0.1:") {
		t.Errorf("got %+v, %t, %v", at, ok, err)
	}
	info, err := os.Stat(filepath.Join(dir, runFileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
	got, err := status.Ask(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	stop()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("after stop: got %v, %v", entries, err)
	}
	if _, err := status.Ask(t.Context(), at); err == nil {
		t.Error("answers after stop")
	}
}

func TestTheRunFileOfAnotherProcessStays(t *testing.T) {
	dir := t.TempDir()
	stop, err := serveStatus(dir, func(context.Context) []status.Report { return nil }, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	other := status.Endpoint{Address: "127.0.0.1:1", PID: 1, Token: "other"}
	if err := writeRunFile(dir, other); err != nil {
		t.Fatal(err)
	}
	stop()
	if at, ok, err := readRunFile(dir); err != nil || !ok || at != other {
		t.Errorf("got %+v, %t, %v", at, ok, err)
	}
}

func TestALongNameDoesNotWidenTheTables(t *testing.T) {
	long := "com.example.orders." + strings.Repeat("europe.", 25) + "orders.dead.letters"
	failed := status.Failure{Error: "produce A." + long + "-0: refused", At: time.Now()}
	r := status.Report{
		Flow: "A->B", At: time.Now(), Source: status.Cluster{Alias: "A"}, Target: status.Cluster{Alias: "B"},
		Topics: []status.Topic{{
			Topic: long, Remote: "A." + long, EventSource: &status.EventSource{Group: "mirrorless/dev/A/B/" + long},
			Partitions: []status.Partition{{Prepared: true, LastError: &failed, Note: "A." + long + " was created again on B"}},
		}},
		Holes:  []status.Hole{{Kind: "null headers", Topic: long, To: 1}},
		Groups: []status.Group{{Group: long, Partitions: []status.GroupPartition{{Topic: "A." + long}}}},
	}
	r.Answer, r.Sentence = status.Judge(r)
	var out strings.Builder
	if err := printStatus(&out, seenStatus{reports: []status.Report{r}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(line)); strings.HasPrefix(line, "  ") && n > 170 {
			t.Errorf("got a row of %d characters, want at most 170: %s", n, line)
		}
	}
	if want := "com.example.orders.….orders.dead.letters-0 "; !strings.Contains(out.String(), want) {
		t.Errorf("got no %q in\n%s", want, out.String())
	}
}
