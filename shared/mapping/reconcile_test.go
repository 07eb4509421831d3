package mapping_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/mapping"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/topics"
)

// world is two clusters, a state and Lambda's API, in a bubble of its own time.
type world struct {
	t        *testing.T
	a, b     *kgo.Client
	settings config.Flow
	store    state.Store
	api      *lambdaapi.API
	watch    *watch
	// file says how Lambda reaches A, mskFile unless set, and change what else
	// mappings are made with.
	file   string
	change []func(*mapping.Options)
}

// in runs a test in a world with some topics on A. The beats of the reverse
// direction, and so their mapping, are left out.
func in(t *testing.T, o lambdaapi.Options, lines string, names []string, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, watch: &watch{before: map[int]error{}, after: map[int]error{}}}
		w.a = w.cluster("id-of-A", kfake.SeedTopics(1, names...))
		w.b = w.cluster("id-of-B")
		file, err := embedded.Open(filepath.Join(t.TempDir(), "state"), embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		ab := flow.Flow{Source: "A", Target: "B"}
		if w.store, err = file.Store(ab); err != nil {
			t.Fatal(err)
		}
		c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n"+
			"A->B.enabled = true\nB->A.enabled = false\nB->A.emit.heartbeats.enabled = false\n"+mskFile+"\n"+lines), config.Sources{})
		if err := c.Err(); err != nil {
			t.Fatal(err)
		}
		w.settings, _ = c.Flow(ab)
		o.Faults = w.watch.faults()
		w.api = lambdaapi.New(o)
		defer w.api.Close()
		test(t, w)
	})
}

func (w *world) cluster(id string, opts ...kfake.Opt) *kgo.Client {
	w.t.Helper()
	var network kfake.VirtualNetwork
	c, err := kfake.NewCluster(append(opts, kfake.ClusterID(id), kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen))...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(network.DialContext))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	return client
}

// function is the function topics as it is after a cold start.
func (w *world) function() *topics.Topics {
	w.t.Helper()
	return topics.New(topics.Options{
		Settings: w.settings, Store: w.store, Source: w.a, Target: w.b, Stack: "test", Logger: slog.New(slog.DiscardHandler),
		EventSources: w.sources(),
	})
}

func (w *world) sources() *mapping.EventSources {
	w.t.Helper()
	return sourcesOf(w.t, w.api, cmp.Or(w.file, mskFile), append(w.change, func(o *mapping.Options) { o.Window = w.settings.BatchDelay })...)
}

// round is an invocation of a minute, with the next one a minute later.
func (w *world) round(f *topics.Topics) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	next := time.After(time.Minute)
	err := f.Run(ctx)
	<-next
	return err
}

// expectOnePerTopic fails unless each topic has a mapping that is Enabled, and
// nothing else has one.
func (w *world) expectOnePerTopic(names ...string) {
	w.t.Helper()
	got := list(w.t, w.sources())
	for _, name := range names {
		if got[name].State != topics.StateEnabled {
			w.t.Errorf("got %q for %s, want it Enabled", got[name].State, name)
		}
	}
	if len(got) != len(names) {
		w.t.Errorf("got %d mappings, want %d", len(got), len(names))
	}
}

func TestTwoThousandTopicsConverge(t *testing.T) {
	size := 2000
	if testing.Short() {
		size = 200
	}
	var names []string
	for i := range size {
		names = append(names, fmt.Sprintf("topic-%04d", i))
	}
	// As much of Lambda's rate as there is, and the time that its changes take.
	in(t, lambdaapi.Options{Rate: 15, Delay: 40 * time.Second}, "", names, func(t *testing.T, w *world) {
		rounds := 0
		for f := w.function(); ; rounds++ {
			before := w.watch.total()
			if err := w.round(f); err != nil {
				t.Fatal(err)
			}
			if w.watch.writes(before) == 0 {
				break
			}
			if rounds > 15 {
				t.Fatalf("got no end after %d rounds", rounds)
			}
		}
		w.watch.expectRate(t, 10)
		if got := w.watch.count(0, lambdaapi.Create); got != len(names) {
			t.Errorf("got %d creates, want %d", got, len(names))
		}
		if got := w.watch.count(0, lambdaapi.Update, lambdaapi.Delete); got != 0 {
			t.Errorf("got %d updates and deletes, want none", got)
		}
		w.expectOnePerTopic(names...)

		// A cold start changes nothing either.
		before := w.watch.total()
		if err := w.round(w.function()); err != nil {
			t.Fatal(err)
		}
		if got := w.watch.writes(before); got != 0 {
			t.Errorf("got %d writes when nothing had changed, want none", got)
		}
		t.Logf("%d mappings in %d rounds", len(names), rounds)
	})
}

