package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"mirrorless/localstack/kafka"
)

// plan runs "mirrorless plan" and returns what it prints, and its exit code.
func plan(ctx context.Context, t *testing.T, file string, args ...string) (string, int) {
	t.Helper()
	cmd := mirrorless(t, append([]string{"plan", file}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && !failed {
		t.Fatal(err)
	}
	if stderr.Len() > 0 {
		t.Logf("plan said: %s", stderr.String())
	}
	if failed {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// wants checks a plan's exit code, and that each pattern matches one of its lines.
func wants(t *testing.T, out string, code, want int, lines ...string) {
	t.Helper()
	if code != want {
		t.Errorf("got exit code %d, want %d; the plan:\n%s", code, want, out)
	}
	for _, line := range lines {
		if !regexp.MustCompile(`(?m)^ *` + line).MatchString(out) {
			t.Errorf("got no line %q in the plan:\n%s", line, out)
		}
	}
}

func TestAPlanShowsEachDifferenceAndRunMakesIt(t *testing.T) {
	ctx := within(t, 6*time.Minute)
	authorized := map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}
	// B has a second listener, where a user of few rights logs in.
	var login string
	withLogin := map[string]string{
		"listener.security.protocol.map":              "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FRONT:SASL_PLAINTEXT",
		"listener.name.front.sasl.enabled.mechanisms": "PLAIN",
		"listener.name.front.plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_mirror="secret-of-B";`,
	}
	maps.Copy(withLogin, authorized)
	a, b := startBoth(t, kafka.Options{Properties: authorized}, kafka.Options{
		Properties: withLogin,
		Front:      func(_ int, address string) (string, error) { login = address; return address, nil },
	})
	onA, onB := kadm.NewClient(connect(t, a)), kadm.NewClient(connect(t, b))
	create := func(admin *kadm.Client, topic string, partitions int32, configs map[string]*string) {
		t.Helper()
		if _, err := admin.CreateTopic(ctx, partitions, 1, configs, topic); err != nil {
			t.Fatal(err)
		}
	}
	create(onA, "orders", 3, map[string]*string{"cleanup.policy": new("compact")})
	create(onA, "invoices", 2, nil)
	create(onA, "big", 1, map[string]*string{"max.message.bytes": new("10485760")})
	create(onA, "B.loop", 1, nil)
	create(onB, "A.invoices", 1, map[string]*string{"retention.ms": new("77000")})
	alice := kadm.NewACLs().Topics("orders").Allow("User:alice").AllowHosts().Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := onA.CreateACLs(ctx, alice); err != nil {
		t.Fatal(err)
	}
	lines := []string{
		"clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = " + login,
		"B.security.protocol = SASL_PLAINTEXT", "B.sasl.mechanism = PLAIN",
		`B.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="mirror" password="secret-of-B";`,
		"A->B.enabled = true", "A->B.topics = .*", "B->A.enabled = false", "replication.factor = 1", "refresh.topics.interval.seconds = 2",
	}
	file := properties(t, a, b, lines...)

	// Nobody has given the user a right.
	out, code := plan(ctx, t, file)
	wants(t, out, code, 1, `! .*grant DESCRIBE on topic A\.orders of cluster B`, `! grant WRITE on topic A\.orders of cluster B: mirror appends there`)
	if strings.Contains(out, "secret-of-B") {
		t.Errorf("the plan tells a password:\n%s", out)
	}
	grant := func(acls *kadm.ACLBuilder) {
		t.Helper()
		if _, err := onB.CreateACLs(ctx, acls.Allow("User:mirror").AllowHosts()); err != nil {
			t.Fatal(err)
		}
	}
	mine := []string{"A.", "heartbeats", "mm2-"}
	topicRights := func(operations ...kadm.ACLOperation) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(mine...).ResourcePatternType(kadm.ACLPatternPrefixed).Operations(operations...)
	}
	grant(topicRights(kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpWrite, kadm.OpRead))
	grant(kadm.NewACLs().Clusters().ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribe))
	out, code = plan(ctx, t, file)
	wants(t, out, code, 1,
		`! .*grant CREATE on topic A\.orders of cluster B`, `! .*grant ALTER on topic A\.invoices of cluster B`,
		`! .*grant ALTER_CONFIGS on topic A\.invoices of cluster B`, `! ACLs cannot be created: grant ALTER on the cluster`)
	grant(topicRights(kadm.OpCreate, kadm.OpAlter, kadm.OpAlterConfigs))
	grant(kadm.NewACLs().Clusters().ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpAlter, kadm.OpIdempotentWrite))

	// What is to be made at first.
	out, code = plan(ctx, t, file)
	wants(t, out, code, 2,
		`A->B: \d+ to add, \d+ to change, 0 to remove\.$`,
		`\+ A\.orders on B +copy of orders: 3 partitions, replication factor 1, cleanup\.policy=compact$`,
		`\+ A\.big on B +copy of big: 1 partition`,
		`\+ mm2-offset-syncs\.B\.internal on A `, `\+ heartbeats on B `, `\+ mm2-offsets\.A\.internal on B +25 partitions`,
		`~ A\.invoices on B +partitions 1 → 2, as invoices has$`,
		`~ A\.invoices +retention\.ms: 77000 → the brokers' default$`,
		`\+ orders +batches of \d+, window .*, group mirrorless/new/A/B/orders$`,
		`\+ orders +partitions 0–2$`,
		`\+ ALLOW User:alice READ of LITERAL topic A\.orders from host \*$`,
		`- B\.loop +.*came from the target`,
		`! big: topic takes larger records than Lambda's event can carry`,
	)
	if got := partitionsOf(t, onB); got["A.orders"] != 0 || got["A.invoices"] != 1 {
		t.Fatalf("got topics %v on B after plans, want nothing changed", got)
	}

	running := run(t, nil, file)
	inStep := func() bool {
		out, code = plan(ctx, t, file)
		return code == 0
	}
	eventually(ctx, t, "a plan of nothing beside the run", inStep)
	wants(t, out, code, 0, `A->B: nothing to change; 4 topics are copied to B\.$`, `- B\.loop `)
	running.stop(t)
	out, code = plan(ctx, t, file)
	wants(t, out, code, 0, `A->B: nothing to change; 4 topics are copied to B\.$`)

	// What changes later, on the clusters and in the file.
	if _, err := onA.UpdatePartitions(ctx, 5, "orders"); err != nil {
		t.Fatal(err)
	}
	alterConfig(t, onA, "orders", kadm.AlterConfig{Op: kadm.SetConfig, Name: "segment.ms", Value: new("60000")})
	create(onA, "refunds", 1, nil)
	create(onB, "A_refunds", 1, nil) // which A.refunds collides with, says Kafka
	more := strings.NewReplacer("$A", a.Bootstrap()).Replace(strings.Join(append(lines, "A->B.topics.exclude = invoices", "A->B.mirrorless.batch.size = 500"), "\n"))
	if err := os.WriteFile(file, []byte(more+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code = plan(ctx, t, file)
	wants(t, out, code, 1, `! create A\.refunds: .*A_refunds`)
	if _, err := onB.DeleteTopics(ctx, "A_refunds"); err != nil {
		t.Fatal(err)
	}
	out, code = plan(ctx, t, file)
	wants(t, out, code, 2,
		`\+ A\.refunds on B `, `~ A\.orders on B +partitions 3 → 5, as orders has$`, `~ A\.orders +segment\.ms: \d+ → 60000$`,
		`~ orders +batch size \d+ → 500, group mirrorless/run-`, `- invoices +`, `\+ refunds +batches of 500`, `\+ orders +partitions 3–4$`)
	out, code = plan(ctx, t, file, "--json")
	var read struct {
		Flows []struct {
			Changes      bool
			EventSources []struct{ Action, Topic string }
			Errors       []string
		}
	}
	if err := json.Unmarshal([]byte(out), &read); err != nil || code != 2 || len(read.Flows) != 1 || !read.Flows[0].Changes || len(read.Flows[0].EventSources) != 5 || len(read.Flows[0].Errors) != 0 {
		t.Errorf("got exit code %d, %v, and %+v, want changes of five event sources", code, err, read)
	}
	running = run(t, nil, file)
	eventually(ctx, t, "a plan of nothing beside the second run", inStep)
	running.stop(t)
	out, code = plan(ctx, t, file)
	wants(t, out, code, 0, `A->B: nothing to change; 4 topics are copied to B\.$`)
}
