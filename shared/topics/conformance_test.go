package topics

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
)

// row is a question that was put to MirrorMaker 2 4.3.1, and its answer.
type row[In, Out any] struct {
	ID  string `json:"id"`
	In  In     `json:"in"`
	Out Out    `json:"out"`
}

func suite[In, Out any](t *testing.T, id string) []row[In, Out] {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", id+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Rows []row[In, Out] }
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatalf("read %s: %v", id, err)
	}
	if len(s.Rows) == 0 {
		t.Fatalf("suite %s has no rows", id)
	}
	return s.Rows
}

// settingsOf reads the flow source->target, or another pair, of a file that sets
// nothing but lines.
func settingsOf(t testing.TB, f flow.Flow, lines ...string) config.Flow {
	t.Helper()
	file := []string{
		"clusters = " + f.Source + ", " + f.Target,
		f.Source + ".bootstrap.servers = localhost:9092", f.Target + ".bootstrap.servers = localhost:9093",
		f.String() + ".enabled = true", f.Reverse().String() + ".enabled = false",
	}
	c := config.Parse("mm2.properties", []byte(strings.Join(append(file, lines...), "\n")), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	settings, ok := c.Flow(f)
	if !ok {
		t.Fatalf("no flow %s", f)
	}
	return settings
}

func rulesOf(settings config.Flow) rules {
	return rules{settings: settings, selector: settings.Selector(), stack: "test"}
}

var kafkaFlow = flow.Flow{Source: "source", Target: "target"}

func TestConfigsAreWrittenAsByMirrorMaker2(t *testing.T) {
	type in struct {
		DefaultsFrom string `json:"use.defaults.from"`
		Name, Source string
		ReadOnly     bool
		Sensitive    bool
	}
	type out struct {
		Creation bool    `json:"on_topic_creation"`
		Periodic bool    `json:"in_periodic_sync"`
		Op       *string `json:"periodic_op"`
	}
	// Deliberate: what the source's brokers have for all topics does not become
	// a config of a topic on the target.
	differ := []string{"topic_config/3", "topic_config/4", "topic_config/5", "topic_config/6"}
	for _, r := range suite[in, out](t, "topic_config") {
		source, err := kmsg.ParseConfigSource(r.In.Source)
		if err != nil { // two have another name here
			source, err = kmsg.ParseConfigSource(strings.TrimPrefix(r.In.Source, "DYNAMIC_"))
		}
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
		for _, compat := range []string{"mm2", "off"} {
			s := settingsOf(t, kafkaFlow, "source->target.use.defaults.from = "+r.In.DefaultsFrom, "mirrorless.compat = "+compat)
			rule := configRule{filter: s.ConfigFilter, compat: s.Compat}
			entries := []configEntry{{name: r.In.Name, value: "v", source: source, readOnly: r.In.ReadOnly, sensitive: r.In.Sensitive}}
			there := []configEntry{{name: r.In.Name, value: "other", source: kmsg.ConfigSourceDynamicTopicConfig}}
			var got out
			_, got.Creation = rule.atCreation(entries)[r.In.Name]
			for _, op := range rule.changes(entries, there) {
				got.Periodic, got.Op = true, new("SET")
				if op.Delete {
					got.Op = new("DELETE")
				}
			}
			want := r.Out
			if compat == "off" && slices.Contains(differ, r.ID) {
				want = out{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s with compat %s (-want +got):\n%s", r.ID, compat, diff)
			}
		}
	}
}

func TestRefreshActsAsMirrorMaker2(t *testing.T) {
	type in struct {
		Case   string
		Source []string `json:"source_now"`
		Target []string `json:"target_now"`
	}
	type out struct{ Actions []string }
	for _, r := range suite[in, out](t, "refresh") {
		o := observation{source: viewOf(t, r.In.Source), target: viewOf(t, r.In.Target), configs: map[string]described{}}
		rules := rulesOf(settingsOf(t, kafkaFlow, "replication.factor = 1"))
		for name, v := range o.source.topics {
			o.topics = append(o.topics, topic{name: name, remote: rules.selector.Remote(name), topicView: v})
			o.configs[name] = described{entries: []configEntry{{name: "cleanup.policy", value: "compact", source: kmsg.ConfigSourceDynamicTopicConfig}}}
		}
		p := rules.diff(o)
		var got []string
		for _, n := range p.Create {
			got = append(got, fmt.Sprintf("create %s partitions=%d configs={cleanup.policy=%s}", n.Name, n.Partitions, n.Configs["cleanup.policy"]))
		}
		for _, g := range p.Grow {
			got = append(got, fmt.Sprintf("increase %s to %d", g.Topic, g.To))
		}
		// There are no tasks to reconfigure.
		want := slices.DeleteFunc(slices.Clone(r.Out.Actions), func(a string) bool { return a == "requestTaskReconfiguration" })
		if diff := cmp.Diff(want, got, equateEmpty); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", r.ID, r.In.Case, diff)
		}
		if len(p.Problems) > 0 {
			t.Errorf("%s: got problems %v", r.ID, p.Problems)
		}
	}
}

var equateEmpty = cmp.Transformer("empty", func(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
})

// viewOf is a cluster of one broker with partitions such as "t-0".
func viewOf(t *testing.T, partitions []string) view {
	t.Helper()
	v := view{brokers: 1, topics: map[string]topicView{}}
	for _, tp := range partitions {
		i := strings.LastIndexByte(tp, '-')
		topic := v.topics[tp[:i]]
		topic.leaders = append(topic.leaders, 0)
		topic.id = [16]byte{1}
		v.topics[tp[:i]] = topic
	}
	return v
}

func TestInternalTopicsAreMadeAsByMirrorMaker2(t *testing.T) {
	type in struct{ Topic, Cluster string }
	type out struct {
		Partitions int32
		Policy     string `json:"cleanup.policy"`
		FactorKey  string `json:"replication_factor_key"`
		Factor     int16  `json:"default_rf"`
	}
	rules := rulesOf(settingsOf(t, kafkaFlow))
	got := map[string]out{}
	where := map[string]string{}
	for _, i := range rules.internal() {
		got[i.Name] = out{i.Partitions, i.Configs["cleanup.policy"], i.factor.Key, i.factor.Value}
		where[i.Name] = map[bool]string{true: "source", false: "target"}[i.onSource]
		if i.ReplicationFactorKey != i.factor.Key {
			t.Errorf("%s: got the factor of %s, want that of %s", i.Name, i.factor.Key, i.ReplicationFactorKey)
		}
	}
	want := map[string]out{}
	for _, r := range suite[in, out](t, "topic.internal_spec") {
		name := strings.NewReplacer("<source>", "source", "<target>", "target").Replace(r.In.Topic)
		if strings.HasPrefix(name, "mm2-configs") || strings.HasPrefix(name, "mm2-status") {
			continue // a Connect worker's; nothing of ours needs them
		}
		want[name] = r.Out
		if !strings.HasPrefix(r.In.Cluster, where[name]) {
			t.Errorf("%s: got %s on the %s, want on the %s", r.ID, name, where[name], r.In.Cluster)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("internal topics (-want +got):\n%s", diff)
	}
}

func TestAnswersToCreationAreJudgedAsByMirrorMaker2(t *testing.T) {
	type in struct{ Error string }
	codes := map[string]*kerr.Error{
		"TopicExistsException":          kerr.TopicAlreadyExists,
		"UnsupportedVersionException":   kerr.UnsupportedVersion,
		"ClusterAuthorizationException": kerr.ClusterAuthorizationFailed,
		"TopicAuthorizationException":   kerr.TopicAuthorizationFailed,
		"InvalidConfigurationException": kerr.InvalidConfig,
		"TimeoutException":              kerr.RequestTimedOut,
	}
	for _, r := range suite[in, string](t, "topic.create_errors") {
		code, ok := codes[r.In.Error]
		if !ok {
			t.Fatalf("%s: unknown %s", r.ID, r.In.Error)
		}
		assumed, failed := created(answer(code.Code, nil))
		got := "ignored"
		if failed != nil {
			got = "ConnectException"
		} else if assumed != nil {
			got = "assumed to exist"
		}
		if got != r.Out {
			t.Errorf("%s, %s: got %q, want %q", r.ID, r.In.Error, got, r.Out)
		}
	}
}

// entryJSON is an ACL in the rows.
type entryJSON struct {
	ResourceType, PatternType, Name, Principal, Host, Operation, Permission string
}

func (e entryJSON) acl(t *testing.T) ACL {
	t.Helper()
	resource, err := kmsg.ParseACLResourceType(e.ResourceType)
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := kmsg.ParseACLResourcePatternType(e.PatternType)
	if err != nil {
		t.Fatal(err)
	}
	permission, err := kmsg.ParseACLPermissionType(e.Permission)
	if err != nil {
		t.Fatal(err)
	}
	operation, err := kmsg.ParseACLOperation(e.Operation)
	if err != nil {
		operation = 15 // TWO_PHASE_COMMIT is younger than the names here
	}
	return ACL{resource, pattern, e.Name, e.Principal, e.Host, operation, permission}
}

func TestACLsAreConvertedAsByMirrorMaker2(t *testing.T) {
	type out struct {
		Synced bool
		Target entryJSON
	}
	s := settingsOf(t, kafkaFlow, "topics.exclude = excluded, mm2.*\\.internal, .*\\.replica, __.*", "mirrorless.compat = mm2")
	rule := aclRule{selector: s.Selector(), compat: true}
	safe := aclRule{selector: s.Selector()}
	for _, r := range suite[entryJSON, out](t, "acl") {
		var want []ACL
		if r.Out.Synced {
			want = []ACL{r.Out.Target.acl(t)}
		}
		if diff := cmp.Diff(want, rule.onTarget(r.In.acl(t))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.ID, diff)
		}
		for _, got := range safe.onTarget(r.In.acl(t)) {
			if !r.Out.Synced {
				t.Errorf("%s: got %s, which MirrorMaker 2 does not give", r.ID, got)
			}
			switch got.Operation {
			case kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs:
			default:
				t.Errorf("%s: got %s, want reading rights only", r.ID, got)
			}
		}
	}
}

func TestACLsOfTheDefaultModeDoNoHarm(t *testing.T) {
	s := settingsOf(t, kafkaFlow)
	rule := aclRule{selector: s.Selector()}
	identity := settingsOf(t, kafkaFlow, "replication.policy.class = "+flow.IdentityPolicyClass)
	literal := func(name, principal, operation, permission string) ACL {
		return entryJSON{"TOPIC", "LITERAL", name, principal, "*", operation, permission}.acl(t)
	}
	prefixed := func(name, principal, operation, permission string) ACL {
		return entryJSON{"TOPIC", "PREFIXED", name, principal, "*", operation, permission}.acl(t)
	}
	for _, test := range []struct {
		name string
		rule aclRule
		in   ACL
		want []ACL
	}{
		{"a right to everything becomes the right to read", rule, literal("t", "User:alice", "ALL", "ALLOW"), []ACL{literal("source.t", "User:alice", "READ", "ALLOW")}},
		{"a right to delete stays behind", rule, literal("t", "User:alice", "DELETE", "ALLOW"), nil},
		{"a right to alter stays behind", rule, literal("t", "User:alice", "ALTER", "ALLOW"), nil},
		{"a denied write stays behind", rule, literal("t", "User:alice", "WRITE", "DENY"), nil},
		{"a denied read goes along", rule, literal("t", "User:bob", "READ", "DENY"), []ACL{literal("source.t", "User:bob", "READ", "DENY")}},
		{"a denied everything denies reading", rule, literal("t", "User:bob", "ALL", "DENY"), []ACL{
			literal("source.t", "User:bob", "READ", "DENY"), literal("source.t", "User:bob", "DESCRIBE", "DENY"), literal("source.t", "User:bob", "DESCRIBE_CONFIGS", "DENY"),
		}},
		{"a denial for everybody cannot shut out who writes the copy", rule, literal("t", "User:*", "ALL", "DENY"), nil},
		{"all topics become all copies", rule, literal("*", "User:alice", "READ", "ALLOW"), []ACL{prefixed("source.", "User:alice", "READ", "ALLOW")}},
		{"all topics stay behind where copies keep their names", aclRule{selector: identity.Selector()}, literal("*", "User:alice", "READ", "ALLOW"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.rule.onTarget(test.in)); diff != "" {
				t.Errorf("entries on the target (-want +got):\n%s", diff)
			}
		})
	}
}
