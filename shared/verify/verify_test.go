package verify_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/shared/verify"
)

// cluster is a Kafka cluster of a test.
type cluster struct {
	t     testing.TB
	addrs []string
	fake  *kfake.Cluster // nil where it is a real one
}

func start(t testing.TB, opts ...kfake.Opt) *cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &cluster{t, c.ListenAddrs(), c}
}

func (c *cluster) dial(context.Context) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(c.addrs...))
}

func (c *cluster) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(20_000),
	}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

func (c *cluster) create(topic string, partitions int32, configs map[string]*string) {
	c.t.Helper()
	all := map[string]*string{"retention.ms": new("-1")} // some records are old
	maps.Copy(all, configs)
	adm := kadm.NewClient(c.client())
	if _, err := adm.CreateTopic(c.t.Context(), partitions, 1, all, topic); err != nil {
		c.t.Fatal(err)
	}
	// A real broker hears of it a little later.
	for {
		ends, err := adm.ListEndOffsets(c.t.Context(), topic)
		if err != nil {
			c.t.Fatal(err)
		}
		if ends.Error() == nil && len(ends[topic]) == int(partitions) {
			return
		}
	}
}

// write appends copies of records to a partition, in batches of a few dozen.
func (c *cluster) write(topic string, partition int32, records []kgo.Record, opts ...kgo.Opt) {
	c.t.Helper()
	client := c.client(opts...)
	for _, r := range records {
		r.Topic, r.Partition = topic, partition
		client.Produce(c.t.Context(), &r, func(_ *kgo.Record, err error) {
			if err != nil {
				c.t.Error(err)
			}
		})
	}
	if err := client.Flush(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// trim deletes what lies before an offset.
func (c *cluster) trim(topic string, partition int32, before int64) {
	c.t.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: partition, At: before})
	done, err := kadm.NewClient(c.client()).DeleteRecords(c.t.Context(), os)
	if err := errors.Join(err, done.Error()); err != nil {
		c.t.Fatal(err)
	}
}

// records are odd ones of all sorts, each of them different.
func records(n int) []kgo.Record {
	rs := make([]kgo.Record, n)
	for i := range rs {
		r := kgo.Record{
			Key: fmt.Append(nil, "key ", i%50), Value: fmt.Append(nil, "value ", i),
			Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)),
		}
		switch i % 10 {
		case 1:
			r.Key = nil
		case 2:
			r.Key = []byte{}
		case 3:
			r.Value = nil
		case 4:
			r.Value = []byte{}
		case 5:
			r.Value = []byte{0xff, 0, 0xfe, byte(i)}
		case 6:
			r.Headers = []kgo.RecordHeader{{Key: "a", Value: []byte{byte(i)}}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte("x")}}
		case 7:
			r.Timestamp = time.UnixMilli(int64(i))
		case 8:
			r.Headers = []kgo.RecordHeader{{Key: "trace", Value: nil}}
		}
		rs[i] = r
	}
	return rs
}

