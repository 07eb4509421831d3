// Package stack runs one flow on this machine as its stack in AWS would: the
// four functions, their schedules, and the event sources that topics asks for.
//
//	s, err := stack.Start(ctx, stack.Options{Config: c, Flow: settings, Store: store, Name: "dev", Logger: logger})
//	…
//	err = s.Stop(ctx)
//
// The functions run in this process, or as the bootstrap binaries that are
// deployed, behind Lambda's Runtime API. Schedules keep to seconds, where AWS
// keeps to minutes.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/localstack/schedule"
	"mirrorless/shared/cluster"
	"mirrorless/shared/config"
	"mirrorless/shared/function"
	"mirrorless/shared/state"
)

// Options describe a stack. All but Binaries, Metrics, ClientOptions and Faults are
// needed.
type Options struct {
	Config *config.Config
	Flow   config.Flow
	// Store is the flow's; with Binaries it is the table that they are told.
	Store state.Store
	// Name is the stack's, in consumer group names.
	Name string
	// Binaries, if not nil, are run instead of the functions' code in this process.
	Binaries *Binaries
	// Metrics takes the functions' metrics, in lines of CloudWatch's embedded metric
	// format; nobody wants them if nil.
	Metrics io.Writer
	Logger  *slog.Logger
	// ClientOptions are applied to every Kafka client of this process last.
	ClientOptions []kgo.Opt
	// Faults makes the event sources misbehave, for tests.
	Faults eventsource.Faults
}

// Stack is a flow at work.
type Stack struct {
	o         Options
	functions Functions
	sources   *Mappings
	api       *api // the Lambda API that the binaries call; nil in process

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	failed map[string]Failure // by scheduled function
}

// Start begins the flow's work. It makes no request itself: what hinders a
// function is logged, and tried again by the next schedule.
func Start(ctx context.Context, o Options) (*Stack, error) {
	s := &Stack{o: o, failed: map[string]Failure{}}
	s.sources = &Mappings{
		Client: func() ([]kgo.Opt, error) {
			return cluster.Options(o.Flow.Source, o.Flow.SourceClient(config.Consumer), o.ClientOptions...)
		},
		Servers: o.Flow.SourceClient(config.Consumer)["bootstrap.servers"],
		Mirror: eventsource.InvokerFunc(func(ctx context.Context, payload []byte) ([]byte, error) {
			return s.functions.Invoke(ctx, Mirror, payload)
		}),
		Logger: o.Logger, Faults: o.Faults,
	}
	if err := s.setUp(); err != nil {
		return nil, fmt.Errorf("start flow %s: %w", o.Flow, err)
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() { s.work(ctx) })
	return s, nil
}

func (s *Stack) setUp() (err error) {
	if s.o.Binaries == nil {
		parts := &function.Parts{
			Config: s.o.Config, Settings: s.o.Flow, Store: s.o.Store, Stack: s.o.Name, Owner: s.o.Name + "/" + s.o.Flow.String(),
			EventSources: s.sources, Logger: s.o.Logger, Metrics: s.o.Metrics, ClientOptions: s.o.ClientOptions,
		}
		s.functions, err = InProcess(parts)
		return err
	}
	if s.api, err = serveAPI(s.sources, s.o.Logger); err != nil {
		return err
	}
	b := *s.o.Binaries
	b.Env = s.api.env(b.Env)
	if s.functions, err = Bootstraps(b, s.o.Metrics); err != nil {
		s.api.close()
	}
	return err
}

// scheduled is the event of a schedule.
const scheduled = `{"source":"mirrorless.schedule"}`

// work runs topics once, because the others need what it makes, and then all of
// them on their schedules. One topic that cannot be made holds up none of them.
func (s *Stack) work(ctx context.Context) {
	run := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.functions.Invoke(ctx, name, []byte(scheduled))
			s.note(name, err)
			return err
		}
	}
	_ = run(Topics)(ctx)
	schedule.Run(ctx, schedule.Options{Grace: grace},
		schedule.Job{Name: Topics, Every: s.topicsEvery(), Run: run(Topics)},
		schedule.Job{Name: Heartbeat, Every: every(s.o.Flow.EmitHeartbeats), Run: run(Heartbeat)},
		schedule.Job{Name: Checkpoint, Every: s.checkpointEvery(), Run: run(Checkpoint)},
	)
}

// grace is what a scheduled function that is at work gets at the end.
const grace = 5 * time.Second

// every is how often a function is invoked, at most every second and at least
// every minute, as in AWS; what is switched off is the function's business.
func every(p config.Periodic) time.Duration {
	return min(max(p.Interval, time.Second), time.Minute)
}

func (s *Stack) topicsEvery() time.Duration {
	return shortest(s.o.Flow.RefreshTopics, s.o.Flow.SyncTopicConfigs, s.o.Flow.SyncTopicACLs)
}

func (s *Stack) checkpointEvery() time.Duration {
	return shortest(s.o.Flow.EmitCheckpoints, s.o.Flow.SyncGroupOffsets)
}

func shortest(all ...config.Periodic) time.Duration {
	d := time.Minute
	for _, p := range all {
		if p.Enabled {
			d = min(d, every(p))
		}
	}
	return d
}

// Failure is how a scheduled function fails.
type Failure struct {
	Error    string
	At       time.Time // the last time
	Attempts int       // in a row
}

// note logs what changes: the first of equal errors, and their end.
func (s *Stack) note(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.failed[name]
	if err == nil {
		if last.Attempts > 0 {
			s.o.Logger.Info("function works again", "function", name)
		}
		delete(s.failed, name)
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	if err.Error() != last.Error {
		s.o.Logger.Error("function failed", "function", name, "error", err.Error())
	}
	s.failed[name] = Failure{Error: err.Error(), At: time.Now(), Attempts: last.Attempts + 1}
}

// Failed returns the failures of the scheduled functions that fail, by name.
func (s *Stack) Failed() map[string]Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.failed)
}

// Flow is the flow's settings.
func (s *Stack) Flow() config.Flow { return s.o.Flow }

// Store is the flow's state.
func (s *Stack) Store() state.Store { return s.o.Store }

// Sources are the event sources.
func (s *Stack) Sources() *Mappings { return s.sources }

// Functions are the flow's functions.
func (s *Stack) Functions() Functions { return s.functions }

// Stop ends the schedules, lets the event sources finish and commit what is in
// flight, until ctx ends, and then ends the functions.
func (s *Stack) Stop(ctx context.Context) error {
	s.cancel()
	err := s.sources.Stop(ctx)
	s.done.Wait()
	if s.api != nil {
		s.api.close()
	}
	return errors.Join(err, s.functions.Close())
}