func TestDriftIsRepairedOnce(t *testing.T) {
	names := []string{"orders", "clicks"}
	for _, window := range []string{"0", "500", "1000", "1200", "7000"} {
		t.Run("window "+window, func(t *testing.T) {
			in(t, lambdaapi.Options{Delay: 10 * time.Second}, "mirrorless.batch.window = "+window, names, func(t *testing.T, w *world) {
				f := w.function()
				for range 2 {
					if err := w.round(f); err != nil {
						t.Fatal(err)
					}
				}
				// Somebody turns a knob.
				s := w.sources()
				orders := list(t, s)["orders"]
				changed := orders.EventSourceSpec
				changed.BatchSize, changed.Window, changed.Enabled = 1, 30*time.Second, false
				must[topics.EventSource](t)(s.Update(t.Context(), orders.ID, changed))
				time.Sleep(time.Minute)
				before := w.watch.total()
				for range 4 {
					if err := w.round(f); err != nil {
						t.Fatal(err)
					}
				}
				if got := w.watch.writes(before); got != 1 {
					t.Errorf("got %d writes, want one update", got)
				}
				w.expectOnePerTopic(names...)
				if got := list(t, s)["orders"].EventSourceSpec; got != orders.EventSourceSpec {
					t.Errorf("got %+v, want it as it was: %+v", got, orders.EventSourceSpec)
				}
			})
		})
	}
}

// What a spec does not tell is brought up to the file too, by one update, also
// where Lambda's answer is not what was asked for.
func TestSettingsOutsideTheSpecAreBroughtUpToDateOnce(t *testing.T) {
	const other = selfManagedFile
	for name, test := range map[string]struct {
		before, after string
		change        func(*mapping.Options)
		expect        func(*lambda.GetEventSourceMappingOutput) bool
	}{
		"login": {before: other, after: strings.ReplaceAll(other, "secret:a", "secret:b"), expect: func(m *lambda.GetEventSourceMappingOutput) bool {
			return strings.HasSuffix(*m.SourceAccessConfigurations[0].URI, "secret:b")
		}},
		"metrics": {change: func(o *mapping.Options) { o.Metrics = true }, expect: func(m *lambda.GetEventSourceMappingOutput) bool {
			return m.MetricsConfig != nil && len(m.MetricsConfig.Metrics) == 3
		}},
		"pollers": {change: func(o *mapping.Options) { o.Pollers = config.Pollers{Minimum: 1, Maximum: 3, Group: "flow"} }, expect: func(m *lambda.GetEventSourceMappingOutput) bool {
			return m.ProvisionedPollerConfig != nil && *m.ProvisionedPollerConfig.MaximumPollers == 3 && *m.ProvisionedPollerConfig.PollerGroupName == "flow"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, lambdaapi.Options{Delay: 10 * time.Second}, "", []string{"orders"}, func(t *testing.T, w *world) {
				w.file = test.before
				f := w.function()
				for range 2 {
					if err := w.round(f); err != nil {
						t.Fatal(err)
					}
				}
				before := w.watch.total()
				w.file = test.after
				if test.change != nil {
					w.change = append(w.change, test.change)
				}
				if got := list(t, w.sources())["orders"]; !got.Outdated {
					t.Errorf("got %+v, want it Outdated", got)
				}
				f = w.function() // a deployment
				for range 4 {
					if err := w.round(f); err != nil {
						t.Fatal(err)
					}
				}
				if got := w.watch.writes(before); got != 1 {
					t.Errorf("got %d writes, want one update", got)
				}
				w.expectOnePerTopic("orders")
				got := list(t, w.sources())["orders"]
				if got.Outdated || !test.expect(get(t, w.api, got.ID)) {
					t.Errorf("got %+v, want it as the file says", get(t, w.api, got.ID))
				}
			})
		})
	}
}