func run(t testing.TB, o verify.Options) verify.Report {
	t.Helper()
	report, err := verify.New(o).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func options(a, b *cluster, topics ...string) verify.Options {
	o := verify.Options{Source: verify.Cluster{Name: "A", Dial: a.dial}, Target: verify.Cluster{Name: "B", Dial: b.dial}}
	for _, topic := range topics {
		o.Pairs = append(o.Pairs, verify.Pair{Source: topic, Target: "A." + topic})
	}
	return o
}

// found lists findings in few words.
func found(topic verify.Topic) []string {
	out := []string{}
	for _, f := range topic.Findings {
		var s strings.Builder
		s.WriteString(fmt.Sprintf("%d: %s", f.Partition, f.Kind))
		if f.Source != nil {
			s.WriteString(" A " + f.Source.String())
		}
		if f.Target != nil {
			s.WriteString(" B " + f.Target.String())
		}
		for _, d := range f.Differences {
			s.WriteString(fmt.Sprintf(" %s %d/%d", d.Field, d.Source, d.Target))
		}
		out = append(out, s.String())
	}
	return out
}

func TestEachFaultIsNamedAndLocated(t *testing.T) {
	testEachFaultIsNamedAndLocated(t, start(t), start(t))
}

func testEachFaultIsNamedAndLocated(t *testing.T, a, b *cluster) {
	const n = 4000
	faults := []struct {
		name   string
		damage func([]kgo.Record) []kgo.Record
		want   string
	}{
		{"none", func(r []kgo.Record) []kgo.Record { return r }, ""},
		{"dropped", func(r []kgo.Record) []kgo.Record { return slices.Delete(r, 1230, 1231) }, "missing A 1230"},
		{"doubled", func(r []kgo.Record) []kgo.Record { return slices.Insert(r, 1240, r[1230]) }, "duplicated A 1230 B 1240"},
		{"swapped", func(r []kgo.Record) []kgo.Record { r[1230], r[1231] = r[1231], r[1230]; return r }, "reordered A 1230 B 1231"},
		{"header byte", func(r []kgo.Record) []kgo.Record {
			r[1236].Headers = slices.Clone(r[1236].Headers)
			r[1236].Headers[0].Value = []byte{0}
			return r
		}, "altered A 1236 B 1236 headers 4/4"},
		{"timestamp", func(r []kgo.Record) []kgo.Record {
			r[1230].Timestamp = r[1230].Timestamp.Add(time.Millisecond)
			return r
		}, "altered A 1230 B 1230 timestamp 1700000001230/1700000001231"},
		{"null made empty", func(r []kgo.Record) []kgo.Record { r[1233].Value = []byte{}; return r }, "altered A 1233 B 1233 value -1/0"},
		{"empty made null", func(r []kgo.Record) []kgo.Record { r[1232].Key = nil; return r }, "altered A 1232 B 1232 key 0/-1"},
		{"behind", func(r []kgo.Record) []kgo.Record { return r[:3900] }, "behind A 3900 to 3999"},
		{"foreign", func(r []kgo.Record) []kgo.Record { return append(r, kgo.Record{Value: []byte("foreign")}) }, "extra B 4000"},
		{"empty", func([]kgo.Record) []kgo.Record { return nil }, "behind A 0 to 3999"},
		{"lost header", func(r []kgo.Record) []kgo.Record { r[1238].Headers = nil; return r }, "header lost A 1238 B 1238 headers 5/0"},
	}
	a.create("faults", int32(len(faults)), nil)
	b.create("A.faults", int32(len(faults)), nil)
	var want []string
	for i, f := range faults {
		a.write("faults", int32(i), records(n))
		b.write("A.faults", int32(i), f.damage(records(n)), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
		if f.want != "" {
			want = append(want, fmt.Sprintf("%d: %s", i, f.want))
		}
	}
	var done, total int64
	o := options(a, b, "faults")
	o.Progress = func(d, t int64) { done, total = d, t }
	report := run(t, o)
	if len(report.Topics) != 1 || report.Verdict != verify.VerdictDifferent {
		t.Fatalf("got %+v, want one topic that differs", report)
	}
	if diff := cmp.Diff(want, found(report.Topics[0])); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	for i, f := range faults {
		if got := report.Topics[0].Partitions[i].Verdict; (got == verify.VerdictEqual) != (f.want == "") {
			t.Errorf("%s: got verdict %s", f.name, got)
		}
	}
	if ends := int64(2*n*len(faults) - n - 100); done != total || total < ends-3 || total > ends+3 {
		t.Errorf("got progress %d of %d, want about %d", done, total, ends)
	}
}

// The same on real Kafka, with one cluster as both sides.
func TestOnRealKafka(t *testing.T) {
	addrs := kafkatest.Start(t, kafka.Options{}).Seeds()
	for name, test := range map[string]func(t *testing.T, a, b *cluster){
		"faults":     testEachFaultIsNamedAndLocated,
		"equal":      testEqualTopics,
		"log starts": testLogStartsDiffer,
		// The fake broker leaves timestamps as they are.
		"timestamps":   testTimestampsOfTheTargetsBrokerAreNotCompared,
		"transactions": testTransactionsOfTheSource,
		"compacted":    testCompactedTopicsAreComparedByKey,
		"kept report":  testAReportSparesReadingAgain,
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{t: t, addrs: addrs}
			test(t, c, c)
		})
	}
}

