package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/cluster"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/state"
	"mirrorless/shared/state/dynamo"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/status"
)

// statusFlags are the flags of status.
type statusFlags struct {
	state, flow, functions, stack string

	json, strict bool
	timeout      time.Duration
}

func statusCommand() *cobra.Command {
	var flags statusFlags
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Say whether B is complete, and how far every partition and group is",
		Long: `status says of every enabled flow of an mm2.properties file whether its target
is complete, and shows records behind, age of the newest copied record, holes and
errors by partition, and the last checkpoint of every group.

It asks the mirrorless that runs the file on this machine. Where none does, it
reads the state that the last one left, and both clusters. With --stack it reads
the table of a deployed stack, and asks Lambda for the state and the last result
of every event source. It changes nothing.

Long names are shortened in the middle; --json has them in full.

It exits with 3 where there is no answer, because A, B or the state cannot be
reached; with --check also with 1 where the answer is no.`,
		Args: needsFile(propertiesFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			seen, err := gatherStatus(cmd.Context(), args[0], flags)
			if err != nil {
				return err
			}
			if flags.json {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetEscapeHTML(false)
				e.SetIndent("", "  ")
				err = e.Encode(seen.reports)
			} else {
				err = printStatus(cmd.OutOrStdout(), seen)
			}
			if err != nil {
				return fmt.Errorf("print status: %w", err)
			}
			return statusExit(seen.reports, flags.strict)
		},
	}
	cmd.Flags().StringVar(&flags.state, "state", "", "folder of the state (default .mirrorless beside FILE)")
	cmd.Flags().StringVar(&flags.functions, "functions", "in-process", "how run ran them: the state of bootstrap is in DynamoDB")
	cmd.Flags().StringVar(&flags.stack, "stack", "", "of the stack of this name on AWS, and not of a run on this machine")
	cmd.Flags().StringVar(&flags.flow, "flow", "", "only this flow, as in A->B")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print a JSON array with one object for every flow")
	cmd.Flags().BoolVar(&flags.strict, "check", false, "exit with 1 if a target is not complete")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", status.DefaultTimeout, "how long a cluster may take to answer")
	return cmd
}

// statusExit is the exit code as an error: no answer weighs more than a no.
func statusExit(reports []status.Report, strict bool) error {
	is := func(answer status.Answer) bool {
		return slices.ContainsFunc(reports, func(r status.Report) bool { return r.Answer == answer })
	}
	switch {
	case is(status.Unknown):
		return exit(exitUnreachable, nil)
	case strict && is(status.No):
		return exit(exitFailed, nil)
	}
	return nil
}

// seenStatus is a status and where it is from.
type seenStatus struct {
	reports []status.Report
	running *status.Endpoint // nil where the state was read
	state   string           // where the state is
	stack   string           // the deployed one whose state was read, else empty
}

// gatherStatus asks the process that runs the file, else looks itself.
func gatherStatus(ctx context.Context, file string, flags statusFlags) (seenStatus, error) {
	c, err := loadConfig(file)
	if err != nil {
		return seenStatus{}, err
	}
	if err := c.Err(); err != nil {
		return seenStatus{}, err
	}
	flows, err := chosenFlows(c, flags.flow)
	if err != nil {
		return seenStatus{}, err
	}
	if flags.stack != "" {
		reports, err := stackStatus(ctx, flags, flows)
		if err != nil {
			return seenStatus{}, err
		}
		return seenStatus{reports: reports, stack: flags.stack}, nil
	}
	dir := stateDir(flags.state, file)
	at, found, silence := readRunFile(dir)
	if found {
		var all []status.Report
		if all, silence = askRunning(ctx, at, flags.timeout); silence == nil {
			return seenStatus{reports: ofFlows(all, flows), running: &at}, nil
		}
		silence = fmt.Errorf("process %d: %w", at.PID, silence)
	}
	left, err := openLeft(ctx, dir, flags.functions)
	if err == nil {
		var reports []status.Report
		reports, err = readStatus(ctx, left, flows, flags.timeout)
		if err = errors.Join(err, left.close()); err == nil {
			return seenStatus{reports: reports, state: left.where}, nil
		}
	}
	if ctx.Err() != nil {
		return seenStatus{}, context.Cause(ctx)
	}
	if _, usage := errors.AsType[*exitError](err); usage {
		return seenStatus{}, err
	}
	return seenStatus{}, exit(exitUnreachable, explainState(err, dir, found, silence))
}

// leftState is the state that a run has left, to be read.
type leftState struct {
	where string
	store func(config.Flow) (state.Store, error)
	close func() error
}

