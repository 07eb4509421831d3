package infra_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/metrics"
	"mirrorless/shared/topics"
)

// An alarm that waits for a name that nobody writes is silent for ever.

// written are the metrics of a flow that copies one topic and has done nothing yet,
// as "name of dimension,dimension".
func written(t *testing.T, of config.Metrics) []string {
	t.Helper()
	var lines bytes.Buffer
	w := metrics.New(&lines, metrics.Options{Settings: config.Flow{Flow: flow.Flow{Source: "A", Target: "B"}, Metrics: of}})
	w.Reconciled(topics.Report{})
	w.Checkpointed(checkpoint.Report{Lags: []checkpoint.Lag{{TopicPartition: flow.TopicPartition{Topic: "orders"}, Remote: "A.orders"}}})
	var all []string
	for line := range bytes.Lines(lines.Bytes()) {
		var document struct {
			AWS struct {
				CloudWatchMetrics []struct {
					Namespace  string
					Dimensions [][]string
					Metrics    []struct{ Name string }
				}
			} `json:"_aws"`
		}
		if err := json.Unmarshal(line, &document); err != nil {
			t.Fatal(err)
		}
		for _, d := range document.AWS.CloudWatchMetrics {
			for _, m := range d.Metrics {
				for _, names := range d.Dimensions {
					all = append(all, d.Namespace+" "+m.Name+" of "+strings.Join(names, ","))
				}
			}
		}
	}
	return all
}

// monitoring is infra/monitoring.yaml: the alarms, resource by resource, and the
// dashboard's body. What is looked for in it is on lines of its own.
func monitoring(t *testing.T) (alarms []string, dashboard string) {
	t.Helper()
	text, err := os.ReadFile("monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, resources, _ := strings.Cut(string(text), "\nResources:\n")
	for _, r := range regexp.MustCompile(`(?m)^  [A-Z]\w+:$`).Split(resources, -1) {
		switch {
		case strings.Contains(r, "Type: AWS::CloudWatch::Alarm"):
			alarms = append(alarms, r)
		case strings.Contains(r, "Type: AWS::CloudWatch::Dashboard"):
			_, dashboard, _ = strings.Cut(r, "DashboardBody: !Sub |\n")
		}
	}
	return alarms, dashboard
}

func TestEveryAlarmIsOfAMetricThatIsWritten(t *testing.T) {
	there := written(t, config.MetricsFlow)
	alarms, _ := monitoring(t)
	var got []string
	for _, alarm := range alarms {
		find := func(pattern string) string {
			m := regexp.MustCompile(pattern).FindStringSubmatch(alarm)
			if m == nil {
				t.Fatalf("an alarm has no %s:\n%s", pattern, alarm)
			}
			return m[1]
		}
		if find(`(?m)^ +Namespace: (\S+)$`) != metrics.Namespace {
			continue
		}
		var names []string
		for _, m := range regexp.MustCompile(`Name: (\w+), Value: !Ref (\w+)`).FindAllStringSubmatch(find(`(?m)^ +Dimensions: (.*)$`), -1) {
			names = append(names, m[1])
			if want := strings.ToUpper(m[1][:1]) + m[1][1:]; m[2] != want {
				t.Errorf("the dimension %s is %s, want %s", m[1], m[2], want)
			}
		}
		name := find(`(?m)^ +MetricName: (\S+)$`)
		got = append(got, name)
		if metric := metrics.Namespace + " " + name + " of " + strings.Join(names, ","); !slices.Contains(there, metric) {
			t.Errorf("an alarm waits for %s, which nobody writes; there are\n%s", metric, strings.Join(there, "\n"))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"event-sources-not-enabled", "heartbeat-age-ms", "offset-lag", "record-age-ms"}, got); diff != "" {
		t.Errorf("metrics with an alarm (-want +got):\n%s", diff)
	}
}

// Where nobody is to write its metric, such an alarm would never be at rest.
func TestAnAlarmThatRingsForWantOfDataIsThereOnlyWithItsMetric(t *testing.T) {
	alarms, _ := monitoring(t)
	found := 0
	for _, alarm := range alarms {
		if !strings.Contains(alarm, "TreatMissingData: breaching") {
			continue
		}
		found++
		if !strings.Contains(alarm, "\n    Condition: HasHeartbeatMetric\n") || !strings.Contains(alarm, "MetricName: heartbeat-age-ms") {
			t.Errorf("an alarm rings for want of data, and not by HasHeartbeatMetric:\n%s", alarm)
		}
	}
	if found != 1 {
		t.Errorf("got %d alarms that ring for want of data, want that of the heartbeat", found)
	}
}

func TestTheDashboardShowsMetricsThatAreWritten(t *testing.T) {
	there := written(t, config.MetricsTopics)
	_, body := monitoring(t)
	var dashboard struct {
		Widgets []struct{ Properties struct{ Metrics [][]any } }
	}
	if err := json.Unmarshal([]byte(body), &dashboard); err != nil {
		t.Fatal(err)
	}
	search := regexp.MustCompile(`\{([\w,]+)\} MetricName="([\w-]+)" source="\$\{Source\}" target="\$\{Target\}"`)
	shown := map[string]bool{}
	expect := func(metric, name string) {
		shown[name] = true
		if !slices.Contains(there, metric) {
			t.Errorf("the dashboard shows %s, which nobody writes; there are\n%s", metric, strings.Join(there, "\n"))
		}
	}
	for _, w := range dashboard.Widgets {
		for _, m := range w.Properties.Metrics {
			var texts []string
			for _, part := range m {
				switch part := part.(type) {
				case string:
					texts = append(texts, part)
				case map[string]any:
					expression, ok := part["expression"].(string)
					if !ok {
						continue
					}
					found := search.FindStringSubmatch(expression)
					if found == nil {
						t.Fatalf("the search %q is not understood", expression)
					}
					namespace, names, _ := strings.Cut(found[1], ",")
					expect(namespace+" "+found[2]+" of "+names, found[2])
				}
			}
			if len(texts) == 6 && texts[0] == metrics.Namespace {
				expect(texts[0]+" "+texts[1]+" of "+texts[2]+","+texts[4], texts[1])
			}
		}
	}
	// All but rates, which follow from counts, and what byte-count says in another way.
	for _, m := range metrics.Table() {
		if want := !strings.HasSuffix(m.Name, "-rate") && m.Name != "copied-bytes"; shown[m.Name] != want {
			t.Errorf("the dashboard shows %s: %t, want %t", m.Name, shown[m.Name], want)
		}
	}
}
