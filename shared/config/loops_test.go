package config_test

import (
	"strings"
	"testing"

	"mirrorless/shared/flow"
)

const identity = "replication.policy.class = " + flow.IdentityPolicyClass

func TestFlowsThatKeepNamesMayNotFormARing(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		loop  string // "" for none, else a part of the error
	}{
		"both directions, all topics":                {[]string{identity, "A->B.enabled=true", "B->A.enabled=true"}, "for example o"},
		"the same topic":                             {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "topics = orders"}, "for example orders"},
		"patterns that meet":                         {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics = a.*z", "B->A.topics = .*bz"}, "for example a"},
		"patterns that do not":                       {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics = eu-.*", "B->A.topics = us-.*"}, ""},
		"classes that do not meet":                   {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics = [a-m]+", "B->A.topics = [n-z]+"}, ""},
		"apart by exclusion":                         {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics.exclude = us-.*", "B->A.topics = us-.*"}, ""},
		"nearly apart by exclusion":                  {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics.exclude = us-.+", "B->A.topics = us-.*"}, "for example us-"},
		"only internal topics in common":             {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "topics.exclude =", "A->B.topics = __.*", "B->A.topics = .*"}, ""},
		"only heartbeats in common":                  {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics = heartbeats, a", "B->A.topics = heartbeats, b"}, ""},
		"anchors change nothing":                     {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics = ^a$", "B->A.topics = a"}, "for example a"},
		"lookahead may meet":                         {[]string{identity, "A->B.enabled=true", "B->A.enabled=true", "A->B.topics = (?=a).*", "B->A.topics = b"}, "go round"},
		"one direction":                              {[]string{identity, "A->B.enabled=true", "B->A.enabled=false"}, ""},
		"one renames":                                {[]string{"A->B." + identity, "A->B.enabled=true", "B->A.enabled=true"}, ""},
		"default policy":                             {[]string{"A->B.enabled=true", "B->A.enabled=true"}, ""},
		"default policy without alias and separator": {[]string{"source.cluster.alias =", "replication.policy.separator =", "A->B.enabled=true", "B->A.enabled=true"}, "for example o"},
		"three clusters round":                       {[]string{"C.bootstrap.servers = c:1", "clusters = A, B, C", identity, "A->B.enabled=true", "B->C.enabled=true", "C->A.enabled=true"}, "A->B and B->C and C->A"},
		"three clusters in line":                     {[]string{"C.bootstrap.servers = c:1", "clusters = A, B, C", identity, "A->B.enabled=true", "B->C.enabled=true", "A->C.enabled=true"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(c.lines...)
			found := false
			for _, f := range got.Errors {
				found = found || strings.Contains(f.Message, "go round") && strings.Contains(f.Message, c.loop)
			}
			if found != (c.loop != "") || c.loop == "" && len(got.Errors) > 0 {
				t.Errorf("want %q, got %v", c.loop, got.Errors)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		read(identity, "A->B.enabled=true", "B->A.enabled=true")
	}
}
