// Command mirrorless replicates Kafka clusters with serverless functions, from
// the mm2.properties file that MirrorMaker 2 reads.
//
// A command is one file here with a function that returns it, and one line in
// commands. A command returns its error instead of printing it; exit wraps it
// where another code than 1 is meant.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// commands lists every command, in the order of the help text.
func commands() []*cobra.Command {
	return []*cobra.Command{
		demoCommand(),
		runCommand(),
		configCommand(),
		planCommand(),
		decodeCommand(),
		statusCommand(),
		verifyCommand(),
		costCommand(),
		versionCommand(),
	}
}

// The exit codes of every command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitChanges     = 2 // of plan
	exitUnreachable = 3
	exitInterrupted = 130
)

// exitCodes is the table that `mirrorless help exit-codes` prints.
func exitCodes() []struct {
	Code    int
	Meaning string
} {
	return []struct {
		Code    int
		Meaning string
	}{
		{exitOK, "done, and the answer is yes"},
		{exitFailed, "the answer is no: the file has errors, the event cannot be decoded, the clusters differ, the work failed. Of verify also: B is behind, or not all can be proved"},
		{exitUsage, "the command line is wrong; nothing was done. Of plan: there is something to change"},
		{exitUnreachable, "a cluster or the state cannot be reached; try again. Of plan this is 1"},
		{exitInterrupted, "interrupted before it was done"},
	}
}

// exitError is an error that ends the program with a code of its own. Without
// err nothing is printed: the command has said it all.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit gives err an exit code; a nil err ends the program without a message.
func exit(code int, err error) error { return &exitError{code, err} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	exit, ok := errors.AsType[*exitError](err)
	said := ok && exit.err == nil
	switch {
	case ctx.Err() != nil && (said || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		exit, err = &exitError{code: exitInterrupted}, errors.New("interrupted before it was done")
	case said:
		return exit.code
	case ok:
	default:
		exit = &exitError{code: exitFailed}
	}
	fmt.Fprintf(os.Stderr, "mirrorless: %v\n", err)
	if exit.code == exitUsage {
		fmt.Fprintln(os.Stderr, "Run 'mirrorless --help' for the commands.")
	}
	return exit.code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "mirrorless",
		Short: "Replicate Kafka clusters with functions, from an mm2.properties file",
		Long: `mirrorless does MirrorMaker 2's job with serverless functions, and reads the
same mm2.properties file. Start with

  mirrorless config mm2.properties   what the file means, and what is odd in it
  mirrorless help exit-codes         what the exit codes mean`,
		Args:          cobra.NoArgs,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit(exitUsage, err) })
	cobra.EnableCommandSorting = false
	root.AddCommand(commands()...)
	root.AddCommand(exitCodesTopic())
	// Arguments are checked before anything is done, so that a wrong count is
	// told apart from a failure of the work.
	for _, cmd := range append(root.Commands(), root) {
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if err := check(cmd, args); err != nil {
					return exit(exitUsage, err)
				}
				return nil
			}
		}
	}
	return root
}

// propertiesFile is the FILE of most commands.
const propertiesFile = "an mm2.properties file"

// needsFile wants one argument, which is described by what.
func needsFile(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s needs FILE, %s; see %s --help", cmd.Name(), what, cmd.CommandPath())
		case 1:
			return nil
		}
		return fmt.Errorf("%s takes one FILE, %s, and got %d: %s; see %s --help", cmd.Name(), what, len(args), strings.Join(args, ", "), cmd.CommandPath())
	}
}

// exitCodesTopic is a help topic: a command that only explains.
func exitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("The exit codes of every command:\n")
	for _, c := range exitCodes() {
		fmt.Fprintf(&text, "\n  %3d  %s", c.Code, c.Meaning)
	}
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long:  text.String(),
	}
}
