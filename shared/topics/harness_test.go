package topics_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/topics"
)

var aToB = flow.Flow{Source: "A", Target: "B"}

// world is two clusters and a state, in a bubble of its own time.
type world struct {
	t      *testing.T
	a, b   *cluster
	config *config.Config
	store  state.Store
	logs   *logs
	start  time.Time
}

// cluster is one of the two, with clients to look at it.
type cluster struct {
	*kfake.Cluster
	client *kgo.Client
	admin  *kadm.Client
	opts   []kgo.Opt
}

// in runs a test between a cluster A of three brokers and a cluster B of one, with
// lines added to the properties of A->B.
func in(t *testing.T, lines string, test func(t *testing.T, w *world)) {
	t.Helper()
	inClusters(t, lines, nil, nil, test)
}

func inClusters(t *testing.T, lines string, a, b []kfake.Opt, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, logs: &logs{}, start: time.Now()}
		w.a = w.cluster(3, append([]kfake.Opt{kfake.ClusterID("id-of-A")}, a...))
		w.b = w.cluster(1, append([]kfake.Opt{kfake.ClusterID("id-of-B")}, b...))
		file, err := embedded.Open(filepath.Join(t.TempDir(), "state"), embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if w.store, err = file.Store(aToB); err != nil {
			t.Fatal(err)
		}
		w.configure(lines)
		test(t, w)
	})
}

func (w *world) cluster(brokers int, opts []kfake.Opt) *cluster {
	w.t.Helper()
	var network kfake.VirtualNetwork
	ports := []int{9092, 9093, 9094}[:brokers]
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(brokers), kfake.Ports(ports...), kfake.ListenFn(network.Listen)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	clientOpts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	client, err := kgo.NewClient(clientOpts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	return &cluster{c, client, kadm.NewClient(client), clientOpts}
}

// configure reads a file that enables A->B and nothing else.
func (w *world) configure(lines string) {
	w.t.Helper()
	file := "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n" +
		"A->B.enabled = true\nB->A.enabled = false\n" + lines
	w.config = config.Parse("mm2.properties", []byte(file), config.Sources{})
	if err := w.config.Err(); err != nil {
		w.t.Fatal(err)
	}
}

// topics is a function's worth of topics: what it has learned is gone with it.
func (w *world) topics(change ...func(*topics.Options)) *topics.Topics {
	w.t.Helper()
	settings, _ := w.config.Flow(aToB)
	reverse, _ := w.config.Flow(aToB.Reverse())
	o := topics.Options{
		Settings: settings, Reverse: &reverse, Store: w.store,
		Source: w.a.client, Target: w.b.client, Stack: "test", Logger: slog.New(w.logs),
	}
	for _, c := range change {
		c(&o)
	}
	return topics.New(o)
}

func with(sources topics.EventSources) func(*topics.Options) {
	return func(o *topics.Options) { o.EventSources = sources }
}

// run does a round that must succeed.
func (w *world) run(t *topics.Topics) {
	w.t.Helper()
	if err := t.Run(w.t.Context()); err != nil {
		w.t.Fatalf("run: %v", err)
	}
}

// create makes a topic on a cluster.
func (w *world) create(c *cluster, name string, partitions int32, configs map[string]string) {
	w.t.Helper()
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = new(v)
	}
	if _, err := c.admin.CreateTopic(w.t.Context(), partitions, -1, values, name); err != nil {
		w.t.Fatal(err)
	}
}

// produce writes n records to a partition.
func (w *world) produce(c *cluster, topic string, partition int32, n int) {
	w.t.Helper()
	client, err := kgo.NewClient(c.opts...) // one that knows of new partitions
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Append(nil, i), Timestamp: time.Now()}
		if err := client.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// names are the topics of a cluster with their partitions.
func (w *world) names(c *cluster) map[string]int {
	w.t.Helper()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(w.t.Context(), c.client)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]int{}
	for _, t := range resp.Topics {
		out[*t.Topic] = len(t.Partitions)
	}
	return out
}

