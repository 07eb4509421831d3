package flow_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		t.Fatalf("read suite %s: %v", id, err)
	}
	if len(s.Rows) == 0 {
		t.Fatalf("suite %s has no rows", id)
	}
	return s.Rows
}

func policyOf(t *testing.T, o flow.PolicyOptions) flow.Policy {
	t.Helper()
	p, err := flow.NewPolicy(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPolicyAnswersAsKafkaDoes(t *testing.T) {
	type in struct {
		Policy    string
		Separator string
		Internal  string `json:"internal_separator_enabled"`
		Call      string
		Topic     string
	}
	type facts struct {
		TopicSource   *string `json:"topicSource"`
		UpstreamTopic *string `json:"upstreamTopic"`
		OriginalTopic string  `json:"originalTopic"`
		IsHeartbeats  bool    `json:"isHeartbeats"`
		IsCheckpoints bool    `json:"isCheckpoints"`
		IsMM2Internal bool    `json:"isMM2Internal"`
		IsInternal    bool    `json:"isInternal"`
	}
	optional := func(s string, ok bool) *string {
		if !ok {
			return nil
		}
		return &s
	}
	for _, r := range suite[in, json.RawMessage](t, "policy") {
		t.Run(r.ID, func(t *testing.T) {
			o := flow.PolicyOptions{Separator: r.In.Separator, SeparatorSet: true, InternalSeparator: r.In.Internal == "true"}
			switch r.In.Policy {
			case "default":
			case "identity(source.cluster.alias=A)":
				o.Class, o.SourceAlias = flow.IdentityPolicyClass, "A"
			case "identity(no alias)":
				o.Class = flow.IdentityPolicyClass
			default:
				t.Fatalf("unknown policy %q", r.In.Policy)
			}
			p := policyOf(t, o)
			if r.In.Call != "" {
				var want string
				if err := json.Unmarshal(r.Out, &want); err != nil {
					t.Fatal(err)
				}
				if got := call(t, p, r.In.Call); got != want {
					t.Errorf("%s: got %q, want %q", r.In.Call, got, want)
				}
				return
			}
			var want facts
			if err := json.Unmarshal(r.Out, &want); err != nil {
				t.Fatal(err)
			}
			topic := r.In.Topic
			got := facts{
				TopicSource:   optional(p.Source(topic)),
				UpstreamTopic: optional(p.Upstream(topic)),
				OriginalTopic: p.Original(topic),
				IsHeartbeats:  p.IsHeartbeats(topic),
				IsCheckpoints: p.IsCheckpoints(topic),
				IsMM2Internal: p.IsMM2Internal(topic),
				IsInternal:    p.IsInternal(topic),
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("topic %q (-want +got):\n%s", topic, diff)
			}
		})
	}
}

func call(t *testing.T, p flow.Policy, expr string) string {
	t.Helper()
	name, args, _ := strings.Cut(strings.TrimSuffix(expr, ")"), "(")
	switch name {
	case "formatRemoteTopic":
		alias, topic, _ := strings.Cut(args, ",")
		return p.Remote(alias, topic)
	case "offsetSyncsTopic":
		return p.OffsetSyncsTopic(args)
	case "checkpointsTopic":
		return p.CheckpointsTopic(args)
	case "heartbeatsTopic":
		return p.HeartbeatsTopic()
	}
	t.Fatalf("unknown call %q", expr)
	return ""
}

// list is a property of a suite; null is MirrorMaker 2's default.
func list(value *string, byDefault string) string {
	if value == nil {
		return byDefault
	}
	return *value
}

func filterOf(t *testing.T, include, exclude string) flow.Filter {
	t.Helper()
	f, err := flow.ParseFilter(include, exclude)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTopicFilterAnswersAsKafkaDoes(t *testing.T) {
	type in struct {
		Topics  *string
		Exclude *string `json:"topics.exclude"`
		Topic   string
	}
	for _, r := range suite[in, bool](t, "filter.topic") {
		f := filterOf(t, list(r.In.Topics, flow.DefaultTopics), list(r.In.Exclude, flow.DefaultTopicsExclude))
		if got := f.Match(r.In.Topic); got != r.Out {
			t.Errorf("%s: topic %q: got %v, want %v", r.ID, r.In.Topic, got, r.Out)
		}
	}
}

func TestGroupFilterAnswersAsKafkaDoes(t *testing.T) {
	type in struct {
		Groups  *string
		Exclude *string `json:"groups.exclude"`
		Group   string
	}
	for _, r := range suite[in, bool](t, "filter.group") {
		f := filterOf(t, list(r.In.Groups, flow.DefaultGroups), list(r.In.Exclude, flow.DefaultGroupsExclude))
		if got := f.Match(r.In.Group); got != r.Out {
			t.Errorf("%s: group %q: got %v, want %v", r.ID, r.In.Group, got, r.Out)
		}
	}
}

func TestConfigFilterAnswersAsKafkaDoes(t *testing.T) {
	type in struct {
		Exclude     *string `json:"config.properties.exclude"`
		UseDefaults *string `json:"use.defaults.from"`
		Property    string
	}
	type out struct {
		Replicate        *bool
		ReplicateDefault *bool `json:"should_replicate_source_default"`
	}
	for _, r := range suite[in, out](t, "filter.config_property") {
		exclude, err := flow.CompilePatterns(flow.SplitList(list(r.In.Exclude, flow.DefaultConfigPropertiesExclude)))
		if err != nil {
			t.Fatal(err)
		}
		f := flow.ConfigFilter{Exclude: exclude, DefaultsFromSource: list(r.In.UseDefaults, "target") == "source"}
		if want := r.Out.Replicate; want != nil {
			if got := f.Match(r.In.Property); got != *want {
				t.Errorf("%s: property %q: got %v, want %v", r.ID, r.In.Property, got, *want)
			}
		}
		if want := r.Out.ReplicateDefault; want != nil {
			if got := f.MatchDefault(r.In.Property); got != *want {
				t.Errorf("%s: default of %q: got %v, want %v", r.ID, r.In.Property, got, *want)
			}
		}
	}
}

func TestOddFiltersAnswerAsKafkaDoes(t *testing.T) {
	type in struct {
		Topics *string
		Topic  string
	}
	for _, r := range suite[in, bool](t, "filter.edge") {
		f, topic := flow.Filter{}, r.In.Topic
		if r.In.Topics != nil { // a duplicate in the list
			f, topic = filterOf(t, *r.In.Topics, ""), "a"
		}
		if got := f.Match(topic); got != r.Out {
			t.Errorf("%s: got %v, want %v", r.ID, got, r.Out)
		}
	}
}

// ownAlias are the rows where the default differs on purpose: MirrorMaker 2
// copies source.topic1 of the cluster "source" once more, as
// source.source.topic1, and with two deployments that call each other by the
// same alias that never ends.
func ownAlias(policy, topic string) bool {
	if !strings.HasPrefix(topic, "source.") {
		return false
	}
	return policy == "default" || strings.HasSuffix(topic, "heartbeats")
}

func TestSelectorAnswersAsKafkaDoes(t *testing.T) {
	type in struct {
		Policy     string
		Filter     string `json:"topic_filter"`
		Heartbeats bool   `json:"heartbeats.replication.enabled"`
		Source     string
		Target     string
		Topic      string
	}
	type out struct {
		Copy  bool `json:"should_replicate"`
		Cycle bool `json:"is_cycle"`
	}
	filters := map[string]flow.Filter{
		"default": filterOf(t, flow.DefaultTopics, flow.DefaultTopicsExclude),
		"all":     filterOf(t, ".*", ""),
		"none":    {},
	}
	differs := 0
	for _, r := range suite[in, out](t, "topic.should_replicate") {
		o := flow.PolicyOptions{}
		switch r.In.Policy {
		case "default":
		case "identity":
			o.Class, o.SourceAlias = flow.IdentityPolicyClass, r.In.Source
		case "identity-noalias":
			o.Class = flow.IdentityPolicyClass
		default:
			t.Fatalf("unknown policy %q", r.In.Policy)
		}
		topics, ok := filters[r.In.Filter]
		if !ok {
			t.Fatalf("unknown filter %q", r.In.Filter)
		}
		for _, compat := range []bool{true, false} {
			s := flow.Selector{
				Flow:                flow.Flow{Source: r.In.Source, Target: r.In.Target},
				Policy:              policyOf(t, o),
				Topics:              topics,
				ReplicateHeartbeats: r.In.Heartbeats,
				Aliases:             []string{r.In.Source, r.In.Target},
				Compat:              compat,
			}
			want := r.Out
			if !compat && want.Copy && ownAlias(r.In.Policy, r.In.Topic) {
				want.Copy = false
				differs++
			}
			v := s.Select(r.In.Topic)
			got := out{Copy: v.Copy, Cycle: s.IsCycle(r.In.Topic)}
			if got != want {
				t.Errorf("%s: compat %v, topic %q: got %+v (%s), want %+v", r.ID, compat, r.In.Topic, got, v.Reason, want)
			}
			if v.Copy == (v.Reason != "") {
				t.Errorf("%s: topic %q: copied %v with reason %q", r.ID, r.In.Topic, v.Copy, v.Reason)
			}
		}
	}
	if differs == 0 {
		t.Error("no row differs on purpose, although topic.should_replicate/2 should")
	}
}

func TestCheckpointTopicIsNamedAsKafkaDoes(t *testing.T) {
	type in struct{ Policy, Separator, Source, Target, Topic string }
	type out struct {
		Topic string `json:"checkpoint_topic"`
	}
	// MirrorMaker 2 strips every hop of a topic that came from the target, and
	// names topic7, which is not there: target2 has it as source6.topic7.
	onPurpose := map[string]string{"checkpoint.rename/4": "source6.topic7"}
	for _, r := range suite[in, out](t, "checkpoint.rename") {
		o := flow.PolicyOptions{Separator: r.In.Separator, SeparatorSet: true, InternalSeparator: true}
		if r.In.Policy == "identity" {
			o.Class, o.SourceAlias = flow.IdentityPolicyClass, r.In.Source
		}
		s := flow.Selector{
			Flow:    flow.Flow{Source: r.In.Source, Target: r.In.Target},
			Policy:  policyOf(t, o),
			Aliases: []string{r.In.Source, r.In.Target},
			Compat:  true,
		}
		if got := s.CheckpointTopic(r.In.Topic); got != r.Out.Topic {
			t.Errorf("%s: compat, topic %q: got %q, want %q", r.ID, r.In.Topic, got, r.Out.Topic)
		}
		s.Compat = false
		want, ok := onPurpose[r.ID]
		if !ok {
			want = r.Out.Topic
		}
		if got := s.CheckpointTopic(r.In.Topic); got != want {
			t.Errorf("%s: topic %q: got %q, want %q", r.ID, r.In.Topic, got, want)
		}
	}
}
