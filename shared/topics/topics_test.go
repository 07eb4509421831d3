package topics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/state"
	"mirrorless/shared/topics"
)

func TestAFirstRoundMakesEverythingAndASecondOneNothing(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 3, map[string]string{"cleanup.policy": "compact", "retention.ms": "3600000", "min.insync.replicas": "2"})
		w.create(w.a, "heartbeats", 1, map[string]string{"cleanup.policy": "compact"})
		w.create(w.a, "__hidden", 1, nil)
		w.produce(w.a, "orders", 1, 7)
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)

		want := map[string]int{
			"A.orders": 3, "A.heartbeats": 1, "A.checkpoints.internal": 1, "heartbeats": 1, "mm2-offsets.A.internal": 25,
		}
		if diff := cmp.Diff(want, w.names(w.b)); diff != "" {
			t.Errorf("topics of B (-want +got):\n%s", diff)
		}
		want = map[string]int{"orders": 3, "heartbeats": 1, "__hidden": 1, "mm2-offset-syncs.B.internal": 1}
		if diff := cmp.Diff(want, w.names(w.a)); diff != "" {
			t.Errorf("topics of A (-want +got):\n%s", diff)
		}
		// min.insync.replicas is excluded by default.
		if diff := cmp.Diff(map[string]string{"cleanup.policy": "compact", "retention.ms": "3600000"}, w.configs(w.b, "A.orders")); diff != "" {
			t.Errorf("configs of A.orders (-want +got):\n%s", diff)
		}
		for name, c := range map[string]*cluster{"A.checkpoints.internal": w.b, "heartbeats": w.b, "mm2-offsets.A.internal": w.b, "mm2-offset-syncs.B.internal": w.a} {
			if got := w.configs(c, name)["cleanup.policy"]; got != "compact" {
				t.Errorf("got cleanup.policy %q of %s, want compact", got, name)
			}
		}
		row, err := w.store.Flow(t.Context())
		if err != nil || row.ProducerID < 0 || row.SourceClusterID != "id-of-A" || row.TargetClusterID != "id-of-B" || row.Created.Before(w.start) {
			t.Errorf("got flow %+v, %v", row, err)
		}
		source, target := w.a.TopicInfo("orders").TopicID, w.b.TopicInfo("A.orders").TopicID
		for n := range int32(3) {
			got, ok := w.position("orders", n)
			want := state.Position{Version: 1, ProducerID: row.ProducerID, SourceTopicID: source, TargetTopicID: target}
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Errorf("position of orders-%d (-want +got):\n%s", n, diff)
			}
		}
		if diff := cmp.Diff([]string{"create heartbeats", "create orders"}, sources.take()); diff != "" {
			t.Errorf("event sources (-want +got):\n%s", diff)
		}

		w.logs.take("")
		onA, onB := w.a.changes(), w.b.changes()
		before := w.rows()
		for _, top := range []*topics.Topics{top, w.topics(with(sources))} {
			time.Sleep(10 * time.Minute)
			w.run(top)
			if got := w.logs.take(""); len(got) > 0 {
				t.Errorf("got log lines %q of a round with nothing to do", got)
			}
		}
		if onA.Hits()+onB.Hits() > 0 || len(sources.take()) > 0 {
			t.Errorf("got %d requests to A, %d to B, want no change", onA.Hits(), onB.Hits())
		}
		if diff := cmp.Diff(before, w.rows()); diff != "" {
			t.Errorf("state changed in a round with nothing to do (-before +after):\n%s", diff)
		}
	})
}

// rows is what the store holds, with the versions that a write would raise.
func (w *world) rows() map[string]any {
	w.t.Helper()
	row, err := w.store.Flow(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	sources, err := w.store.EventSources(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string]any{"flow": row, "sources": sources}
}

func TestPlanShowsWhatRunDoes(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, nil)
		top := w.topics(with(newMappings()))
		onA, onB := w.a.changes(), w.b.changes()
		p, err := top.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Create) != 1 || p.Create[0].Name != "A.orders" || p.Create[0].Partitions != 2 || len(p.Begin) != 2 || len(p.EventSources) != 1 || p.Empty() {
			t.Errorf("got plan %+v", p)
		}
		if _, err := w.store.Flow(t.Context()); !errors.Is(err, state.ErrNotFound) || onA.Hits()+onB.Hits() > 0 {
			t.Errorf("got a plan that changes something: flow %v, %d requests", err, onA.Hits()+onB.Hits())
		}
		w.run(top)
		if p, err = top.Plan(t.Context()); err != nil || !p.Empty() {
			t.Errorf("got plan %+v, %v after the round, want nothing to do", p, err)
		}
	})
}

