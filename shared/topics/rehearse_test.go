package topics_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"mirrorless/shared/state"
	"mirrorless/shared/topics"
)

func TestARehearsalShowsWhatRunDoesAndChangesNothing(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, map[string]string{"retention.ms": "1000"})
		w.create(w.a, "grown", 3, nil)
		w.create(w.b, "A.grown", 1, map[string]string{"retention.ms": "77"})
		sources := newMappings()
		onA, onB := w.names(w.a), w.names(w.b)
		p, err := w.topics(with(sources)).Rehearse(t.Context())
		if err != nil || len(p.Problems) > 0 {
			t.Fatalf("got %v, problems %v", err, p.Problems)
		}
		got := []int{len(p.Internal), len(p.Create), len(p.Grow), len(p.Configs), len(p.Begin), len(p.EventSources), len(p.Copies)}
		if diff := cmp.Diff([]int{5, 1, 1, 1, 5, 2, 2}, got); diff != "" {
			t.Errorf("differences (-want +got):\n%s\nplan %+v", diff, p)
		}
		if _, err := w.store.Flow(t.Context()); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("got flow %v, want none stored", err)
		}
		if got := len(w.names(w.a)) - len(onA) + len(w.names(w.b)) - len(onB); got != 0 || w.names(w.b)["A.grown"] != 1 {
			t.Errorf("got %d topics made by the rehearsal, topics of B %v", got, w.names(w.b))
		}
		if got := w.configs(w.b, "A.grown")["retention.ms"]; got != "77" || len(sources.take()) > 0 {
			t.Errorf("got retention.ms %s of A.grown, and event sources, want neither changed", got)
		}
		top := w.topics(with(sources))
		w.run(top)
		w.run(top) // heartbeats of A are a topic of the source now
		if p, err = w.topics(with(sources)).Rehearse(t.Context()); err != nil || !p.Empty() || len(p.Problems)+len(p.Warnings) > 0 {
			t.Errorf("got plan %+v, %v after the rounds, want nothing to do", p, err)
		}
	})
}

// refuse answers requests of a kind that name a topic with an error.
func refuse(c *cluster, key kmsg.Key, topic string, code *kerr.Error) {
	c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: topic, Err: code, Count: -1})
}

func TestWhatTheTargetWouldRefuseIsAProblemOfThePlan(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.create(w.a, "new", 1, nil)
		w.create(w.a, "grown", 3, nil)
		w.create(w.a, "changed", 1, map[string]string{"retention.ms": "1000"})
		w.create(w.b, "A.grown", 1, nil)
		w.create(w.b, "A.changed", 1, nil)
		refuse(w.b, kmsg.CreateTopics, "A.new", kerr.TopicAuthorizationFailed)
		refuse(w.b, kmsg.CreateTopics, "mm2-offsets.A.internal", kerr.TopicAuthorizationFailed)
		refuse(w.b, kmsg.CreatePartitions, "A.grown", kerr.TopicAuthorizationFailed)
		w.b.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.b.KeepControl()
			resp := r.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
			a := kmsg.NewIncrementalAlterConfigsResponseResource()
			a.ResourceType, a.ResourceName, a.ErrorCode = kmsg.ConfigResourceTypeTopic, "A.changed", kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, a)
			return resp, nil, true
		})
		p, err := w.topics(with(newMappings())).Rehearse(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var missing []string
		for _, problem := range p.Problems {
			if right, ok := errors.AsType[*topics.RightError](problem); ok {
				missing = append(missing, right.Right+" "+right.Name)
			} else {
				t.Errorf("got problem %v, want missing rights only", problem)
			}
		}
		slices.Sort(missing)
		if diff := cmp.Diff([]string{"ALTER A.grown", "ALTER_CONFIGS A.changed", "CREATE A.new"}, missing); diff != "" {
			t.Errorf("missing rights (-want +got):\n%s", diff)
		}
		if len(p.Create) != 1 || len(p.Grow) != 0 || len(p.Configs) != 0 || len(p.Internal) != 4 {
			t.Errorf("got plan %+v, want what is refused left out", p)
		}
		begun := map[string]bool{}
		for _, tp := range p.Begin {
			begun[tp.Topic] = true
		}
		if begun["new"] || begun["grown"] || !begun["orders"] || !begun["changed"] {
			t.Errorf("got %v begun, want orders and changed", begun)
		}
		for _, c := range p.EventSources {
			if c.To.Topic == "new" || c.To.Topic == "grown" {
				t.Errorf("got event source %v, want none of a topic that cannot be copied", c)
			}
		}
		assumed := slices.ContainsFunc(p.Warnings, func(w topics.Warning) bool { return w.Topic == "mm2-offsets.A.internal" })
		if !assumed {
			t.Errorf("got warnings %v, want one of mm2-offsets.A.internal", p.Warnings)
		}
	})
}