func TestEqualTopics(t *testing.T) {
	testEqualTopics(t, start(t), start(t))
}

func testEqualTopics(t *testing.T, a, b *cluster) {
	for _, topic := range []string{"orders", "payments", "empty"} {
		a.create(topic, 3, nil)
		b.create("A."+topic, 3, nil)
		if topic != "empty" {
			for p := range int32(2) { // the third stays empty
				a.write(topic, p, records(2500), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
				b.write("A."+topic, p, records(2500), kgo.ProducerBatchMaxBytes(3000))
			}
		}
	}
	report := run(t, options(a, b, "orders", "payments", "empty"))
	if want := (verify.Counts{Source: 10_000, Target: 10_000, Equal: 10_000}); report.Verdict != verify.VerdictEqual || report.Counts != want {
		t.Errorf("got %s %+v, want equal %+v", report.Verdict, report.Counts, want)
	}
	for _, topic := range report.Topics {
		if topic.Verdict != verify.VerdictEqual || len(topic.Findings) > 0 || len(topic.Notes) > 0 || len(topic.Partitions) != 3 {
			t.Errorf("got %+v, want equal", topic)
		}
	}
}

func TestLogStartsDiffer(t *testing.T) {
	testLogStartsDiffer(t, start(t), start(t))
}

func testLogStartsDiffer(t *testing.T, a, b *cluster) {
	a.create("starts", 3, nil)
	b.create("A.starts", 3, nil)
	for p := range int32(3) {
		a.write("starts", p, records(2000))
		b.write("A.starts", p, records(2000))
	}
	a.trim("starts", 0, 150)
	b.trim("A.starts", 1, 250)
	a.trim("starts", 2, 2000)
	want := []string{"0: unprovable B 0 to 149", "1: unprovable A 0 to 249", "2: unprovable B 0 to 1999"}
	o := options(a, b, "starts")
	report := run(t, o)
	if report.Verdict != verify.VerdictUnprovable {
		t.Errorf("got verdict %s, want unprovable", report.Verdict)
	}
	if diff := cmp.Diff(want, found(report.Topics[0])); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if got := report.Topics[0].Findings[1].Reason; got != "expired on B" {
		t.Errorf("got reason %q", got)
	}
	o.AllowUnprovable = true
	if got := run(t, o).Verdict; got != verify.VerdictEqual {
		t.Errorf("got verdict %s with what is unprovable allowed, want equal", got)
	}
}

func TestLostHeadersMayBeAllowed(t *testing.T) {
	a, b := start(t), start(t)
	a.create("orders", 1, nil)
	b.create("A.orders", 1, nil)
	a.write("orders", 0, records(100))
	damaged := records(100)
	for i := range damaged {
		damaged[i].Headers = slices.DeleteFunc(damaged[i].Headers, func(h kgo.RecordHeader) bool { return h.Value == nil })
	}
	b.write("A.orders", 0, damaged)
	o := options(a, b, "orders")
	if got := run(t, o); got.Verdict != verify.VerdictDifferent || got.Counts.HeaderLost != 10 || len(got.Topics[0].Findings) != 10 {
		t.Errorf("got %+v, want 10 records with lost headers", got)
	}
	o.AllowLostHeaders = true
	if got := run(t, o); got.Verdict != verify.VerdictEqual || got.Counts.HeaderLost != 10 {
		t.Errorf("got %+v, want equal, and 10 lost headers all the same", got)
	}
}

func testTimestampsOfTheTargetsBrokerAreNotCompared(t *testing.T, a, b *cluster) {
	a.create("appended", 1, nil)
	b.create("A.appended", 1, map[string]*string{"message.timestamp.type": new("LogAppendTime")})
	a.write("appended", 0, records(1000))
	b.write("A.appended", 0, slices.Delete(records(1000), 500, 501))
	report := run(t, options(a, b, "appended"))
	if diff := cmp.Diff([]string{"0: missing A 500"}, found(report.Topics[0])); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	want := []string{"timestamps are not compared where B sets its own (message.timestamp.type = LogAppendTime)"}
	if diff := cmp.Diff(want, report.Topics[0].Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestTransactionsOfTheSource(t *testing.T) {
	testTransactionsOfTheSource(t, start(t), start(t))
}

func testTransactionsOfTheSource(t *testing.T, a, b *cluster) {
	a.create("transactions", 1, nil)
	client := a.client(kgo.TransactionalID("writer"))
	var committed, all []kgo.Record
	rs := records(1200)
	for i, ends := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		part := rs[100*i : 100*(i+1)]
		for _, r := range part {
			r.Topic = "transactions"
			client.Produce(t.Context(), &r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), ends); err != nil {
			t.Fatal(err)
		}
		all = append(all, part...)
		if ends == kgo.TryCommit {
			committed = append(committed, part...)
		}
	}
	// Without one, the log ends in a marker that nobody sees.
	for _, test := range []struct {
		name      string
		committed bool
		copied    []kgo.Record
	}{
		{"read_uncommitted", false, all},
		{"read_committed", true, committed},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := "A." + test.name
			b.create(name, 1, nil)
			b.write(name, 0, test.copied)
			o := options(a, b)
			o.Source.Committed = test.committed
			o.Pairs = []verify.Pair{{Source: "transactions", Target: name}}
			report := run(t, o)
			n := int64(len(test.copied))
			if want := (verify.Counts{Source: n, Target: n, Equal: n}); report.Counts != want || report.Verdict != verify.VerdictEqual {
				t.Errorf("got %s %+v, want equal %+v", report.Verdict, report.Counts, want)
			}
		})
	}
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	a, b := start(t), start(t)
	a.create("orders", 3, nil)
	a.create("lonely", 1, nil)
	b.create("A.orders", 1, nil)
	b.create("A.gone", 1, nil)
	for _, p := range []int32{0, 1} {
		a.write("orders", p, records(10))
	}
	b.write("A.orders", 0, records(10))
	report := run(t, options(a, b, "orders", "lonely", "gone"))
	orders, lonely, gone := report.Topics[0], report.Topics[1], report.Topics[2]
	if p := orders.Partitions[1]; orders.Verdict != verify.VerdictDifferent || p.Error != "partition 1 is not on B" {
		t.Errorf("got %+v, want partition 1 missing", orders)
	}
	if diff := cmp.Diff([]string{"partition 2 is not on B; it is empty"}, orders.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if lonely.Verdict != verify.VerdictDifferent || lonely.Error != "topic A.lonely is not on B" {
		t.Errorf("got %+v, want a topic that is not on B", lonely)
	}
	if gone.Verdict != verify.VerdictFailed || gone.Error == "" {
		t.Errorf("got %+v, want a topic that cannot be read", gone)
	}
	if report.Verdict != verify.VerdictFailed {
		t.Errorf("got verdict %s, want failed", report.Verdict)
	}
}

func TestFindingsAreBoundedAndCounted(t *testing.T) {
	a, b := start(t), start(t)
	a.create("orders", 2, nil)
	b.create("A.orders", 2, nil)
	for p := range int32(2) {
		damaged := records(1000)
		for i := 0; i < 1000; i += 20 {
			damaged[i].Value = []byte("other")
		}
		a.write("orders", p, records(1000))
		b.write("A.orders", p, damaged)
	}
	o := options(a, b, "orders")
	o.Findings = 30
	topic := run(t, o).Topics[0]
	if len(topic.Findings) != 30 || topic.Omitted != 70 || topic.Counts.Altered != 100 {
		t.Errorf("got %d findings, %d omitted, %d altered, want 30, 70, 100", len(topic.Findings), topic.Omitted, topic.Counts.Altered)
	}
}

// What happens to a partition while it is read.
func TestWhileItIsRead(t *testing.T) {
	const n = 20_000
	for name, test := range map[string]struct {
		happens func(a *cluster)
		verdict verify.Verdict
		counts  verify.Counts
		err     string
	}{
		"its leader changes": {
			happens: func(a *cluster) {
				leader := a.fake.LeaderFor("orders", 0)
				if err := a.fake.MoveTopicPartition("orders", 0, 1-leader); err != nil {
					t.Error(err)
				}
			},
			verdict: verify.VerdictEqual, counts: verify.Counts{Source: n, Target: n, Equal: n},
		},
		"its beginning expires": {
			happens: func(a *cluster) { a.trim("orders", 0, n-100) },
			verdict: verify.VerdictUnprovable, counts: verify.Counts{Source: 100, Target: n, Equal: 100, UnprovableTarget: n - 100},
		},
		"its topic is created again": {
			happens: func(a *cluster) {
				if _, err := kadm.NewClient(a.client()).DeleteTopic(t.Context(), "orders"); err != nil {
					t.Error(err)
				}
				a.create("orders", 1, nil)
			},
			verdict: verify.VerdictFailed, err: "the topic was deleted and created again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t), start(t)
			a.create("orders", 1, nil)
			b.create("A.orders", 1, nil)
			a.write("orders", 0, records(n))
			b.write("A.orders", 0, records(n))
			o := options(a, b, "orders")
			var once sync.Once
			o.Progress = func(int64, int64) { once.Do(func() { test.happens(a) }) }
			report, err := verify.New(o).Fetch(10_000).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p := report.Topics[0].Partitions[0]
			if p.Verdict != test.verdict || test.err == "" && p.Counts != test.counts || !strings.Contains(p.Error, test.err) {
				t.Errorf("got %+v, want %s %+v %s", p, test.verdict, test.counts, test.err)
			}
		})
	}
}