func TestConfigsTravelInTheCreateRequest(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, map[string]string{"cleanup.policy": "compact"})
		var policy string
		w.b.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.b.KeepControl()
			for _, n := range r.(*kmsg.CreateTopicsRequest).Topics {
				for _, c := range n.Configs {
					if n.Topic == "A.orders" && c.Name == "cleanup.policy" {
						policy = *c.Value
					}
				}
			}
			return nil, nil, false
		})
		w.run(w.topics())
		if policy != "compact" {
			t.Errorf("got cleanup.policy %q in the create request, want compact", policy)
		}
	})
}

func TestPartitionsAreAddedAndBeginAtTheirStart(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 3, nil)
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)
		if _, err := w.a.admin.UpdatePartitions(t.Context(), 6, "orders"); err != nil {
			t.Fatal(err)
		}
		w.produce(w.a, "orders", 5, 4)
		w.run(top)
		if got := w.names(w.b)["A.orders"]; got != 6 {
			t.Errorf("got %d partitions of A.orders, want 6", got)
		}
		if got := w.upstream("orders", 5); got != 0 {
			t.Errorf("got orders-5 beginning at %d, want 0", got)
		}
		if row, err := w.store.EventSource(t.Context(), "orders"); err != nil || row.Partitions != 6 {
			t.Errorf("got row %+v, %v, want 6 partitions", row, err)
		}
	})
}

func TestACopyWithMorePartitionsIsToldOnce(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 2, nil)
		w.create(w.b, "A.orders", 5, nil)
		top := w.topics()
		w.run(top)
		w.run(top)
		if got := w.logs.take("more partitions than its source"); len(got) != 1 {
			t.Errorf("got lines %q, want one", got)
		}
		if got := w.names(w.b)["A.orders"]; got != 5 {
			t.Errorf("got %d partitions, want 5 still", got)
		}
	})
}

func TestADefaultReplicationFactorGivesWay(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		top := w.topics()
		w.run(top)
		w.create(w.a, "invoices", 1, nil)
		w.run(top)
		if got := w.logs.take("key=replication.factor "); len(got) != 1 || !strings.Contains(got[0], "default=2 brokers=1") {
			t.Errorf("got lines %q, want one about the default of 2", got)
		}
		if got := w.names(w.b)["A.invoices"]; got != 1 {
			t.Errorf("got %d partitions of A.invoices, want 1", got)
		}
	})
}

func TestAWrittenReplicationFactorIsKept(t *testing.T) {
	in(t, "replication.factor = 3\nB->A.emit.heartbeats.enabled = false\noffset.storage.replication.factor = 1\nemit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.create(w.b, "A.orders", 1, nil)
		w.create(w.a, "invoices", 1, nil)
		sources := newMappings()
		top := w.topics(with(sources))
		err := top.Run(t.Context())
		factor, ok := errors.AsType[*topics.FactorError](err)
		if !ok || factor.Factor != 3 || factor.Brokers != 1 || !strings.Contains(err.Error(), "A.invoices on cluster B: replication.factor = 3 is more than its only broker") {
			t.Fatalf("got error %v, want the factor and the brokers", err)
		}
		// What exists is not held up.
		if _, ok := w.position("orders", 0); !ok {
			t.Errorf("got no position of orders-0")
		}
		if diff := cmp.Diff([]string{"create orders"}, sources.take()); diff != "" {
			t.Errorf("event sources (-want +got):\n%s", diff)
		}
		for _, port := range []int{9093, 9094} {
			if _, _, err := w.b.AddNode(-1, port); err != nil {
				t.Fatal(err)
			}
		}
		w.run(top)
		if got := w.b.TopicInfo("A.invoices").NumReplicas; got != 3 {
			t.Errorf("got %d replicas once there are brokers, want 3", got)
		}
	})
}

