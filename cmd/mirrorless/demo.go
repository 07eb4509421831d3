package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"mirrorless/localstack/stack"
	"mirrorless/shared/config"
)

func demoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a replication between two clusters in this process",
		Long: `demo starts two Kafka clusters in this process, A with three brokers and B with
one, and replicates from the one to the other, first as people try MirrorMaker 2
first, then with a consumer group that moves from A to B. Nothing is needed but
this program. The clusters are fakes (kfake); "make test" does the same on real
ones.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if !keep {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, time.Minute, errors.New("the demo took longer than a minute"))
				defer cancel()
			}
			return demo(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "go on until Ctrl-C, for Kafka's own tools on 127.0.0.1:19092 (A) and 127.0.0.1:19192 (B)")
	return cmd
}

// The ports of the demo's clusters.
var (
	portsA = []int{19092, 19093, 19094}
	portsB = []int{19192}
)

// The two configurations that the demo shows; servers are filled in.
const (
	firstFile = `clusters = A, B
A.bootstrap.servers = %[1]s
B.bootstrap.servers = %[2]s
A->B.enabled = true
A->B.topics = mm2-source-topic
B->A.enabled = false
`
	secondFile = `clusters = source, target
source.bootstrap.servers = %[1]s
target.bootstrap.servers = %[2]s
source->target.enabled = true
source->target.topics = .*
source->target.groups = .*
source->target.sync.group.offsets.enabled = true
source->target.sync.group.offsets.interval.seconds = 60
replication.factor = 1
tasks.max = 4
`
	// hurry cuts the intervals, so that nobody has to wait for minutes.
	hurry = `refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