func TestMappingsInTransitionAreWaitedFor(t *testing.T) {
	in(t, lambdaapi.Options{Delay: 150 * time.Second}, "", []string{"orders"}, func(t *testing.T, w *world) {
		f := w.function()
		for _, want := range []string{"Creating", "Creating", "Enabled", "Enabled"} {
			if err := w.round(f); err != nil {
				t.Fatal(err)
			}
			if got := list(t, w.sources())["orders"].State; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		// The topic goes: off in one round, away in a later one, and no call while
		// Lambda is at it.
		if _, err := kadm.NewClient(w.a).DeleteTopics(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		before := w.watch.total()
		for range 8 {
			if err := w.round(f); err != nil {
				t.Fatal(err)
			}
		}
		if u, d := w.watch.count(before, lambdaapi.Update), w.watch.count(before, lambdaapi.Delete); u != 1 || d != 1 {
			t.Errorf("got %d updates and %d deletes, want one of each", u, d)
		}
		w.expectOnePerTopic()
	})
}

// live is rounds of a function that starts cold each time: mappings are made,
// one is changed, one turned off and deleted, and one made in its place.
func (w *world) live() {
	w.t.Helper()
	rounds := func(n int) {
		for range n {
			ctx, die := context.WithTimeout(w.t.Context(), time.Minute)
			w.watch.mu.Lock()
			w.watch.die = die
			w.watch.mu.Unlock()
			next := time.After(time.Minute)
			_ = w.function().Run(ctx)
			die()
			<-next
		}
	}
	rounds(2)
	w.settings.BatchSize = 77
	rounds(2)
	admin := kadm.NewClient(w.a)
	if _, err := admin.DeleteTopics(w.t.Context(), "orders"); err != nil {
		w.t.Fatal(err)
	}
	if _, err := admin.CreateTopic(w.t.Context(), 1, 1, nil, "returns"); err != nil {
		w.t.Fatal(err)
	}
	rounds(4)
}

// A function that is killed at a call does not know whether the call acted. The
// next one starts cold.
func TestACrashAtAnyCallConverges(t *testing.T) {
	o := lambdaapi.Options{Delay: 10 * time.Second}
	names := []string{"clicks", "orders"}
	var calls []lambdaapi.Call
	in(t, o, "", names, func(t *testing.T, w *world) {
		w.live()
		calls = w.watch.calls
		if got, want := w.watch.writes(0), 2+2+1+1+1; got != want { // creates, updates, off, delete, create
			t.Fatalf("got %d writes, want the whole story of %d", got, want)
		}
	})
	for _, acted := range []bool{false, true} {
		for i, call := range calls {
			n := i + 1
			if call.Operation == lambdaapi.List && n > 1 {
				continue // a round that dies before it began
			}
			t.Run(fmt.Sprintf("at call %d, acted %t", n, acted), func(t *testing.T) {
				in(t, o, "", names, func(t *testing.T, w *world) {
					if acted {
						w.watch.after[n] = errors.New("lost")
					} else {
						w.watch.before[n] = errors.New("lost")
					}
					w.watch.dieAt = n
					w.live()
					f := w.function()
					for range 3 {
						if err := w.round(f); err != nil {
							t.Fatal(err)
						}
					}
					w.expectOnePerTopic("clicks", "returns")
					for topic, m := range list(t, w.sources()) {
						if m.BatchSize != 77 {
							t.Errorf("got batch size %d of %s, want 77", m.BatchSize, topic)
						}
					}
					before := w.watch.total()
					if err := w.round(f); err != nil {
						t.Fatal(err)
					}
					if got := w.watch.writes(before); got != 0 {
						t.Errorf("got %d writes after it converged, want none", got)
					}
				})
			})
		}
	}
}

// One function that a slow round overlaps with does no harm.
func TestTwoRoundsAtOnceMakeOneMappingEach(t *testing.T) {
	names := []string{"clicks", "orders", "payments", "returns"}
	in(t, lambdaapi.Options{Delay: 10 * time.Second}, "", names, func(t *testing.T, w *world) {
		done := make(chan error)
		for range 2 {
			go func() { done <- w.function().Run(w.t.Context()) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		w.expectOnePerTopic(names...)
		if got := w.watch.count(0, lambdaapi.Update, lambdaapi.Delete); got != 0 {
			t.Errorf("got %d updates and deletes, want none", got)
		}
	})
}
