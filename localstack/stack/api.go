package stack

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"time"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/topics"
)

// api is the Lambda API that functions in processes of their own call: topics
// makes its mappings there, and they run in this process.
type api struct {
	lambda *lambdaapi.API
	server *http.Server
	url    string
}

func serveAPI(sources *Mappings, logger *slog.Logger) (*api, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the Lambda API: %w", err)
	}
	a := &api{lambda: lambdaapi.New(lambdaapi.Options{Runner: runner{sources}, Logger: logger}), url: "http://" + listener.Addr().String()}
	a.server = &http.Server{Handler: a.lambda, ReadHeaderTimeout: time.Second}
	go func() { _ = a.server.Serve(listener) }() // its error says that it was closed
	return a, nil
}

// env is a function's environment with the way to the API. Whoever signs a
// request needs credentials, also where nobody checks them.
func (a *api) env(env map[string]string) map[string]string {
	out := map[string]string{"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
	maps.Copy(out, env)
	out["AWS_ENDPOINT_URL_LAMBDA"] = a.url
	return out
}

func (a *api) close() {
	_ = a.server.Close()
	a.lambda.Close()
}

// runner runs the API's mappings as local event sources, by their groups.
type runner struct{ sources *Mappings }

func (r runner) Run(m lambdaapi.Mapping) error {
	spec := topics.EventSourceSpec{
		Topic: m.Topic(), Group: m.Group(), BatchSize: m.BatchSize, Window: m.Window(),
		PartialFailures: m.PartialFailures(), Enabled: true,
	}
	if m.StartingPositionTimestamp != nil {
		spec.Start.At = m.StartingPositionTimestamp.Time
	}
	return r.sources.run(m.UUID, spec)
}

func (r runner) Stop(uuid string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return r.sources.Delete(ctx, uuid)
}

// stopWithin is what a mapping gets to finish what is in flight.
const stopWithin = 30 * time.Second
