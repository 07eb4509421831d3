package checkpoint_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
)

const syncing = "sync.group.offsets.enabled = true"

// ordersWorld has a hundred records of orders-0 copied, one to one.
func ordersWorld(t *testing.T, lines ...string) *world {
	t.Helper()
	w := newWorld(t, append(lines, syncing)...)
	w.topic("orders", 2, 0)
	w.copied(orders, upTo(0, 100)...)
	return w
}

func TestOffsetsOfTheTargetMoveForwardOnly(t *testing.T) {
	w := ordersWorld(t)
	w.a.commit(t, "g", orders, 50, "where I was")
	for _, step := range []struct {
		name     string
		a, b     int64 // committed before the round; -1 for nothing
		want     int64
		metadata string
	}{
		{"a group that B does not know is made", -1, -1, 50, "where I was"},
		{"a group that is ahead on B stays", -1, 70, 70, ""},
		{"a group that went back on A does not go back on B", 20, -1, 70, ""},
		{"a group that overtakes it moves", 90, -1, 90, "on A"},
		{"a group ahead of the copy gets its end", 5000, -1, 100, "on A"},
	} {
		if step.a >= 0 {
			w.a.commit(t, "g", orders, step.a, "on A")
		}
		if step.b >= 0 {
			w.b.commit(t, "g", w.remote(orders), step.b, "")
		}
		w.mustRound()
		got := w.b.offset(t, "g", w.remote(orders))
		if got.At != step.want || got.Metadata != step.metadata {
			t.Errorf("%s: got %d %q, want %d %q", step.name, got.At, got.Metadata, step.want, step.metadata)
		}
		if got.LeaderEpoch != -1 {
			t.Errorf("%s: got leader epoch %d, want none", step.name, got.LeaderEpoch)
		}
	}
}

func TestOnePartitionAheadDoesNotHoldUpTheOthers(t *testing.T) {
	w := ordersWorld(t)
	ahead, behind := orders, flow.TopicPartition{Topic: "orders", Partition: 1}
	w.copied(behind, upTo(0, 100)...)
	w.a.commit(t, "g", ahead, 50, "")
	w.a.commit(t, "g", behind, 50, "")
	w.b.commit(t, "g", w.remote(ahead), 90, "")
	w.b.commit(t, "g", w.remote(behind), 10, "")
	w.mustRound()
	if got := w.b.offset(t, "g", w.remote(ahead)).At; got != 90 {
		t.Errorf("got %d on the partition that is ahead, want 90", got)
	}
	if got := w.b.offset(t, "g", w.remote(behind)).At; got != 50 {
		t.Errorf("got %d on the one that is behind, want 50", got)
	}
}

func TestNothingIsCommittedUnlessTheFileSaysSo(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 100)...)
	w.a.commit(t, "g", orders, 50, "")
	w.mustRound()
	if got := w.b.offset(t, "g", w.remote(orders)).At; got != -1 {
		t.Errorf("got %d, want nothing", got)
	}
}

func TestOffsetsAreCommittedWithoutCheckpoints(t *testing.T) {
	w := ordersWorld(t)
	w.options.Settings.EmitCheckpoints.Enabled = false
	w.restart()
	w.a.commit(t, "g", orders, 50, "")
	w.mustRound()
	if got := w.b.offset(t, "g", w.remote(orders)).At; got != 50 {
		t.Errorf("got %d, want 50", got)
	}
	if got := w.checkpoints(); len(got) > 0 {
		t.Errorf("got checkpoints %v, want none", got)
	}
}

func TestAGroupWithMembersOnTheTargetIsLeftAlone(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"of the classic protocol":  nil,
		"of the consumer protocol": {kgo.ServerSideBalancer()},
	} {
		for compat, want := range map[string]int64{"off": 50, "mm2": 1} {
			t.Run(name+" with compat "+compat, func(t *testing.T) {
				w := ordersWorld(t, "mirrorless.compat = "+compat)
				w.a.commit(t, "g", orders, 50, "")
				member := w.b.join(t, "g", []string{"A.orders"}, opts...)
				w.mustRound()
				if got := w.b.offset(t, "g", w.remote(orders)).At; got != -1 {
					t.Errorf("got %d while there is a member, want nothing", got)
				}
				member.Close()
				w.mustRound()
				if got := w.b.offset(t, "g", w.remote(orders)).At; got != want {
					t.Errorf("got %d once it has left, want %d", got, want)
				}
			})
		}
	}
}

func TestInDoubtNothingIsCommitted(t *testing.T) {
	for name, fault := range map[string]kfake.Fault{
		"when the group cannot be described": {Keys: []kmsg.Key{kmsg.DescribeGroups}, Group: "g", Err: kerr.GroupAuthorizationFailed},
		"when its protocol cannot be told":   {Keys: []kmsg.Key{kmsg.ConsumerGroupDescribe}, Group: "g", Err: kerr.GroupAuthorizationFailed},
		"when its offsets cannot be read":    {Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: "g", Err: kerr.GroupAuthorizationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := ordersWorld(t)
			w.a.commit(t, "g", orders, 30, "")
			w.a.commit(t, "sound", orders, 30, "")
			if !strings.Contains(name, "protocol") {
				w.b.commit(t, "g", w.remote(orders), 50, "")
			}
			before := w.b.offset(t, "g", w.remote(orders)).At
			fault.Count = -1
			broken := w.b.Fault(fault)
			err := w.round()
			if err == nil || !strings.Contains(err.Error(), "group g ") || strings.Contains(err.Error(), "group sound") {
				t.Errorf("got error %v, want one that names the group", err)
			}
			broken.Remove()
			if got := w.b.offset(t, "g", w.remote(orders)).At; got != before {
				t.Errorf("got %d, want %d as before", got, before)
			}
			if got := w.b.offset(t, "sound", w.remote(orders)).At; got != 30 {
				t.Errorf("got %d for the group that is sound, want 30", got)
			}
		})
	}
}

