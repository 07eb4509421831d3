package topics

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
	"mirrorless/shared/kafkaevent"
)

// topicsNamed are topics of the source with one partition each.
func topicsNamed(r rules, names ...string) []topic {
	slices.Sort(names)
	var all []topic
	for _, name := range names {
		all = append(all, topic{name: name, remote: r.selector.Remote(name), topicView: topicView{leaders: []int32{0}}})
	}
	return all
}

func TestCopiesThatCannotHaveTheirNames(t *testing.T) {
	identity := []string{"replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "offset.storage.topic = positions"}
	long := strings.Repeat("x", 243)
	for _, test := range []struct {
		name   string
		lines  []string
		topics []string
		want   []error
		begin  []string
	}{
		{name: "a prefix keeps names apart", topics: []string{"a", "b", "source.a.b"}, begin: []string{"a", "b", "source.a.b"}},
		{
			name:  "a topic of replication's own",
			lines: identity, topics: []string{"orders", "positions"},
			want:  []error{&CollisionError{Cluster: "target", Name: "positions", Topics: []string{"positions"}, Internal: true}},
			begin: []string{"orders"},
		},
		{name: "heartbeats, which have a prefix under any policy", lines: identity, topics: []string{"heartbeats", "source.heartbeats"}, begin: []string{"heartbeats", "source.heartbeats"}},
		{
			name: "a name that the prefix makes too long", topics: []string{long, "orders"},
			want: []error{&NameError{Cluster: "target", Name: "source." + long, Topic: long}}, begin: []string{"orders"},
		},
		{name: "the longest name", topics: []string{long[1:]}, begin: []string{long[1:]}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rulesOf(settingsOf(t, kafkaFlow, test.lines...))
			p := r.diff(observation{topics: topicsNamed(r, test.topics...), keepsSources: true})
			if diff := cmp.Diff(test.want, p.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			var created, begin, sources []string
			for _, n := range p.Create {
				created = append(created, n.Source)
			}
			for _, tp := range p.Begin {
				begin = append(begin, tp.Topic)
			}
			for _, c := range p.EventSources {
				sources = append(sources, c.topic())
			}
			slices.Sort(test.begin)
			if !slices.Equal(created, test.begin) || !slices.Equal(begin, test.begin) || !slices.Equal(sources, test.begin) {
				t.Errorf("got %q created, %q begun, event sources of %q, want %q each", created, begin, sources, test.begin)
			}
		})
	}
}

// No policy there is gives two topics one name; this does not depend on it.
func TestTwoTopicsAreNotCopiedIntoOne(t *testing.T) {
	r := rulesOf(settingsOf(t, kafkaFlow))
	o := observation{topics: topicsNamed(r, "a", "b", "c")}
	o.topics[2].remote = o.topics[0].remote
	p := r.diff(o)
	want := []error{&CollisionError{Cluster: "target", Name: "source.a", Topics: []string{"a", "c"}}}
	if diff := cmp.Diff(want, p.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if len(p.Create) != 1 || p.Create[0].Source != "b" || len(p.Begin) != 1 {
		t.Errorf("got plan %+v, want b alone copied", p)
	}
}

func TestTopicsThatSeveralFlowsCopyInto(t *testing.T) {
	of := func(from, to string, names ...string) FlowPlan {
		p := FlowPlan{Flow: flow.Flow{Source: from, Target: to}}
		for _, name := range names {
			p.Plan.Copies = append(p.Plan.Copies, Copy{Source: name, Name: name})
		}
		return p
	}
	plans := []FlowPlan{of("A", "C", "orders", "a"), of("B", "C", "orders", "b"), of("A", "B", "orders"), of("D", "C", "orders")}
	want := []Mixed{{Cluster: "C", Topic: "orders", Flows: []flow.Flow{{Source: "A", Target: "C"}, {Source: "B", Target: "C"}, {Source: "D", Target: "C"}}}}
	if diff := cmp.Diff(want, MixedTopics(plans)); diff != "" {
		t.Errorf("mixed topics (-want +got):\n%s", diff)
	}
}

func TestRecordsThatAnEventCannotCarryAreWarnedOf(t *testing.T) {
	r := rulesOf(settingsOf(t, kafkaFlow))
	fits := carried("orders", r.envelope())
	for _, test := range []struct {
		name, value string
		warned      bool
	}{
		{"the brokers' default", "1048588", false},
		{"just what fits", strconv.FormatInt(fits+batchOverhead, 10), false},
		{"one byte more", strconv.FormatInt(fits+batchOverhead+1, 10), true},
		{"ten megabytes", "10485760", true},
		{"nothing that can be read", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := observation{topics: topicsNamed(r, "orders"), configs: map[string]described{"orders": {
				entries: []configEntry{{name: "max.message.bytes", value: test.value, source: kmsg.ConfigSourceDynamicTopicConfig}},
			}}}
			p := r.diff(o)
			if len(p.Warnings) == 1 != test.warned {
				t.Errorf("got warnings %v", p.Warnings)
			}
		})
	}
	// The limit is the event source's own arithmetic.
	record := kafkaevent.Record{Topic: "orders", Timestamp: 1e12, Offset: 1e12, TimestampType: kafkaevent.CreateTime, Key: []byte{}, Value: make([]byte, fits)}
	event := kafkaevent.Event{Source: kafkaevent.SourceMSK, SourceARN: strings.Repeat("x", mostARN), BootstrapServers: "localhost:9092", Records: []kafkaevent.Record{record}}
	if got := len(kafkaevent.Encode(event)); got > kafkaevent.MaxPayload || got < kafkaevent.MaxPayload-100 {
		t.Errorf("got an event of %d bytes with the largest record, want just below %d", got, kafkaevent.MaxPayload)
	}
}

func TestCopiesAreListedWhateverThereIsToDo(t *testing.T) {
	r := rulesOf(settingsOf(t, kafkaFlow))
	o := observation{topics: topicsNamed(r, "there", "new"), target: view{topics: map[string]topicView{"source.there": {leaders: []int32{0}}}}}
	want := []Copy{{"new", "source.new", 1}, {"there", "source.there", 1}}
	if diff := cmp.Diff(want, r.diff(o).Copies); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
}

func TestAConfigChangeTellsWhatWas(t *testing.T) {
	r := rulesOf(settingsOf(t, kafkaFlow))
	entry := func(name, value string) configEntry {
		return configEntry{name: name, value: value, source: kmsg.ConfigSourceDynamicTopicConfig}
	}
	hidden := entry("segment.ms", "3")
	hidden.sensitive = true
	o := observation{
		topics: topicsNamed(r, "t"), target: view{topics: map[string]topicView{"source.t": {leaders: []int32{0}}}}, syncConfigs: true,
		configs:       map[string]described{"t": {entries: []configEntry{entry("retention.ms", "1"), entry("segment.ms", "2"), entry("flush.ms", "4")}}},
		remoteConfigs: map[string]described{"source.t": {entries: []configEntry{entry("retention.ms", "9"), hidden, entry("max.message.bytes", "5")}}},
	}
	p := r.diff(o)
	if len(p.Configs) != 1 {
		t.Fatalf("got changes %v, want one topic's", p.Configs)
	}
	if diff := cmp.Diff(map[string]string{"retention.ms": "9"}, p.Configs[0].Was); diff != "" {
		t.Errorf("values before (-want +got):\n%s", diff)
	}
}

func TestLackingRights(t *testing.T) {
	const read, write = kmsg.ACLOperationRead, kmsg.ACLOperationWrite
	for _, test := range []struct {
		name    string
		allowed int32
		want    []kmsg.ACLOperation
	}{
		{"none of them", 1 << kmsg.ACLOperationDescribe, []kmsg.ACLOperation{read, write}},
		{"one of them", 1 << read, []kmsg.ACLOperation{write}},
		{"all of them", 1<<read | 1<<write, nil},
		{"brokers that do not tell", untold, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := lacking(test.allowed, []kmsg.ACLOperation{read, write}); !slices.Equal(got, test.want) {
				t.Errorf("got %v lacking, want %v", got, test.want)
			}
		})
	}
}

func TestErrorsOfRightsSayWhatToGrant(t *testing.T) {
	refused := errors.New("not authorized")
	for _, test := range []struct {
		err  RightError
		want string
	}{
		{RightError{Right: "CREATE", Resource: "topic", Name: "A.t", Cluster: "B", Err: refused}, "not authorized: grant CREATE on topic A.t of cluster B"},
		{RightError{Right: "READ", Resource: "group", Name: "g", Cluster: "A", For: "it commits there"}, "grant READ on group g of cluster A: it commits there"},
		{RightError{Right: "ALTER", Resource: "cluster", Cluster: "B"}, "grant ALTER on cluster B"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
