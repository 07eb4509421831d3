package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/stack"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/function"
	"mirrorless/shared/status"
)

// runOptions are the flags of run.
type runOptions struct {
	clusters  []string
	functions string
	binaries  string
	state     string
	metrics   string
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Replicate on this machine, as connect-mirror-maker.sh does",
		Long: `run starts the functions of every enabled flow of an mm2.properties file on this
machine, with the event sources and schedules that AWS would give them, and goes
on until Ctrl-C. It goes on where it stopped, also after a crash.

The state is in .mirrorless/ beside FILE. With --functions bootstrap the
functions are the binaries of "make build", and their state is in DynamoDB.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("clusters") {
				// As MirrorMaker 2 has it: --clusters B C
				o.clusters, args = append(o.clusters, args[min(1, len(args)):]...), args[:min(1, len(args))]
			}
			return needsFile(propertiesFile)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFile(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], o)
		},
	}
	cmd.Flags().StringSliceVar(&o.clusters, "clusters", nil, "run only the flows into these clusters, by alias: --clusters B,C or --clusters B C")
	cmd.Flags().StringVar(&o.functions, "functions", "in-process", "how the functions run: in-process or bootstrap")
	cmd.Flags().StringVar(&o.binaries, "binaries", "", "folder of <function>/bootstrap (default: where mirrorless is)")
	cmd.Flags().StringVar(&o.metrics, "metrics", "", "file to append the functions' metrics to, in CloudWatch's embedded metric format (docs/metrics.md)")
	cmd.Flags().StringVar(&o.state, "state", "", "folder of the state (default: .mirrorless beside FILE)")
	return cmd
}

func runFile(ctx context.Context, out, logs io.Writer, file string, o runOptions) (err error) {
	if o.functions != "in-process" && o.functions != "bootstrap" {
		return exit(exitUsage, fmt.Errorf("--functions is %q: set in-process or bootstrap", o.functions))
	}
	c, err := loadConfig(file)
	if err != nil {
		return err
	}
	if err := c.Err(); err != nil {
		return err
	}
	flows, err := chosen(c, o.clusters)
	if err != nil {
		return err
	}
	dir := stateDir(o.state, file)
	name, err := stackName(dir)
	if err != nil {
		return err
	}
	open := func() (stores, error) { return openFile(dir) }
	if o.functions == "bootstrap" {
		open = func() (stores, error) { return openTables(ctx, name) }
	}
	kept, err := open()
	if err != nil {
		return exit(exitUnreachable, err)
	}
	defer func() { err = errors.Join(err, kept.Close()) }()

	var metrics io.Writer
	if o.metrics != "" {
		appended, err := os.OpenFile(o.metrics, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return exit(exitUsage, fmt.Errorf("open the file of --metrics: %w", err))
		}
		defer appended.Close() // each line is in the file once it is written
		metrics = appended
	}

	r := newRunner(out, logs)
	r.file, r.dir, r.name = file, dir, name
	for _, w := range c.Warnings {
		fmt.Fprintln(r.logs, w)
	}
	announce(r.logs, flows, dir, o)
	for _, f := range flows {
		store, err := kept.Store(ctx, f)
		if err != nil {
			return errors.Join(exit(exitUnreachable, fmt.Errorf("open the state of %s: %w", f, err)), r.stop())
		}
		s := stack.Options{Config: c, Flow: f, Store: store, Name: name, Metrics: metrics, Logger: r.logger.With("flow", f.String())}
		if o.functions == "bootstrap" {
			if s.Binaries, err = binaries(c, o.binaries, file, dir, kept.Table(f), f, r.logs); err != nil {
				return errors.Join(err, r.stop())
			}
		}
		if err := r.start(ctx, s); err != nil {
			return errors.Join(err, r.stop())
		}
	}
	return r.watch(ctx)
}

// chosen are the enabled flows into the named clusters, or all.
func chosen(c *config.Config, clusters []string) ([]config.Flow, error) {
	for _, alias := range clusters {
		if _, ok := c.Cluster(alias); !ok {
			return nil, exit(exitUsage, fmt.Errorf("--clusters names %q, which %s does not declare: it has %s", alias, c.File, strings.Join(c.Aliases(), ", ")))
		}
	}
	flows := slices.DeleteFunc(c.Enabled(), func(f config.Flow) bool {
		return len(clusters) > 0 && !slices.Contains(clusters, f.Target)
	})
	if len(flows) == 0 {
		return nil, exit(exitFailed, fmt.Errorf("%s enables no flow to run: set <source>-><target>.enabled = true", c.File))
	}
	return flows, nil
}

// binaries are the bootstraps of a flow, with the environment that the template
// gives them and what this process knows of AWS.
func binaries(c *config.Config, dir, file, state, table string, f config.Flow, logs io.Writer) (*stack.Binaries, error) {
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the functions' binaries: %w", err)
		}
		dir = filepath.Dir(self)
	}
	path, err := deployedFile(c, file, state)
	if err != nil {
		return nil, err
	}
	env := map[string]string{"MIRRORLESS_FLOW": f.String(), "MIRRORLESS_CONFIG": path, "MIRRORLESS_TABLE": table}
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			env[name] = value
		}
	}
	return &stack.Binaries{Dir: dir, Env: env, Logs: logs}, nil
}

// deployedFile is the properties file that functions in processes of their own
// are told. Lambda's event source reaches a self-managed cluster without a login in
// a VPC only, and finds what it logs in with in a secret, and topics insists on
// both. Neither is here, where event sources log in as the file says: a copy of it
// names some.
func deployedFile(c *config.Config, file, state string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	for _, cluster := range c.Clusters {
		if cluster.MSK.ARN == "" && len(cluster.MSK.Subnets) == 0 {
			text = fmt.Appendf(text, "\n%[1]s.mirrorless.subnets = subnet-0000\n%[1]s.mirrorless.security.groups = sg-0000\n", cluster.Alias)
		}
		if cluster.MSK.SecretARN == "" && cluster.SecurityProtocol != "PLAINTEXT" {
			text = fmt.Appendf(text, "\n%s.mirrorless.secret.arn = %s\n", cluster.Alias, noSecret)
		}
	}
	path, err := filepath.Abs(filepath.Join(state, "functions.properties"))
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write the functions' properties: %w", err)
	}
	return path, nil
}

// noSecret is the ARN of a secret that is not there, and that nobody reads.
const noSecret = "arn:aws:secretsmanager:us-east-1:000000000000:secret:none"

// announce says what a run will do.
func announce(out io.Writer, flows []config.Flow, dir string, o runOptions) {
	for _, f := range flows {
		fmt.Fprintf(out, "%s: topics %s become %s on %s", f, strings.Join(f.Topics, ", "), f.RemoteTopic("<topic>"), f.Target)
		if f.EmitCheckpoints.Enabled {
			fmt.Fprintf(out, "; offsets of groups %s are translated every %s", strings.Join(f.Groups, ", "), f.EmitCheckpoints.Interval)
		}
		if f.SyncGroupOffsets.Enabled {
			fmt.Fprintf(out, " and committed on %s every %s", f.Target, f.SyncGroupOffsets.Interval)
		}
		fmt.Fprintln(out, ".")
	}
	where := "in " + filepath.Join(dir, stateFile)
	if o.functions == "bootstrap" {
		where = "in DynamoDB"
	}
	fmt.Fprintf(out, "Functions run %s; the state is %s. Connect's own topics, mm2-configs and mm2-status, are not made. Ctrl-C stops.\n", o.functions, where)
}

// runner is the stacks that run in this process.
type runner struct {
	logger *slog.Logger
	out    io.Writer // progress
	logs   io.Writer // everything else
	screen *screen   // nil where out is no terminal
	file   string    // the properties
	dir    string    // of the state
	name   string    // of the stacks
	client []kgo.Opt
	stacks []*stack.Stack
}

func (r *runner) start(ctx context.Context, o stack.Options) error {
	o.ClientOptions = append(slices.Clip(r.client), account())
	s, err := stack.Start(ctx, o)
	if err != nil {
		return err
	}
	r.stacks = append(r.stacks, s)
	return nil
}

// stopWithin is what the event sources get to finish what is in flight.
const stopWithin = 15 * time.Second

// stop ends all stacks.
func (r *runner) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	errs := make(chan error, len(r.stacks))
	for _, s := range r.stacks {
		go func() { errs <- s.Stop(ctx) }()
	}
	var all []error
	for range r.stacks {
		all = append(all, <-errs)
	}
	r.stacks = nil
	return errors.Join(all...)
}

// watch shows the progress and answers status until ctx is done, and stops then.
func (r *runner) watch(ctx context.Context) error {
	silence, err := serveStatus(r.dir, r.reports, servePlans(r.file, r.parts))
	if err != nil {
		return errors.Join(err, r.stop())
	}
	r.show(ctx)
	silence()
	fmt.Fprintf(r.logs, "Stopping, once what is in flight is acknowledged; at most %s.\n", stopWithin)
	if err := r.stop(); err != nil {
		// What was in flight is settled by the next run.
		r.logger.Warn("stopped before all that was in flight was acknowledged", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	fmt.Fprintln(r.logs, "Stopped. The next run goes on from here.")
	return nil
}

// reports is the status of every flow of this run.
func (r *runner) reports(ctx context.Context) []status.Report {
	out := make([]status.Report, len(r.stacks))
	var wg sync.WaitGroup
	for i, s := range r.stacks {
		wg.Go(func() {
			var err error
			o := status.Options{Settings: s.Flow(), Store: s.Store(), Failures: failures(s), Functions: functionFailures(s)}
			if out[i], err = flowStatus(ctx, o); err != nil {
				out[i] = status.Report{Flow: s.Flow().String(), Answer: status.Unknown, Sentence: fmt.Sprintf("The state cannot be read: %v.", err)}
			}
		})
	}
	wg.Wait()
	return out
}

// parts are those of a flow of this run, for a plan. A flow that the file did not
// enable when the run began has no state yet.
func (r *runner) parts(f config.Flow) (*function.Parts, error) {
	for _, s := range r.stacks {
		if s.Flow().Flow == f.Flow {
			return &function.Parts{Store: s.Store(), EventSources: storedSources{s.Store()}, Stack: r.name}, nil
		}
	}
	return nil, fmt.Errorf("plan %s: the mirrorless that runs does not run it; stop it, and plan again", f.Flow)
}

func functionFailures(s *stack.Stack) map[string]status.Failure {
	out := map[string]status.Failure{}
	for name, f := range s.Failed() {
		out[name] = status.Failure(f)
	}
	return out
}

// failures are the last errors of a flow's event sources.
func failures(s *stack.Stack) status.Failures {
	out := status.Failures{}
	for _, m := range s.Sources().Progress() {
		if m.Err != nil {
			out[flow.TopicPartition{Topic: m.Topic, Partition: status.AllPartitions}] = status.Failure{Error: m.Err.Error(), At: m.LastFailed}
		}
		for _, p := range m.Partitions {
			if p.Err != nil {
				out[flow.TopicPartition{Topic: m.Topic, Partition: p.Partition}] = status.Failure{Error: p.Err.Error(), At: p.LastFailed, Attempts: p.Failed}
			}
		}
	}
	return out
}