func TestConfigsThatTheTargetWouldRefuseAreLeftOut(t *testing.T) {
	in(t, "emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		configs := map[string]string{"segment.ms": "60000", "flush.ms": "5"}
		w.create(w.a, "new", 1, configs)
		w.create(w.a, "old", 1, configs)
		w.create(w.b, "A.old", 1, nil)
		// B knows no flush.ms.
		w.b.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.b.KeepControl()
			req := r.(*kmsg.CreateTopicsRequest)
			resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
			for _, n := range req.Topics {
				a := kmsg.NewCreateTopicsResponseTopic()
				a.Topic = n.Topic
				if slices.ContainsFunc(n.Configs, func(c kmsg.CreateTopicsRequestTopicConfig) bool { return c.Name == "flush.ms" }) {
					a.ErrorCode = kerr.InvalidConfig.Code
				}
				resp.Topics = append(resp.Topics, a)
			}
			return resp, nil, true
		})
		w.b.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.b.KeepControl()
			req := r.(*kmsg.IncrementalAlterConfigsRequest)
			if !req.ValidateOnly {
				t.Errorf("got a request that changes configs: %+v", req)
			}
			resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
			for _, res := range req.Resources {
				a := kmsg.NewIncrementalAlterConfigsResponseResource()
				a.ResourceType, a.ResourceName = res.ResourceType, res.ResourceName
				if slices.ContainsFunc(res.Configs, func(c kmsg.IncrementalAlterConfigsRequestResourceConfig) bool { return c.Name == "flush.ms" }) {
					a.ErrorCode = kerr.InvalidConfig.Code
				}
				resp.Resources = append(resp.Resources, a)
			}
			return resp, nil, true
		})
		p, err := w.topics().Rehearse(t.Context())
		if err != nil || len(p.Problems) > 0 {
			t.Fatalf("got %v, problems %v", err, p.Problems)
		}
		if len(p.Create) != 1 || cmp.Diff(map[string]string{"segment.ms": "60000"}, p.Create[0].Configs) != "" {
			t.Errorf("got %+v created, want A.new with segment.ms", p.Create)
		}
		if len(p.Configs) != 1 || len(p.Configs[0].Ops) != 1 || p.Configs[0].Ops[0].Name != "segment.ms" {
			t.Errorf("got config changes %+v, want segment.ms of A.old", p.Configs)
		}
		var told []string
		for _, w := range p.Warnings {
			if strings.Contains(w.Message, "refuses a topic config") {
				told = append(told, w.Topic)
			}
		}
		slices.Sort(told)
		if diff := cmp.Diff([]string{"A.new", "A.old"}, told); diff != "" {
			t.Errorf("copies with a refused config (-want +got):\n%s", diff)
		}
	})
}

// TestMissingRightsAreTold has a user on B who may do a few things.
func TestMissingRightsAreTold(t *testing.T) {
	allow := func(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "full", "half", "none"),
		kfake.Superuser("PLAIN", "admin", "admin"),
		kfake.User("PLAIN", "u", "u",
			allow(kmsg.ACLResourceTypeTopic, "full", kmsg.ACLOperationWrite), allow(kmsg.ACLResourceTypeTopic, "full", kmsg.ACLOperationRead),
			allow(kmsg.ACLResourceTypeTopic, "half", kmsg.ACLOperationWrite), allow(kmsg.ACLResourceTypeGroup, "mine", kmsg.ACLOperationRead)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.SASL(plain.Auth{User: "u", Pass: "u"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := topics.MissingRights(t.Context(), topics.Need{
		Cluster: "B", Client: client, For: "mirror", Topics: []string{"full", "half", "none", "absent"}, Groups: []string{"mine", "other"},
		Operations: []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, right := range got {
		texts = append(texts, right.Right+" "+right.Resource+" "+right.Name)
	}
	want := []string{"READ group other", "READ topic absent", "WRITE topic absent", "READ topic half", "READ topic none", "WRITE topic none"}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("missing rights (-want +got):\n%s", diff)
	}
}
