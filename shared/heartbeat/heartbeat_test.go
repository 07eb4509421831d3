package heartbeat_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/heartbeat"
	"mirrorless/shared/mm2"
	"mirrorless/shared/producer"
)

// options are those of A->B in a file with the given lines besides.
func options(t *testing.T, lines string) heartbeat.Options {
	t.Helper()
	c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"+lines), config.Sources{})
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	ab := flow.Flow{Source: "A", Target: "B"}
	settings, _ := c.Flow(ab)
	reverse, ok := c.Flow(ab.Reverse())
	if !ok {
		t.Fatal("got no settings of B->A")
	}
	return heartbeat.Options{Settings: settings, Reverse: &reverse}
}

// cluster is a fake cluster in memory, which a synctest bubble may hold.
type cluster struct {
	*kfake.Cluster
	network kfake.VirtualNetwork
}

func start(t *testing.T, opts ...kfake.Opt) *cluster {
	t.Helper()
	c := &cluster{}
	fake, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(c.network.Listen))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	c.Cluster = fake
	return c
}

func (c *cluster) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(c.network.DialContext))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// record is a heartbeat as it lies on a cluster.
type record struct {
	Partition      int32
	Source, Target string
	Time, Value    int64 // timestamps of the record and in its value
}

// heartbeats reads all that is in the heartbeats topic.
func (c *cluster) heartbeats(t *testing.T) []record {
	t.Helper()
	ends, err := kadm.NewClient(c.client(t)).ListEndOffsets(t.Context(), "heartbeats")
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += max(o.Offset, 0) })
	client := c.client(t, kgo.ConsumeTopics("heartbeats"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []record
	for int64(len(got)) < n {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			h, err := mm2.ParseHeartbeat(r.Key, r.Value)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, record{r.Partition, h.Source, h.Target, r.Timestamp.UnixMilli(), h.Timestamp})
		}
	}
	return got
}

const now = 1_796_050_689_844 // of the first record that a MirrorMaker 2 wrote

func clock() time.Time { return time.UnixMilli(now) }

