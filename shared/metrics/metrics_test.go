package metrics_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/metrics"
	"mirrorless/shared/mirror"
	"mirrorless/shared/topics"
)

// at is the time of all lines.
var at = time.UnixMilli(1_764_536_400_123)

// writer writes metrics of A->B at a level.
func writer(out *bytes.Buffer, of config.Metrics) *metrics.Writer {
	settings := config.Flow{Flow: flow.Flow{Source: "A", Target: "B"}, Metrics: of}
	return metrics.New(out, metrics.Options{Settings: settings, Now: func() time.Time { return at }})
}

// copied is a report of one partition.
func copied(topic string, partition int32, records int64) mirror.Copied {
	return mirror.Copied{
		TopicPartition: flow.TopicPartition{Topic: topic, Partition: partition}, Remote: "A." + topic,
		Records: records, ValueBytes: records * 10, Bytes: records * 15,
	}
}

// spread is of durations in milliseconds.
func spread(all ...time.Duration) (s mirror.Spread) {
	for _, d := range all {
		d *= time.Millisecond
		s = s.Add(mirror.Spread{Least: d, Most: d, Sum: d, N: 1})
	}
	return s
}

// document is a line as CloudWatch reads it.
type document struct {
	Names      []string           // of the dimensions
	Dimensions map[string]string  // their values
	Units      map[string]string  // of the metrics
	Values     map[string][]int64 // in thousandths
}

// what is the values of the dimensions beside source and target, in a word.
func (d document) what() string {
	var parts []string
	for _, name := range d.Names[2:] {
		parts = append(parts, d.Dimensions[name])
	}
	return strings.Join(parts, " ")
}

// read reads lines as CloudWatch's specification has them, and fails on what it
// would not take.
func read(t *testing.T, lines []byte) []document {
	t.Helper()
	var all []document
	for line := range bytes.Lines(lines) {
		if len(line) > 256<<10 || line[len(line)-1] != '\n' {
			t.Fatalf("got a line of %d bytes, %q at its end", len(line), line[len(line)-1])
		}
		var meta struct {
			AWS struct {
				Timestamp         int64
				CloudWatchMetrics []struct {
					Namespace  string
					Dimensions [][]string
					Metrics    []struct{ Name, Unit string }
				}
			} `json:"_aws"`
		}
		var members map[string]any
		if err := errors.Join(json.Unmarshal(line, &meta), json.Unmarshal(line, &members)); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if meta.AWS.Timestamp != at.UnixMilli() || len(meta.AWS.CloudWatchMetrics) != 1 || len(meta.AWS.CloudWatchMetrics[0].Dimensions) != 1 {
			t.Fatalf("got metadata %+v, want the time, and one directive with one set of dimensions", meta)
		}
		directive := meta.AWS.CloudWatchMetrics[0]
		d := document{Names: directive.Dimensions[0], Dimensions: map[string]string{}, Units: map[string]string{}, Values: map[string][]int64{}}
		if directive.Namespace != "mirrorless" || len(directive.Metrics) > 100 || len(d.Names) > 9 {
			t.Errorf("got namespace %q, %d metrics, %d dimensions", directive.Namespace, len(directive.Metrics), len(d.Names))
		}
		for _, name := range d.Names {
			value, ok := members[name].(string)
			if !ok || value == "" || len(value) > 1024 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("dimension %s is %q", name, members[name])
			}
			d.Dimensions[name] = value
		}
		for _, m := range directive.Metrics {
			if _, twice := d.Units[m.Name]; twice {
				t.Errorf("%s is there twice in %s", m.Name, line)
			}
			d.Units[m.Name] = m.Unit
			values, many := members[m.Name].([]any)
			if !many {
				values = []any{members[m.Name]}
			}
			if len(values) == 0 || len(values) > 100 {
				t.Errorf("%s has %d values, want 1 to 100", m.Name, len(values))
			}
			for _, v := range values {
				number, ok := v.(float64)
				if !ok {
					t.Fatalf("%s is %v, want a number", m.Name, members[m.Name])
				}
				d.Values[m.Name] = append(d.Values[m.Name], int64(number*1000+0.5))
			}
		}
		if want := 1 + len(d.Names) + len(d.Units); len(members) != want {
			t.Errorf("got %d members, want %d in %s", len(members), want, line)
		}
		all = append(all, d)
	}
	return all
}

// sum is the statistic Sum of a metric.
func (d document) sum(name string) int64 {
	var sum int64
	for _, v := range d.Values[name] {
		sum += v
	}
	return sum / 1000
}

