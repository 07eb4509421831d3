package checkpoint_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/state"
)

// one is the only checkpoint that a group's offset on A leads to.
func one(group string, upstream, downstream int64) []mm2.Checkpoint {
	return []mm2.Checkpoint{{Group: group, Topic: "A.orders", Upstream: upstream, Downstream: downstream}}
}

func TestGroupsGoOnWhereTheyWere(t *testing.T) {
	for name, test := range map[string]struct {
		lines  []string
		first  int64
		copied []int64
		expire int64 // records of B before this offset
		group  int64
		want   []mm2.Checkpoint
	}{
		"a group in the middle of dense records": {copied: upTo(0, 100), group: 50, want: one("g", 50, 50)},
		"a group at the first record":            {copied: upTo(0, 100), group: 0, want: one("g", 0, 0)},
		"a group that has read everything":       {copied: upTo(0, 100), group: 100, want: one("g", 100, 100)},
		"a group ahead of the copy goes on at its end": {
			copied: upTo(0, 100), group: 5000, want: one("g", 5000, 100),
		},
		"copying that began late does not shift the answer": {
			first: 500, copied: upTo(500, 1000), group: 700, want: one("g", 700, 200),
		},
		"a group from before copying began has no checkpoint": {
			first: 500, copied: upTo(500, 1000), group: 499,
		},
		"a group in a hole goes on behind it": {
			copied: []int64{0, 1, 7, 8}, group: 3, want: one("g", 3, 2),
		},
		"a group behind a hole is not shifted": {
			copied: []int64{0, 1, 7, 8}, group: 8, want: one("g", 8, 3),
		},
		"a marker at the end of what is copied does not matter": {
			copied: []int64{0, 1, 2}, group: 4, want: one("g", 4, 3),
		},
		"records that B has expired are not waited for": {
			copied: upTo(0, 100), expire: 30, group: 10, want: one("g", 10, 30),
		},
		"all of B's records expired": {
			copied: upTo(0, 100), expire: 100, group: 10, want: one("g", 10, 100),
		},
		"a source that expired before copying began leads to the beginning": {
			first: 100, group: 100, want: one("g", 100, 0),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.lines...)
			w.topic("orders", 1, test.first)
			w.copied(orders, test.copied...)
			if test.expire > 0 {
				w.b.expire(t, w.remote(orders), test.expire)
			}
			w.a.commit(t, "g", orders, test.group, "")
			w.mustRound()
			if diff := cmp.Diff(test.want, w.checkpoints()); diff != "" {
				t.Errorf("checkpoints (-want +got):\n%s", diff)
			}
		})
	}
}

// model is what is copied of a partition, record by record.
type model struct {
	first, next, end int64
	pairs            []struct{ up, down int64 }
	start            int64 // of B's log
}

func (m *model) translate(group int64) (int64, bool) {
	if group < m.first {
		return 0, false
	}
	down := m.end
	for _, p := range m.pairs {
		if p.up >= group {
			down = p.down
			break
		}
	}
	return max(down, m.start), true
}