func beat(source, target string) []record {
	return []record{{Source: source, Target: target, Time: now, Value: now}}
}

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		lines        string
		wantA, wantB []record
	}{
		"beats on the target and, for the reverse pair, on the source": {
			wantA: beat("B", "A"), wantB: beat("A", "B"),
		},
		"leaves the source to the deployment of the other direction": {
			lines: "B->A.enabled = true", wantB: beat("A", "B"),
		},
		"is silent where the file switches heartbeats off": {
			lines: "emit.heartbeats.enabled = false",
		},
		"beats on one side where the other is switched off": {
			lines: "A->B.emit.heartbeats.enabled = false", wantA: beat("B", "A"),
		},
		"leaves out the reverse pair where it is switched off": {
			lines: "B->A.emit.heartbeats.enabled = false", wantB: beat("A", "B"),
		},
		"names clusters as the file wants them in records": {
			lines: "A->B.source.cluster.alias = primary", wantA: beat("B", "A"), wantB: beat("primary", "B"),
		},
		"writes to the same topic whatever the separator": {
			lines: "replication.policy.separator = _", wantA: beat("B", "A"), wantB: beat("A", "B"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t, kfake.SeedTopics(1, "heartbeats")), start(t, kfake.SeedTopics(1, "heartbeats"))
			o := options(t, test.lines)
			o.Source, o.Target, o.Now = a.client(t), b.client(t), clock
			if err := heartbeat.New(o).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.wantA, a.heartbeats(t)); diff != "" {
				t.Errorf("heartbeats on A (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantB, b.heartbeats(t)); diff != "" {
				t.Errorf("heartbeats on B (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunBeatsBackWithoutSettingsOfTheReversePair(t *testing.T) {
	a, b := start(t, kfake.SeedTopics(1, "heartbeats")), start(t, kfake.SeedTopics(1, "heartbeats"))
	o := options(t, "")
	o.Reverse, o.Source, o.Target, o.Now = nil, a.client(t), b.client(t), clock
	if err := heartbeat.New(o).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(beat("B", "A"), a.heartbeats(t)); diff != "" {
		t.Errorf("heartbeats on A (-want +got):\n%s", diff)
	}
}

// The bytes are those that a MirrorMaker 2 4.3.1 of B->A wrote at that time.
func TestRunWritesTheBytesOfMirrorMaker(t *testing.T) {
	text, err := os.ReadFile("testdata/heartbeats.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Ts         int64
		Key, Value string
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	want := vectors[0]
	a, b := start(t, kfake.SeedTopics(1, "heartbeats")), start(t, kfake.SeedTopics(1, "heartbeats"))
	o := options(t, "")
	o.Source, o.Target, o.Now = a.client(t), b.client(t), func() time.Time { return time.UnixMilli(want.Ts) }
	if err := heartbeat.New(o).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := a.client(t, kgo.ConsumeTopics("heartbeats"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := client.PollRecords(t.Context(), 1).Records()[0]
	if diff := cmp.Diff([]string{want.Key, want.Value}, []string{hex.EncodeToString(got.Key), hex.EncodeToString(got.Value)}); diff != "" {
		t.Errorf("key and value (-want +got):\n%s", diff)
	}
}

func TestRunGoesOnWithoutTheRightToWriteOnTheSource(t *testing.T) {
	a, b := start(t, kfake.SeedTopics(1, "heartbeats")), start(t, kfake.SeedTopics(1, "heartbeats"))
	denied := a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "heartbeats", Err: kerr.TopicAuthorizationFailed, Count: -1})
	var log bytes.Buffer
	o := options(t, "")
	o.Source, o.Target, o.Logger = a.client(t), b.client(t), slog.New(slog.NewTextHandler(&log, nil))
	at := clock()
	o.Now = func() time.Time { return at }
	e := heartbeat.New(o)
	for range 3 {
		if err := e.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		at = at.Add(2 * time.Minute)
	}
	if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("got log %q, want one warning that names the missing right", log.String())
	}
	if got := len(b.heartbeats(t)); got != 3 {
		t.Errorf("got %d heartbeats on B, want 3", got)
	}
	denied.Remove()
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(a.heartbeats(t)); got != 1 {
		t.Errorf("got %d heartbeats on A once that is allowed, want 1", got)
	}
}

func TestRunGoesOnWhenTheSourceIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, kfake.SeedTopics(1, "heartbeats"))
		var log bytes.Buffer
		o := options(t, "")
		dark, err := kgo.NewClient(kgo.SeedBrokers("localhost:1"), kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no route")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer dark.Close()
		o.Source, o.Target, o.Logger = dark, b.client(t), slog.New(slog.NewTextHandler(&log, nil))
		e := heartbeat.New(o)
		began := time.Now()
		for range 30 {
			if err := e.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("30 beats took %s, want the source to be left alone after the first", took)
		}
		if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "no route") {
			t.Errorf("got log %q, want one warning", log.String())
		}
		if got := len(b.heartbeats(t)); got != 30 {
			t.Errorf("got %d heartbeats on B, want 30", got)
		}
	})
}

func TestRunNamesTheMissingTopic(t *testing.T) {
	a, b := start(t, kfake.SeedTopics(1, "heartbeats")), start(t)
	o := options(t, "")
	o.Source, o.Target = a.client(t), b.client(t)
	err := heartbeat.New(o).Run(t.Context())
	if !errors.Is(err, producer.ErrNoTopic) || !strings.Contains(err.Error(), "cluster B") || !strings.Contains(err.Error(), "heartbeats") {
		t.Errorf("got error %v, want one that names cluster and topic", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := start(t, kfake.SeedTopics(1, "heartbeats")), start(t, kfake.SeedTopics(1, "heartbeats"))
		o := options(t, "")
		o.Source, o.Target = a.client(t), b.client(t)
		e := heartbeat.New(o)
		stuck := make(chan struct{})
		b.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			b.SleepControl(func() { <-stuck })
			return nil, nil, false
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err := e.Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want that of the context", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %s, want 3s", took)
		}
		close(stuck)
	})
}