// configs are those that somebody set on a topic.
func (w *world) configs(c *cluster, topic string) map[string]string {
	w.t.Helper()
	list, err := c.admin.DescribeTopicConfigs(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list[0].Configs {
		if e.Source == kmsg.ConfigSourceDynamicTopicConfig {
			out[e.Key] = e.MaybeValue()
		}
	}
	return out
}

// position is the stored position of a partition, false if there is none.
func (w *world) position(topic string, partition int32) (state.Position, bool) {
	w.t.Helper()
	tp := flow.TopicPartition{Topic: topic, Partition: partition}
	got, err := w.store.Positions(w.t.Context(), []flow.TopicPartition{tp})
	if err != nil {
		w.t.Fatal(err)
	}
	p, ok := got[tp]
	return p, ok
}

// upstream is where a partition begins.
func (w *world) upstream(topic string, partition int32) int64 {
	w.t.Helper()
	p, ok := w.position(topic, partition)
	if !ok {
		w.t.Fatalf("%s-%d has no position", topic, partition)
	}
	return p.Upstream
}

// changes counts the requests that change something on a cluster.
func (c *cluster) changes() *kfake.FaultHandle {
	return c.Fault(kfake.Fault{
		Keys:    []kmsg.Key{kmsg.CreateTopics, kmsg.CreatePartitions, kmsg.IncrementalAlterConfigs, kmsg.AlterConfigs, kmsg.CreateACLs, kmsg.InitProducerID, kmsg.DeleteTopics},
		Observe: true, Count: -1,
	})
}

// logs keeps what was logged.
type logs struct {
	mu      sync.Mutex
	records []string
}

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) WithGroup(string) slog.Handler            { return l }
func (l *logs) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, line)
	return nil
}

// take returns the lines since the last take that contain a word.
func (l *logs) take(word string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range l.records {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	l.records = nil
	return out
}

// mappings are event sources as Lambda keeps them, in memory.
type mappings struct {
	mu    sync.Mutex
	all   map[string]topics.EventSource
	next  int
	calls []string
	// slow leaves what is created, changed or deleted on its way until settle.
	slow bool
	// fail, if set, may refuse a call before it has an effect.
	fail func(call string) error
}

func newMappings() *mappings { return &mappings{all: map[string]topics.EventSource{}} }

func (m *mappings) call(name string) error {
	if m.fail != nil {
		if err := m.fail(name); err != nil {
			return err
		}
	}
	m.calls = append(m.calls, name)
	return nil
}

func (m *mappings) List(context.Context) ([]topics.EventSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		if err := m.fail("list"); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(m.all), func(a, b topics.EventSource) int { return strings.Compare(a.ID, b.ID) }), nil
}

func (m *mappings) Create(_ context.Context, spec topics.EventSourceSpec) (topics.EventSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("create " + spec.Topic); err != nil {
		return topics.EventSource{}, err
	}
	for _, s := range m.all {
		if s.Group == spec.Group {
			return s, nil
		}
	}
	m.next++
	s := topics.EventSource{EventSourceSpec: spec, ID: fmt.Sprintf("id-%03d", m.next), State: topics.StateEnabled}
	if m.slow {
		s.State = "Creating"
	}
	m.all[s.ID] = s
	return s, nil
}

func (m *mappings) Update(_ context.Context, id string, spec topics.EventSourceSpec) (topics.EventSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("update " + spec.Topic); err != nil {
		return topics.EventSource{}, err
	}
	s := m.all[id]
	start := s.Start
	s.EventSourceSpec = spec
	s.Start = start
	s.State = topics.StateDisabled
	if spec.Enabled {
		s.State = topics.StateEnabled
	}
	if m.slow {
		s.State = "Updating"
	}
	m.all[id] = s
	return s, nil
}

func (m *mappings) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("delete " + m.all[id].Topic); err != nil {
		return err
	}
	if s := m.all[id]; m.slow && s.ID != "" {
		s.State = "Deleting"
		m.all[id] = s
		return nil
	}
	delete(m.all, id)
	return nil
}

// settle lets what is on its way arrive.
func (m *mappings) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.all {
		switch {
		case s.State == "Deleting":
			delete(m.all, id)
			continue
		case s.Enabled:
			s.State = topics.StateEnabled
		default:
			s.State = topics.StateDisabled
		}
		m.all[id] = s
	}
}

// take returns the calls since the last take.
func (m *mappings) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	slices.Sort(calls)
	return calls
}
