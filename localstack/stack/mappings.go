package stack

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/shared/topics"
)

// Mappings are event sources of this machine, as topics.EventSources: each
// reads one topic and invokes mirror.
type Mappings struct {
	// Client are the options of the clients of the source cluster, made anew for
	// each mapping.
	Client func() ([]kgo.Opt, error)
	// Servers goes into the events.
	Servers string
	// Mirror is what is invoked.
	Mirror eventsource.Invoker
	Logger *slog.Logger
	// Faults makes every mapping misbehave, for tests.
	Faults eventsource.Faults

	mu      sync.Mutex
	running map[string]*running
}

type running struct {
	source  topics.EventSource
	mapping *eventsource.Mapping // nil while disabled
}

var _ topics.EventSources = (*Mappings)(nil)

// List returns the mappings, by topic.
func (m *Mappings) List(context.Context) ([]topics.EventSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []topics.EventSource
	for _, r := range m.running {
		out = append(out, r.source)
	}
	slices.SortFunc(out, func(a, b topics.EventSource) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// Create starts a mapping. Its group is its id: a group has one.
func (m *Mappings) Create(_ context.Context, spec topics.EventSourceSpec) (topics.EventSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.running[spec.Group]
	if r == nil {
		r = &running{}
		if err := m.start(r, spec.Group, spec); err != nil {
			return topics.EventSource{}, err
		}
	}
	return r.source, nil
}

// run starts a mapping under an id, or gives it new settings.
func (m *Mappings) run(id string, spec topics.EventSourceSpec) error {
	m.mu.Lock()
	r := m.running[id]
	if r == nil {
		defer m.mu.Unlock()
		return m.start(&running{}, id, spec)
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	_, err := m.Update(ctx, id, spec)
	return err
}

// Update stops a mapping, which waits for what is in flight, and starts it with
// the new settings.
func (m *Mappings) Update(ctx context.Context, id string, spec topics.EventSourceSpec) (topics.EventSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.running[id]
	if r == nil {
		return topics.EventSource{}, fmt.Errorf("update event source %s: there is none", id)
	}
	if r.source.EventSourceSpec == spec {
		return r.source, nil
	}
	if r.mapping != nil {
		if err := r.mapping.Stop(ctx); err != nil {
			return topics.EventSource{}, err
		}
	}
	spec.Group, spec.Topic, spec.Start = r.source.Group, r.source.Topic, r.source.Start
	if err := m.start(r, id, spec); err != nil {
		return topics.EventSource{}, err
	}
	return r.source, nil
}

// Delete stops a mapping for good.
func (m *Mappings) Delete(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.running[id]
	if r == nil {
		return nil
	}
	delete(m.running, id)
	if r.mapping == nil {
		return nil
	}
	return r.mapping.Stop(ctx)
}

// start makes r what runs under an id. It needs m.mu.
func (m *Mappings) start(r *running, id string, spec topics.EventSourceSpec) error {
	if m.running == nil {
		m.running = map[string]*running{}
	}
	m.running[id] = r
	r.source = topics.EventSource{EventSourceSpec: spec, ID: id, State: topics.StateDisabled}
	r.mapping = nil
	if !spec.Enabled {
		return nil
	}
	client, err := m.Client()
	if err != nil {
		return err
	}
	o := eventsource.Options{
		Client: client, BootstrapServers: m.Servers, Topic: spec.Topic, Group: spec.Group, InstanceID: spec.Group,
		BatchSize: int(spec.BatchSize), Window: spec.Window, Failures: spec.PartialFailures,
		Invoker: m.Mirror, Log: m.Logger, Faults: m.Faults,
	}
	if spec.Window == 0 {
		o.Window = eventsource.NoWindow
	}
	if !spec.Start.At.IsZero() {
		o.Start = eventsource.AtTimestamp(spec.Start.At)
	}
	if r.mapping, err = eventsource.Start(o); err != nil {
		return err
	}
	r.source.State = topics.StateEnabled
	return nil
}

// Progress returns how far each mapping is, by topic.
func (m *Mappings) Progress() []eventsource.Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []eventsource.Progress
	for _, r := range m.running {
		if r.mapping != nil {
			out = append(out, r.mapping.Progress())
		}
	}
	slices.SortFunc(out, func(a, b eventsource.Progress) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}

// Refresh asks the source for the ends of all partitions, so that Progress is
// current.
func (m *Mappings) Refresh(ctx context.Context) error {
	for _, r := range m.all() {
		if err := r.Refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mappings) all() []*eventsource.Mapping {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*eventsource.Mapping
	for _, r := range m.running {
		if r.mapping != nil {
			out = append(out, r.mapping)
		}
	}
	return out
}

// Stop stops all mappings side by side, and waits for what is in flight until
// ctx ends.
func (m *Mappings) Stop(ctx context.Context) error {
	var wg sync.WaitGroup
	all := m.all()
	errs := make([]error, len(all))
	for i, r := range all {
		wg.Go(func() { errs[i] = r.Stop(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