// Whatever is copied, spilled, expired and committed in whatever order, the last
// checkpoint of a group is the one that a look at every record gives, and there
// are only as many records as there were changes.
func TestCheckpointsEqualAModel(t *testing.T) {
	const partitions, groups = 3, 4
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t)
			first := rng.Int64N(50)
			w.topic("orders", partitions, first)
			models := map[flow.TopicPartition]*model{}
			for p := range int32(partitions) {
				models[flow.TopicPartition{Topic: "orders", Partition: p}] = &model{first: first, next: first}
			}
			offsets := map[string]map[flow.TopicPartition]int64{}
			want := map[string]mm2.Checkpoint{}
			changes := 0
			for range 12 {
				for p := range int32(partitions) {
					tp := flow.TopicPartition{Topic: "orders", Partition: p}
					m := models[tp]
					for range rng.IntN(4) {
						switch rng.IntN(5) {
						case 0:
							w.spill(tp)
						case 1: // somebody else writes to B
							n := 1 + rng.IntN(3)
							w.b.produce(t, w.remote(tp), n)
						case 2:
							if m.end > m.start {
								m.start += 1 + rng.Int64N(m.end-m.start)
								w.b.expire(t, w.remote(tp), m.start)
							}
						default:
							var upstream []int64
							for u := m.next; len(upstream) < 1+rng.IntN(30); u++ {
								if rng.IntN(4) > 0 {
									upstream = append(upstream, u)
								}
							}
							w.copied(tp, upstream...)
							m.next, m.end = upstream[len(upstream)-1]+1, w.position(tp).Downstream
							for i, u := range upstream {
								m.pairs = append(m.pairs, struct{ up, down int64 }{u, m.end - int64(len(upstream)-i)})
							}
						}
					}
				}
				for g := range groups {
					group := fmt.Sprintf("g%d", g)
					for p := range int32(partitions) {
						tp := flow.TopicPartition{Topic: "orders", Partition: p}
						m := models[tp]
						if rng.IntN(3) == 0 {
							if offsets[group] == nil {
								offsets[group] = map[flow.TopicPartition]int64{}
							}
							offsets[group][tp] = max(rng.Int64N(m.next+10), 0)
							w.a.commit(t, group, tp, offsets[group][tp], "")
						}
					}
				}
				if rng.IntN(4) == 0 {
					w.restart()
				}
				w.mustRound()
				for group, of := range offsets {
					for tp, at := range of {
						down, ok := models[tp].translate(at)
						c := mm2.Checkpoint{Group: group, Topic: "A.orders", Partition: tp.Partition, Upstream: at, Downstream: down}
						key := string(c.Key())
						if ok && want[key] != c {
							want[key] = c
							changes++
						}
					}
				}
			}
			got := map[string]mm2.Checkpoint{}
			records := w.checkpoints()
			for _, c := range records {
				got[string(c.Key())] = c
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("last checkpoints (-want +got):\n%s", diff)
			}
			if len(records) != changes {
				t.Errorf("got %d records for %d changes", len(records), changes)
			}
		})
	}
}

