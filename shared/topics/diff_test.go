package topics

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
)

func TestReplicationFactors(t *testing.T) {
	for _, test := range []struct {
		name    string
		factor  config.ReplicationFactor
		brokers int
		want    int16 // 0: not created
		warned  bool
	}{
		{"a default that fits is taken", config.ReplicationFactor{Value: 2}, 3, 2, false},
		{"a default that is too high is lowered", config.ReplicationFactor{Value: 3}, 1, 1, true},
		{"a wish that fits is taken", config.ReplicationFactor{Value: 3, Written: true}, 3, 3, false},
		{"a wish that is too high is a problem", config.ReplicationFactor{Value: 3, Written: true}, 2, 0, false},
		{"the broker's own is left to it", config.ReplicationFactor{Value: -1, Written: true}, 1, -1, false},
		{"brokers nobody tells of lower nothing", config.ReplicationFactor{Value: 3}, 0, 3, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p Plan
			made := rulesOf(settingsOf(t, kafkaFlow)).withFactor([]NewTopic{{Name: "t"}}, test.factor, test.brokers, &p)
			var got int16
			if len(made) == 1 {
				got = made[0].ReplicationFactor
			}
			if got != test.want || len(p.Warnings) == 1 != test.warned || len(p.Problems) == 1 != (test.want == 0) {
				t.Errorf("got factor %d, warnings %v, problems %v", got, p.Warnings, p.Problems)
			}
		})
	}
}

func TestAProblemOfATopicKeepsItFromBeginning(t *testing.T) {
	one := topicView{leaders: []int32{0}}
	r := rulesOf(settingsOf(t, kafkaFlow, "replication.factor = 3"))
	names := []string{"unreadable", "hidden", "new", "there"}
	o := observation{
		target: view{brokers: 1, topics: map[string]topicView{
			"source.there": one, "source.hidden": {err: answer(kerr.TopicAuthorizationFailed.Code, nil)},
		}},
		keepsSources: true,
	}
	for _, name := range names {
		v := one
		if name == "unreadable" {
			v.err = answer(kerr.UnknownServerError.Code, nil)
		}
		o.topics = append(o.topics, topic{name: name, remote: r.selector.Remote(name), topicView: v})
	}
	p := r.diff(o)
	if diff := cmp.Diff([]flow.TopicPartition{{Topic: "there"}}, p.Begin); diff != "" {
		t.Errorf("partitions that begin (-want +got):\n%s", diff)
	}
	var created []string
	for _, c := range p.EventSources {
		created = append(created, c.topic())
	}
	if !slices.Equal(created, []string{"there"}) || len(p.Problems) != 3 {
		t.Errorf("got event sources of %q and problems %v, want there and three", created, p.Problems)
	}
}