func TestAnInvocationIsOneLine(t *testing.T) {
	var out bytes.Buffer
	c := copied("orders", 3, 4)
	c.Age, c.Latency = spread(995, 999, 1000, 1000), spread(1002, 1006, 1007, 1007)
	c.Found, c.Repeated, c.Holes, c.LostHeaders = 1, 2, 1, 1
	writer(&out, config.MetricsFlow).Mirrored(mirror.Report{Took: 8 * time.Millisecond, Partitions: []mirror.Copied{c}})
	const want = `{"_aws":{"Timestamp":1764536400123,"CloudWatchMetrics":[{"Namespace":"mirrorless","Dimensions":[["source","target"]],"Metrics":[` +
		`{"Name":"record-count","Unit":"Count"},{"Name":"record-rate","Unit":"Count/Second"},` +
		`{"Name":"byte-count","Unit":"Bytes"},{"Name":"byte-rate","Unit":"Bytes/Second"},{"Name":"copied-bytes","Unit":"Bytes"},` +
		`{"Name":"record-age-ms","Unit":"Milliseconds"},{"Name":"replication-latency-ms","Unit":"Milliseconds"},` +
		`{"Name":"duplicates-refused","Unit":"Count"},{"Name":"duplicates-detected","Unit":"Count"},` +
		`{"Name":"holes","Unit":"Count"},{"Name":"unmirrorable-headers","Unit":"Count"},{"Name":"dead-letters","Unit":"Count"}]}]},` +
		`"byte-count":40,"byte-rate":5000,"copied-bytes":60,"dead-letters":0,"duplicates-detected":0,"duplicates-refused":3,"holes":1,` +
		`"record-age-ms":[995,1000,999.5,999.5],"record-count":4,"record-rate":500,"replication-latency-ms":[1002,1007,1006.5,1006.5],` +
		`"source":"A","target":"B","unmirrorable-headers":1}` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	read(t, out.Bytes())
}