source->target.sync.group.offsets.interval.seconds = 1
`
)

// player tells the demo's story.
type player struct {
	out    io.Writer
	logger *slog.Logger
	dir    string
	a, b   *kgo.Client
	kept   stores
}

func demo(ctx context.Context, out, logs io.Writer, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "mirrorless-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := &player{out: out, dir: dir, logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelError}))}
	a, err := fake("demo-A", portsA, keep)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := fake("demo-B", portsB, keep)
	if err != nil {
		return err
	}
	defer b.Close()
	if p.a, err = kgo.NewClient(kgo.SeedBrokers(a.ListenAddrs()...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner())); err != nil {
		return err
	}
	defer p.a.Close()
	if p.b, err = kgo.NewClient(kgo.SeedBrokers(b.ListenAddrs()...)); err != nil {
		return err
	}
	defer p.b.Close()
	if p.kept, err = openFile(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.kept.Close()) }()

	fmt.Fprintf(out, "Two clusters run in this process: A, three brokers, %s; B, one broker, %s.\n",
		strings.Join(a.ListenAddrs(), ","), strings.Join(b.ListenAddrs(), ","))
	fmt.Fprintf(out, "Intervals that are minutes by default are cut to a second here.\n\n")
	first, err := p.first(ctx, a.ListenAddrs(), b.ListenAddrs())
	if err == nil && !keep {
		err = first.stop()
	}
	if err != nil {
		return err
	}
	second, err := p.second(ctx, a.ListenAddrs(), b.ListenAddrs())
	if err != nil {
		return err
	}
	if keep {
		fmt.Fprintf(out, "\nBoth flows go on until Ctrl-C. Try\n\n  kafka-console-producer --bootstrap-server %s --topic mm2-source-topic\n  kafka-console-consumer --bootstrap-server %s --topic A.mm2-source-topic --from-beginning\n",
			a.ListenAddrs()[0], b.ListenAddrs()[0])
		<-ctx.Done()
		return errors.Join(first.stop(), second.stop())
	}
	if err := second.stop(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nDone. To do this with your own clusters: mirrorless run mm2.properties")
	return nil
}

// fake starts a cluster on its ports; where it is not to be found there by
// others, any free ports will do.
func fake(id string, ports []int, keep bool) (*kfake.Cluster, error) {
	// Kafka's own tools ask newer requests in ways that the fake does not know.
	opts := []kfake.Opt{kfake.ClusterID(id), kfake.NumBrokers(len(ports)), kfake.MaxVersions(kversion.V3_5_0())}
	c, err := kfake.NewCluster(append(opts, kfake.Ports(ports...))...)
	if err == nil {
		return c, nil
	}
	if keep {
		return nil, fmt.Errorf("start a cluster on ports %v: %w", ports, err)
	}
	return kfake.NewCluster(opts...)
}

// start runs the flow of a properties file, which is printed.
func (p *player) start(ctx context.Context, name, text string, a, b []string) (*runner, config.Flow, error) {
	text = fmt.Sprintf(text, strings.Join(a, ","), strings.Join(b, ","))
	for line := range strings.Lines(text) {
		fmt.Fprintf(p.out, "    %s", line)
	}
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text+hurry), 0o600); err != nil {
		return nil, config.Flow{}, err
	}
	c, err := loadConfig(path)
	if err == nil {
		err = c.Err()
	}
	if err != nil {
		return nil, config.Flow{}, err
	}
	settings := c.Enabled()[0]
	store, err := p.kept.Store(ctx, settings)
	if err != nil {
		return nil, config.Flow{}, err
	}
	r := &runner{logger: p.logger, out: p.out, logs: p.out, file: path, dir: p.dir, name: "demo"}
	err = r.start(ctx, stack.Options{Config: c, Flow: settings, Store: store, Name: "demo", Logger: p.logger})
	return r, settings, err
}

// first is what people try first: old records, then live ones.
func (p *player) first(ctx context.Context, a, b []string) (*runner, error) {
	const topic = "mm2-source-topic"
	if err := p.create(ctx, topic, 3); err != nil {
		return nil, err
	}
	if err := p.produce(ctx, topic, "clusterA-msg-%d", 0, 50); err != nil {
		return nil, err
	}
	fmt.Fprintf(p.out, "1. %s on A has 50 records, clusterA-msg-0 to clusterA-msg-49. This file makes a copy of it on B:\n\n", topic)
	r, settings, err := p.start(ctx, "first.properties", firstFile, a, b)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	reader, err := p.reader(settings.RemoteTopic(topic), b)
	if err != nil {
		return r, err
	}
	defer reader.Close()
	old, err := receive(ctx, reader, 50)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(p.out, "\n   %d records were on B %s after the start: %s … %s\n", len(old), since(began), old[0], old[len(old)-1])

	var worst time.Duration
	for i := range 10 {
		sent := time.Now()
		if err := p.produce(ctx, topic, "live-msg-%d", i, i+1); err != nil {
			return r, err
		}
		if _, err := receive(ctx, reader, 1); err != nil {
			return r, err
		}
		worst = max(worst, time.Since(sent))
	}
	fmt.Fprintf(p.out, "   Ten live records, live-msg-0 to live-msg-9: each was on B within %s (the event source waits %s to fill a batch)\n",
		worst.Round(time.Millisecond), settings.BatchDelay)
	return r, p.topics(ctx, "A.mm2-source-topic", "A.heartbeats", "A.checkpoints.internal", "heartbeats", "mm2-offsets.A.internal")
}

// second moves a consumer group.
func (p *player) second(ctx context.Context, a, b []string) (*runner, error) {
	const group, committed, expired = "billing", 17, 5
	if err := p.create(ctx, "orders", 1); err != nil {
		return nil, err
	}
	if err := p.produce(ctx, "orders", "order-%d", 0, 40); err != nil {
		return nil, err
	}
	// A topic of A that has lost its beginning: offsets on A and B differ.
	var gone kadm.Offsets
	gone.Add(kadm.Offset{Topic: "orders", At: expired})
	if _, err := kadm.NewClient(p.a).DeleteRecords(ctx, gone); err != nil {
		return nil, err
	}
	var at kadm.Offsets
	at.Add(kadm.Offset{Topic: "orders", At: committed, LeaderEpoch: -1})
	if _, err := kadm.NewClient(p.a).CommitOffsets(ctx, group, at); err != nil {
		return nil, err
	}
	fmt.Fprintf(p.out, "\n2. Group %s on A has read orders up to offset %d; the records below %d have expired. This file moves the group too:\n\n", group, committed, expired)
	r, settings, err := p.start(ctx, "second.properties", secondFile, a, b)
	if err != nil {
		return nil, err
	}
	remote := settings.RemoteTopic("orders")
	// While the copy is not that far yet, the group is at its end on B.
	got, err := p.committed(ctx, group, remote, committed-expired)
	if err != nil {
		return r, err
	}
	reader, err := p.reader(remote, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{remote: {0: kgo.NewOffset().At(got)}}))
	if err != nil {
		return r, err
	}
	defer reader.Close()
	next, err := receive(ctx, reader, 1)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(p.out, "\n   Group %s on B goes on at offset %d of %s, which is %s\n", group, got, remote, next[0])
	if want := fmt.Sprintf("order-%d", committed); next[0] != want {
		return r, fmt.Errorf("the group would go on at %s, want %s", next[0], want)
	}
	return r, p.topics(ctx, "source.orders", "source.mm2-source-topic", "source.heartbeats", "source.checkpoints.internal", "mm2-offsets.source.internal")
}

func (p *player) create(ctx context.Context, topic string, partitions int32) error {
	made, err := kadm.NewClient(p.a).CreateTopics(ctx, partitions, 1, nil, topic)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		return fmt.Errorf("create %s on A: %w", topic, err)
	}
	return nil
}

func (p *player) produce(ctx context.Context, topic, format string, from, to int) error {
	var records []*kgo.Record
	for i := from; i < to; i++ {
		records = append(records, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, format, i)})
	}
	return p.a.ProduceSync(ctx, records...).FirstErr()
}

// reader reads a topic of B from its start, unless opts say otherwise; the topic
// need not exist yet.
func (p *player) reader(topic string, b []string, opts ...kgo.Opt) (*kgo.Client, error) {
	if len(opts) == 0 {
		opts = []kgo.Opt{kgo.ConsumeTopics(topic)}
	}
	return kgo.NewClient(append(opts, kgo.SeedBrokers(b...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(200*time.Millisecond))...)
}

// receive waits for n records.
func receive(ctx context.Context, reader *kgo.Client, n int) ([]string, error) {
	var values []string
	for len(values) < n {
		fetches := reader.PollRecords(ctx, n-len(values))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, kerr.UnknownTopicOrPartition) {
				return nil, fmt.Errorf("read %s on B: %w", e.Topic, e.Err)
			}
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values, nil
}

// committed waits until the group has got as far as an offset on B.
func (p *player) committed(ctx context.Context, group, topic string, least int64) (int64, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		offsets, err := kadm.NewClient(p.b).FetchOffsets(ctx, group)
		if o, ok := offsets.Lookup(topic, 0); err == nil && ok && o.At >= least {
			return o.At, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for group %s on B: %w", group, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// topics prints the topics of B once those that are wanted are there.
func (p *player) topics(ctx context.Context, want ...string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		listed, err := kadm.NewClient(p.b).ListTopics(ctx)
		if err != nil {
			return err
		}
		names := listed.Names()
		if !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(names, w) }) {
			slices.Sort(names)
			fmt.Fprintf(p.out, "   Topics on B: %s\n", strings.Join(names, ", "))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for topics on B, which has %s: %w", strings.Join(names, ", "), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
