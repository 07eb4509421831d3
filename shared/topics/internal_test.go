package topics_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/topics"
)

func TestWithoutRightsOnTheSourceDataFlows(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		sources := newMappings()
		top := w.topics(with(sources))
		w.run(top)
		w.run(top)
		if got := w.logs.take("assumed to exist"); len(got) != 2 {
			t.Errorf("got lines %q, want one for each of two topics", got)
		}
		if diff := cmp.Diff([]string{"create orders"}, sources.take()); diff != "" {
			t.Errorf("event sources (-want +got):\n%s", diff)
		}
	})
}

func TestOffsetSyncsOnTheTargetNeedNoWriteToTheSource(t *testing.T) {
	in(t, "offset-syncs.topic.location = target\nB->A.emit.heartbeats.enabled = false", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		onA := w.a.changes()
		w.run(w.topics())
		if got := onA.Hits(); got > 0 {
			t.Errorf("got %d writes to the source, want none", got)
		}
		if got := w.names(w.b)["mm2-offset-syncs.A.internal"]; got != 1 {
			t.Errorf("got %d partitions of the offset syncs on the target, want 1", got)
		}
	})
}

func TestInternalTopicsFollowTheSettings(t *testing.T) {
	for _, test := range []struct {
		name, lines string
		a, b        []string
	}{
		{
			"off means off", "emit.heartbeats.enabled = false\nemit.checkpoints.enabled = false\nemit.offset-syncs.enabled = false",
			nil,
			[]string{"mm2-offsets.A.internal"},
		},
		{
			"the reverse beat alone can be off", "B->A.emit.heartbeats.enabled = false",
			[]string{"mm2-offset-syncs.B.internal"},
			[]string{"A.checkpoints.internal", "heartbeats", "mm2-offsets.A.internal"},
		},
		{
			"a reverse flow that is on makes its own", "B->A.enabled = true",
			[]string{"mm2-offset-syncs.B.internal"},
			[]string{"A.checkpoints.internal", "heartbeats", "mm2-offsets.A.internal"},
		},
		{
			"heartbeats may stay where they are", "heartbeats.replication.enabled = false\ntopics = none",
			[]string{"heartbeats", "mm2-offset-syncs.B.internal"},
			[]string{"A.checkpoints.internal", "heartbeats", "mm2-offsets.A.internal"},
		},
		{
			"dead letters have a topic where errors are tolerated", "errors.tolerance = all\nB->A.emit.heartbeats.enabled = false",
			[]string{"mm2-offset-syncs.B.internal"},
			[]string{"A.checkpoints.internal", "heartbeats", "mirrorless-dead-letters.A.internal", "mm2-offsets.A.internal"},
		},
		{
			"the separator is in the names", "replication.policy.separator = _",
			[]string{"heartbeats", "mm2-offset-syncs_B_internal"},
			[]string{"A_checkpoints_internal", "A_heartbeats", "heartbeats", "mm2-offsets.A.internal"},
		},
		{
			"or is not", "replication.policy.separator = _\nreplication.policy.internal.topic.separator.enabled = false",
			[]string{"heartbeats", "mm2-offset-syncs.B.internal"},
			[]string{"A.checkpoints.internal", "A_heartbeats", "heartbeats", "mm2-offsets.A.internal"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, test.lines, func(t *testing.T, w *world) {
				top := w.topics(func(o *topics.Options) {
					reverse := *o.Reverse
					o.Reverse = &reverse
				})
				w.run(top)
				for _, side := range []struct {
					name string
					c    *cluster
					want []string
				}{{"A", w.a, test.a}, {"B", w.b, test.b}} {
					got := map[string]bool{}
					for name := range w.names(side.c) {
						got[name] = true
					}
					want := map[string]bool{}
					for _, name := range side.want {
						want[name] = true
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("topics of %s (-want +got):\n%s", side.name, diff)
					}
				}
			})
		})
	}
}

func TestAnInternalTopicThatABrokerMadeIsTold(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.b, "A.checkpoints.internal", 3, map[string]string{"cleanup.policy": "delete"})
		top := w.topics()
		w.run(top)
		w.run(top)
		got := w.logs.take("topic=A.checkpoints.internal")
		if len(got) != 2 || !strings.Contains(got[0], "more than one partition") || !strings.Contains(got[1], "set cleanup.policy = compact") {
			t.Errorf("got lines %q, want one about the partitions and one about the policy", got)
		}
	})
}

func TestAnInternalTopicThatFailsIsAnErrorAndDataFlows(t *testing.T) {
	in(t, "", func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "A.checkpoints.internal", Err: kerr.PolicyViolation})
		sources := newMappings()
		err := w.topics(with(sources)).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "create internal topic A.checkpoints.internal on cluster B: POLICY_VIOLATION") {
			t.Errorf("got error %v, want the refusal", err)
		}
		if _, ok := w.position("orders", 0); !ok {
			t.Error("got no position of orders-0")
		}
	})
}
