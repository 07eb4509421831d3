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
	if err := invoke(ctx, flag.Arg(0), flag.Arg(1), *timeout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func invoke(ctx context.Context, bootstrap, event string, timeout time.Duration) error {
	payload, err := readEvent(event)
	if err != nil {
		return err
	}
	f, err := runtimeapi.Start(runtimeapi.Options{Path: bootstrap, Timeout: timeout, Env: ownVariables(), Logs: os.Stderr})
	if err != nil {
		return err
	}
	defer f.Close()
	response, err := f.Invoke(ctx, payload)
	if err != nil {
		return err
	}
	fmt.Println(string(response))
	return nil
}

func readEvent(path string) ([]byte, error) {
	if path == "" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(path)
}

// ownVariables are those of this program that are meant for a function.
func ownVariables() map[string]string {
	variables := map[string]string{}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "MIRRORLESS_") || strings.HasPrefix(name, "AWS_") {
			variables[name] = value
		}
	}
	return variables
}