func openLeft(ctx context.Context, dir, functions string) (leftState, error) {
	switch functions {
	case "in-process":
		path := filepath.Join(dir, stateFile)
		file, err := embedded.Open(path, embedded.Options{ReadOnly: true})
		if err != nil {
			return leftState{}, err
		}
		return leftState{path, func(f config.Flow) (state.Store, error) { return file.Store(f.Flow) }, file.Close}, nil
	case "bootstrap":
		// stackName would name a new stack.
		if _, err := os.Stat(filepath.Join(dir, "id")); err != nil {
			return leftState{}, fmt.Errorf("read the stack's id: %w", err)
		}
		name, err := stackName(dir)
		if err != nil {
			return leftState{}, err
		}
		kept, err := openTables(ctx, name)
		if err != nil {
			return leftState{}, err
		}
		tables := kept.(*inTables)
		return leftState{"the tables of stack " + name, func(f config.Flow) (state.Store, error) {
			return dynamo.New(tables.client, tables.Table(f), dynamo.Options{}), nil
		}, kept.Close}, nil
	}
	return leftState{}, exit(exitUsage, fmt.Errorf("--functions is %q: set in-process or bootstrap", functions))
}

// chosenFlows returns the enabled flows, or the one that is asked for.
func chosenFlows(c *config.Config, name string) ([]config.Flow, error) {
	if name == "" {
		if enabled := c.Enabled(); len(enabled) > 0 {
			return enabled, nil
		}
		return nil, fmt.Errorf("%s: no flow is enabled, so there is nothing to report on", c.File)
	}
	f, err := flow.Parse(name)
	if err != nil {
		return nil, exit(exitUsage, fmt.Errorf("--flow: %w", err))
	}
	settings, ok := c.Flow(f)
	if !ok || !settings.Enabled {
		return nil, exit(exitUsage, fmt.Errorf("--flow: %s is not enabled in %s", f, c.File))
	}
	return []config.Flow{settings}, nil
}

// askRunning gives the process time to find out that neither cluster answers.
func askRunning(ctx context.Context, at status.Endpoint, timeout time.Duration) ([]status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*timeout)
	defer cancel()
	return status.Ask(ctx, at)
}

// ofFlows picks the reports of flows from those of a running process, which may
// have read an older version of the file.
func ofFlows(all []status.Report, flows []config.Flow) []status.Report {
	reports := make([]status.Report, 0, len(flows))
	for _, f := range flows {
		i := slices.IndexFunc(all, func(r status.Report) bool { return r.Flow == f.Flow.String() })
		if i >= 0 {
			reports = append(reports, all[i])
			continue
		}
		reports = append(reports, status.Report{
			Flow: f.Flow.String(), Answer: status.Unknown, At: time.Now(), Running: true,
			Sentence: fmt.Sprintf("%s cannot be judged: the mirrorless that runs does not run %s; it read the file when it started.", f.Target, f.Flow),
			Source:   status.Cluster{Alias: f.Source}, Target: status.Cluster{Alias: f.Target},
			Topics: []status.Topic{}, Holes: []status.Hole{}, Groups: []status.Group{},
		})
	}
	return reports
}

// explainState says what to do about a state that cannot be opened.
func explainState(err error, dir string, found bool, silence error) error {
	switch {
	case errors.Is(err, embedded.ErrInUse) && silence != nil:
		return fmt.Errorf("%w, which does not answer (%w)", err, silence)
	case errors.Is(err, embedded.ErrInUse):
		return fmt.Errorf("%w, which serves no status; is it just starting, or stopping?", err)
	case errors.Is(err, fs.ErrNotExist) && found:
		return fmt.Errorf("%w, and the mirrorless that ran here does not answer (%w)", err, silence)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: nothing has run with %s; start mirrorless run, or say with --state and --functions how it ran", err, dir)
	}
	return err
}

// readStatus reports on flows from the state and both clusters.
func readStatus(ctx context.Context, left leftState, flows []config.Flow, timeout time.Duration) ([]status.Report, error) {
	reports, errs := make([]status.Report, len(flows)), make([]error, len(flows))
	var wg sync.WaitGroup
	for i, f := range flows {
		wg.Go(func() { reports[i], errs[i] = readFlowStatus(ctx, left, f, timeout) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return reports, nil
}

func readFlowStatus(ctx context.Context, left leftState, f config.Flow, timeout time.Duration) (status.Report, error) {
	store, err := left.store(f)
	if err != nil {
		return status.Report{}, err
	}
	return flowStatus(ctx, status.Options{Settings: f, Store: store, Timeout: timeout})
}

// flowStatus reports on a flow from its state and both clusters, of which it
// makes the clients.
func flowStatus(ctx context.Context, o status.Options) (status.Report, error) {
	f := o.Settings
	dial := func(alias string, properties map[string]string) (*kgo.Client, error) {
		return cluster.Dial(alias, properties, kgo.DisableClientMetrics(), account())
	}
	if o.Source, o.SourceErr = dial(f.Source, f.SourceClient(config.Consumer)); o.Source != nil {
		defer o.Source.Close()
	}
	if o.Target, o.TargetErr = dial(f.Target, f.TargetClient(config.Admin)); o.Target != nil {
		defer o.Target.Close()
	}
	return status.Gather(ctx, o)
}
