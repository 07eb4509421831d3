package function

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"mirrorless/shared/config"
	"mirrorless/shared/metrics"
	"mirrorless/shared/state/embedded"
)

// cycle runs the scheduled functions of a flow that has nothing to copy, with more
// lines in its file, and returns the names of the metrics that they write.
func cycle(t *testing.T, lines string) []string {
	t.Helper()
	var servers []string
	for _, id := range []string{"of-A", "of-B"} {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		servers = append(servers, c.ListenAddrs()[0])
	}
	c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = "+servers[0]+"\nB.bootstrap.servers = "+servers[1]+"\nA->B.enabled = true\n"+lines), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	settings := c.Enabled()[0]
	file, err := embedded.Open(filepath.Join(t.TempDir(), "state"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	store, err := file.Store(settings.Flow)
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	p := &Parts{
		Config: c, Settings: settings, Store: store, Stack: "test", Owner: "test",
		Logger: slog.New(slog.DiscardHandler), Metrics: &written,
	}
	defer p.Close()
	for _, build := range []Build{Topics, Heartbeat, Checkpoint} {
		h, err := build(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Invoke(t.Context(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	names := map[string]bool{}
	for line := range bytes.Lines(written.Bytes()) {
		var document struct {
			AWS struct {
				CloudWatchMetrics []struct{ Metrics []struct{ Name string } }
			} `json:"_aws"`
		}
		if err := json.Unmarshal(line, &document); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		for _, m := range document.AWS.CloudWatchMetrics[0].Metrics {
			names[m.Name] = true
		}
	}
	var sorted []string
	for _, m := range metrics.Table() {
		if names[m.Name] {
			sorted = append(sorted, m.Name)
		}
	}
	if len(sorted) != len(names) {
		t.Errorf("got metrics %v, some of which the table does not have", names)
	}
	return sorted
}

func TestTheFirstCycleWritesEveryMetric(t *testing.T) {
	var want []string
	for _, m := range metrics.Table() {
		want = append(want, m.Name)
	}
	if diff := cmp.Diff(want, cycle(t, "")); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestMetricsCanBeSwitchedOff(t *testing.T) {
	if got := cycle(t, "mirrorless.metrics = off"); !slices.Equal(got, nil) {
		t.Errorf("got metrics %q, want none", got)
	}
}
