// Command function is a Lambda function that does what its event says.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

type event struct {
	Do   string
	Text string
	N    int
}

type answer struct {
	PID       int
	Invoked   int
	RequestID string
	ARN       string
	Left      time.Duration // until the deadline
	Text      string
}

type teapotError struct{}

func (teapotError) Error() string { return "short and stout" }

func main() {
	switch os.Getenv("INIT") {
	case "exit":
		fmt.Println("cannot go on")
		os.Exit(7)
	case "hang":
		select {}
	}
	options := []lambda.Option{}
	if file := os.Getenv("ON_SIGTERM"); file != "" {
		options = append(options, lambda.WithEnableSIGTERM(func() {
			if err := os.WriteFile(file, []byte("bye"), 0o644); err != nil {
				panic(err)
			}
			os.Exit(0)
		}))
	}
	invoked := 0
	lambda.StartWithOptions(func(ctx context.Context, e event) (any, error) {
		invoked++
		switch e.Do {
		case "fail":
			return nil, teapotError{}
		case "panic":
			panic("no more")
		case "exit":
			os.Exit(e.N)
		case "hang":
			fmt.Println("hanging")
			select {}
		case "print":
			fmt.Print(e.Text)
		case "large":
			return strings.NewReader(strings.Repeat("x", e.N)), nil
		case "stream":
			return io.MultiReader(strings.NewReader("half"), brokenReader{}), nil
		case "meet":
			if err := meet(ctx, e.Text, e.N); err != nil {
				return nil, err
			}
		case "env":
			return os.Environ(), nil
		}
		lc, _ := lambdacontext.FromContext(ctx)
		deadline, _ := ctx.Deadline()
		return answer{PID: os.Getpid(), Invoked: invoked, RequestID: lc.AwsRequestID, ARN: lc.InvokedFunctionArn, Left: time.Until(deadline), Text: e.Text}, nil
	}, options...)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("pipe burst") }

// meet waits until n processes are in the folder at the same time.
func meet(ctx context.Context, folder string, n int) error {
	if err := os.WriteFile(fmt.Sprintf("%s/%d", folder, os.Getpid()), nil, 0o644); err != nil {
		return err
	}
	for {
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) >= n {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}
