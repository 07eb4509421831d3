package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/kafkaevent"
)

// stopWithin is what an event source gets to finish what is in flight.
const stopWithin = 30 * time.Second

// runner runs the API's mappings: it is a lambdaapi.Runner.
type runner struct {
	o      Options
	client *lambda.Client
	report func(uuid, result string)

	mu      sync.Mutex
	running map[string]*eventsource.Mapping // by UUID
}

// plaintext reaches a mapping's servers without TLS.
func plaintext(m lambdaapi.Mapping) ([]kgo.Opt, error) {
	if m.SelfManagedEventSource == nil {
		return nil, fmt.Errorf("%s has no servers that this machine could know", m.EventSourceArn)
	}
	return []kgo.Opt{kgo.SeedBrokers(servers(m)...)}, nil
}

func servers(m lambdaapi.Mapping) []string {
	if m.SelfManagedEventSource == nil {
		return nil
	}
	return m.SelfManagedEventSource.Endpoints["KAFKA_BOOTSTRAP_SERVERS"]
}

// Run starts a mapping's event source, or replaces the one that there is.
func (r *runner) Run(m lambdaapi.Mapping) error {
	if err := r.Stop(m.UUID); err != nil {
		return err
	}
	client, err := r.o.Client(m)
	if err != nil {
		return err
	}
	o := eventsource.Options{
		Client: client, BootstrapServers: strings.Join(servers(m), ","), Topic: m.Topic(), Group: m.Group(), InstanceID: m.UUID,
		BatchSize: int(m.BatchSize), Window: m.Window(), Failures: m.PartialFailures(),
		Invoker: eventsource.InvokerFunc(func(ctx context.Context, payload []byte) ([]byte, error) {
			reply, err := r.invoke(ctx, m.FunctionArn, payload)
			if err != nil {
				r.report(m.UUID, "PROBLEM: Function call failed")
				return nil, err
			}
			r.report(m.UUID, "OK")
			return reply, nil
		}),
		Log: r.o.Logger,
	}
	if m.EventSourceArn != "" {
		o.Source, o.SourceARN = kafkaevent.SourceMSK, m.EventSourceArn
	}
	if m.Window() == 0 {
		o.Window = eventsource.NoWindow
	}
	switch {
	case m.StartingPosition == "LATEST":
		o.Start = eventsource.Latest()
	case m.StartingPositionTimestamp != nil:
		o.Start = eventsource.AtTimestamp(m.StartingPositionTimestamp.Time)
	}
	started, err := eventsource.Start(o)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[m.UUID] = started
	return nil
}

// invoke invokes a function as Lambda's pollers do.
func (r *runner) invoke(ctx context.Context, function string, payload []byte) ([]byte, error) {
	out, err := r.client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function, Payload: payload})
	if err != nil {
		return nil, fmt.Errorf("invoke %s: %w", function, err)
	}
	if out.FunctionError != nil {
		return nil, fmt.Errorf("invoke %s: %s: %s", function, *out.FunctionError, out.Payload)
	}
	return out.Payload, nil
}

// Stop ends a mapping's event source.
func (r *runner) Stop(uuid string) error {
	r.mu.Lock()
	s := r.running[uuid]
	delete(r.running, uuid)
	r.mu.Unlock()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return s.Stop(ctx)
}

// close ends all event sources side by side.
func (r *runner) close() error {
	r.mu.Lock()
	var all []string
	for uuid := range r.running {
		all = append(all, uuid)
	}
	r.mu.Unlock()
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, uuid := range all {
		wait.Go(func() { errs[i] = r.Stop(uuid) })
	}
	wait.Wait()
	return errors.Join(errs...)
}
