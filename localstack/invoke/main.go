// Command invoke runs a bootstrap binary once, as Lambda would, with the event
// from a file or from stdin, and prints its response.
//
//	go run ./localstack/invoke [-timeout 1m] bin/mirror/bootstrap events/msk.json
//
// The function gets this program's MIRRORLESS_ and AWS_ variables. Exit status 1
// where the function fails, 2 where the command line is wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"mirrorless/localstack/runtimeapi"
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "the function's `time-out`")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: invoke [-timeout 1m] BOOTSTRAP [EVENT.json]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := runtimeapi.Options{Path: flag.Arg(0), Timeout: *timeout, Env: variables(os.Environ()), Logs: os.Stderr}
	if err := invoke(ctx, o, flag.Arg(1), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func invoke(ctx context.Context, o runtimeapi.Options, event string, out io.Writer) error {
	payload, err := readEvent(event)
	if err != nil {
		return fmt.Errorf("read the event: %w", err)
	}
	f, err := runtimeapi.Start(o)
	if err != nil {
		return err
	}
	defer f.Close()
	response, err := f.Invoke(ctx, payload)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, string(response))
	return err
}

func readEvent(path string) ([]byte, error) {
	if path == "" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(path)
}

// variables are those of an environment that are meant for a function.
func variables(environ []string) map[string]string {
	variables := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "MIRRORLESS_") || strings.HasPrefix(name, "AWS_") {
			variables[name] = value
		}
	}
	return variables
}