func TestGroupsOfEveryKindAreTranslated(t *testing.T) {
	w := newWorld(t, "groups.exclude = hidden-.*")
	w.topic("orders", 1, 0)
	w.a.produce(t, orders, 10)
	w.copied(orders, upTo(0, 10)...)
	other := flow.TopicPartition{Topic: "mm2-own.internal"}
	w.a.create(t, 1, other.Topic)

	w.a.commit(t, "simple", orders, 1, "")
	w.a.commit(t, "hidden-group", orders, 2, "")
	w.a.commit(t, "console-consumer-1", orders, 3, "") // excluded by default only
	w.a.commit(t, "mirrorless/stack/A/B/orders", orders, 4, "")
	w.a.commit(t, "reads-something-else", other, 0, "")
	for name, opts := range map[string][]kgo.Opt{"classic": nil, "consumer": {kgo.ServerSideBalancer()}} {
		member := w.a.join(t, name, []string{"orders"}, opts...)
		records := member.PollRecords(t.Context(), 5)
		if err := records.Err(); err != nil {
			t.Fatal(err)
		}
		if err := member.CommitUncommittedOffsets(t.Context()); err != nil {
			t.Fatal(err)
		}
		member.AllowRebalance()
	}
	w.mustRound()
	got := map[string]int64{}
	for _, c := range w.checkpoints() {
		got[c.Group] = c.Downstream
	}
	want := map[string]int64{"simple": 1, "console-consumer-1": 3, "classic": 5, "consumer": 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

func TestNewGroupsAreLookedForUnlessTheFileSaysNo(t *testing.T) {
	for enabled, want := range map[string]int{"true": 2, "false": 1} {
		t.Run("refresh.groups.enabled = "+enabled, func(t *testing.T) {
			w := newWorld(t, "refresh.groups.enabled = "+enabled)
			w.topic("orders", 1, 0)
			w.copied(orders, upTo(0, 10)...)
			w.a.commit(t, "early", orders, 4, "")
			w.mustRound()
			w.a.commit(t, "late", orders, 4, "")
			w.mustRound()
			if got := len(w.checkpoints()); got != want {
				t.Errorf("got %d checkpoints, want %d", got, want)
			}
		})
	}
}

func TestAnIdentityFlowKeepsTheTopicsName(t *testing.T) {
	w := newWorld(t, "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy")
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 100)...)
	w.a.commit(t, "g", orders, 40, "")
	w.mustRound()
	want := []mm2.Checkpoint{{Group: "g", Topic: "orders", Upstream: 40, Downstream: 40}}
	if diff := cmp.Diff(want, w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

func TestOnlyTopicsOfTheFlowAreTranslated(t *testing.T) {
	w := newWorld(t, "A->B.topics = orders")
	payments := flow.TopicPartition{Topic: "payments"}
	w.topic("orders", 1, 0)
	w.topic("payments", 1, 0)
	w.copied(orders, upTo(0, 10)...)
	w.copied(payments, upTo(0, 10)...)
	w.a.commit(t, "g", orders, 4, "")
	w.a.commit(t, "g", payments, 4, "")
	w.mustRound()
	if diff := cmp.Diff(one("g", 4, 4), w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

func TestCheckpointsFollowTheGroupBothWays(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 10)...)
	for _, at := range []int64{4, 9, 2, 2} {
		w.a.commit(t, "g", orders, at, "")
		w.mustRound()
	}
	w.a.commit(t, "g", orders, 2, "a note")
	w.mustRound()
	want := append(append(one("g", 4, 4), one("g", 9, 9)...), one("g", 2, 2)...)
	want = append(want, mm2.Checkpoint{Group: "g", Topic: "A.orders", Upstream: 2, Downstream: 2, Metadata: "a note"})
	if diff := cmp.Diff(want, w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

func TestARoundWithNothingToDoWritesNothing(t *testing.T) {
	w := newWorld(t, "sync.group.offsets.enabled = true")
	w.topic("orders", 2, 0)
	w.copied(orders, upTo(0, 10)...)
	w.a.commit(t, "g", orders, 4, "")
	w.mustRound()
	before := w.written()
	for range 3 {
		w.mustRound()
		w.restart()
	}
	if got := w.written(); got != before {
		t.Errorf("got %d records, want the %d of the first round", got, before)
	}
	if w.log.Len() > 0 {
		t.Errorf("got log %q, want silence", w.log)
	}
}

func TestATopicOfTheTargetThatIsMissingHasNoCheckpoint(t *testing.T) {
	w := newWorld(t, "sync.group.offsets.enabled = true")
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 10)...)
	w.a.commit(t, "g", orders, 4, "")
	if _, err := w.b.admin.DeleteTopics(t.Context(), "A.orders"); err != nil {
		t.Fatal(err)
	}
	w.mustRound()
	if got := w.checkpoints(); len(got) > 0 {
		t.Errorf("got checkpoints %v, want none", got)
	}
}

func TestAPartitionWhoseRunsCannotBeReadLeavesTheOthers(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 2, 0)
	broken, sound := orders, flow.TopicPartition{Topic: "orders", Partition: 1}
	w.copied(broken, upTo(0, 10)...)
	w.copied(sound, upTo(0, 10)...)
	w.advance(broken, func(pos *state.Position) { pos.Runs = []byte{1, 2, 255, 255} })
	w.a.commit(t, "g", broken, 4, "")
	w.a.commit(t, "g", sound, 4, "")
	err := w.round()
	if err == nil || !strings.Contains(err.Error(), "orders-0") || strings.Contains(err.Error(), "orders-1") {
		t.Errorf("got error %v, want one that names orders-0", err)
	}
	want := []mm2.Checkpoint{{Group: "g", Topic: "A.orders", Partition: 1, Upstream: 4, Downstream: 4}}
	if diff := cmp.Diff(want, w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

func TestATopicThatBeganAgainForgetsItsRuns(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 100)...)
	w.a.commit(t, "g", orders, 40, "")
	w.mustRound()
	w.runs[orders] = nil
	w.advance(orders, func(pos *state.Position) {
		pos.First, pos.Upstream, pos.Runs, pos.SourceTopicID = 0, 0, nil, state.TopicID{2}
	})
	w.copied(orders, upTo(0, 60)...)
	w.mustRound()
	want := append(one("g", 40, 40), one("g", 40, 140)...)
	if diff := cmp.Diff(want, w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

func TestManyGroupsTakeFewRequests(t *testing.T) {
	const groups, partitions = 600, 5
	w := newWorld(t)
	w.topic("orders", partitions, 0)
	all := map[string]int64{}
	for p := range int32(partitions) {
		tp := flow.TopicPartition{Topic: "orders", Partition: p}
		w.copied(tp, upTo(0, 10)...)
		for g := range groups {
			w.a.commit(t, fmt.Sprintf("g%d", g), tp, int64(g%10), "")
			all[fmt.Sprintf("g%d-%d", g, p)] = int64(g % 10)
		}
	}
	counting := &requests{}
	w.options.Source, w.options.Target = w.a.client(t, kgo.WithHooks(counting)), w.b.client(t, kgo.WithHooks(counting))
	w.restart()
	w.mustRound()
	got := map[string]int64{}
	for _, c := range w.checkpoints() {
		got[fmt.Sprintf("%s-%d", c.Group, c.Partition)] = c.Downstream
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
	if n := counting.n.Load(); n > 40 {
		t.Errorf("it took %d requests for %d groups on %d partitions", n, groups, partitions)
	}
}

func TestLeaseLeavesARoundToItsOwner(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 10)...)
	w.a.commit(t, "g", orders, 4, "")
	lease, err := w.store.Acquire(t.Context(), "checkpoint", "somebody else", 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	w.mustRound()
	if got := w.written(); got != 0 {
		t.Errorf("got %d records beside the owner, want none", got)
	}
	if err := w.store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	w.mustRound()
	if diff := cmp.Diff(one("g", 4, 4), w.checkpoints()); diff != "" {
		t.Errorf("checkpoints once the lease is free (-want +got):\n%s", diff)
	}
}

// Two environments that take turns know what the other one has written.
func TestOwnersThatTakeTurnsWriteOnce(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 10)...)
	w.a.commit(t, "g", orders, 4, "")
	other := w.options
	other.Owner = "another"
	turns := []*checkpoint.Translator{w.Translator, checkpoint.New(other)}
	for i := range 6 {
		w.pass(1 << 36)
		if i == 3 {
			w.a.commit(t, "g", orders, 7, "")
		}
		if err := turns[i%2].Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(append(one("g", 4, 4), one("g", 7, 7)...), w.checkpoints()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
	if got := w.written(); got != 2+2 {
		t.Errorf("got %d records, want two checkpoints, a position and an offset sync", got)
	}
}

func TestErrorsNameWhatFailed(t *testing.T) {
	w := newWorld(t)
	w.topic("orders", 1, 0)
	w.copied(orders, upTo(0, 10)...)
	w.a.commit(t, "g", orders, 4, "")
	if _, err := w.b.admin.DeleteTopics(t.Context(), internal, w.settings.PositionsTopic); err != nil {
		t.Fatal(err)
	}
	err := w.round()
	for _, name := range []string{internal, w.settings.PositionsTopic, "cluster B"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got error %v, want one that names %s", err, name)
		}
	}
	w.b.create(t, 1, internal)
	w.b.create(t, 25, w.settings.PositionsTopic)
	w.mustRound()
	if diff := cmp.Diff(one("g", 4, 4), w.checkpoints()); diff != "" {
		t.Errorf("checkpoints once the topic is there (-want +got):\n%s", diff)
	}
}
