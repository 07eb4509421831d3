package topics_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alter sets configs of a topic, or deletes those with the value "".
func (w *world) alter(c *cluster, topic string, configs map[string]string) {
	w.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for name, value := range configs {
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Value = name, new(value)
		if value == "" {
			e.Op, e.Value = kmsg.IncrementalAlterConfigOpDelete, nil
		}
		r.Configs = append(r.Configs, e)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(w.t.Context(), c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// refuse makes a cluster refuse every change that sets one of the configs, as one
// that does not know them does. It returns what was sent.
func (c *cluster) refuse(configs ...string) *[][]string {
	var sent [][]string
	c.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.IncrementalAlterConfigsRequest)
		resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		refused := false
		for _, resource := range req.Resources {
			var names []string
			a := kmsg.NewIncrementalAlterConfigsResponseResource()
			a.ResourceType, a.ResourceName = resource.ResourceType, resource.ResourceName
			for _, e := range resource.Configs {
				names = append(names, e.Name)
				if slices.Contains(configs, e.Name) {
					refused = true
					a.ErrorCode, a.ErrorMessage = kerr.InvalidConfig.Code, new("Unknown topic config name: "+e.Name)
				}
			}
			sent = append(sent, names)
			resp.Resources = append(resp.Resources, a)
		}
		return resp, nil, refused
	})
	return &sent
}

func TestConfigSyncSendsWhatDiffersAndNothingElse(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, map[string]string{"retention.ms": "1000", "segment.ms": "2000"})
		top := w.topics()
		w.run(top)
		w.alter(w.a, "orders", map[string]string{"retention.ms": "5000", "segment.ms": "", "min.insync.replicas": "2", "max.message.bytes": "2000000"})
		w.alter(w.b, "A.orders", map[string]string{"min.insync.replicas": "1", "vendors.own": "kept"})
		sent := w.b.refuse()

		time.Sleep(5 * time.Minute)
		w.run(top)
		if len(*sent) > 0 {
			t.Errorf("got changes %q before the interval was over", *sent)
		}
		time.Sleep(5 * time.Minute)
		w.run(top)
		want := map[string]string{"retention.ms": "5000", "max.message.bytes": "2000000", "min.insync.replicas": "1", "vendors.own": "kept"}
		if diff := cmp.Diff(want, w.configs(w.b, "A.orders")); diff != "" {
			t.Errorf("configs of A.orders (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([][]string{{"max.message.bytes", "retention.ms", "segment.ms"}}, *sent); diff != "" {
			t.Errorf("configs sent (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Minute)
		w.run(top)
		if len(*sent) != 1 {
			t.Errorf("got changes %q although nothing differs", (*sent)[1:])
		}
	})
}

func TestConfigSyncThatIsOffLeavesConfigsAlone(t *testing.T) {
	in(t, "sync.topic.configs.enabled = false", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, map[string]string{"retention.ms": "1000"})
		w.create(w.b, "A.orders", 1, map[string]string{"retention.ms": "2000"})
		w.run(w.topics())
		if got := w.configs(w.b, "A.orders")["retention.ms"]; got != "2000" {
			t.Errorf("got retention.ms %s, want 2000 as it was", got)
		}
	})
}

func TestADynamicBrokerDefaultIsNoTopicConfig(t *testing.T) {
	broker := []kfake.Opt{kfake.BrokerConfigs(map[string]string{"log.retention.ms": "7000"})}
	for _, test := range []struct{ lines, want string }{
		{"", ""},
		{"mirrorless.compat = mm2", "7000"},
	} {
		inClusters(t, test.lines, broker, nil, func(t *testing.T, w *world) {
			w.create(w.a, "orders", 1, nil)
			w.run(w.topics())
			if got := w.configs(w.b, "A.orders")["log.retention.ms"]; got != test.want {
				t.Errorf("with %q: got %q on the copy, want %q", test.lines, got, test.want)
			}
		})
	}
}

func TestARejectedConfigIsToldOnceAndTheOthersAreSet(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		top := w.topics()
		w.run(top)
		w.alter(w.a, "orders", map[string]string{"retention.ms": "5000", "segment.ms": "6000", "compression.type": "zstd", "delete.retention.ms": "7000", "vendors.own": "x"})
		sent := w.b.refuse("vendors.own")
		for range 3 {
			time.Sleep(10 * time.Minute)
			w.run(top)
		}
		want := map[string]string{"retention.ms": "5000", "segment.ms": "6000", "compression.type": "zstd", "delete.retention.ms": "7000"}
		if diff := cmp.Diff(want, w.configs(w.b, "A.orders")); diff != "" {
			t.Errorf("configs of A.orders (-want +got):\n%s", diff)
		}
		if got := w.logs.take("refuses a topic config"); len(got) != 1 || !strings.Contains(got[0], "config=vendors.own value=x") {
			t.Errorf("got lines %q, want one about vendors.own", got)
		}
		if len(*sent) > 7 {
			t.Errorf("got %d requests %q, want the halves of five configs once", len(*sent), *sent)
		}

		// Something else changes, so the refused one is worth another try.
		w.alter(w.a, "orders", map[string]string{"retention.ms": "9000"})
		before := len(*sent)
		time.Sleep(10 * time.Minute)
		w.run(top)
		if got := w.configs(w.b, "A.orders")["retention.ms"]; got != "9000" || len(*sent) == before {
			t.Errorf("got retention.ms %s after %d requests, want 9000", got, len(*sent)-before)
		}
	})
}

func TestACopyIsCreatedWithoutAConfigThatTheTargetRefuses(t *testing.T) {
	refusing := func(w *world, name string) {
		w.b.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.b.KeepControl()
			req := r.(*kmsg.CreateTopicsRequest)
			resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
			refused := false
			for _, n := range req.Topics {
				a := kmsg.NewCreateTopicsResponseTopic()
				a.Topic = n.Topic
				for _, c := range n.Configs {
					if c.Name == name {
						refused = true
						a.ErrorCode, a.ErrorMessage = kerr.InvalidConfig.Code, new("Unknown topic config name: "+c.Name)
					}
				}
				resp.Topics = append(resp.Topics, a)
			}
			return resp, nil, refused
		})
	}
	configs := map[string]string{"cleanup.policy": "compact", "vendors.own": "x", "segment.ms": "6000"}
	in(t, "emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, configs)
		refusing(w, "vendors.own")
		top := w.topics()
		w.run(top)
		w.run(top)
		if diff := cmp.Diff(map[string]string{"cleanup.policy": "compact", "segment.ms": "6000"}, w.configs(w.b, "A.orders")); diff != "" {
			t.Errorf("configs of A.orders (-want +got):\n%s", diff)
		}
		if got := w.logs.take("refuses a topic config"); len(got) != 1 {
			t.Errorf("got lines %q, want one", got)
		}
	})
	in(t, "emit.heartbeats.enabled = false\ncheckpoints.topic.replication.factor = 1", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, configs)
		for _, name := range []string{"A.checkpoints.internal", "mm2-offsets.A.internal"} {
			w.create(w.b, name, 1, map[string]string{"cleanup.policy": "compact"})
		}
		refusing(w, "cleanup.policy")
		err := w.topics().Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "cleanup.policy = compact is refused") || !strings.Contains(err.Error(), "config.properties.exclude") {
			t.Errorf("got error %v, want one that says what to do", err)
		}
		if _, there := w.names(w.b)["A.orders"]; there {
			t.Error("got a copy that deletes what the source keeps")
		}
	})
}