func TestTopicsSkippedByThePolicyAreToldOnce(t *testing.T) {
	in(t, "topics.exclude = secret", func(t *testing.T, w *world) {
		for _, name := range []string{"__mine", "B.orders", "A.orders", "secret", "orders"} {
			w.create(w.a, name, 1, nil)
		}
		top := w.topics()
		w.run(top)
		w.create(w.a, "late.checkpoints.internal", 1, nil)
		w.run(top)
		var got []string
		for _, line := range w.logs.take("topic is not copied") {
			got = append(got, strings.Join(strings.Fields(line)[5:7], " "))
		}
		want := []string{
			"topic=A.orders reason=own-alias", "topic=B.orders reason=cycle", "topic=__mine reason=internal",
			"topic=late.checkpoints.internal reason=internal",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("skipped topics (-want +got):\n%s", diff)
		}
	})
}

func TestVendorsLimitOfTopicsInARequestIsLearned(t *testing.T) {
	in(t, "B->A.emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		for n := range 12 {
			w.create(w.a, fmt.Sprintf("t%03d", n), 1, nil)
		}
		var sizes []int
		w.b.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.b.KeepControl()
			req := r.(*kmsg.CreateTopicsRequest)
			sizes = append(sizes, len(req.Topics))
			if len(req.Topics) <= 5 {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
			for _, n := range req.Topics {
				a := kmsg.NewCreateTopicsResponseTopic()
				a.Topic, a.ErrorCode = n.Topic, kerr.InvalidRequest.Code
				a.ErrorMessage = new("Request cannot contain more than 5 topics.")
				resp.Topics = append(resp.Topics, a)
			}
			return resp, nil, true
		})
		w.run(w.topics())
		if diff := cmp.Diff([]int{3, 12, 5, 5, 2}, sizes); diff != "" {
			t.Errorf("topics in requests, internal ones first (-want +got):\n%s", diff)
		}
		if got := len(w.names(w.b)); got != 12+3 {
			t.Errorf("got %d topics on B, want 15", got)
		}
	})
}

func TestAThrottledCreationGoesOnAtTheNextRound(t *testing.T) {
	in(t, "emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		for n := range 4 {
			w.create(w.a, fmt.Sprintf("t%d", n), 1, nil)
		}
		for _, name := range []string{"A.t2", "A.t3"} {
			w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: name, Err: kerr.ThrottlingQuotaExceeded})
		}
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)
		if got := w.logs.take("throttles"); len(got) != 1 {
			t.Errorf("got lines %q, want one", got)
		}
		if diff := cmp.Diff([]string{"create t0", "create t1"}, sources.take()); diff != "" {
			t.Errorf("event sources of the first round (-want +got):\n%s", diff)
		}
		w.run(top)
		if diff := cmp.Diff([]string{"create t2", "create t3"}, sources.take()); diff != "" {
			t.Errorf("event sources of the second round (-want +got):\n%s", diff)
		}
	})
}

func TestOneTopicsErrorDoesNotStopTheOthers(t *testing.T) {
	in(t, "B->A.emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b", "c", "d"} {
			w.create(w.a, name, 1, nil)
		}
		w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "A.a", Err: kerr.TopicAuthorizationFailed})
		w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "b", Err: kerr.TopicAuthorizationFailed})
		w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "c", Err: kerr.TopicAuthorizationFailed})
		sources := newMappings()
		top := w.topics(with(sources))
		err := top.Run(t.Context())
		for _, want := range []string{
			"create A.a: ", "grant CREATE on topic A.a of cluster B",
			"create A.b: read the configs of b: ", "grant DESCRIBE_CONFIGS on topic b of cluster A",
			"begin c-0: read the offsets of cluster A: ",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %q in it", err, want)
			}
		}
		if diff := cmp.Diff([]string{"create d"}, sources.take()); diff != "" {
			t.Errorf("event sources (-want +got):\n%s", diff)
		}
		w.run(top)
		if diff := cmp.Diff([]string{"create a", "create b", "create c"}, sources.take()); diff != "" {
			t.Errorf("event sources of the next round (-want +got):\n%s", diff)
		}
	})
}

