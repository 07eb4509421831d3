package flow_test

import (
	"errors"
	"strings"
	"testing"

	"mirrorless/shared/flow"
)

func selector() flow.Selector {
	policy, err := flow.NewPolicy(flow.PolicyOptions{SourceAlias: "A"})
	if err != nil {
		panic(err)
	}
	all, err := flow.ParseFilter(".*", "")
	if err != nil {
		panic(err)
	}
	return flow.Selector{
		Flow: flow.Flow{Source: "A", Target: "B"}, Policy: policy, Topics: all,
		ReplicateHeartbeats: true, Aliases: []string{"A", "B"},
	}
}

func TestSelectorSaysWhy(t *testing.T) {
	s := selector()
	s.Topics = filterOf(t, ".*", flow.DefaultTopicsExclude+", secret")
	for topic, want := range map[string]flow.Reason{
		"orders":                       "",
		"heartbeats":                   "",
		"C.heartbeats":                 "",
		"secret":                       flow.ReasonExcluded,
		"__consumer_offsets":           flow.ReasonExcluded,
		"mm2-offsets.A.internal":       flow.ReasonExcluded,
		".orders":                      flow.ReasonInternal,
		"A.checkpoints.internal":       flow.ReasonInternal,
		"B.orders":                     flow.ReasonCycle,
		"C.B.orders":                   flow.ReasonCycle,
		"B.heartbeats":                 flow.ReasonCycle,
		"A.orders":                     flow.ReasonOwnAlias,
		"A.heartbeats":                 flow.ReasonOwnAlias,
		"A.B.orders":                   flow.ReasonCycle,
		"AB.orders":                    "",
		"C.orders":                     "",
		"C.A.orders":                   "", // C's copy of ours, wanted or not, is C's topic
		"a.orders":                     "", // aliases are case-sensitive
		"mm2-offset-syncs.B.internal":  flow.ReasonExcluded,
		"sales.internal":               "",
		"my.checkpoints.internal":      flow.ReasonInternal,
		"B":                            "",
		"A.":                           "",
		strings.Repeat("A.", 40) + "t": flow.ReasonOwnAlias,
	} {
		got := s.Select(topic)
		if got.Reason != want || got.Copy != (want == "") {
			t.Errorf("topic %q: got %+v, want reason %q", topic, got, want)
		}
	}
	s.Topics = filterOf(t, "orders.*", "")
	if got := s.Select("sales"); got.Reason != flow.ReasonNotIncluded || got.Reason.ByPolicy() {
		t.Errorf("topic sales: got %+v, want %s", got, flow.ReasonNotIncluded)
	}
}

// The excludes are empty, and still "__" topics do not arrive: the log has to
// say that it is the policy, or people go on looking in the lists.
func TestPolicyIsBlamedWhereTheListsLetATopicThrough(t *testing.T) {
	s := selector()
	for _, topic := range []string{"__mine", ".orders", "my.checkpoints.internal", "mm2.internal", "B.orders", "A.orders"} {
		r := s.Select(topic).Reason
		if !r.ByPolicy() || !strings.Contains(r.Explain(), "policy, not a list") {
			t.Errorf("topic %q: reason %q (%s) does not blame the policy", topic, r, r.Explain())
		}
	}
	for _, topic := range []string{"sales.internal", "sales-internal"} {
		if got := s.Select(topic); !got.Copy {
			t.Errorf("topic %q: got %+v, want a copy", topic, got)
		}
	}
}

func TestOwnInternalTopicsAreNeverCopied(t *testing.T) {
	for _, separator := range []string{".", "_", "__", "-", "|", ""} {
		for _, compat := range []bool{false, true} {
			s := selector()
			s.Compat = compat
			s.Policy = policyOf(t, flow.PolicyOptions{Separator: separator, SeparatorSet: true, InternalSeparator: true})
			for _, topic := range []string{
				"mm2-offsets.A.internal", "mm2-configs.A.internal", "mm2-status.A.internal",
				"mm2-offsets.some.other.internal", "mm2-offset-syncs.B.internal", "A.checkpoints.internal",
				s.Policy.OffsetSyncsTopic("B"), s.Policy.CheckpointsTopic("A"),
			} {
				if !s.IsInternal(topic) || s.Select(topic).Copy {
					t.Errorf("separator %q: %s is not internal", separator, topic)
				}
			}
			if s.IsInternal("mm2-offsets..internal") && separator != "." && separator != "" {
				t.Errorf("separator %q: a name without an alias is internal", separator)
			}
		}
	}
}