// Somebody joins between the look at the group and the commit.
func TestABrokerThatRefusesAGroupIsRight(t *testing.T) {
	w := ordersWorld(t)
	w.a.commit(t, "g", orders, 30, "")
	w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: "g", Err: kerr.UnknownMemberID})
	w.mustRound()
	if got := w.b.offset(t, "g", w.remote(orders)).At; got != -1 {
		t.Errorf("got %d, want nothing", got)
	}
	w.mustRound()
	if got := w.b.offset(t, "g", w.remote(orders)).At; got != 30 {
		t.Errorf("got %d in the next round, want 30", got)
	}
}

func TestOneGroupsFailureLeavesTheOthers(t *testing.T) {
	w := ordersWorld(t)
	for _, group := range []string{"a", "g", "z"} {
		w.a.commit(t, group, orders, 30, "")
	}
	w.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: "g", Err: kerr.GroupAuthorizationFailed})
	err := w.round()
	if !errors.Is(err, kerr.GroupAuthorizationFailed) || !strings.Contains(err.Error(), "group g ") {
		t.Errorf("got error %v, want one that names the group", err)
	}
	for _, group := range []string{"a", "z"} {
		if got := w.b.offset(t, group, w.remote(orders)).At; got != 30 {
			t.Errorf("group %s: got %d, want 30", group, got)
		}
	}
	if got := len(w.checkpoints()); got != 3 {
		t.Errorf("got %d checkpoints, want 3", got)
	}
}

// A new environment knows no more than the target shows.
func TestARestartDoesNotSetAGroupBack(t *testing.T) {
	w := ordersWorld(t)
	w.a.commit(t, "g", orders, 50, "")
	w.mustRound()
	w.b.commit(t, "g", w.remote(orders), 90, "moved here")
	w.restart()
	w.mustRound()
	if got := w.b.offset(t, "g", w.remote(orders)); got.At != 90 || got.Metadata != "moved here" {
		t.Errorf("got %d %q, want 90 as it was", got.At, got.Metadata)
	}
}

// The suite holds what MirrorMaker 2 4.3.1 decided.
func TestCommitsAsMirrorMakerDoes(t *testing.T) {
	var suite struct {
		Rows []struct {
			ID string
			In struct {
				Case       string
				Target     any   `json:"target_offset"`
				Downstream int64 `json:"checkpoint_downstream"`
			}
			Out struct {
				Written  *int64
				Metadata *string `json:"written_metadata"`
			}
		}
	}
	text, err := os.ReadFile("testdata/checkpoint.sync_group_offsets.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &suite); err != nil {
		t.Fatal(err)
	}
	if len(suite.Rows) != 8 {
		t.Fatalf("got %d rows, want 8", len(suite.Rows))
	}
	for _, row := range suite.Rows {
		for _, compat := range []string{"off", "mm2"} {
			t.Run(row.ID+" "+row.In.Case+" with compat "+compat, func(t *testing.T) {
				w := newWorld(t, syncing, "mirrorless.compat = "+compat, "offset.lag.max = 0")
				w.topic("orders", 2, 0)
				w.copied(orders, upTo(0, row.In.Downstream+1)...)
				w.a.commit(t, "g", orders, row.In.Downstream, "md")
				// The group is known by another partition.
				known := flow.TopicPartition{Topic: "A.orders", Partition: 1}
				before := int64(-1)
				switch target := row.In.Target.(type) {
				case float64:
					before = int64(target)
					w.b.commit(t, "g", w.remote(orders), before, "theirs")
				case nil:
					w.b.commit(t, "g", w.remote(orders), -1, "")
				case string:
					if target == "no entry" {
						w.b.commit(t, "g", known, 0, "")
					}
				}
				w.mustRound()
				want := kadm.Offset{At: before, Metadata: "theirs"}
				if row.Out.Written != nil {
					want = kadm.Offset{At: *row.Out.Written, Metadata: *row.Out.Metadata}
				}
				got := w.b.offset(t, "g", w.remote(orders))
				if got.At != want.At || got.Metadata != want.Metadata {
					t.Errorf("got %d %q, want %d %q", got.At, got.Metadata, want.At, want.Metadata)
				}
			})
		}
	}
}

func TestEveryCommitLiesWithinTheTargetsLog(t *testing.T) {
	w := ordersWorld(t)
	w.b.expire(t, w.remote(orders), 40)
	want := map[string]int64{"behind": 40, "inside": 60, "ahead": 100}
	for group, at := range map[string]int64{"behind": 3, "inside": 60, "ahead": 7000} {
		w.a.commit(t, group, orders, at, "")
	}
	w.mustRound()
	got := map[string]int64{}
	for group := range want {
		got[group] = w.b.offset(t, group, w.remote(orders)).At
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("offsets on B (-want +got):\n%s", diff)
	}
}
