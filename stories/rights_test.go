package stories_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/localstack/kafka"
	"mirrorless/shared/config"
	"mirrorless/shared/function"
	"mirrorless/shared/kafkaevent"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
)

// grant is one right that docs/rights.md asks for.
type grant struct {
	cluster, user string
	operation     kmsg.ACLOperation
	resource      kmsg.ACLResourceType
	pattern       kmsg.ACLResourcePatternType
	name          string
}

// String is a grant in few words, as in "A admin READ topic *".
func (g grant) String() string {
	name := g.name
	if g.pattern == kmsg.ACLResourcePatternTypePrefixed {
		name += "…"
	}
	return fmt.Sprintf("%s %s %s %s %s", g.cluster, strings.TrimPrefix(g.user, "User:mirrorless-"), g.operation, strings.ToLower(g.resource.String()), name)
}

// documented are the grants that the commands of docs/rights.md make: those that
// every flow needs, and those that transactions do.
func documented(t *testing.T) (always, transactional []grant) {
	t.Helper()
	text, err := os.ReadFile("../docs/rights.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 0 && strings.HasPrefix(fields[0], "#"):
			heading = line
		case len(fields) == 0 || fields[0] != "kafka-acls.sh":
		case strings.Contains(heading, "exactly.once"):
			transactional = append(transactional, grantsOf(t, fields[1:])...)
		default:
			always = append(always, grantsOf(t, fields[1:])...)
		}
	}
	return always, transactional
}

// grantsOf reads the options of one kafka-acls.sh.
func grantsOf(t *testing.T, options []string) []grant {
	t.Helper()
	base := grant{pattern: kmsg.ACLResourcePatternTypeLiteral}
	var operations []kmsg.ACLOperation
	var resources []grant
	for i := 0; i < len(options); i++ {
		value := func() string {
			i++
			if i >= len(options) {
				t.Fatalf("%s has no value", options[i-1])
			}
			return strings.Trim(options[i], "'")
		}
		resource := func(kind kmsg.ACLResourceType, name string) {
			resources = append(resources, grant{resource: kind, name: name})
		}
		switch option := options[i]; option {
		case "--add":
		case "--bootstrap-server":
			base.cluster, _, _ = strings.Cut(value(), ":")
		case "--allow-principal":
			base.user = value()
		case "--operation":
			operation, err := kmsg.ParseACLOperation(value())
			if err != nil {
				t.Fatal(err)
			}
			operations = append(operations, operation)
		case "--topic":
			resource(kmsg.ACLResourceTypeTopic, value())
		case "--group":
			resource(kmsg.ACLResourceTypeGroup, value())
		case "--transactional-id":
			resource(kmsg.ACLResourceTypeTransactionalId, value())
		case "--cluster":
			resource(kmsg.ACLResourceTypeCluster, "kafka-cluster")
		case "--resource-pattern-type":
			pattern, err := kmsg.ParseACLResourcePatternType(value())
			if err != nil {
				t.Fatal(err)
			}
			base.pattern = pattern
		default:
			t.Fatalf("docs/rights.md has an option %s", option)
		}
	}
	var all []grant
	for _, operation := range operations {
		for _, r := range resources {
			g := base
			g.operation, g.resource, g.name = operation, r.resource, r.name
			all = append(all, g)
		}
	}
	return all
}