func TestInternalTopicsTakeTheSeparatorUnlessToldOtherwise(t *testing.T) {
	with := policyOf(t, flow.PolicyOptions{Separator: "_", SeparatorSet: true, InternalSeparator: true})
	if got, want := with.CheckpointsTopic("A"), "A_checkpoints_internal"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := with.OffsetSyncsTopic("B"), "mm2-offset-syncs_B_internal"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	without := policyOf(t, flow.PolicyOptions{Separator: "_", SeparatorSet: true})
	if got, want := without.CheckpointsTopic("A"), "A.checkpoints.internal"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// The internal key alone does nothing.
	unset := policyOf(t, flow.PolicyOptions{Separator: "_", InternalSeparator: true})
	if got, want := unset.Remote("A", unset.CheckpointsTopic("A")), "A.A.checkpoints.internal"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAliasWithASeparatorCannotHideACycle(t *testing.T) {
	s := selector()
	s.Flow = flow.Flow{Source: "dc.west", Target: "dc.east"}
	s.Aliases = []string{"dc.west", "dc.east", "dc", "other"}
	for topic, want := range map[string]flow.Reason{
		"dc.east.orders":         flow.ReasonCycle,
		"other.dc.east.orders":   flow.ReasonCycle,
		"dc.west.dc.east.orders": flow.ReasonCycle,
		"dc.west.orders":         flow.ReasonOwnAlias,
		"dc.north.orders":        "",
		"dc.eastern.orders":      "",
		"unknown.dc.east.orders": flow.ReasonCycle,
	} {
		if got := s.Select(topic).Reason; got != want {
			t.Errorf("topic %q: got %q, want %q", topic, got, want)
		}
	}
	if got, want := s.CheckpointTopic("dc.east.orders"), "orders"; got != want {
		t.Errorf("checkpoint: got %q, want %q", got, want)
	}
	s.Compat = true
	if got := s.Select("dc.east.orders"); !got.Copy {
		t.Errorf("compat: got %+v, want MirrorMaker 2's copy", got)
	}
}

func TestUnderscoreSeparatorWithUnderscoreAliases(t *testing.T) {
	s := selector()
	s.Policy = policyOf(t, flow.PolicyOptions{Separator: "_", SeparatorSet: true, InternalSeparator: true})
	s.Flow = flow.Flow{Source: "us_east", Target: "us_west"}
	s.Aliases = []string{"us_east", "us_west"}
	for topic, want := range map[string]flow.Reason{
		"us_west_orders": flow.ReasonCycle,
		"us_east_orders": flow.ReasonOwnAlias,
		"us_orders":      "",
	} {
		if got := s.Select(topic).Reason; got != want {
			t.Errorf("topic %q: got %q, want %q", topic, got, want)
		}
	}
}

// Aliases of which one begins with the other make a name ambiguous at every hop.
func TestCycleSearchOfAnAmbiguousNameEnds(t *testing.T) {
	s := selector()
	s.Flow = flow.Flow{Source: "a", Target: "zzz"}
	s.Aliases = []string{"a", "a.a", "a.a.a"}
	if s.IsCycle(strings.Repeat("a.", 120) + "t") {
		t.Error("a cycle was found where none is")
	}
	if !s.IsCycle(strings.Repeat("a.", 120) + "zzz.t") {
		t.Error("the cycle was not found")
	}
}

func TestIdentityPolicyKeepsNames(t *testing.T) {
	s := selector()
	s.Policy = policyOf(t, flow.PolicyOptions{Class: flow.IdentityPolicyClass, SourceAlias: "A"})
	for _, topic := range []string{"orders", "A.orders", "B.orders"} {
		if got := s.Select(topic); !got.Copy || s.Remote(topic) != topic {
			t.Errorf("topic %q: got %+v as %q, want a copy under its own name", topic, got, s.Remote(topic))
		}
	}
	if got, want := s.Remote("heartbeats"), "A.heartbeats"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for topic, want := range map[string]flow.Reason{
		"B.heartbeats": flow.ReasonCycle, "A.heartbeats": flow.ReasonOwnAlias, "heartbeats": "",
	} {
		if got := s.Select(topic).Reason; got != want {
			t.Errorf("topic %q: got %q, want %q", topic, got, want)
		}
	}
	if !s.Policy.Identity() || selector().Policy.Identity() {
		t.Error("Identity does not tell the policies apart")
	}
}

// Two flows over two clusters, each of which selects what the other has made:
// nothing may come back, and nothing may grow a third token.
func TestTwoDirectionsSettle(t *testing.T) {
	for _, aliases := range [][2]string{{"A", "B"}, {"dc.a", "dc.b"}, {"a", "a.a"}, {"a.a", "a"}} {
		forth, back := selector(), selector()
		forth.Flow = flow.Flow{Source: aliases[0], Target: aliases[1]}
		back.Flow = forth.Flow.Reverse()
		forth.Aliases, back.Aliases = aliases[:], aliases[:]
		here := map[string]bool{"t": true, "heartbeats": true}
		there := map[string]bool{"t": true, "u": true, "heartbeats": true}
		for range 6 {
			for _, dir := range []struct {
				s        flow.Selector
				from, to map[string]bool
			}{{forth, here, there}, {back, there, here}} {
				for topic := range dir.from {
					if dir.s.Select(topic).Copy {
						dir.to[dir.s.Remote(topic)] = true
					}
				}
			}
		}
		if len(here) != 5 || len(there) != 5 {
			t.Errorf("aliases %v: got %v and %v, want five topics each", aliases, here, there)
		}
	}
}

func TestParseFlow(t *testing.T) {
	f, err := flow.Parse("us-east->dc.west")
	if want := (flow.Flow{Source: "us-east", Target: "dc.west"}); err != nil || f != want {
		t.Errorf("got %v, %v, want %v", f, err, want)
	}
	if got := f.String(); got != "us-east->dc.west" {
		t.Errorf("got %q", got)
	}
	for _, s := range []string{"", "A", "->", "A->", "->B", "A->B->C", "A -> B", "A->A"} {
		if f, err := flow.Parse(s); err == nil {
			t.Errorf("flow %q: got %v, want an error", s, f)
		}
	}
}

func TestTopicPartitionsAreOrdered(t *testing.T) {
	p := flow.TopicPartition{Topic: "orders", Partition: 3}
	if got, want := p.String(), "orders-3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, after := range []flow.TopicPartition{{Topic: "orders", Partition: 10}, {Topic: "payments"}} {
		if p.Compare(after) >= 0 || after.Compare(p) <= 0 || p.Compare(p) != 0 {
			t.Errorf("%v does not come before %v", p, after)
		}
	}
}

func TestUnknownPolicyIsNamed(t *testing.T) {
	_, err := flow.NewPolicy(flow.PolicyOptions{Class: "com.example.Mine"})
	if e, ok := errors.AsType[*flow.UnknownPolicyError](err); !ok || e.Class != "com.example.Mine" {
		t.Errorf("got %v, want an UnknownPolicyError", err)
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add("A.orders", ".", "A", true)
	f.Add("..", "", "", false)
	f.Fuzz(func(t *testing.T, topic, separator, alias string, identity bool) {
		o := flow.PolicyOptions{Separator: separator, SeparatorSet: true, SourceAlias: alias}
		if identity {
			o.Class = flow.IdentityPolicyClass
		}
		s := selector()
		s.Policy = policyOf(t, o)
		s.Flow.Source = alias
		s.Select(topic)
		p := s.Policy
		if upstream, ok := p.Upstream(topic); ok && len(upstream) > len(topic) {
			t.Errorf("upstream of %q is the longer %q", topic, upstream)
		}
		p.Original(topic)
	})
}
