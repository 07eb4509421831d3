package function

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/twmb/franz-go/pkg/kerr"

	"mirrorless/shared/state/dynamo"
)

// environment is a function in one of Lambda's environments, which may live for
// hours: longer than a password. It is a Handler.
type environment struct {
	build  Build
	logger *slog.Logger
	now    func() time.Time
	vault  *Vault

	mu      sync.RWMutex // held for reading while the function is at work
	handler Handler      // nil until it is set up
	parts   *Parts       // of the handler
	read    properties
	due     time.Time // when to read again what is in AWS
	mayPass bool      // the last error depends on AWS
}

const (
	// readLimit bounds the reading of the configuration: Lambda gives the set-up of
	// an environment ten seconds.
	readLimit = 8 * time.Second
	// readAgain is when a reading that failed is tried again, while the function
	// goes on with what it has.
	readAgain = time.Minute
)

func newEnvironment(build Build, logger *slog.Logger) *environment {
	v := NewVault(sdkOf, VaultOptions{})
	return &environment{build: build, logger: v.Logger(logger), now: time.Now, vault: v}
}

func sdkOf(ctx context.Context) (aws.Config, error) { return awsconfig.LoadDefaultConfig(ctx) }

// Invoke hands an invocation to the function as it is set up now.
func (e *environment) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if err := e.refresh(ctx); err != nil {
		return nil, err
	}
	reply, err := e.invoke(ctx, payload)
	if errors.Is(err, kerr.SaslAuthenticationFailed) {
		e.expire() // a password may be another one by now
	}
	return reply, e.vault.Error(err)
}

func (e *environment) invoke(ctx context.Context, payload []byte) ([]byte, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.handler.Invoke(ctx, payload)
}

// expire makes the next invocation read the configuration again.
func (e *environment) expire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.vault.Expire()
	e.due = time.Time{}
}

func (e *environment) isDue() bool {
	return e.handler == nil || e.read.remote && !e.now().Before(e.due)
}

// refresh sets the function up, or sets it up anew where its configuration has
// changed. A function that is set up goes on as it is if that fails.
func (e *environment) refresh(ctx context.Context) error {
	e.mu.RLock()
	due := e.isDue()
	e.mu.RUnlock()
	if !due {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isDue() {
		return nil
	}
	err := e.vault.Error(e.load(ctx))
	if err == nil {
		e.due = e.now().Add(e.vault.o.Lifetime)
		return nil
	}
	if e.handler == nil {
		return err
	}
	e.due = e.now().Add(readAgain)
	e.logger.WarnContext(ctx, "configuration cannot be read again, the function goes on as it is", "error", err.Error())
	return nil
}

// load reads the configuration and sets the function up if it is another one.
func (e *environment) load(ctx context.Context) error {
	e.mayPass = false
	text, noText := variable("MIRRORLESS_CONFIG", "the path of an mm2.properties file, ssm:/name or s3://bucket/key")
	table, noTable := variable("MIRRORLESS_TABLE", "the name of the flow's DynamoDB table")
	if err := errors.Join(noText, noTable); err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, readLimit, fmt.Errorf("no answer within %s", readLimit))
	defer cancel()
	read, err := loadProperties(limited, text, e.vault)
	if err != nil {
		e.mayPass = read.remote
		return err
	}
	if e.handler != nil && read.print == e.read.print {
		return nil
	}
	settings, err := choose(read.config, os.Getenv("MIRRORLESS_FLOW"))
	if err != nil {
		e.mayPass = read.remote
		return err
	}
	sdk, err := sdkOf(ctx)
	if err != nil {
		return fmt.Errorf("set up the AWS client: %w", err)
	}
	parts := &Parts{
		Config:   read.config,
		Settings: settings,
		Store:    dynamo.New(dynamodb.NewFromConfig(sdk), table, dynamo.Options{}),
		Stack:    table,
		Owner:    os.Getenv("AWS_LAMBDA_LOG_STREAM_NAME"),
		Logger:   e.logger.With("flow", settings.String()),
		AWS:      &sdk,
		Metrics:  os.Stdout,
	}
	handler, err := e.build(parts)
	if err != nil {
		parts.Close()
		e.mayPass = read.remote
		return err
	}
	if e.parts != nil {
		e.logger.InfoContext(ctx, "configuration has changed, the function is set up anew")
		e.parts.Close()
	}
	e.handler, e.parts, e.read = handler, parts, read
	return nil
}
