package flow_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"mirrorless/shared/flow"
)

func compile(t *testing.T, patterns ...string) flow.Patterns {
	t.Helper()
	p, err := flow.CompilePatterns(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPatternsMeanWhatTheyMeanInJava asks what java.util.regex was asked.
func TestPatternsMeanWhatTheyMeanInJava(t *testing.T) {
	data, err := os.ReadFile("testdata/java.patterns.json")
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Names []string
		Rows  []struct {
			Pattern string
			Matches []string
			Error   bool
		}
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Rows {
		p, err := flow.CompilePatterns([]string{r.Pattern})
		if r.Error {
			if err == nil {
				t.Errorf("pattern %q: compiled, although Java refuses it", r.Pattern)
			} else if !strings.Contains(err.Error(), "compile pattern") {
				t.Errorf("pattern %q: the error %q does not quote it", r.Pattern, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("pattern %q: %v", r.Pattern, err)
			continue
		}
		for _, name := range s.Names {
			// Java 17 and Java 19 disagree about \b beside a letter outside ASCII.
			if strings.Contains(strings.ToLower(r.Pattern), `\b`) && strings.ContainsAny(name, "éÉ\u212a") {
				continue
			}
			got, err := p.TryMatch(name)
			if want := slices.Contains(r.Matches, name); got != want || err != nil {
				t.Errorf("pattern %q with %q: got %v (%v), want %v", r.Pattern, name, got, err, want)
			}
		}
	}
}

func TestPatternsThatGoReadsOtherwiseAreRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		`[a[b]]`:          "nested class",
		`[[:alpha:]]+`:    "nested class",
		`[a-z&&[^q]]`:     "intersection",
		`(?x)a b`:         "flag x",
		`(?m)^a$`:         "flag m",
		`(?u)É`:           "flag u",
		`(?d).`:           "flag d",
		`(?U)\w`:          "flag U",
		`\X`:              `\X`,
		`a\Gb`:            `\G`,
		`\N{LATIN}`:       `\N`,
		`\b{g}a`:          `\b{g}`,
		`[\v-x]`:          `\v`,
		`(a)(?i)\1`:       "back reference",
		`(?<=(a))b\1`:     "back reference",
		`(a\1)`:           "back reference",
		`a{2}{3}`:         "dangling {",
		`(?i)\p{Lower}`:   `\p{Lower}`,
		"a\xffb":          "UTF-8",
		`[a\Qb\E-z]`:      "quotation",
		`(?<!(?>a)b)c`:    "atomic group",
		`(?<!a?+)c`:       "lookbehind",
		`{1}`:             "dangling {",
		`orders-\d{1,3}\`: "backslash",
	} {
		_, err := flow.CompilePatterns([]string{pattern})
		pe, ok := errors.AsType[*flow.PatternError](err)
		switch {
		case !ok:
			t.Errorf("pattern %q: got error %v, want a PatternError", pattern, err)
		case pe.Pattern != pattern:
			t.Errorf("pattern %q: the error quotes %q", pattern, pe.Pattern)
		case !strings.Contains(pe.Reason, want):
			t.Errorf("pattern %q: got reason %q, want it to speak of %q", pattern, pe.Reason, want)
		}
	}
}

func TestPatternsOfAListAreOneExpression(t *testing.T) {
	for _, c := range []struct {
		list          string
		match, others []string
	}{
		{"", nil, []string{"", "a"}},
		{"  ", nil, []string{"", "a"}},
		{"a, b ,c", []string{"a", "b", "c"}, []string{"", " b", "ab"}},
		{"a,", []string{"a", ""}, []string{"b"}},
		// What a comma cut in two is whole again, as in MirrorMaker 2.
		{"(a,b)c", []string{"ac", "bc"}, []string{"a", "b", "c", "(a"}},
		{"(?i)a,b", []string{"A", "B"}, nil},
		{`\Qa,b\E`, []string{"a|b"}, []string{"a", "b"}},
	} {
		p := compile(t, flow.SplitList(c.list)...)
		for _, name := range c.match {
			if !p.Match(name) {
				t.Errorf("list %q: %q does not match", c.list, name)
			}
		}
		for _, name := range c.others {
			if p.Match(name) {
				t.Errorf("list %q: %q matches", c.list, name)
			}
		}
	}
}

func TestErrorQuotesTheOnePatternAtFault(t *testing.T) {
	_, err := flow.CompilePatterns([]string{"orders", "*.eu", "[a[b]]"})
	pe, ok := errors.AsType[*flow.PatternError](err)
	if !ok || pe.Pattern != "*.eu" {
		t.Errorf("got %v, want an error about *.eu", err)
	}
	// Each compiles alone; only together they do not.
	_, err = flow.CompilePatterns([]string{"(?<x>a)", "(?<x>b)"})
	pe, ok = errors.AsType[*flow.PatternError](err)
	if !ok || pe.Pattern != "(?<x>a)|(?<x>b)" {
		t.Errorf("got %v, want an error about both", err)
	}
}

func TestRepetitionOfAListIsExplained(t *testing.T) {
	_, err := flow.CompilePatterns(flow.SplitList(`orders-\d{1,2}`))
	if err == nil || !strings.Contains(err.Error(), "a comma separates") {
		t.Errorf("got %v, want a word about the comma", err)
	}
}

func TestLongRepetitionFallsBackToTheOtherEngine(t *testing.T) {
	p := compile(t, "a{1001}")
	if !p.Match(strings.Repeat("a", 1001)) || p.Match(strings.Repeat("a", 1000)) {
		t.Error("a{1001} does not match 1001 letters alone")
	}
}

func TestPatternThatTakesForEverIsNamed(t *testing.T) {
	name := strings.Repeat("a", 60) + "!"
	p := compile(t, "(?=(a+)+$).*")
	if _, err := p.TryMatch(name); err == nil || !strings.Contains(err.Error(), "(?=(a+)+$)") {
		t.Errorf("got error %v, want one that quotes the pattern", err)
	}
	s := selector()
	s.Topics = flow.Filter{Include: compile(t, ".*"), Exclude: p}
	if got := s.Select(name); got.Copy || got.Reason != flow.ReasonTimeout || !got.Reason.ByPolicy() {
		t.Errorf("got %+v, want %s", got, flow.ReasonTimeout)
	}
}

func FuzzPatterns(f *testing.F) {
	for _, p := range []string{".*", "[a-z&&[b]]", `(?<x>a)\k<x>`, `\Qa\E*`, `(?i:[k-\]]|\p{L})$`, "a{2,}+", `(?<!a{1,2})b`, `\x{10FFFF}`, "(((("} {
		f.Add(p, "orders")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 60 || len(name) > 12 {
			return
		}
		p, err := flow.CompilePatterns([]string{pattern})
		if err != nil {
			if _, ok := errors.AsType[*flow.PatternError](err); !ok {
				t.Fatalf("got error %v, want a PatternError", err)
			}
			return
		}
		p.Match(name)
	})
}