func TestALineIsOfTheFlowOrOfATopicOrOfAPartition(t *testing.T) {
	report := mirror.Report{Took: time.Second, Partitions: []mirror.Copied{copied("orders", 0, 5), copied("orders", 1, 7), copied("invoices", 0, 11)}}
	for of, want := range map[config.Metrics][]string{
		config.MetricsFlow:   {"source,target : 23"},
		config.MetricsTopics: {"source,target : 23", "source,target,topic A.invoices: 11", "source,target,topic A.orders: 12"},
		config.MetricsPartitions: {
			"source,target : 23",
			"source,target,topic A.invoices: 11", "source,target,topic A.orders: 12",
			"source,target,topic,partition A.invoices 0: 11", "source,target,topic,partition A.orders 0: 5", "source,target,topic,partition A.orders 1: 7",
		},
	} {
		t.Run(string(of), func(t *testing.T) {
			var out bytes.Buffer
			writer(&out, of).Mirrored(report)
			var got []string
			for _, d := range read(t, out.Bytes()) {
				got = append(got, fmt.Sprintf("%s %s: %d", strings.Join(d.Names, ","), d.what(), d.sum("record-count")))
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryMetricIsThereAtZeroAfterTheFirstCycle(t *testing.T) {
	lag := checkpoint.Lag{TopicPartition: flow.TopicPartition{Topic: "orders"}, Remote: "A.orders"}
	for name, test := range map[string]struct {
		of   config.Metrics
		lags []checkpoint.Lag
		want []string // what lines there are
	}{
		"a flow without topics":        {config.MetricsFlow, []checkpoint.Lag{}, []string{""}},
		"a flow that copies nothing":   {config.MetricsFlow, []checkpoint.Lag{lag}, []string{""}},
		"topics that nobody writes to": {config.MetricsTopics, []checkpoint.Lag{lag}, []string{"", "A.orders"}},
		"partitions":                   {config.MetricsPartitions, []checkpoint.Lag{lag}, []string{"", "A.orders", "A.orders 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := writer(&out, test.of)
			w.Checkpointed(checkpoint.Report{Lags: test.lags, Heartbeat: -1})
			w.Reconciled(topics.Report{})
			lines := map[string]map[string]string{} // units of metrics
			for _, d := range read(t, out.Bytes()) {
				units := lines[d.what()]
				if units == nil {
					units = map[string]string{}
					lines[d.what()] = units
				}
				maps.Copy(units, d.Units)
				for name, values := range d.Values {
					if !slices.Equal(values, []int64{0}) {
						t.Errorf("%s is %d, want 0", name, values)
					}
				}
			}
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(lines))); diff != "" {
				t.Errorf("what there are lines of (-want +got):\n%s", diff)
			}
			// A group's metrics come with its first checkpoint.
			for what, got := range lines {
				want := map[string]string{}
				for _, m := range metrics.Table() {
					if of := m.Of[test.of]; what == "" || len(of) > 0 && of[0] == "topic" {
						want[m.Name] = m.Unit
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("metrics of %q (-want +got):\n%s", what, diff)
				}
			}

			// From then on durations of nothing are not told.
			out.Reset()
			w.Checkpointed(checkpoint.Report{Lags: test.lags, Heartbeat: -1})
			for _, d := range read(t, out.Bytes()) {
				if got := slices.Collect(maps.Keys(d.Units)); !slices.Equal(got, []string{"offset-lag"}) {
					t.Errorf("a second cycle: got %q, want the lag alone", got)
				}
			}
		})
	}
}

func TestTheLagOfTheFlowIsASum(t *testing.T) {
	var out bytes.Buffer
	writer(&out, config.MetricsTopics).Checkpointed(checkpoint.Report{
		Lags: []checkpoint.Lag{
			{TopicPartition: flow.TopicPartition{Topic: "orders"}, Remote: "A.orders", Offsets: 3},
			{TopicPartition: flow.TopicPartition{Topic: "orders", Partition: 1}, Remote: "A.orders", Offsets: 4},
			{TopicPartition: flow.TopicPartition{Topic: "invoices"}, Remote: "A.invoices", Offsets: 5},
		},
		Heartbeat: 90 * time.Second,
	})
	got := map[string]int64{}
	for _, d := range read(t, out.Bytes()) {
		got[d.what()] = d.sum("offset-lag")
		if age, ok := d.Values["heartbeat-age-ms"]; ok != (d.what() == "") || ok && age[0] != 90_000_000 {
			t.Errorf("heartbeat age of %q: got %d", d.what(), age)
		}
	}
	if diff := cmp.Diff(map[string]int64{"": 12, "A.orders": 7, "A.invoices": 5}, got); diff != "" {
		t.Errorf("lags (-want +got):\n%s", diff)
	}
}

// MirrorMaker 2 shows one group's latency under another's name.
func TestEachGroupHasLatenciesOfItsOwn(t *testing.T) {
	var written []checkpoint.Latency
	for i, group := range []string{"billing", "shipping"} {
		for partition := range int32(2) {
			written = append(written, checkpoint.Latency{
				Group: group, TopicPartition: flow.TopicPartition{Topic: "A.orders", Partition: partition},
				Took: time.Duration(100*(i+1)+int(partition)) * time.Millisecond,
			})
		}
	}
	all := map[string][]int64{"": {100_000, 201_000, 150_500, 150_500}}
	byTopic := map[string][]int64{"billing A.orders": {100_000, 101_000}, "shipping A.orders": {200_000, 201_000}}
	byPartition := map[string][]int64{
		"billing A.orders 0": {100_000}, "billing A.orders 1": {101_000}, "shipping A.orders 0": {200_000}, "shipping A.orders 1": {201_000},
	}
	for _, of := range []config.Metrics{config.MetricsFlow, config.MetricsTopics, config.MetricsPartitions} {
		var out bytes.Buffer
		writer(&out, of).Checkpointed(checkpoint.Report{Checkpoints: written, Heartbeat: -1})
		want := maps.Clone(all)
		if of != config.MetricsFlow {
			maps.Copy(want, byTopic)
		}
		if of == config.MetricsPartitions {
			maps.Copy(want, byPartition)
		}
		got := map[string][]int64{}
		for _, d := range read(t, out.Bytes()) {
			got[d.what()] = d.Values["checkpoint-latency-ms"]
			if d.what() != "" && d.Names[2] != "group" {
				t.Errorf("got dimensions %q", d.Names)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("latencies of %s (-want +got):\n%s", of, diff)
		}
	}
}

func TestNamesOfGroupsAreMadeWhatCloudWatchTakes(t *testing.T) {
	for group, want := range map[string]string{
		"größe":                       `gr\u00f6\u00dfe`,
		strings.Repeat("g", 2000):     strings.Repeat("g", 1024),
		`{"billing":1} with spaces/*`: `{"billing":1} with spaces/*`,
	} {
		var out bytes.Buffer
		writer(&out, config.MetricsTopics).Checkpointed(checkpoint.Report{
			Checkpoints: []checkpoint.Latency{{Group: group, TopicPartition: flow.TopicPartition{Topic: "A.orders"}}}, Heartbeat: -1,
		})
		if got := read(t, out.Bytes())[1].Dimensions["group"]; got != want {
			t.Errorf("got group %q, want %q", got, want)
		}
	}
}

func TestLinesStayWithinTheLimits(t *testing.T) {
	var out bytes.Buffer
	c := copied(strings.Repeat("t", 247), 0, 1)
	c.Age = mirror.Spread{Least: 123456789 * time.Microsecond, Most: 987654321987 * time.Microsecond, Sum: 3_000_000 * time.Second, N: 10_000}
	c.Latency = c.Age
	w := writer(&out, config.MetricsPartitions)
	w.Mirrored(mirror.Report{Took: time.Second, Partitions: []mirror.Copied{c}})
	if lines := read(t, out.Bytes()); len(lines) != 3 || len(lines[0].Values["record-age-ms"]) != 100 {
		t.Errorf("got %d lines, the first with %d ages, want 3 and 100", len(lines), len(lines[0].Values["record-age-ms"]))
	}
	if longest := slices.MaxFunc(strings.Split(out.String(), "\n"), func(a, b string) int { return len(a) - len(b) }); len(longest) > 8<<10 {
		t.Errorf("got a line of %d bytes, want some thousand", len(longest))
	}
}

func TestAWriterThatFailsIsSaidOnce(t *testing.T) {
	var logged bytes.Buffer
	w := metrics.New(broken{}, metrics.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	for range 3 {
		w.Mirrored(mirror.Report{})
	}
	if got := strings.Count(logged.String(), "metrics cannot be written"); got != 1 || !strings.Contains(logged.String(), "disk full") {
		t.Errorf("got %d warnings, want one with the reason: %s", got, logged.String())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }
