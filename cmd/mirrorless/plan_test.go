package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/function"
	"mirrorless/shared/status"
	"mirrorless/shared/topics"
)

// The stories in testdata/plan have two clusters with differences of each kind, and
// mm2.properties that names them. exits CODE COMMAND… runs a command that ends
// with a code; runs DIR is a mirrorless that runs the file, until the end.
func TestPlanScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/plan",
		Setup: func(env *testscript.Env) error { return setUpPlan(t, env) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": scriptExits,
			"runs":  scriptRuns,
		},
	})
}

func setUpPlan(t *testing.T, env *testscript.Env) error {
	a, b := planCluster(t, "id-of-A"), planCluster(t, "id-of-B")
	for _, c := range []struct {
		address, topic string
		partitions     int32
		configs        map[string]string
	}{
		{a, "orders", 3, map[string]string{"cleanup.policy": "compact"}},
		{a, "invoices", 4, map[string]string{"retention.ms": "1000"}},
		{a, "big", 1, map[string]string{"max.message.bytes": "10485760"}},
		{a, "B.loop", 1, nil},
		{b, "A.invoices", 2, map[string]string{"retention.ms": "77", "segment.ms": "60000"}},
	} {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.address))
		if err != nil {
			return err
		}
		values := map[string]*string{}
		for name, value := range c.configs {
			values[name] = new(value)
		}
		_, err = kadm.NewClient(client).CreateTopic(t.Context(), c.partitions, -1, values, c.topic)
		client.Close()
		if err != nil {
			return err
		}
	}
	env.Vars = append(env.Vars, "A="+a, "B="+b)
	for name, target := range map[string]string{"mm2": b, "dark": closedAddress(t)} {
		text := strings.Join([]string{
			"clusters = A, B", "A.bootstrap.servers = " + a, "B.bootstrap.servers = " + target,
			"A->B.enabled = true", "A->B.topics = .*", "B->A.emit.heartbeats.enabled = false", "",
		}, "\n")
		if err := os.WriteFile(filepath.Join(env.WorkDir, name+".properties"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func planCluster(t *testing.T, id string) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

// scriptExits runs a command and wants it to end with a code.
func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("got exit code %d, want %d", got, want)
	}
}

// scriptRuns holds the state of DIR and answers plans, as a run of FILE does:
// runs FILE DIR.
func scriptRuns(ts *testscript.TestScript, _ bool, args []string) {
	file, dir := ts.MkAbs(args[0]), ts.MkAbs(args[1])
	name, err := stackName(dir)
	ts.Check(err)
	kept, err := openFile(dir)
	ts.Check(err)
	ts.Defer(func() { kept.Close() })
	stop, err := serveStatus(dir, nil, servePlans(file, func(f config.Flow) (*function.Parts, error) {
		store, err := kept.Store(context.Background(), f)
		return &function.Parts{Store: store, EventSources: storedSources{store}, Stack: name}, err
	}))
	ts.Check(err)
	ts.Defer(stop)
}

func TestPartitionsAreWrittenInRanges(t *testing.T) {
	for want, numbers := range map[string][]int32{
		"partition 0": {0}, "partitions 0–2": {0, 1, 2}, "partitions 0, 2": {0, 2}, "partitions 1–2, 4, 7–9": {1, 2, 4, 7, 8, 9},
	} {
		if got := partitions(numbers); got != want {
			t.Errorf("got %q of %v, want %q", got, numbers, want)
		}
	}
}

func TestPlansOfEveryKind(t *testing.T) {
	c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"), config.Sources{})
	f := c.Enabled()[0]
	spec := topics.EventSourceSpec{Topic: "t", Group: "mirrorless/s/A/B/t", BatchSize: 100, Window: 500e6, Enabled: true}
	more := spec
	more.BatchSize, more.PartialFailures = 1000, true
	off := spec
	off.Enabled = false
	p := topics.Plan{
		Grow:    []topics.Growth{{Topic: "A.t", Source: "t", From: 2, To: 3}},
		Configs: []topics.ConfigChange{{Topic: "A.t", Ops: []topics.ConfigOp{{Name: "a", Value: "1"}, {Name: "b", Delete: true}}, Was: map[string]string{"a": "0"}}},
		EventSources: []topics.EventSourceChange{
			{Action: topics.ActionUpdate, ID: "1", From: spec, To: more},
			{Action: topics.ActionDisable, ID: "2", From: spec, To: off},
			{Action: topics.ActionDelete, ID: "3", From: off},
		},
		Copies:   []topics.Copy{{Source: "t", Name: "A.t", Partitions: 3}},
		Warnings: []topics.Warning{{Message: "something", Topic: "t", Detail: []any{"z", 1, "a", true}}},
		Problems: []error{
			&topics.RightError{Right: "READ", Resource: "topic", Name: "t", Cluster: "A", For: "the event source reads with it"},
			errors.New("two\nlines"),
		},
	}
	var out bytes.Buffer
	if err := printPlans(&out, plans{Flows: []flowPlan{describePlan(f, p)}, Mixed: []string{"orders of cluster C is copied into by A->C and B->C: their records are mixed there"}}); err != nil {
		t.Fatal(err)
	}
	const want = `A->B: 0 to add, 4 to change, 2 to remove. 2 things are in the way.

Topics
  ~ A.t on B  partitions 2 → 3, as t has

Topic configs on B
  ~ A.t  a: 0 → 1
  ~ A.t  b: ? → the brokers' default

Event sources
  ~ t  batch size 100 → 1000, ReportBatchItemFailures false → true, group mirrorless/s/A/B/t
  - t  disabled first, deleted at a later round, group mirrorless/s/A/B/t
  - t  group mirrorless/s/A/B/t

Missing rights
  ! grant READ on topic t of cluster A: the event source reads with it

Warnings
  ! t: something (z=1, a=true)

Errors
  ! two; lines

Topics that several flows copy into
  ! orders of cluster C is copied into by A->C and B->C: their records are mixed there
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// A plan reads the same when it has come from a process that runs.
func TestAPlanSurvivesItsJSON(t *testing.T) {
	p := describePlan(config.Flow{}, topics.Plan{Warnings: []topics.Warning{{Message: "m", Detail: []any{"b", 1, "a", 2}}}})
	text, err := json.Marshal(plans{Flows: []flowPlan{p}, Mixed: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "null") {
		t.Errorf("got %s, want no null", text)
	}
	var back plans
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if got, want := back.Flows[0].Warnings[0].line(), "m (a=2, b=1)"; got != want {
		t.Errorf("got warning %q, want %q", got, want)
	}
}

func TestARunAnswersPlansToThoseWhoKnowTheToken(t *testing.T) {
	dir := t.TempDir()
	stop, err := serveStatus(dir, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"flows":[{"flow":"A->B"}]}`) }))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	at, _, err := readRunFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := askPlans(t.Context(), at); err != nil || len(got.Flows) != 1 || got.Flows[0].Flow != "A->B" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := askPlans(t.Context(), status.Endpoint{Address: at.Address, Token: "guess"}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("got %+v, %v without the token, want 401", got, err)
	}
}