func TestATargetThatIsAnotherOneStopsTheRound(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.run(w.topics())
		w.b = w.cluster(1, []kfake.Opt{kfake.ClusterID("id-of-another")})
		err := w.topics().Run(t.Context())
		changed, ok := errors.AsType[*topics.ClusterChangedError](err)
		if !ok || changed.Source || changed.Alias != "B" || changed.Stored != "id-of-B" || !strings.Contains(err.Error(), "would not be copied again") {
			t.Errorf("got error %v, want one that says what it means", err)
		}
		if got := w.names(w.b); len(got) > 0 {
			t.Errorf("got topics %v on the other cluster, want none", got)
		}
	})
}

func TestASourceThatIsAnotherOneStopsTheRound(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.run(w.topics())
		w.a = w.cluster(1, []kfake.Opt{kfake.ClusterID("id-of-another")})
		err := w.topics().Run(t.Context())
		if changed, ok := errors.AsType[*topics.ClusterChangedError](err); !ok || !changed.Source {
			t.Errorf("got error %v, want a changed source", err)
		}
	})
}

func TestTwoAliasesOfOneClusterAreRefused(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.b = w.a
		if err := w.topics().Run(t.Context()); !errors.Is(err, topics.ErrSameCluster) {
			t.Errorf("got error %v, want %v", err, topics.ErrSameCluster)
		}
		if _, err := w.store.Flow(t.Context()); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("got flow %v, want none stored", err)
		}
	})
}

func TestTheStateOfAnotherFlowIsRefused(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		row := state.FlowRow{Flow: aToB.Reverse(), ProducerID: 1, Created: time.Now()}
		if _, err := w.store.PutFlow(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if err := w.topics().Run(t.Context()); !errors.Is(err, topics.ErrForeignState) {
			t.Errorf("got error %v, want %v", err, topics.ErrForeignState)
		}
	})
}

func TestTwoFirstRoundsAgreeOnOneProducer(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 40, nil)
		done := make(chan error)
		for range 4 {
			top := w.topics()
			go func() { done <- top.Run(t.Context()) }()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		row, err := w.store.Flow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for n := range int32(40) {
			if p, ok := w.position("orders", n); !ok || p.ProducerID != row.ProducerID || p.Version != 1 {
				t.Errorf("got position %+v of orders-%d, want version 1 and producer %d", p, n, row.ProducerID)
			}
		}
	})
}

func TestWithoutRefreshANewTopicWaitsForTheNextStart(t *testing.T) {
	in(t, "refresh.topics.enabled = false", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		top := w.topics()
		w.run(top)
		w.create(w.a, "late", 1, nil)
		w.run(top)
		if _, ok := w.names(w.b)["A.late"]; ok {
			t.Error("got A.late although refresh is off")
		}
		w.run(w.topics())
		if _, ok := w.names(w.b)["A.late"]; !ok {
			t.Error("got no A.late after a start")
		}
	})
}

func TestARoundAsksForManyTopicsAtOnce(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		req := kmsg.NewPtrCreateTopicsRequest()
		for n := range 600 {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprintf("t%04d", n), 2, 1
			req.Topics = append(req.Topics, topic)
		}
		if _, err := req.RequestWith(t.Context(), w.a.client); err != nil {
			t.Fatal(err)
		}
		sources := newMappings()
		onA, onB := w.a.Fault(kfake.Fault{Observe: true, Count: -1}), w.b.Fault(kfake.Fault{Observe: true, Count: -1})
		top := w.topics(with(sources))
		w.run(top)
		if got := len(w.names(w.b)); got < 600 || len(sources.all) != 600 {
			t.Fatalf("got %d topics and %d event sources, want 600", got, len(sources.all))
		}
		first := onA.Hits() + onB.Hits()
		time.Sleep(10 * time.Minute)
		w.run(top)
		idle := onA.Hits() + onB.Hits() - first
		if first > 60 || idle > 25 {
			t.Errorf("got %d requests in the first round and %d in an idle one, want a few for all topics together", first, idle)
		}
		t.Logf("%d requests in the first round, %d in an idle one", first, idle)
	})
}
