// Package account is an AWS account on this machine, without Docker, to which a
// stack can be deployed with the AWS SAM CLI:
//
//	a, err := account.Start(ctx, account.Options{Logger: logger})
//	defer a.Close()
//	cmd.Env = append(os.Environ(), a.Env()...) // sam deploy --parameter-overrides EndpointUrl=… LambdaEndpointUrl=…
//
// MiniStack is the account: CloudFormation, DynamoDB, S3, schedules that fire, and
// functions that run as the processes that they are. It makes no event source
// mapping of a Kafka topic, so package lambdaapi stands in front of its Lambda: it
// keeps the mappings, and runs each that is enabled as an event source of package
// eventsource, which invokes the deployed function through the Lambda API.
//
// A mapping's brokers are reached as its list of servers says, without TLS and
// login unless Options.Client knows better. Everything listens on 127.0.0.1 and is
// forgotten at the end.
package account

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/eventsource"
	"mirrorless/localstack/lambdaapi"
	"mirrorless/localstack/ministack"
)

// Region is where everything is.
const Region = "us-east-1"

// Options of Start. The zero value is an account whose event sources speak
// plaintext.
type Options struct {
	// Client returns the client options with which a mapping's event source
	// reaches the cluster. By default it is the mapping's servers in plaintext.
	Client func(lambdaapi.Mapping) ([]kgo.Opt, error)
	// LambdaPort is the port of the Lambda API, any that is free if 0.
	LambdaPort int
	// Delay is how long a mapping is Creating, Updating or Deleting.
	Delay time.Duration
	// CacheDir is where MiniStack is installed; see package ministack.
	CacheDir string
	// Logger discards if nil.
	Logger *slog.Logger
}

// Account is a running account.
type Account struct {
	stack    *ministack.Server
	endpoint string // of stack
	api      *lambdaapi.API
	runner   *runner
	server   *http.Server
	lambda   string
}

// Start starts an account, and installs what it needs if need be.
func Start(ctx context.Context, o Options) (_ *Account, err error) {
	a := &Account{}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if a.stack, err = ministack.Start(ctx, o.CacheDir); err != nil {
		return nil, err
	}
	if err := a.serve(a.stack.Endpoint(), o); err != nil {
		return nil, fmt.Errorf("start the Lambda API: %w", err)
	}
	return a, nil
}

// serve puts the Lambda API in front of an emulator.
func (a *Account) serve(emulator string, o Options) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		o.Client = plaintext
	}
	forward, err := url.Parse(emulator)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.LambdaPort))
	if err != nil {
		return err
	}
	a.endpoint = emulator
	a.lambda = "http://" + listener.Addr().String()
	a.runner = &runner{o: o, client: a.LambdaClient(), running: map[string]*eventsource.Mapping{}}
	a.api = lambdaapi.New(lambdaapi.Options{Runner: a.runner, Delay: o.Delay, Forward: forward, Region: Region, Logger: o.Logger})
	a.runner.report = a.api.Report
	a.server = &http.Server{Handler: front(a.api, forward), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = a.server.Serve(listener) }() // its error says that it was closed
	return nil
}

// Endpoint is the URL that stands for AWS, as in AWS_ENDPOINT_URL and in the
// template's EndpointUrl.
func (a *Account) Endpoint() string { return a.endpoint }

// LambdaEndpoint is the URL that stands for Lambda, as in AWS_ENDPOINT_URL_LAMBDA
// and in the template's LambdaEndpointUrl.
func (a *Account) LambdaEndpoint() string { return a.lambda }

// Env are the environment variables with which AWS's tools find the account.
func (a *Account) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + a.Endpoint(),
		"AWS_ENDPOINT_URL_LAMBDA=" + a.LambdaEndpoint(),
		"AWS_ENDPOINT_URL_CLOUDFORMATION=" + a.LambdaEndpoint(),
		"AWS_REGION=" + Region,
		"AWS_DEFAULT_REGION=" + Region,
		"AWS_ACCESS_KEY_ID=" + accessKey,
		"AWS_SECRET_ACCESS_KEY=" + accessKey,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// accessKey is any: nobody checks it.
const accessKey = "test"

// Config is a configuration of the SDK for the account.
func (a *Account) Config() aws.Config {
	return aws.Config{
		Region: Region, Credentials: credentials.NewStaticCredentialsProvider(accessKey, accessKey, ""),
		BaseEndpoint: aws.String(a.Endpoint()),
	}
}

// LambdaClient is a client of the account's Lambda.
func (a *Account) LambdaClient() *lambda.Client {
	return lambda.NewFromConfig(a.Config(), func(o *lambda.Options) { o.BaseEndpoint = aws.String(a.LambdaEndpoint()) })
}

// Close ends the event sources after what is in flight, and then everything else.
func (a *Account) Close() error {
	var errs []error
	if a.server != nil {
		errs = append(errs, a.server.Close())
		a.api.Close()
	}
	if a.runner != nil {
		errs = append(errs, a.runner.close())
	}
	if a.stack != nil {
		errs = append(errs, a.stack.Close())
	}
	return errors.Join(errs...)
}