func TestFirstPositions(t *testing.T) {
	ids := beginning{producer: 7, source: state.TopicID{1}, target: state.TopicID{2}}
	for _, test := range []struct {
		name        string
		in          beginning
		first, down int64
	}{
		{"the log start", beginning{start: 4, end: 0}, 4, 0},
		{"behind what the copy holds", beginning{start: 4, end: 9}, 4, 9},
		{"the time's offset", beginning{start: 4, late: true, at: 8}, 8, 0},
		{"the log start where the time's offset has expired", beginning{start: 9, late: true, at: 8}, 9, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.in.producer, test.in.source, test.in.target = ids.producer, ids.source, ids.target
			want := state.Position{
				First: test.first, Upstream: test.first, Downstream: test.down,
				ProducerID: 7, SourceTopicID: state.TopicID{1}, TargetTopicID: state.TopicID{2},
			}
			if diff := cmp.Diff(want, test.in.position()); diff != "" {
				t.Errorf("position (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfigsThatAreEqualAreLeftAlone(t *testing.T) {
	entry := func(name, value string, source kmsg.ConfigSource) configEntry {
		return configEntry{name: name, value: value, source: source}
	}
	const set, byDefault = kmsg.ConfigSourceDynamicTopicConfig, kmsg.ConfigSourceDefaultConfig
	rule := configRule{filter: settingsOf(t, kafkaFlow).ConfigFilter}
	all := configRule{filter: settingsOf(t, kafkaFlow, "source->target.use.defaults.from = source").ConfigFilter}
	for _, test := range []struct {
		name           string
		rule           configRule
		source, copied configEntry
		want           []ConfigOp
	}{
		{"the same value", rule, entry("retention.ms", "1", set), entry("retention.ms", "1", set), nil},
		{"the same value as a default", rule, entry("retention.ms", "1", set), entry("retention.ms", "1", byDefault), nil},
		{"another value", rule, entry("retention.ms", "1", set), entry("retention.ms", "2", set), []ConfigOp{{Name: "retention.ms", Value: "1"}}},
		{"a value that the target's brokers do not tell of", rule, entry("retention.ms", "1", set), entry("other", "2", set), []ConfigOp{{Name: "retention.ms", Value: "1"}}},
		{"two different defaults", rule, entry("retention.ms", "1", byDefault), entry("retention.ms", "2", byDefault), nil},
		{"a default again", rule, entry("retention.ms", "1", byDefault), entry("retention.ms", "2", set), []ConfigOp{{Name: "retention.ms", Delete: true}}},
		{"the source's default wanted", all, entry("retention.ms", "1", byDefault), entry("retention.ms", "2", byDefault), []ConfigOp{{Name: "retention.ms", Value: "1"}}},
		{"an excluded config", rule, entry("min.insync.replicas", "1", byDefault), entry("min.insync.replicas", "2", set), nil},
		{"a config only the target knows", rule, entry("retention.ms", "1", set), entry("vendors.own", "2", set), []ConfigOp{{Name: "retention.ms", Value: "1"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.rule.changes([]configEntry{test.source}, []configEntry{test.copied})); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestsAreCutToWhatAControllerTakes(t *testing.T) {
	weights := []int{7000, 900, 200, 9000, 1, 1, 1}
	got := sized(weights, 2, func(n int) int { return n })
	if diff := cmp.Diff([][]int{{7000, 900}, {200}, {9000}, {1, 1}, {1}}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// answers of a cluster that takes few topics at once.
func TestARequestThatIsTooLargeIsSplit(t *testing.T) {
	for _, test := range []struct {
		message string
		limit   int // afterwards
		sizes   []int
	}{
		{"Request cannot contain more than 2 topics.", 2, []int{5, 2, 2, 1}},
		{"Excessively large number of partitions per request.", mostTopics, []int{5, 2, 3, 1, 2}},
	} {
		var sizes []int
		limit := mostTopics
		items := []string{"a", "b", "c", "d", "e"}
		answers := split(items, &limit, func(string) int { return 1 }, func(s string) string { return s }, func(batch []string) map[string]error {
			sizes = append(sizes, len(batch))
			out := map[string]error{}
			for _, item := range batch {
				if out[item] = nil; len(batch) > 2 {
					out[item] = answer(kerr.PolicyViolation.Code, &test.message)
				}
			}
			return out
		})
		for _, item := range items {
			if err, ok := answers[item]; !ok || err != nil {
				t.Errorf("%s: got answer %v, %t for %s", test.message, err, ok, item)
			}
		}
		if !slices.Equal(sizes, test.sizes) || limit != test.limit {
			t.Errorf("%s: got requests of %v and a limit of %d, want %v and %d", test.message, sizes, limit, test.sizes, test.limit)
		}
	}
}

func TestAThrottledRequestEndsTheRest(t *testing.T) {
	limit := 2
	requests := 0
	answers := split([]string{"a", "b", "c", "d"}, &limit, func(string) int { return 1 }, func(s string) string { return s }, func(batch []string) map[string]error {
		requests++
		return map[string]error{batch[0]: nil, batch[1]: answer(kerr.ThrottlingQuotaExceeded.Code, nil)}
	})
	if requests != 1 || answers["a"] != nil {
		t.Errorf("got %d requests and %v for a, want one and success", requests, answers["a"])
	}
	for _, name := range []string{"b", "c", "d"} {
		if !is(answers[name], kerr.ThrottlingQuotaExceeded) {
			t.Errorf("got %v for %s, want it throttled", answers[name], name)
		}
	}
}

func TestBisectFindsEveryRejectedConfig(t *testing.T) {
	var ops []ConfigOp
	bad := map[ConfigOp]bool{}
	for n := range 23 {
		op := ConfigOp{Name: fmt.Sprint("c", n)}
		ops = append(ops, op)
		bad[op] = n == 3 || n == 4 || n == 22
	}
	applied := map[ConfigOp]bool{}
	rejected, err := bisect(ops, refusesConfig, func(some []ConfigOp) error {
		for _, op := range some {
			if bad[op] {
				return answer(kerr.InvalidConfig.Code, nil)
			}
		}
		for _, op := range some {
			applied[op] = true
		}
		return nil
	})
	if err != nil || len(rejected) != 3 || len(applied) != 20 {
		t.Errorf("got %d rejected, %d applied, %v, want 3 and 20", len(rejected), len(applied), err)
	}
	stop := errors.New("the cluster is gone")
	if _, err := bisect(ops, refusesConfig, func([]ConfigOp) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v, want the error that is about no config", err)
	}
}

func TestErrorsOfTheSameKindAreTold(t *testing.T) {
	failed := map[string]error{"z": errors.New("other")}
	for n := range 9 {
		failed[fmt.Sprint("t", n)] = errors.New("same")
	}
	got := errors.Join(together("create", failed)...).Error()
	if want := "create t0, t1, t2, t3, t4 and 4 more: same\ncreate z: other"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheShortestIntervalDecides(t *testing.T) {
	for _, test := range []struct {
		lines []string
		want  time.Duration
	}{
		{nil, 10 * time.Minute},
		{[]string{"sync.topic.configs.interval.seconds = 30"}, 30 * time.Second},
		{[]string{"refresh.topics.enabled = false", "sync.topic.configs.enabled = false", "sync.topic.acls.interval.seconds = 700"}, 700 * time.Second},
		{[]string{"refresh.topics.enabled = false", "sync.topic.configs.enabled = false", "sync.topic.acls.enabled = false"}, 0},
	} {
		if got := New(Options{Settings: settingsOf(t, kafkaFlow, test.lines...)}).Interval(); got != test.want {
			t.Errorf("%q: got %s, want %s", test.lines, got, test.want)
		}
	}
}
