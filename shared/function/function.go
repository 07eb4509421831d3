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
// Set-up makes no request: an environment may be frozen right after it, and what
// was begun then would be found broken. What is wrong with the file ends the
// process with one line that says all of it.
package function

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state/dynamo"
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
	handler, err := setUp(context.Background(), build, logger)
	if err != nil {
		logger.Error("function cannot start", "function", name, "error", err.Error())
		os.Exit(1)
	}
	lambda.Start(handler)
}

func setUp(ctx context.Context, build Build, logger *slog.Logger) (Handler, error) {
	file, err := variable("MIRRORLESS_CONFIG", "the path of an mm2.properties file")
	if err != nil {
		return nil, err
	}
	table, err := variable("MIRRORLESS_TABLE", "the name of the flow's DynamoDB table")
	if err != nil {
		return nil, err
	}
	c, err := config.Load(file, config.Sources{ReadFile: os.ReadFile, LookupEnv: os.LookupEnv})
	if err != nil {
		return nil, fmt.Errorf("read MIRRORLESS_CONFIG: %w", err)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	settings, err := choose(c, os.Getenv("MIRRORLESS_FLOW"))
	if err != nil {
		return nil, err
	}
	sdk, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the AWS client: %w", err)
	}
	logger = logger.With("flow", settings.String())
	return build(&Parts{
		Config:   c,
		Settings: settings,
		Store:    dynamo.New(dynamodb.NewFromConfig(sdk), table, dynamo.Options{}),
		Stack:    table,
		Owner:    os.Getenv("AWS_LAMBDA_LOG_STREAM_NAME"),
		Logger:   logger,
		AWS:      &sdk,
	})
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
