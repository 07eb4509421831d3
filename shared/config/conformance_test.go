package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
)

// rows returns the rows of a suite that was answered by the classes of
// MirrorMaker 2 4.3.1.
func rows[In, Out any](t *testing.T, id string) []struct {
	ID  string
	In  In
	Out Out
} {
	t.Helper()
	data, err := os.ReadFile("testdata/mm2/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Suites []struct {
			ID   string
			Rows json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, s := range file.Suites {
		if s.ID == id {
			var rows []struct {
				ID  string
				In  In
				Out Out
			}
			if err := json.Unmarshal(s.Rows, &rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
	}
	t.Fatalf("no suite %s", id)
	return nil
}

// parse reads a file made of properties, in the order of their keys.
func parse(properties map[string]string) *config.Config {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&b, "%s = %s\n", strings.ReplaceAll(key, " ", `\ `), strings.ReplaceAll(properties[key], `\`, `\\`))
	}
	return config.Parse("mm2.properties", []byte(b.String()), config.Sources{})
}

func TestFlowsAreThoseThatMirrorMakerStarts(t *testing.T) {
	for _, row := range rows[map[string]string, []string](t, "config.flows") {
		t.Run(row.ID, func(t *testing.T) {
			c := parse(row.In)
			// MirrorMaker 2 starts a pair that is enabled or has heartbeats to emit.
			var got []string
			for _, source := range c.Aliases() {
				for _, target := range c.Aliases() {
					f, ok := c.Flow(flow.Flow{Source: source, Target: target})
					if ok && (f.Enabled || f.EmitHeartbeats.Enabled) {
						got = append(got, f.String())
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(row.Out, got, equateEmpty); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultsAreThoseOfMirrorMaker(t *testing.T) {
	type in struct{ Definition, Key string }
	type out struct{ Default any }
	keys := map[string]config.Key{}
	for _, k := range config.Keys() {
		keys[k.Name] = k
	}
	// Connect's, or set for every flow whatever the class's default.
	except := []string{
		"enabled", "source.cluster.alias", "target.cluster.alias", "name", "config.providers", "metric.reporters",
		"tasks.max.enforce", "exactly.once.support", "offsets.storage.topic", "transaction.boundary",
		"transaction.boundary.interval.ms",
	}
	for _, row := range rows[in, out](t, "config.defaults") {
		if slices.Contains(except, row.In.Key) || strings.HasPrefix(row.In.Key, "topic.creation.") {
			continue
		}
		k, ok := keys[row.In.Key]
		if !ok {
			t.Errorf("%s: %s is in no table", row.ID, row.In.Key)
			continue
		}
		want := ""
		switch d := row.Out.Default.(type) {
		case string:
			want = d
		case []any:
			var items []string
			for _, item := range d {
				items = append(items, item.(string))
			}
			want = strings.Join(items, ", ")
		}
		if k.Default != want {
			t.Errorf("%s: default of %s: got %q want %q", row.ID, row.In.Key, k.Default, want)
		}
	}
}

// fingerprint is all that a file says about A->B.
func fingerprint(t *testing.T, c *config.Config) string {
	t.Helper()
	f, ok := c.Flow(flow.Flow{Source: "A", Target: "B"})
	if !ok {
		t.Fatal("no flow A->B")
	}
	flows := slices.DeleteFunc(viewOf(t, c).Flows, func(f map[string]any) bool { return f["source"] != "A" })
	data, err := json.Marshal([]any{
		flows, f.ConfigStorageReplicas, f.StatusStorageReplicas, f.OffsetStorageReplicas, f.ConfigPropertiesExclude,
		f.SourceClient(config.Admin), f.SourceClient(config.Consumer), f.SourceClient(config.Producer),
		f.TargetClient(config.Admin), f.TargetClient(config.Consumer), f.TargetClient(config.Producer),
		f.OffsetSyncsClient(), f.ReplicationFactor, f.CheckpointsReplicas, f.HeartbeatsReplicas, f.OffsetSyncsReplicas,
		f.Policy.OffsetSyncsTopic("X"), f.EmitOffsetSyncs, f.UseDefaultsFromSource, f.TolerateErrors,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// probe is a value of a key that differs from its default.
func probe(key string) string {
	switch key {
	case "topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude", "topics.blacklist":
		return "probe"
	case "use.defaults.from":
		return "source"
	case "offset-syncs.topic.location":
		return "target"
	case "emit.heartbeats.enabled", "emit.checkpoints.enabled", "emit.offset-syncs.enabled", "heartbeats.replication.enabled",
		"sync.topic.configs.enabled", "sync.topic.acls.enabled", "replication.policy.internal.topic.separator.enabled", "enabled":
		return "false"
	case "sync.group.offsets.enabled":
		return "true"
	case "replication.policy.class":
		return flow.IdentityPolicyClass
	case "exactly.once.source.support":
		return "enabled"
	case "errors.tolerance":
		return "all"
	case "consumer.auto.offset.reset":
		return "latest"
	case "consumer.isolation.level", "source.consumer.isolation.level":
		return "read_committed"
	case "bootstrap.servers":
		return "probe:1"
	case "security.protocol":
		return "SSL"
	}
	return "7"
}

func TestKeysActWhereMirrorMakerLetsThem(t *testing.T) {
	type in struct{ Key, Placement string }
	type out struct {
		Worker    []string `json:"worker_config_keys"`
		Connector []string `json:"connector_config_keys"`
	}
	// What has no meaning here, or another one on purpose.
	skip := []string{
		"topics.blacklist", "offset.storage.topic", // both are honoured here
		"topic.filter.class", "group.filter.class", "config.property.filter.class", "forwarding.admin.class", // only one value
		"metric.names.formats", "consumer.poll.timeout.ms", "listeners", // mean nothing here
	}
	prefixes := map[string]string{"top-level": "", "A.": "A.", "B.": "B.", "A->B.": "A->B."}
	base := map[string]string{
		"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1", "A->B.enabled": "true", "B->A.enabled": "false",
	}
	known := map[string]config.Key{}
	for _, k := range config.Keys() {
		known[k.Name] = k
	}
	tried := 0
	for _, row := range rows[in, out](t, "config.placement") {
		key := row.In.Key
		isClient := strings.Contains(key, "consumer.") || strings.Contains(key, "producer.") || strings.HasPrefix(key, "admin.") && key != "admin.timeout.ms"
		k, isOurs := known[key]
		if slices.Contains(skip, key) || !isClient && !isOurs {
			continue
		}
		with := maps.Clone(base)
		if key == "replication.policy.internal.topic.separator.enabled" {
			with["replication.policy.separator"] = "_"
		}
		if key == "target.producer.acks" {
			with["offset-syncs.topic.location"] = "target"
		}
		before := fingerprint(t, parse(with))
		with[prefixes[row.In.Placement]+key] = probe(key)
		c := parse(with)
		acts := fingerprint(t, c) != before

		want := slices.Contains(row.Out.Connector, key) && (k.Places&config.OnFlow != 0 || isClient) ||
			slices.ContainsFunc(row.Out.Connector, func(to string) bool {
				return strings.HasPrefix(to, "source.consumer.") && key != "source.consumer.isolation.level" ||
					strings.HasPrefix(to, "source.producer.") || strings.HasPrefix(to, "source.admin.") && key != "admin.timeout.ms" ||
					strings.HasPrefix(to, "target.consumer.") || strings.HasPrefix(to, "target.producer.") || strings.HasPrefix(to, "target.admin.")
			}) ||
			slices.Contains(row.Out.Worker, key) && k.Places&config.OnFlow == 0
		if strings.HasPrefix(key, "producer.override.") {
			// On a cluster it becomes a setting of a producer called override.X.
			want = row.In.Placement == "A->B."
		}
		if key == "target.producer.acks" { // of the offset syncs' producer
			want = row.In.Placement == "A->B."
		}
		if acts != want {
			t.Errorf("%s: %s at %s: acts %v want %v (connector %v, worker %v)", row.ID, key, row.In.Placement, acts, want, row.Out.Connector, row.Out.Worker)
		}
		// On A it acts for B->A.
		forReverse := row.In.Placement == "A." && k.Places&config.OnCluster != 0
		if !acts && !forReverse && !warnsOf(c.Warnings, prefixes[row.In.Placement]+key) {
			t.Errorf("%s: %s at %s does nothing, and no warning names it", row.ID, key, row.In.Placement)
		}
		tried++
	}
	if tried < 150 {
		t.Errorf("only %d placements tried", tried)
	}
}

func TestEffectiveClientsAreThoseOfMirrorMaker(t *testing.T) {
	type in struct {
		Flow       string
		Properties map[string]string
	}
	for _, row := range rows[in, map[string]any](t, "config.derived") {
		t.Run(row.ID, func(t *testing.T) {
			pair, err := flow.Parse(row.In.Flow)
			if err != nil {
				t.Fatal(err)
			}
			f, ok := parse(row.In.Properties).Flow(pair)
			if !ok {
				t.Fatalf("no flow %s", pair)
			}
			for name, got := range map[string]map[string]string{
				"effective.source_consumer":       f.SourceClient(config.Consumer),
				"effective.offset_syncs_producer": f.OffsetSyncsClient(),
				"effective.target_admin":          f.TargetClient(config.Admin),
				"effective.source_admin":          f.SourceClient(config.Admin),
			} {
				checkClient(t, name, row.Out[name].(map[string]any), got)
			}
			if got, want := f.CheckpointsTopic(), row.Out["checkpoints_topic"]; got != want {
				t.Errorf("checkpoints topic: got %q want %q", got, want)
			}
			if got, want := f.OffsetSyncsTopic(), row.Out["offset_syncs_topic"]; got != want {
				t.Errorf("offset syncs topic: got %q want %q", got, want)
			}
			worker := row.Out["worker_config"].(map[string]any)
			producer := map[string]any{}
			for key, value := range worker {
				if name, ok := strings.CutPrefix(key, "producer."); ok {
					producer[name] = value
				}
			}
			got := f.TargetClient(config.Producer)
			delete(got, "client.id")
			if diff := cmp.Diff(producer, anyMap(got)); diff != "" {
				t.Errorf("data producer (-want +got):\n%s", diff)
			}
			if got := f.PositionsTopic; got != worker["offset.storage.topic"] {
				t.Errorf("positions topic: got %q want %q", got, worker["offset.storage.topic"])
			}
		})
	}
}

// checkClient compares all but the client id, of which the part that the user
// wrote and the flow are the same.
func checkClient(t *testing.T, name string, want map[string]any, got map[string]string) {
	t.Helper()
	if w, g := idPrefix(want["client.id"].(string)), idPrefix(got["client.id"]); w != g {
		t.Errorf("%s, client.id: got %q want %q", name, g, w)
	}
	want = maps.Clone(want)
	delete(want, "client.id")
	delete(got, "client.id")
	if diff := cmp.Diff(want, anyMap(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// idPrefix drops the last two parts of a client id: connector and role.
func idPrefix(id string) string {
	parts := strings.Split(id, "|")
	return strings.Join(parts[:len(parts)-2], "|")
}

func anyMap(m map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func TestClientSettingsReachTheClientsTheyReachInMirrorMaker(t *testing.T) {
	type in struct {
		Kind       string
		Properties map[string]string
	}
	pair := flow.Flow{Source: "source1", Target: "target2"}
	for _, row := range rows[in, map[string]any](t, "config.client") {
		t.Run(row.ID, func(t *testing.T) {
			file := map[string]string{"clusters": "source1, target2"}
			for key, value := range row.In.Properties {
				if name, ok := strings.CutPrefix(key, "source.cluster."); ok {
					file["source1."+name] = value
				} else {
					file[pair.String()+"."+key] = value
				}
			}
			f, ok := parse(file).Flow(pair)
			if !ok {
				t.Fatal("no flow")
			}
			var got map[string]string
			switch kind, _, _ := strings.Cut(row.In.Kind, "("); kind {
			case "sourceConsumerConfig":
				got = f.SourceClient(config.Consumer)
			case "sourceProducerConfig":
				got = f.SourceClient(config.Producer)
			case "targetProducerConfig":
				// Of the offset syncs, that is: the data producer is the worker's.
				file[pair.String()+".offset-syncs.topic.location"] = "target"
				f, _ := parse(file).Flow(pair)
				got = f.OffsetSyncsClient()
			case "sourceAdminConfig":
				got = f.SourceClient(config.Admin)
			case "targetAdminConfig":
				got = f.TargetClient(config.Admin)
			default:
				t.Fatalf("kind %s", row.In.Kind)
			}
			checkClient(t, row.In.Kind, row.Out, got)
		})
	}
}