// refusals are what is said without each of the grants of docs/rights.md: a part
// of a line of the functions or of plan.
var refusals = map[string]string{
	// Kafka hides what somebody may not see: see hidden.
	"A admin READ topic *":                               "",
	"A admin DESCRIBE_CONFIGS topic *":                   "grant DESCRIBE_CONFIGS on topic orders",
	"A admin CREATE topic heartbeats":                    "WARN internal topic is not visible, or cannot be created; it is assumed to exist: grant CREATE and DESCRIBE, or create it topic=heartbeats cluster=A",
	"A admin CREATE topic mm2-offset-syncs.B.internal":   "grant CREATE and DESCRIBE, or create it topic=mm2-offset-syncs.B.internal cluster=A",
	"A admin DESCRIBE group *":                           "checkpoint: read the offsets of group readers on cluster A: GROUP_AUTHORIZATION_FAILED",
	"A admin DESCRIBE cluster kafka-cluster":             "ACLs cannot be read, so none is synced: grant DESCRIBE on the cluster, or set sync.topic.acls.enabled = false cluster=A",
	"A consumer READ topic *":                            "plan: grant READ on topic orders of cluster A: the event source reads with it",
	"A consumer READ group mirrorless/…":                 "plan: grant READ on group mirrorless/story/A/B/orders of cluster A",
	"A producer WRITE topic heartbeats":                  "WARN no heartbeats of the reverse flow error=emit a heartbeat on cluster A: produce heartbeats-0: TOPIC_AUTHORIZATION_FAILED",
	"A producer WRITE topic mm2-offset-syncs.B.internal": "plan: grant WRITE on topic mm2-offset-syncs.B.internal of cluster A: checkpoint writes offset syncs",
	"B admin READ topic A.…":                             "checkpoint: commit offsets of group readers on cluster B: 1 partitions: TOPIC_AUTHORIZATION_FAILED",
	"B admin CREATE topic A.…":                           "grant CREATE on topic A.orders-",
	"B admin ALTER topic A.…":                            "topics: add partitions to A.orders: TOPIC_AUTHORIZATION_FAILED",
	"B admin ALTER_CONFIGS topic A.…":                    "grant DESCRIBE_CONFIGS on topic A.orders of cluster B", // which ALTER_CONFIGS implies
	"B admin WRITE topic A.checkpoints.internal":         "checkpoint: write checkpoints on cluster B: produce A.checkpoints.internal-0: TOPIC_AUTHORIZATION_FAILED",
	"B admin CREATE topic mm2-offsets.A.internal":        "grant CREATE and DESCRIBE, or create it topic=mm2-offsets.A.internal cluster=B",
	"B admin WRITE topic mm2-offsets.A.internal":         "plan: grant WRITE on topic mm2-offsets.A.internal of cluster B: checkpoint writes there",
	"B admin CREATE topic heartbeats":                    "grant CREATE and DESCRIBE, or create it topic=heartbeats cluster=B",
	"B admin DESCRIBE topic heartbeats":                  "grant CREATE and DESCRIBE, or create it topic=heartbeats cluster=B",
	"B admin READ group *":                               "checkpoint: describe groups of cluster B: GROUP_AUTHORIZATION_FAILED",
	"B admin ALTER cluster kafka-cluster":                "ACLs cannot be read, so none is synced: grant DESCRIBE on the cluster, or set sync.topic.acls.enabled = false cluster=B",
	"B producer READ topic A.…":                          "mirror: copy orders-0 at offset",
	"B producer WRITE topic A.…":                         "grant WRITE on topic A.orders of cluster B to the user of its producer",
	"B producer WRITE topic heartbeats":                  "heartbeat: emit a heartbeat on cluster B: produce heartbeats-0: TOPIC_AUTHORIZATION_FAILED",
	"B producer WRITE transactional_id mirrorless/…":     "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
	"B producer READ topic mm2-offsets.A.internal":       rare,
	"B producer WRITE topic mm2-offsets.A.internal":      "TOPIC_AUTHORIZATION_FAILED",
}

// rare is of a right for what cannot be had here: mirror reads the position record
// where A shows other records than those that were copied.
const rare = "rare"

// guarded is a flow between two clusters that refuse what nobody has granted.
type guarded struct {
	onA, onB *kgo.Client // of those who may do everything
	settings config.Config
	store    state.Store
	rounds   int
}

// TestEachRightIsNeededAndNoMore grants what docs/rights.md says, and then takes
// one right after the other away.
func TestEachRightIsNeededAndNoMore(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	const plain = "org.apache.kafka.common.security.plain.PlainLoginModule required "
	options := kafka.Options{Listeners: map[string]string{"LOGIN": "SASL_PLAINTEXT"}, Properties: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
		"listener.name.login.sasl.enabled.mechanisms": "PLAIN",
		"listener.name.login.plain.sasl.jaas.config":  plain + `user_mirrorless-admin="a" user_mirrorless-consumer="c" user_mirrorless-producer="p";`,
	}}
	a, b := startBoth(t, options, options)
	g := &guarded{onA: connect(t, a, kgo.RecordPartitioner(kgo.ManualPartitioner())), onB: connect(t, b)}
	lines := []string{
		"clusters = A, B", "A.bootstrap.servers = " + a.Listener("LOGIN"), "B.bootstrap.servers = " + b.Listener("LOGIN"),
		"security.protocol = SASL_PLAINTEXT", "sasl.mechanism = PLAIN",
		"A->B.enabled = true", "B->A.enabled = false", "topics = orders.*", "sync.group.offsets.enabled = true",
		"replication.factor = 1", "offset-syncs.topic.replication.factor = 1", "checkpoints.topic.replication.factor = 1",
		"heartbeats.topic.replication.factor = 1", "offset.storage.replication.factor = 1",
	}
	for place, user := range map[string]string{"": "admin", ".admin": "admin", ".consumer": "consumer", ".producer": "producer"} {
		jaas := fmt.Sprintf(`%s.sasl.jaas.config = %susername="mirrorless-%s" password="%c";`, place, plain, user, user[0])
		lines = append(lines, "A"+jaas, "B"+jaas)
	}
	create(ctx, t, g.onA, 1, nil, "orders")
	g.load(t, properties(t, a, b, lines...))
	always, transactional := documented(t)
	g.change(ctx, t, true, always...)
	g.works(ctx, t)

	tried := map[string]bool{}
	try := func(grants []grant) {
		for _, without := range grants {
			tried[without.String()] = true
			t.Run(without.String(), func(t *testing.T) { g.refused(ctx, t, without) })
		}
		g.works(ctx, t)
	}
	try(always)
	t.Run("copies are taken over with Read", func(t *testing.T) { g.takesOver(ctx, t) })
	g.load(t, properties(t, a, b, append(lines, "B.exactly.once.source.support = enabled")...))
	g.change(ctx, t, true, transactional...)
	g.works(ctx, t)
	try(transactional)
	for name := range refusals {
		if !tried[name] {
			t.Errorf("docs/rights.md does not grant %s", name)
		}
	}
}