func TestAnInterruptedComparisonIsNotEqual(t *testing.T) {
	a, b := start(t), start(t)
	a.create("orders", 1, nil)
	b.create("A.orders", 1, nil)
	a.write("orders", 0, records(5000))
	b.write("A.orders", 0, records(5000))
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := options(a, b, "orders")
	o.Progress = func(int64, int64) { cancel(stop) }
	report, err := verify.New(o).Run(ctx)
	if !errors.Is(err, stop) || report.Verdict == verify.VerdictEqual {
		t.Errorf("got %v and verdict %s, want the cause", err, report.Verdict)
	}
}

func TestNoClusterNoReport(t *testing.T) {
	a := start(t)
	a.create("orders", 1, nil)
	gone := errors.New("no way there")
	o := options(a, a, "orders")
	o.Target.Dial = func(context.Context) (*kgo.Client, error) { return nil, gone }
	if report, err := verify.New(o).Run(t.Context()); !errors.Is(err, gone) || report.Verdict != verify.VerdictFailed {
		t.Errorf("got %v, verdict %s", err, report.Verdict)
	}
	if _, err := verify.New(options(a, a)).Run(t.Context()); err == nil {
		t.Error("got no error without topics")
	}
}

// A million records pass through the memory of a few thousand.
func BenchmarkRun(b *testing.B) {
	const n = 20_000
	source, target := start(b), start(b)
	source.create("orders", 1, nil)
	target.create("A.orders", 1, nil)
	value := make([]byte, 1024)
	rs := make([]kgo.Record, n)
	for i := range rs {
		rs[i] = kgo.Record{Key: fmt.Append(nil, i), Value: value, Timestamp: time.UnixMilli(int64(i))}
	}
	for _, c := range []struct {
		*cluster
		topic string
	}{{source, "orders"}, {target, "A.orders"}} {
		c.write(c.topic, 0, rs, kgo.ProducerBatchMaxBytes(1_000_000), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	}
	o := options(source, target, "orders")
	b.ReportAllocs()
	b.SetBytes(2 * n * 1024)
	for b.Loop() {
		if report, err := verify.New(o).Run(b.Context()); err != nil || report.Verdict != verify.VerdictEqual {
			b.Fatal(err, report.Verdict)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/1e6, "MB-of-process")
}
