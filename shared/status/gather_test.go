package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/shared/cluster"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/status"
)

// world is a flow A->B that copies the topics orders and users.
type world struct {
	t        *testing.T
	a, b     *kgo.Client
	store    state.Store
	settings config.Flow
	options  status.Options
	versions map[flow.TopicPartition]int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, broker(t, "orders", "ignored"), broker(t, "A.orders", "local"))
}

func newWorldOn(t *testing.T, a, b string) *world {
	t.Helper()
	c := config.Parse("test", []byte(`
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.topics = orders, users
`), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	settings, _ := c.Flow(flow.Flow{Source: "A", Target: "B"})
	file, err := embedded.Open(filepath.Join(t.TempDir(), "state.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	store, err := file.Store(settings.Flow)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, store: store, settings: settings, versions: map[flow.TopicPartition]int64{},
		a: dial(t, "A", a), b: dial(t, "B", b),
	}
	w.options = status.Options{
		Settings: settings, Store: store, Source: w.a, Target: w.b,
		Now: func() time.Time { return noon }, Timeout: 10 * time.Second,
	}
	return w
}

// broker starts a cluster with topics of two partitions and returns its address.
func broker(t *testing.T, topics ...string) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func dial(t *testing.T, alias, address string) *kgo.Client {
	t.Helper()
	c, err := cluster.Dial(alias, map[string]string{"bootstrap.servers": address}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// nowhere is a client of a cluster at which nothing listens.
func nowhere(t *testing.T, alias string) *kgo.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return dial(t, alias, l.Addr().String())
}

// fill appends n records with a timestamp.
func (w *world) fill(client *kgo.Client, topic string, partition int32, n int, at time.Time) {
	w.t.Helper()
	for range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("secret content"), Timestamp: at}
		if err := client.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) id(client *kgo.Client, topic string) state.TopicID {
	w.t.Helper()
	topics, err := kadm.NewClient(client).ListTopics(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	return state.TopicID(topics[topic].ID)
}

// at stores that n records of a partition of orders are copied.
func (w *world) at(partition int32, n int64, change ...func(*state.Position)) {
	w.t.Helper()
	tp := flow.TopicPartition{Topic: "orders", Partition: partition}
	p := state.Position{
		Version: w.versions[tp], Upstream: n, Downstream: n, Copied: n,
		SourceTopicID: w.id(w.a, "orders"), TargetTopicID: w.id(w.b, "A.orders"),
	}
	if n > 0 {
		p.Newest = noon.Add(-3 * time.Second).UnixMilli()
	}
	for _, f := range change {
		f(&p)
	}
	if _, err := w.store.Advance(w.t.Context(), map[flow.TopicPartition]state.Position{tp: p}); err != nil {
		w.t.Fatal(err)
	}
	w.versions[tp]++
}

func (w *world) gather() status.Report {
	w.t.Helper()
	r, err := status.Gather(w.t.Context(), w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.Contains(string(text), "secret") {
		w.t.Errorf("the report shows a record: %s", text)
	}
	var again status.Report
	if err := json.Unmarshal(text, &again); err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(r, again); diff != "" {
		w.t.Errorf("the report is another one as JSON (-before +after):\n%s", diff)
	}
	return r
}

// want gathers and checks the sentence.
func (w *world) want(answer status.Answer, sentence string) status.Report {
	w.t.Helper()
	r := w.gather()
	if r.Answer != answer || r.Sentence != sentence {
		w.t.Errorf("got  %s: %s\nwant %s: %s", r.Answer, r.Sentence, answer, sentence)
	}
	return r
}

func TestACompleteFlow(t *testing.T) {
	w := newWorld(t)
	w.fill(w.a, "orders", 0, 3, noon)
	w.fill(w.b, "A.orders", 0, 3, noon)
	w.at(0, 3)
	w.at(1, 0)
	seen := noon.Add(-time.Hour)
	_, err := w.store.PutEventSource(t.Context(), state.EventSource{
		Topic: "orders", Group: "mirrorless/dev/A/B/orders", State: "Enabled", LastResult: "OK", PartialFailures: true, Partitions: 2, Updated: seen,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.PutHoles(t.Context(), []state.Hole{
		{TopicPartition: flow.TopicPartition{Topic: "orders"}, From: 1, To: 2, Kind: "unexplained", Records: 1, Seen: seen},
		{TopicPartition: flow.TopicPartition{Topic: "orders"}, From: 7, To: 12, Kind: state.SecondCopy, Records: 5, Seen: seen},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.store.PutCheckpoints(t.Context(), []state.Checkpoint{
		{Group: "app", TopicPartition: flow.TopicPartition{Topic: "A.orders"}, Upstream: 2, Downstream: 1, Written: seen},
		{Group: "app", TopicPartition: flow.TopicPartition{Topic: "A.orders", Partition: 1}, Written: seen.Add(time.Minute)},
		{Group: "batch", TopicPartition: flow.TopicPartition{Topic: "A.orders"}, Upstream: 3, Downstream: 2, Written: seen},
	}); err != nil {
		t.Fatal(err)
	}
	w.options.Failures = status.Failures{
		{Topic: "orders", Partition: 1}:                    {Error: "timed out", At: seen, Attempts: 4},
		{Topic: "orders", Partition: status.AllPartitions}: {Error: "no leader", At: seen},
	}

	got := w.gather()
	got.Source.ID, got.Target.ID = "", ""
	want := status.Report{
		Flow:     "A->B",
		Sentence: "B holds everything that A had at 12:03:07.412, but copying fails (orders: no leader; and 1 more); 1 hole is recorded (1 record); 5 records are on B twice.",
		Answer:   status.No,
		At:       noon,
		Running:  true,
		Source:   status.Cluster{Alias: "A"},
		Target:   status.Cluster{Alias: "B"},
		Topics: []status.Topic{{
			Topic: "orders", Remote: "A.orders",
			EventSource: &status.EventSource{Group: "mirrorless/dev/A/B/orders", State: "Enabled", LastResult: "OK", PartialFailures: true, Updated: seen},
			LastError:   &status.Failure{Error: "no leader", At: seen},
			Partitions: []status.Partition{
				{Prepared: true, Position: 3, Downstream: 3, End: 3, Copied: 3, Newest: noon.Add(-3 * time.Second), AgeSeconds: 3},
				{Partition: 1, Prepared: true, AgeSeconds: -1, LastError: &status.Failure{Error: "timed out", At: seen, Attempts: 4}},
			},
		}},
		Holes: []status.Hole{{Kind: "unexplained", Topic: "orders", From: 1, To: 2, Records: 1, Seen: seen}},
		Twice: []status.Hole{{Kind: "second copy", Topic: "orders", From: 7, To: 12, Records: 5, Seen: seen}},
		Groups: []status.Group{
			{Group: "app", Written: seen.Add(time.Minute), Partitions: []status.GroupPartition{
				{Topic: "A.orders", Upstream: 2, Downstream: 1, Written: seen},
				{Topic: "A.orders", Partition: 1, Written: seen.Add(time.Minute)},
			}},
			{Group: "batch", Written: seen, Partitions: []status.GroupPartition{{Topic: "A.orders", Upstream: 3, Downstream: 2, Written: seen}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestEventSourcesAreAskedOfWhoRunsThem(t *testing.T) {
	w := newWorld(t)
	seen := noon.Add(-time.Hour)
	w.at(0, 0)
	w.at(1, 0)
	stored := state.EventSource{ID: "1", Topic: "orders", Group: "g", State: "Creating", LastResult: "old", PartialFailures: true, Partitions: 2, Updated: seen}
	if _, err := w.store.PutEventSource(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	remembered := status.EventSource{ID: "1", Group: "g", State: "Creating", LastResult: "old", PartialFailures: true, Updated: seen}
	for name, c := range map[string]struct {
		live  map[string]status.EventSource
		err   error
		want  status.EventSource
		error string
	}{
		"and they tell": {
			live: map[string]status.EventSource{"orders": {ID: "2", Group: "g", State: "Enabled", LastResult: "OK"}},
			want: status.EventSource{ID: "2", Group: "g", State: "Enabled", LastResult: "OK", Live: true, PartialFailures: true, Updated: seen},
		},
		"and one is gone": {
			live: map[string]status.EventSource{},
			want: status.EventSource{ID: "1", Group: "g", State: status.Missing, Live: true},
		},
		"and they do not answer": {err: errors.New("not authorized"), want: remembered, error: "not authorized"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t, w.options.EventSources = t, func(context.Context) (map[string]status.EventSource, error) { return c.live, c.err }
			r := w.gather()
			if diff := cmp.Diff(&c.want, r.Topics[0].EventSource); diff != "" || r.EventSourcesError != c.error {
				t.Errorf("got error %q, want %q; event source (-want +got):\n%s", r.EventSourcesError, c.error, diff)
			}
		})
	}
}

func TestRecordsThatAreNotCopied(t *testing.T) {
	w := newWorld(t)
	w.fill(w.a, "orders", 0, 1, noon.Add(-time.Hour))
	w.fill(w.a, "orders", 0, 2, noon.Add(-4*time.Minute))
	w.fill(w.b, "A.orders", 0, 1, noon)
	w.at(0, 1)
	w.at(1, 0)
	r := w.want(status.No, "B is 2 records behind A in 1 of 2 partitions; the oldest of them is 4m old.")
	if got, want := r.Topics[0].Partitions[0].Oldest, noon.Add(-4*time.Minute); !got.Equal(want) {
		t.Errorf("oldest: got %s want %s", got, want)
	}
}

func TestTheEndOfATransactionIsNothingToCopy(t *testing.T) {
	t.Run("kfake", func(t *testing.T) { theEndOfATransaction(t, newWorld(t)) })
	t.Run("Kafka", func(t *testing.T) {
		// One cluster is both.
		address := kafkatest.Start(t, kafka.Options{}).Seeds()[0]
		admin := kadm.NewClient(dial(t, "A", address))
		if _, err := admin.CreateTopics(t.Context(), 2, 1, nil, "orders", "A.orders"); err != nil {
			t.Fatal(err)
		}
		theEndOfATransaction(t, newWorldOn(t, address, address))
	})
}

func theEndOfATransaction(t *testing.T, w *world) {
	t.Helper()
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(w.a.OptValue(kgo.SeedBrokers).([]string)...), kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	transaction := func(end kgo.TransactionEndTry, logEnd int64) {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		w.fill(producer, "orders", 0, 1, noon.Add(-time.Minute))
		if err := producer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		// Kafka answers before the marker is in the log.
		for {
			ends, err := kadm.NewClient(w.a).ListEndOffsets(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			if o, _ := ends.Lookup("orders", 0); o.Offset == logEnd {
				return
			}
		}
	}
	transaction(kgo.TryCommit, 2)
	w.fill(w.b, "A.orders", 0, 1, noon)
	w.at(0, 1)
	w.at(1, 0)
	r := w.want(status.Yes, "B holds everything that A had at 12:03:07.412.")
	if p := r.Topics[0].Partitions[0]; p.Position != 1 || p.End != 2 {
		t.Errorf("got position %d and end %d, want 1 and 2", p.Position, p.End)
	}
	// An event source delivers the records of an aborted one.
	transaction(kgo.TryAbort, 4)
	w.want(status.No, "B is 2 records behind A in 1 of 2 partitions; the oldest of them is 1m old.")
	// A flow that reads committed records copies none of them, nor waits for those
	// that are undecided.
	w.options.Settings.IsolationLevel = "read_committed"
	w.want(status.Yes, "B holds everything that A had at 12:03:07.412.")
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	w.fill(producer, "orders", 0, 1, noon.Add(-time.Minute))
	w.want(status.Yes, "B holds everything that A had at 12:03:07.412.")
	w.options.Settings.IsolationLevel = ""
	w.want(status.No, "B is 3 records behind A in 1 of 2 partitions; the oldest of them is 1m old.")
	if err := producer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

func TestPartitionsWithoutAPosition(t *testing.T) {
	w := newWorld(t)
	w.fill(w.a, "orders", 1, 2, noon)
	r := w.want(status.No, "B is 2 records behind A in 1 of 2 partitions; the oldest of them is 0s old; 2 of 2 partitions not prepared yet.")
	want := []status.Partition{
		{Position: -1, Downstream: -1, AgeSeconds: -1, Note: "not prepared: topics writes the first position"},
		{Partition: 1, Position: -1, Downstream: -1, End: 2, Behind: 2, Oldest: noon, AgeSeconds: -1, Note: "not prepared: topics writes the first position"},
	}
	if diff := cmp.Diff(want, r.Topics[0].Partitions); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	w.options.Settings.AutoOffsetReset = "latest"
	w.want(status.Yes, "B holds everything that A had at 12:03:07.412; 2 of 2 partitions not prepared yet.")
}

func TestClustersThatDoNotAnswer(t *testing.T) {
	w := newWorld(t)
	w.fill(w.a, "orders", 0, 5, noon)
	w.at(0, 2)
	w.at(1, 0)
	w.options.Timeout = 300 * time.Millisecond

	// Copying goes on in the state: everything that A knows is there.
	w.options.Target = nowhere(t, "B")
	r := w.gather()
	if r.Answer != status.Unknown || !strings.HasPrefix(r.Sentence, "B is 3 records behind A in 1 of 2 partitions, by what is stored; the oldest of them is 0s old; B does not answer (connect to cluster B at 127.0.0.1:") {
		t.Errorf("without B: got %s: %s", r.Answer, r.Sentence)
	}
	w.options.Target = w.b

	// Of A's topics B's names and the positions tell.
	w.options.Source = nowhere(t, "A")
	r = w.gather()
	if r.Answer != status.Unknown || !strings.HasPrefix(r.Sentence, "B cannot be judged: A does not answer (connect to cluster A at 127.0.0.1:") ||
		!strings.HasSuffix(r.Sentence, "; the newest record it has is 3s old; B has lost 2 records.") {
		t.Errorf("without A: got %s: %s", r.Answer, r.Sentence)
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 2 {
		t.Fatalf("without A: got topics %+v", r.Topics)
	}
	want := status.Partition{
		Prepared: true, Position: 2, Downstream: 2, End: -1, Behind: -1, Lost: 2, Copied: 2,
		Newest: noon.Add(-3 * time.Second), AgeSeconds: 3, Note: "ends at 0 on B, not at 2; A does not answer",
	}
	if diff := cmp.Diff(want, r.Topics[0].Partitions[0]); diff != "" {
		t.Errorf("partition (-want +got):\n%s", diff)
	}

	w.options.Source, w.options.Target = nil, nil
	w.want(status.Unknown, "B cannot be judged: A does not answer (there is no client of it); B does not answer (there is no client of it).")
}

func TestTopicsThatAreNotWhatTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*world)
		sentence string
		note     string
	}{
		"B is shorter": {
			func(w *world) { w.at(0, 5) },
			"B holds everything that A had at 12:03:07.412, but B has lost 1 record.",
			"ends at 4 on B, not at 5",
		},
		"B was created again": {
			func(w *world) { w.at(0, 5, func(p *state.Position) { p.TargetTopicID[0]++ }) },
			"B holds everything that A had at 12:03:07.412, but B has lost 5 records.",
			"A.orders was created again on B",
		},
		"A was created again": {
			func(w *world) { w.at(0, 9, func(p *state.Position) { p.Downstream = 4; p.SourceTopicID[0]++ }) },
			"B is 5 records behind A in 1 of 2 partitions; the oldest of them is 0s old.",
			"created again on A",
		},
		"A has lost records": {
			func(w *world) { w.at(0, 9, func(p *state.Position) { p.Downstream = 4 }) },
			"B holds everything that A had at 12:03:07.412.",
			"A ends at 5, before the position 9: it has lost records",
		},
		"A's retention was faster": {
			func(w *world) {
				w.at(0, 1)
				offsets := kadm.Offsets{}
				offsets.AddOffset("orders", 0, 3, -1)
				if _, err := kadm.NewClient(w.a).DeleteRecords(w.t.Context(), offsets); err != nil {
					w.t.Fatal(err)
				}
			},
			"B is 2 records behind A in 1 of 2 partitions; the oldest of them is 0s old; A deleted 2 offsets before they were copied.",
			"A deleted offsets 1 to 2 before they were copied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fill(w.a, "orders", 0, 5, noon)
			w.fill(w.b, "A.orders", 0, 4, noon)
			w.at(1, 0)
			c.change(w)
			r := w.gather()
			if r.Sentence != c.sentence {
				t.Errorf("got  %s\nwant %s", r.Sentence, c.sentence)
			}
			if got := r.Topics[0].Partitions[0].Note; got != c.note {
				t.Errorf("note: got %q want %q", got, c.note)
			}
		})
	}
}

func TestAClusterThatIsAnotherOne(t *testing.T) {
	w := newWorld(t)
	w.at(0, 0)
	w.at(1, 0)
	r := w.want(status.Yes, "B holds everything that A had at 12:03:07.412.")
	if _, err := w.store.PutFlow(t.Context(), state.FlowRow{Flow: w.settings.Flow, SourceClusterID: r.Source.ID, TargetClusterID: "another"}); err != nil {
		t.Fatal(err)
	}
	w.want(status.Unknown, "B cannot be judged: B is another cluster than the one that the state describes ("+r.Target.ID+", not another).")
}

func TestATopicThatIsGoneFromTheSource(t *testing.T) {
	w := newWorld(t)
	if _, err := w.store.PutEventSource(t.Context(), state.EventSource{Topic: "users", Partitions: 1, State: "Enabled"}); err != nil {
		t.Fatal(err)
	}
	w.at(0, 0)
	w.at(1, 0)
	r := w.gather()
	if len(r.Topics) != 2 || r.Topics[1].Note != "not on A any more" || r.Topics[1].Partitions[0].Behind != 0 {
		t.Errorf("got topics %+v", r.Topics)
	}
}
