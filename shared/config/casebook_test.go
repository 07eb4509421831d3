package config_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/config"
)

// caseOf is what testdata/properties/expected.json says of a file: files that
// people really have, and what MirrorMaker 2 made of them.
type caseOf struct {
	Verdict *string  // ok, error, or null where either can be defended
	Enabled []string // the flows that must be on
	MM2     struct {
		Clusters     []string
		EnabledFlows map[string]map[string]any `json:"enabled_flows"`
		Clients      map[string]struct {
			Bootstrap string  `json:"bootstrap.servers"`
			Protocol  string  `json:"security.protocol"`
			Mechanism string  `json:"sasl.mechanism"`
			Trust     string  `json:"ssl.truststore.location"`
			Endpoint  *string `json:"ssl.endpoint.identification.algorithm"`
			JAAS      struct {
				Options map[string]string
			}
		}
		TopIgnored      []string                  `json:"top_level_keys_mm2_ignores"`
		FlowIgnored     []string                  `json:"flow_keys_mm2_ignores"`
		UndeclaredPairs []string                  `json:"flow_keys_for_undeclared_pairs"`
		Older           map[string]map[string]any `json:"differs_in_mm2_3_9_1"`
	}
}

// view is the JSON form of a Config, as loosely typed as its readers have it.
type view struct {
	Clusters []map[string]any
	Flows    []map[string]any
	Warnings []config.Finding
	Errors   []config.Finding
}

func viewOf(t *testing.T, c *config.Config) view {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var v view
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func cases(t *testing.T) map[string]caseOf {
	t.Helper()
	data, err := os.ReadFile("testdata/properties/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]caseOf
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func load(t *testing.T, name string) *config.Config {
	t.Helper()
	c, err := config.Load(filepath.Join("testdata/properties", name), config.Sources{
		ReadFile: func(path string) ([]byte, error) {
			if path == "/etc/mm2-fixtures/access.properties" {
				path = "testdata/properties/access.properties.fixture"
			}
			return os.ReadFile(path)
		},
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{
				"SRC_BOOTSTRAP_SERVER": "src.example:9092", "SRC_USERNAME": "reader",
				"SRC_PASSWORD": "s3cret", "MIRROR_MM2_PASSWORD": "m2",
			}[name]
			return v, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// legacyLists are the lists that a file gives under a *.blacklist key; the
// MirrorMaker 2 that made expected.json had stopped reading those.
func legacyLists(want map[string]any, file string) map[string]any {
	lists := map[string]map[string]any{
		"04": {"topics.exclude": []any{`.*[-.]internal`, `.*.replica`, `__consumer_offsets`}},
		"09": {"topics.exclude": []any{`.*[-.]internal`, `.*.replica`, `__consumer_offsets`}},
		"13": {"topics.exclude": []any{`"*.internal`, `__.*`, `cluster1.*"`}},
		"15": {"topics.exclude": []any{`.*[-.]internal`, `.*.replica`, `__consumer_offsets`}},
		"38": {"topics.exclude": []any{`.*[-.]internal`, `.*.replica`, `__consumer_offsets`}},
	}
	maps.Copy(want, lists[file[:2]])
	return want
}

func TestFilesOfTheCaseBook(t *testing.T) {
	for name, want := range cases(t) {
		t.Run(name, func(t *testing.T) {
			c := load(t, name)
			v := viewOf(t, c)
			if want.Verdict != nil {
				if got := map[bool]string{true: "ok", false: "error"}[len(v.Errors) == 0]; got != *want.Verdict {
					t.Errorf("verdict: got %s want %s: %v", got, *want.Verdict, v.Errors)
				}
			}
			var enabled []string
			flows := map[string]map[string]any{}
			for _, f := range v.Flows {
				id := f["source"].(string) + "->" + f["target"].(string)
				flows[id] = f
				if f["enabled"] == true {
					enabled = append(enabled, id)
				}
			}
			slices.Sort(enabled)
			slices.Sort(want.Enabled)
			if diff := cmp.Diff(want.Enabled, enabled, equateEmpty); diff != "" {
				t.Errorf("enabled flows (-want +got):\n%s", diff)
			}
			for id, settings := range want.MM2.EnabledFlows {
				got := map[string]any{}
				for key, value := range flows[id] {
					if !strings.HasPrefix(key, "mirrorless.") && key != "source" && key != "target" && key != "enabled" {
						got[key] = value
					}
				}
				if diff := cmp.Diff(legacyLists(settings, name), got); diff != "" {
					t.Errorf("settings of %s (-want +got):\n%s", id, diff)
				}
			}
			checkClusters(t, want, v)
			for _, key := range slices.Concat(want.MM2.TopIgnored, want.MM2.FlowIgnored, want.MM2.UndeclaredPairs) {
				// Connect has dead letters for sinks alone.
				if honoured := strings.HasPrefix(key, "errors.deadletterqueue."); !honoured && !warnsOf(v.Warnings, key) {
					t.Errorf("MirrorMaker 2 ignores %s, and no warning names it", key)
				}
			}
		})
	}
}

var equateEmpty = cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Ignore())

func warnsOf(warnings []config.Finding, key string) bool {
	return slices.ContainsFunc(warnings, func(f config.Finding) bool {
		return f.Key == key || slices.Contains(strings.FieldsFunc(f.Message, func(r rune) bool { return r == ',' || r == ' ' }), key)
	})
}

func checkClusters(t *testing.T, want caseOf, v view) {
	t.Helper()
	// These values came through a provider, which MirrorMaker 2 had resolved later.
	resolved := strings.NewReplacer("${env:SRC_BOOTSTRAP_SERVER}", "src.example:9092", "${env:SRC_USERNAME}", "reader", "SASL_SSL://", "", " ", "")
	for _, c := range v.Clusters {
		w, ok := want.MM2.Clients[c["alias"].(string)]
		if !ok || w.Bootstrap == "" {
			continue
		}
		nullable := func(s string) any {
			if s == "" {
				return nil
			}
			return s
		}
		want := map[string]any{
			"security.protocol":       w.Protocol,
			"sasl.mechanism":          nullable(w.Mechanism),
			"sasl.username":           nullable(resolved.Replace(w.JAAS.Options["username"])),
			"ssl.truststore.location": nullable(w.Trust),
		}
		if w.Endpoint != nil {
			want["ssl.endpoint.identification.algorithm"] = *w.Endpoint
		}
		for key, value := range want {
			if diff := cmp.Diff(value, c[key]); diff != "" {
				t.Errorf("cluster %s, %s (-want +got):\n%s", c["alias"], key, diff)
			}
		}
		if servers := c["bootstrap.servers"].([]any); len(v.Errors) == 0 {
			var got []string
			for _, s := range servers {
				got = append(got, s.(string))
			}
			wanted := resolved.Replace(w.Bootstrap)
			if strings.Join(got, ",") != wanted {
				t.Errorf("servers of %s: got %v want %s", c["alias"], got, wanted)
			}
		}
	}
}
