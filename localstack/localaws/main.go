// Command localaws is an AWS account on this machine, until it is interrupted:
//
//	go run ./localstack/localaws
//
// It prints the environment variables with which AWS's tools find it, as a shell
// reads them. See package account for what there is, and docs/deploying.md for how
// to deploy to it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"mirrorless/localstack/account"
)

func main() {
	port := flag.Int("lambda-port", 0, "the `port` of the Lambda API; any that is free by default")
	file := flag.String("env", "", "a `file` to write the variables to as well, once everything answers; removed at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *port, *file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, port int, file string) error {
	a, err := account.Start(ctx, account.Options{
		LambdaPort: port, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := a.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	var variables strings.Builder
	for _, variable := range a.Env() {
		variables.WriteString("export " + variable + "\n")
	}
	fmt.Print(variables.String())
	if file != "" {
		if err := os.WriteFile(file, []byte(variables.String()), 0o600); err != nil {
			return err
		}
		defer os.Remove(file)
	}
	<-ctx.Done()
	return nil
}
