package kafka_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
	"mirrorless/localstack/process"
)

func client(t *testing.T, c *kafka.Cluster, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(options, kgo.SeedBrokers(c.Seeds()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func limit(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("test took longer than %s", d))
	t.Cleanup(cancel)
	return ctx
}

func TestOneBrokerServesClientsAndKafkasOwnTools(t *testing.T) {
	ctx := limit(t, 3*time.Minute)
	in := kafkatest.Find(t)
	began := time.Now()
	c := kafkatest.Start(t, kafka.Options{Properties: map[string]string{"auto.create.topics.enable": "false"}})
	t.Logf("one broker was ready after %s", time.Since(began).Round(time.Millisecond))
	cl := client(t, c, kgo.DefaultProduceTopic("orders"))
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("first"), kgo.StringRecord("second")).FirstErr(); err != nil {
		t.Fatal(err)
	}

	topics, err := in.Tool(ctx, "kafka-topics", "--bootstrap-server", c.Bootstrap(), "--list")
	if err != nil {
		t.Fatal(err)
	}
	if topics != "orders\n" {
		t.Errorf("got topics %q, want orders", topics)
	}
	records, err := in.Tool(ctx, "kafka-console-consumer", "--bootstrap-server", c.Bootstrap(), "--topic", "orders", "--from-beginning", "--max-messages", "2")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(records); len(got) != 2 {
		t.Errorf("got records %q, want two", records)
	}
	_, err = in.Tool(ctx, "kafka-topics", "--bootstrap-server", c.Bootstrap(), "--describe", "--topic", "payments")
	if err == nil || !strings.Contains(err.Error(), "payments") {
		t.Errorf("got %v for a topic that is not there, want the tool's own words", err)
	}
	if _, err := in.Tool(ctx, "kafka-everything"); err == nil || !strings.Contains(err.Error(), "kafka-everything") {
		t.Errorf("got %v for an unknown tool, want its name", err)
	}
}

func TestThreeBrokersGoOnWithoutAKilledLeader(t *testing.T) {
	ctx := limit(t, 4*time.Minute)
	began := time.Now()
	c := kafkatest.Start(t, kafka.Options{Brokers: 3, Properties: map[string]string{"min.insync.replicas": "2"}})
	t.Logf("three brokers were ready after %s", time.Since(began).Round(time.Millisecond))
	cl := client(t, c, kgo.DefaultProduceTopic("orders"))
	admin := kadm.NewClient(cl)
	if _, err := admin.CreateTopic(ctx, 1, 3, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("before")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	topics, err := admin.ListTopics(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	leader := int(topics["orders"].Partitions[0].Leader)
	if err := c.Kill(leader); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := cl.ProduceSync(ctx, kgo.StringRecord("after")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	t.Logf("another leader took a record after %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	if err := c.Restart(ctx, leader); err != nil {
		t.Fatal(err)
	}
	t.Logf("the killed broker was back after %s", time.Since(began).Round(time.Millisecond))
	if err := c.Stop(ctx, leader); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(ctx, leader); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("at last")).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestOneBrokerKeepsRecordsThroughAKill(t *testing.T) {
	ctx := limit(t, 3*time.Minute)
	c := kafkatest.Start(t, kafka.Options{})
	cl := client(t, c, kgo.DefaultProduceTopic("orders"), kgo.AllowAutoTopicCreation())
	if err := cl.ProduceSync(ctx, kgo.StringRecord("kept")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.Restart(ctx, c.Nodes()[0]); err != nil {
		t.Fatal(err)
	}
	t.Logf("the killed broker was back after %s", time.Since(began).Round(time.Millisecond))
	reader := client(t, c, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := reader.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	if got := string(fetches.Records()[0].Value); got != "kept" {
		t.Errorf("got record %q, want kept", got)
	}
}

func TestStartRefusesWhatIsInUse(t *testing.T) {
	in := kafkatest.Find(t)
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kafkatest.Start(t, kafka.Options{Ports: ports, Dir: dir})
	for want, options := range map[string]kafka.Options{
		"Address already in use": {Ports: ports},
		dir + " is not empty":    {Dir: dir},
		"1 ports for 2 brokers":  {Brokers: 2, Ports: ports},
	} {
		c, err := in.Start(t.Context(), options)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestStartTellsWhyABrokerEnds(t *testing.T) {
	in := kafkatest.Find(t)
	c, err := in.Start(t.Context(), kafka.Options{Properties: map[string]string{"num.partitions": "none"}})
	if err == nil {
		c.Close()
		t.Fatal("got a cluster with num.partitions = none")
	}
	if !strings.Contains(err.Error(), "num.partitions") {
		t.Errorf("got %v, want the broker's own words", err)
	}
}

func TestMirrorMakerReplicates(t *testing.T) {
	ctx := limit(t, 4*time.Minute)
	in := kafkatest.Find(t)
	a, b := kafkatest.Start(t, kafka.Options{}), kafkatest.Start(t, kafka.Options{})
	dir := t.TempDir()
	properties := filepath.Join(dir, "mm2.properties")
	lines := []string{
		"clusters = A, B",
		"A.bootstrap.servers = " + a.Bootstrap(),
		"B.bootstrap.servers = " + b.Bootstrap(),
		"A->B.enabled = true",
		"A->B.topics = orders",
		"replication.factor = 1",
		"offset-syncs.topic.replication.factor = 1", "checkpoints.topic.replication.factor = 1", "heartbeats.topic.replication.factor = 1",
		"offset.storage.replication.factor = 1", "status.storage.replication.factor = 1", "config.storage.replication.factor = 1",
	}
	if err := os.WriteFile(properties, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	producer := client(t, a, kgo.DefaultProduceTopic("orders"), kgo.AllowAutoTopicCreation())
	if err := producer.ProduceSync(ctx, kgo.StringRecord("mirrored")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	mm2, err := in.MirrorMaker(properties, filepath.Join(dir, "mm2.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer mm2.Close()
	reader := client(t, b, kgo.ConsumeTopics("A.orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	fetches := reader.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		log, _ := os.ReadFile(mm2.LogFile())
		t.Fatalf("%v\n%s", err, log)
	}
	t.Logf("MirrorMaker 2 had copied a record after %s", time.Since(began).Round(time.Millisecond))
	if got := string(fetches.Records()[0].Value); got != "mirrored" {
		t.Errorf("got record %q, want mirrored", got)
	}
	usage, err := mm2.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if usage.CPU <= 0 || usage.PeakMemory <= 0 {
		t.Errorf("got usage %+v, want more than nothing", usage)
	}
	if err := mm2.Stop(ctx); err != nil {
		t.Error(err)
	}
}
