package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/config"
	"mirrorless/shared/function"
	"mirrorless/shared/state"
	"mirrorless/shared/state/embedded"
	"mirrorless/shared/status"
	"mirrorless/shared/topics"
)

// planFlags are the flags of plan.
type planFlags struct {
	state, functions, stack, flow string
	json                          bool
	timeout                       time.Duration
}

func planCommand() *cobra.Command {
	var flags planFlags
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show what run would change on both clusters, before it does",
		Long: `plan shows, for every enabled flow of an mm2.properties file, what the topics
function would do at its next round: topics to create and to grow, configs to
change, event sources to create, change and remove, first positions, ACLs. It
shows what is not copied and why, the rights that are missing, and topics whose
records are larger than Lambda's event can carry.

It asks both clusters whether they would take it, and changes nothing. The state
is that of run with the same FILE, also while it runs, or with --stack that of a
deployed stack.

It exits with 0 if there is nothing to change, with 2 if there is, and with 1 if
anything is wrong: the file, a right, a cluster that cannot be reached.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needsFile(propertiesFile)(cmd, args); err != nil {
				return err // 2 would say that there are changes
			}
			all, err := gatherPlans(cmd.Context(), args[0], flags)
			if err != nil {
				return exit(exitFailed, err)
			}
			if flags.json {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetEscapeHTML(false)
				e.SetIndent("", "  ")
				err = e.Encode(all)
			} else {
				err = printPlans(cmd.OutOrStdout(), all)
			}
			if err != nil {
				return fmt.Errorf("print plan: %w", err)
			}
			return planExit(all)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit(exitFailed, err) })
	cmd.Flags().StringVar(&flags.state, "state", "", "folder of the state (default .mirrorless beside FILE)")
	cmd.Flags().StringVar(&flags.functions, "functions", "in-process", "how run runs them: the state of bootstrap is in DynamoDB")
	cmd.Flags().StringVar(&flags.stack, "stack", "", "plan for the stack of this name on AWS, and not for a run on this machine")
	cmd.Flags().StringVar(&flags.flow, "flow", "", "only this flow, as in A->B")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print one JSON object")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", time.Minute, "give up after this time")
	return cmd
}

// planExit is the exit code as an error.
func planExit(all plans) error {
	code := exitOK
	for _, p := range all.Flows {
		switch {
		case len(p.Errors)+len(p.MissingRights) > 0:
			return exit(exitFailed, nil)
		case p.Changes:
			code = exitChanges
		}
	}
	if code == exitOK {
		return nil
	}
	return exit(code, nil)
}

// gatherPlans asks the process that runs the file, which alone may read its
// state, else looks itself.
func gatherPlans(ctx context.Context, file string, flags planFlags) (plans, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, flags.timeout, fmt.Errorf("gave up after %s, as --timeout says", flags.timeout))
	defer cancel()
	c, err := loadConfig(file)
	if err != nil {
		return plans{}, err
	}
	if err := c.Err(); err != nil {
		return plans{}, err
	}
	flows, err := chosenFlows(c, flags.flow)
	if err != nil {
		return plans{}, err
	}
	all, err := planWith(ctx, c, flows, file, flags)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return all, err
}

func planWith(ctx context.Context, c *config.Config, flows []config.Flow, file string, flags planFlags) (plans, error) {
	if flags.stack != "" {
		deployed, err := openStack(ctx, flags.stack)
		if err != nil {
			return plans{}, err
		}
		if flows, err = deployed.serves(ctx, flows); err != nil {
			return plans{}, err
		}
		return planFlows(ctx, c, flows, deployed.parts), nil
	}
	dir := stateDir(flags.state, file)
	at, found, silence := readRunFile(dir)
	if found {
		var all plans
		if all, silence = askPlans(ctx, at); silence == nil {
			all.Flows = slices.DeleteFunc(all.Flows, func(p flowPlan) bool {
				return !slices.ContainsFunc(flows, func(f config.Flow) bool { return f.Flow.String() == p.Flow })
			})
			return all, nil
		}
		silence = fmt.Errorf("process %d: %w", at.PID, silence)
	}
	left, err := openLeft(ctx, dir, flags.functions)
	if errors.Is(err, fs.ErrNotExist) {
		left, err = openNothing()
	}
	if err != nil {
		return plans{}, explainState(err, dir, found, silence)
	}
	name := stackNameOf(dir)
	all := planFlows(ctx, c, flows, func(f config.Flow) (*function.Parts, error) {
		store, err := left.store(f)
		return &function.Parts{Store: store, EventSources: storedSources{store}, Stack: name}, err
	})
	return all, left.close()
}

// stackNameOf is the name that stackName returns, where there is one yet.
func stackNameOf(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "id")); err != nil {
		return "new"
	}
	name, err := stackName(dir)
	if err != nil {
		return "new"
	}
	return name
}

// openNothing is the state before the first run.
func openNothing() (leftState, error) {
	dir, err := os.MkdirTemp("", "mirrorless-plan-")
	if err != nil {
		return leftState{}, fmt.Errorf("make an empty state: %w", err)
	}
	file, err := embedded.Open(filepath.Join(dir, stateFile), embedded.Options{})
	if err != nil {
		return leftState{}, errors.Join(err, os.RemoveAll(dir))
	}
	return leftState{
		where: "nothing",
		store: func(f config.Flow) (state.Store, error) { return file.Store(f.Flow) },
		close: func() error { return errors.Join(file.Close(), os.RemoveAll(dir)) },
	}, nil
}

// openParts returns the parts of a flow that depend on where it runs.
type openParts func(config.Flow) (*function.Parts, error)

// planFlows plans flows side by side. What hinders one flow is in its plan.
func planFlows(ctx context.Context, c *config.Config, flows []config.Flow, open openParts) plans {
	made := make([]topics.FlowPlan, len(flows))
	errs := make([]error, len(flows))
	var wg sync.WaitGroup
	for i, f := range flows {
		wg.Go(func() {
			made[i].Flow = f.Flow
			made[i].Plan, errs[i] = planFlow(ctx, c, f, open)
		})
	}
	wg.Wait()
	all := plans{Flows: make([]flowPlan, len(flows)), Mixed: []string{}}
	for i, f := range flows {
		if errs[i] != nil {
			made[i].Plan = topics.Plan{Problems: []error{errs[i]}}
		}
		all.Flows[i] = describePlan(f, made[i].Plan)
	}
	for _, m := range topics.MixedTopics(made) {
		all.Mixed = append(all.Mixed, m.String())
	}
	return all
}

func planFlow(ctx context.Context, c *config.Config, f config.Flow, open openParts) (topics.Plan, error) {
	p, err := open(f)
	if err != nil {
		return topics.Plan{}, err
	}
	p.Config, p.Settings, p.Logger = c, f, slog.New(slog.DiscardHandler)
	p.ClientOptions = []kgo.Opt{kgo.DisableClientMetrics(), account()}
	defer p.Close()
	plan, err := function.Plan(ctx, p)
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		// The table is made with the stack, or by the first run.
		nothing, openErr := openNothing()
		if openErr != nil {
			return topics.Plan{}, openErr
		}
		if p.Store, openErr = nothing.store(f); openErr == nil {
			if p.AWS == nil {
				p.EventSources = storedSources{p.Store}
			}
			plan, err = function.Plan(ctx, p)
		}
		err = errors.Join(err, openErr, nothing.close())
	}
	return plan, err
}

// storedSources are the event sources of a local run, as its state remembers
// them: they end with the run, and the next one makes them again.
type storedSources struct{ store state.Store }

// List returns what is stored.
func (s storedSources) List(ctx context.Context) ([]topics.EventSource, error) {
	rows, err := s.store.EventSources(ctx)
	var sources []topics.EventSource
	for _, row := range rows {
		sources = append(sources, topics.EventSource{
			EventSourceSpec: topics.EventSourceSpec{
				Topic: row.Topic, Group: row.Group, BatchSize: row.BatchSize, Window: row.Window,
				PartialFailures: row.PartialFailures, Enabled: row.State != topics.StateDisabled,
			},
			ID: row.ID, State: row.State, LastResult: row.LastResult,
		})
	}
	return sources, err
}

var errPlanned = errors.New("a plan changes nothing")

// Create, Update and Delete are for those who do.
func (s storedSources) Create(context.Context, topics.EventSourceSpec) (topics.EventSource, error) {
	return topics.EventSource{}, errPlanned
}

// Update refuses.
func (s storedSources) Update(context.Context, string, topics.EventSourceSpec) (topics.EventSource, error) {
	return topics.EventSource{}, errPlanned
}

// Delete refuses.
func (s storedSources) Delete(context.Context, string) error { return errPlanned }

const planPath = "/plan"

// askPlans lets the process that runs a file plan it, as the file is now.
func askPlans(ctx context.Context, at status.Endpoint) (plans, error) {
	var all plans
	err := askRun(ctx, at, planPath, &all)
	return all, err
}

// servePlans answers askPlans.
func servePlans(file string, open openParts) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := loadConfig(file)
		if err == nil {
			err = c.Err()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// An error is the asker's, who has gone.
		_ = json.NewEncoder(w).Encode(planFlows(r.Context(), c, c.Enabled(), open))
	}
}
