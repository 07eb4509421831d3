package stories_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"mirrorless/shared/metrics"
)

// measured are the values of metrics, in the order of time, by what their
// dimensions beside the flow's say, and by name.
type measured map[string]map[string][]float64

// metricsOf reads a file of "run --metrics".
func metricsOf(t testing.TB, file string) measured {
	t.Helper()
	lines, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := measured{}
	for line := range bytes.Lines(lines) {
		var meta struct {
			AWS struct {
				CloudWatchMetrics []struct {
					Dimensions [][]string
					Metrics    []struct{ Name string }
				}
			} `json:"_aws"`
		}
		var members map[string]any
		for _, to := range []any{&meta, &members} {
			if err := json.Unmarshal(line, to); err != nil {
				t.Fatalf("%v in a line of metrics: %s", err, line)
			}
		}
		for _, d := range meta.AWS.CloudWatchMetrics {
			var of []string
			for _, name := range d.Dimensions[0][2:] {
				of = append(of, members[name].(string))
			}
			what := strings.Join(of, " ")
			if all[what] == nil {
				all[what] = map[string][]float64{}
			}
			for _, m := range d.Metrics {
				values, many := members[m.Name].([]any)
				if !many {
					values = []any{members[m.Name]}
				}
				for _, v := range values {
					all[what][m.Name] = append(all[what][m.Name], v.(float64))
				}
			}
		}
	}
	return all
}

// want compares the sum of a metric, as CloudWatch's statistic Sum.
func (m measured) want(t testing.TB, what, name string, want int) {
	t.Helper()
	var sum float64
	for _, v := range m[what][name] {
		sum += v
	}
	if sum != float64(want) {
		t.Errorf("%s of %q: got %v in all, want %d; values %v", name, what, sum, want, m[what][name])
	}
}

// wantAll wants every metric to be there for the flow.
func (m measured) wantAll(t testing.TB) {
	t.Helper()
	for _, metric := range metrics.Table() {
		if len(m[""][metric.Name]) == 0 {
			t.Errorf("%s of the flow is missing", metric.Name)
		}
	}
}
