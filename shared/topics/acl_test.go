package topics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// allow gives rights on a topic.
func (w *world) allow(c *cluster, topic, principal string, operations ...kadm.ACLOperation) {
	w.t.Helper()
	b := kadm.NewACLs().Topics(topic).Allow(principal).AllowHosts().Operations(operations...).ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := c.admin.CreateACLs(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
}

// acls are the topic entries of a cluster.
func (w *world) acls(c *cluster) []string {
	w.t.Helper()
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(w.t.Context(), c.client)
	if err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			out = append(out, strings.Join([]string{r.ResourceName, a.Principal, a.Operation.String(), a.PermissionType.String()}, " "))
		}
	}
	return out
}

func TestOnlyTheMissingACLsAreCreated(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.allow(w.a, "orders", "User:alice", kadm.OpRead, kadm.OpWrite)
		w.allow(w.a, "__secret", "User:alice", kadm.OpRead)
		top := w.topics()
		w.run(top)
		if diff := cmp.Diff([]string{"A.orders User:alice READ ALLOW"}, w.acls(w.b)); diff != "" {
			t.Errorf("ACLs of B (-want +got):\n%s", diff)
		}
		w.allow(w.a, "orders", "User:bob", kadm.OpRead)
		created := w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateACLs}, Observe: true, Count: -1})
		time.Sleep(10 * time.Minute)
		w.logs.take("")
		w.run(top)
		if got := w.logs.take("created ACL"); created.Hits() != 1 || len(got) != 1 || !strings.Contains(got[0], "User:bob") {
			t.Errorf("got %d requests and lines %q, want one for bob", created.Hits(), got)
		}
	})
}

func TestWithoutAuthorizerThereIsOneLine(t *testing.T) {
	in(t, quiet, func(t *testing.T, w *world) {
		w.create(w.a, "orders", 1, nil)
		w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeACLs}, TopLevel: true, Err: kerr.SecurityDisabled, Count: -1})
		top := w.topics()
		for range 3 {
			w.run(top)
			time.Sleep(10 * time.Minute)
		}
		if got := w.logs.take("no authorizer"); len(got) != 1 || !strings.HasPrefix(got[0], "INFO ") || !strings.Contains(got[0], "cluster=A") {
			t.Errorf("got lines %q, want one", got)
		}
	})
}

func TestACLsThatCannotBeReadOrMadeDoNotStopData(t *testing.T) {
	for _, test := range []struct {
		name string
		key  kmsg.Key
		err  *kerr.Error
		line string
	}{
		{"the right to read them is missing", kmsg.DescribeACLs, kerr.ClusterAuthorizationFailed, "grant DESCRIBE on the cluster"},
		{"the right to create them is missing", kmsg.CreateACLs, kerr.ClusterAuthorizationFailed, "grant ALTER on the cluster"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, quiet, func(t *testing.T, w *world) {
				w.create(w.a, "orders", 1, nil)
				w.allow(w.a, "orders", "User:alice", kadm.OpRead)
				w.b.Fault(kfake.Fault{Keys: []kmsg.Key{test.key}, Err: test.err, TopLevel: test.key == kmsg.DescribeACLs, Count: -1})
				w.run(w.topics())
				if got := w.logs.take(test.line); len(got) != 1 {
					t.Errorf("got lines %q, want one", got)
				}
				if _, ok := w.position("orders", 0); !ok {
					t.Error("got no position")
				}
			})
		})
	}
}

func TestACLSyncThatIsOffAsksNobody(t *testing.T) {
	in(t, quiet+"sync.topic.acls.enabled = false", func(t *testing.T, w *world) {
		asked := w.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeACLs}, Observe: true, Count: -1})
		w.run(w.topics())
		if asked.Hits() > 0 {
			t.Errorf("got %d requests, want none", asked.Hits())
		}
	})
}
