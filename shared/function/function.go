// Package function turns the work packages into functions: environment, logger,
// set-up, handler. It is the only one that reads the environment, and the only
// one that knows Lambda's runtime.
//
//	func main() { function.Start("mirror", function.Mirror) }
//
// A function reads three variables of its own: MIRRORLESS_FLOW (A->B; may be
// missing where the file enables one flow only), MIRRORLESS_CONFIG (the path of
// an mm2.properties file) and MIRRORLESS_TABLE (its DynamoDB table, whose name
// is also the stack's in consumer group names). The rest is Lambda's and the
// AWS SDK's.
//
// Set-up makes no request of a cluster: an environment may be frozen right after
// it, and what was begun then would be found broken. What is wrong with the file
// ends the process with one line that says all of it. Where the configuration, or a
// secret in it, is in AWS, set-up reads that first; it is read again every ten
// minutes, so that what was changed or rotated is in force without a deployment.
package function

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
)

// Handler handles one invocation, as aws-lambda-go's lambda.Handler does.
type Handler interface {
	Invoke(ctx context.Context, payload []byte) ([]byte, error)
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, payload []byte) ([]byte, error)

// Invoke calls f.
func (f HandlerFunc) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	return f(ctx, payload)
}

// Build makes a function of a flow's parts.
type Build func(*Parts) (Handler, error)

// Start runs a function under Lambda's runtime. It does not return.
func Start(name string, build Build) {
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	e := newEnvironment(build, logger)
	if err := e.refresh(context.Background()); err != nil {
		logger.Error("function cannot start", "function", name, "error", err.Error())
		if !e.mayPass {
			os.Exit(1)
		}
	}
	lambda.Start(e)
}

// setUp is Start for a function that has a handler of its own around it.
func setUp(ctx context.Context, build Build, logger *slog.Logger) (Handler, error) {
	e := newEnvironment(build, logger)
	if err := e.refresh(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

func variable(name, what string) (string, error) {
	v := os.Getenv(name)
	if v == "" {
		return "", fmt.Errorf("%s is not set: set it to %s", name, what)
	}
	return v, nil
}

// choose is the flow that a deployment serves.
func choose(c *config.Config, name string) (config.Flow, error) {
	if name == "" {
		enabled := c.Enabled()
		if len(enabled) != 1 {
			return config.Flow{}, fmt.Errorf("%s enables %d flows: set MIRRORLESS_FLOW to the one that this deployment serves, as in A->B", c.File, len(enabled))
		}
		return enabled[0], nil
	}
	f, err := flow.Parse(name)
	if err != nil {
		return config.Flow{}, fmt.Errorf("read MIRRORLESS_FLOW: %w", err)
	}
	settings, ok := c.Flow(f)
	if !ok || !settings.Enabled {
		return config.Flow{}, fmt.Errorf("MIRRORLESS_FLOW is %s, which %s does not enable: set %s.enabled = true", f, c.File, f)
	}
	return settings, nil
}
