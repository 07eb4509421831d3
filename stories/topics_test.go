package stories_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/localstack/kafka"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/topics"
)

// setConfigs are the configs that somebody set on a topic.
func setConfigs(t *testing.T, admin *kadm.Client, topic string) map[string]string {
	t.Helper()
	described, err := admin.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, c := range described[0].Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			set[c.Key] = c.MaybeValue()
		}
	}
	return set
}

func partitionsOf(t *testing.T, admin *kadm.Client) map[string]int {
	t.Helper()
	list, err := admin.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for name, topic := range list {
		counts[name] = len(topic.Partitions)
	}
	return counts
}

func alterConfig(t *testing.T, admin *kadm.Client, topic string, alter ...kadm.AlterConfig) {
	t.Helper()
	answers, err := admin.AlterTopicConfigs(t.Context(), alter, topic)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readers(t *testing.T, admin *kadm.Client) []string {
	t.Helper()
	every := kadm.NewACLs().Topics().Allow().AllowHosts().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny)
	found, err := admin.DescribeACLs(t.Context(), every)
	if err != nil {
		t.Fatal(err)
	}
	var rights []string
	for _, f := range found {
		for _, a := range f.Described {
			rights = append(rights, strings.Join([]string{a.Principal, a.Operation.String(), a.Name}, " "))
		}
	}
	slices.Sort(rights)
	return rights
}

func TestTopicsOfBFollowThoseOfA(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	authorized := kafka.Options{Properties: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}}
	a, b := startBoth(t, authorized, authorized)
	read := func(lines string) (to, back config.Flow) {
		file := "clusters = A, B\nA.bootstrap.servers = " + a.Bootstrap() + "\nB.bootstrap.servers = " + b.Bootstrap() +
			"\nA->B.enabled = true\nB->A.enabled = false\n" + lines
		c := config.Parse("mm2.properties", []byte(file), config.Sources{})
		if err := c.Err(); err != nil {
			t.Fatal(err)
		}
		to, _ = c.Flow(flow.Flow{Source: "A", Target: "B"})
		back, _ = c.Flow(flow.Flow{Source: "B", Target: "A"})
		return to, back
	}
	source, target := connect(t, a), connect(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	onA, onB := kadm.NewClient(source), kadm.NewClient(target)
	state, err := embedded.Open(filepath.Join(t.TempDir(), "state"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	store, err := state.Store(flow.Flow{Source: "A", Target: "B"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	start := func(lines string) *topics.Topics {
		settings, reverse := read(lines)
		return topics.New(topics.Options{
			Settings: settings, Reverse: &reverse, Store: store, Source: source, Target: target, Stack: "story",
			Now: func() time.Time { return now },
		})
	}
	run := func(top *topics.Topics) {
		t.Helper()
		if err := top.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if p, err := top.Plan(ctx); err != nil || !p.Empty() {
			t.Fatalf("got plan %+v, %v after a round, want nothing to do", p, err)
		}
		now = now.Add(10 * time.Minute)
		if p, err := start("").Plan(ctx); err != nil || !p.Empty() {
			t.Fatalf("got plan %+v, %v of the next process, want nothing to do", p, err)
		}
	}

	values := map[string]*string{"cleanup.policy": new("compact"), "retention.ms": new("3600000"), "min.insync.replicas": new("1")}
	if _, err := onA.CreateTopic(ctx, 3, 1, values, "orders"); err != nil {
		t.Fatal(err)
	}
	rights := kadm.NewACLs().Topics("orders").Allow("User:alice").AllowHosts().Operations(kadm.OpRead, kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := onA.CreateACLs(ctx, rights); err != nil {
		t.Fatal(err)
	}
	top := start("")
	run(top)
	want := map[string]int{"A.orders": 3, "A.heartbeats": 1, "A.checkpoints.internal": 1, "heartbeats": 1, "mm2-offsets.A.internal": 25}
	if diff := cmp.Diff(want, partitionsOf(t, onB)); diff != "" {
		t.Errorf("topics of B (-want +got):\n%s", diff)
	}
	want = map[string]int{"orders": 3, "heartbeats": 1, "mm2-offset-syncs.B.internal": 1}
	if diff := cmp.Diff(want, partitionsOf(t, onA)); diff != "" {
		t.Errorf("topics of A (-want +got):\n%s", diff)
	}
	configs := map[string]string{"cleanup.policy": "compact", "retention.ms": "3600000"}
	if diff := cmp.Diff(configs, setConfigs(t, onB, "A.orders")); diff != "" {
		t.Errorf("configs of A.orders (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"User:alice READ A.orders"}, readers(t, onB)); diff != "" {
		t.Errorf("ACLs of B (-want +got):\n%s", diff)
	}

	// Partitions, configs and topics follow at the next round.
	if _, err := onA.UpdatePartitions(ctx, 5, "orders"); err != nil {
		t.Fatal(err)
	}
	alterConfig(t, onA, "orders", kadm.AlterConfig{Op: kadm.SetConfig, Name: "segment.ms", Value: new("60000")}, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"})
	alterConfig(t, onB, "A.orders", kadm.AlterConfig{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: new("1")})
	if _, err := onA.CreateTopics(ctx, 2, 1, nil, "invoices", "refunds"); err != nil {
		t.Fatal(err)
	}
	run(top)
	got := partitionsOf(t, onB)
	if got["A.orders"] != 5 || got["A.invoices"] != 2 || got["A.refunds"] != 2 {
		t.Errorf("got topics %v on B, want five partitions of A.orders and two new topics", got)
	}
	configs = map[string]string{"cleanup.policy": "compact", "segment.ms": "60000", "min.insync.replicas": "1"}
	if diff := cmp.Diff(configs, setConfigs(t, onB, "A.orders")); diff != "" {
		t.Errorf("configs of A.orders (-want +got):\n%s", diff)
	}

	// A copy that is deleted comes back; a factor that cannot be had is an error.
	if _, err := onB.DeleteTopics(ctx, "A.refunds"); err != nil {
		t.Fatal(err)
	}
	err = start("replication.factor = 3\n").Run(ctx)
	if factor, ok := errors.AsType[*topics.FactorError](err); !ok || factor.Factor != 3 || factor.Brokers != 1 {
		t.Errorf("got error %v, want one with the factor and the broker", err)
	}
	run(top)
	if got := partitionsOf(t, onB); got["A.refunds"] != 2 {
		t.Errorf("got topics %v on B, want A.refunds again", got)
	}
}