// load begins with a file and no state.
func (g *guarded) load(t *testing.T, file string) {
	t.Helper()
	c := loaded(t, file)
	kept, err := embedded.Open(filepath.Join(t.TempDir(), "state"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	g.settings = *c
	if g.store, err = kept.Store(c.Flows[0].Flow); err != nil {
		t.Fatal(err)
	}
}

// works wants everything to be done, and nothing to be said.
func (g *guarded) works(ctx context.Context, t *testing.T) {
	t.Helper()
	said := g.round(ctx, t)
	for range 4 { // brokers need a moment for a first group or transaction
		if said == "" {
			return
		}
		said = g.round(ctx, t)
	}
	t.Fatalf("with every right it is said:\n%s", said)
}

// refused wants what is missing to be said.
func (g *guarded) refused(ctx context.Context, t *testing.T, without grant) {
	want, known := refusals[without.String()]
	if !known {
		t.Errorf("nothing is known to need %s", without)
	}
	if want == rare {
		t.Skip("is needed in a case that is not shown here")
	}
	client := map[string]*kgo.Client{"A": g.onA, "B": g.onB}[without.cluster]
	if without.operation == kmsg.ACLOperationCreate && without.pattern == kmsg.ACLResourcePatternTypeLiteral {
		if _, err := kadm.NewClient(client).DeleteTopic(ctx, without.name); err != nil {
			t.Fatal(err)
		}
	}
	g.change(ctx, t, false, without)
	defer g.change(ctx, t, true, without)
	said := g.round(ctx, t)
	if want == "" { // hidden
		if last := fmt.Sprintf("A.orders-%d", g.rounds); exists(ctx, t, g.onB, last) {
			t.Errorf("%s is there, want it not to be seen", last)
		}
		return
	}
	found := ""
	for line := range strings.Lines(said) {
		if strings.Contains(line, want) {
			found = strings.TrimSpace(line)
		}
	}
	if found == "" {
		t.Errorf("got %q, want %q", said, want)
	}
	t.Log(found)
}

// takesOver loses the state, so that only Read on both clusters shows how far the
// copies are.
func (g *guarded) takesOver(ctx context.Context, t *testing.T) {
	read := grant{"A", "User:mirrorless-admin", kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, "*"}
	describe := read
	describe.operation = kmsg.ACLOperationDescribe
	said := func(want string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "state")
		kept, err := embedded.Open(file, embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		before := g.store
		defer func() { g.store = before }()
		if g.store, err = kept.Store(g.settings.Flows[0].Flow); err != nil {
			t.Fatal(err)
		}
		logs := new(lockedBuffer)
		parts := g.parts(logs)
		defer parts.Close()
		g.invoke(ctx, parts, logs, "topics", function.Topics, []byte("{}"))
		if got := logs.String(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	said("copy is taken over")
	g.change(ctx, t, true, describe)
	g.change(ctx, t, false, read)
	defer g.change(ctx, t, true, read)
	defer g.change(ctx, t, false, describe)
	said("copy holds records that the state knows nothing of")
}

// change grants rights, or takes them away.
func (g *guarded) change(ctx context.Context, t *testing.T, give bool, grants ...grant) {
	t.Helper()
	for _, x := range grants {
		adm := kadm.NewClient(map[string]*kgo.Client{"A": g.onA, "B": g.onB}[x.cluster])
		acl := kadm.NewACLs().Allow(x.user).AllowHosts("*").Operations(x.operation).ResourcePatternType(x.pattern)
		switch x.resource {
		case kmsg.ACLResourceTypeTopic:
			acl.Topics(x.name)
		case kmsg.ACLResourceTypeGroup:
			acl.Groups(x.name)
		case kmsg.ACLResourceTypeTransactionalId:
			acl.TransactionalIDs(x.name)
		case kmsg.ACLResourceTypeCluster:
			acl.Clusters()
		}
		var err error
		if give {
			var results kadm.CreateACLsResults
			results, err = adm.CreateACLs(ctx, acl)
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
		} else {
			var results kadm.DeleteACLsResults
			if results, err = adm.DeleteACLs(ctx, acl); err == nil && (len(results) != 1 || len(results[0].Deleted) != 1) {
				err = fmt.Errorf("got %+v, want one deleted", results)
			}
		}
		if err != nil {
			t.Fatalf("change %s: %v", x, err)
		}
	}
}

// round makes work for every function, plans, runs each function once as if it
// were new, and returns what they say.
func (g *guarded) round(ctx context.Context, t *testing.T) string {
	t.Helper()
	g.rounds++
	adm := kadm.NewClient(g.onA)
	create(ctx, t, g.onA, 1, nil, fmt.Sprintf("orders-%d", g.rounds))
	if _, err := adm.CreatePartitions(ctx, 1, "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: new(fmt.Sprint(1_000_000 + g.rounds))}}, "orders"); err != nil {
		t.Fatal(err)
	}
	alice := kadm.NewACLs().Topics("orders").Allow(fmt.Sprintf("User:alice-%d", g.rounds)).AllowHosts().Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := adm.CreateACLs(ctx, alice); err != nil {
		t.Fatal(err)
	}
	records := numbered("orders", "value-%d", 0, 2)
	results := g.onA.ProduceSync(ctx, records...) // to partition 0
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	last := results[1].Record
	var readers kadm.Offsets
	readers.AddOffset("orders", 0, last.Offset, -1)
	if err := adm.CommitAllOffsets(ctx, "readers", readers); err != nil {
		t.Fatal(err)
	}
	said := g.plan(ctx, t)

	logs := new(lockedBuffer)
	parts := g.parts(logs)
	defer parts.Close()
	g.invoke(ctx, parts, logs, "topics", function.Topics, []byte("{}"))
	// It lacks the first of the two records, which mirror reads from A.
	g.invoke(ctx, parts, logs, "mirror", function.Mirror, kafkaevent.Encode(kafkaevent.Event{
		Source: "SelfManagedKafka", BootstrapServers: "a", Records: []kafkaevent.Record{{
			Topic: "orders", Offset: last.Offset, Timestamp: last.Timestamp.UnixMilli(), TimestampType: "CREATE_TIME", Key: last.Key, Value: last.Value,
		}},
	}))
	var both sync.WaitGroup
	both.Go(func() { g.invoke(ctx, parts, logs, "heartbeat", function.Heartbeat, []byte("{}")) })
	both.Go(func() { g.invoke(ctx, parts, logs, "checkpoint", function.Checkpoint, []byte("{}")) })
	both.Wait()
	return said + logs.String()
}

// invoke runs a function once. Its error goes to the logs, by line.
func (g *guarded) invoke(ctx context.Context, parts *function.Parts, logs *lockedBuffer, name string, build function.Build, payload []byte) {
	handler, err := build(parts)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		_, err = handler.Invoke(ctx, payload)
	}
	if err != nil {
		fmt.Fprintln(logs, name+": "+strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
	}
}

// plan returns the problems and warnings of a plan.
func (g *guarded) plan(ctx context.Context, t *testing.T) (said string) {
	t.Helper()
	parts := g.parts(new(lockedBuffer))
	defer parts.Close()
	p, err := function.Plan(ctx, parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range p.Problems {
		said += "plan: " + problem.Error() + "\n"
	}
	for _, w := range p.Warnings {
		said += "plan: " + w.Message + "\n"
	}
	return said
}

// parts are what the functions of the flow are made of; their warnings are lines
// of the message and its attributes.
func (g *guarded) parts(logs *lockedBuffer) *function.Parts {
	return &function.Parts{
		Config: &g.settings, Settings: g.settings.Flows[0], Store: g.store, Stack: "story", Owner: "story",
		Logger: slog.New(plainHandler{logs}),
	}
}

// plainHandler writes warnings without quotation marks.
type plainHandler struct{ to *lockedBuffer }

func (h plainHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h plainHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h plainHandler) WithGroup(string) slog.Handler                { return h }

func (h plainHandler) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	_, err := fmt.Fprintln(h.to, line)
	return err
}
