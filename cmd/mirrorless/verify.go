package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/term"

	"mirrorless/shared/cluster"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/verify"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	flow, topics                      string
	json                              bool
	timeout                           time.Duration
	allowLostHeaders, allowUnprovable bool
	parallel, differences             int
	report, since                     string
	sample                            int
	seed                              uint64
}

func verifyCommand() *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Prove that B has what A has: compare every record of both",
		Long: `verify reads every partition of the selected topics on both clusters of each
enabled flow, and compares key, value, headers, timestamp and order of the
records. It knows the file and the clusters, and nothing of how the records were
copied; MirrorMaker 2 may have done it.

Where they differ it says which records, by the offsets on both sides: missing,
duplicated, reordered, altered, header lost (a null header, which Lambda's event
does not carry), extra. What is written to A after the start does not count: a
copy that goes on is at most behind. What has expired on one side is unprovable,
never equal. Contents are never shown.

Of a topic that is compacted on either side only the last record of each key is
compared, and the output says so: what stood before may be gone on one side.

--report keeps what was found in a file, with a SHA-256 of each 65,536 equal
records of a partition. --since builds on such a file: a log changes at its ends
only, so what the file proves is read again no further than to see that it is
still there, and only what follows is compared. It also goes on with a comparison
that was interrupted. What a run does not come to stays in the new report as it
was, and where it compares nothing, it writes none. A file that somebody else may
have changed proves nothing.

--sample N compares both ends of each partition and N ranges of 1000 offsets
between them, which chance has chosen, and names them and the seed that chooses the
same ones again. Partitions that are not larger than that, and compacted topics,
are compared in full. All that can be said then is "equal in the sample".

The heartbeats topic never rests, so it is compared only if --topics matches it.

It exits with 0 if all is equal, or all of the sample, with 1 if anything differs, is behind or cannot
be proved, with 3 if a cluster cannot be reached.`,
		Args: needsFile(propertiesFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyFile(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], flags)
		},
	}
	cmd.Flags().StringVar(&flags.flow, "flow", "", "only this flow, as in A->B")
	cmd.Flags().StringVar(&flags.topics, "topics", "", "of the flow's topics, only those that this Java pattern, or comma list, matches")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&flags.report, "report", "", "write what was found to this file, for --since")
	cmd.Flags().StringVar(&flags.since, "since", "", "build on the file that an earlier --report has written")
	cmd.Flags().IntVar(&flags.sample, "sample", 0, "compare only both ends of each partition and so many ranges between them")
	cmd.Flags().Uint64Var(&flags.seed, "seed", 0, "choose the ranges of an earlier --sample (default: others each time)")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", 0, "give up after this time (default: never)")
	cmd.Flags().BoolVar(&flags.allowLostHeaders, "allow-lost-headers", false, "count, but do not mind, null headers that are not on B")
	cmd.Flags().BoolVar(&flags.allowUnprovable, "allow-unprovable", false, "count, but do not mind, what has expired on one side")
	cmd.Flags().IntVar(&flags.parallel, "parallel", 4, "partitions to compare at the same time")
	cmd.Flags().IntVar(&flags.differences, "differences", 10, "differences to print of each topic")
	return cmd
}

// comparisons is what verify prints as JSON, and keeps.
type comparisons struct {
	Verdict verify.Verdict `json:"verdict"`
	Flows   []verified     `json:"flows"`
	// Skipped are flows that copy none of the wanted topics.
	Skipped []string `json:"skipped,omitempty"`
}

// verified is the comparison of one flow.
type verified struct {
	Flow     string `json:"flow"`
	Sentence string `json:"sentence"`
	verify.Report
	// NotCompared are topics that are copied and were left out.
	NotCompared []string `json:"notCompared,omitempty"`

	settings config.Flow
}

func verifyFile(ctx context.Context, out, logs io.Writer, file string, flags verifyFlags) error {
	if flags.parallel < 1 || flags.differences < 1 {
		return exit(exitUsage, errors.New("--parallel and --differences: set 1 or more"))
	}
	if flags.sample < 0 {
		return exit(exitUsage, errors.New("--sample: set 1 or more ranges, or leave it out to compare everything"))
	}
	if flags.sample > 0 && flags.report+flags.since != "" {
		return exit(exitUsage, errors.New("--sample proves nothing to build on: leave out --report and --since"))
	}
	for flags.seed == 0 {
		flags.seed = rand.Uint64()
	}
	names, err := flow.CompilePatterns(flow.SplitList(flags.topics))
	if err != nil {
		return exit(exitUsage, fmt.Errorf("--topics: %w", err))
	}
	c, err := loadConfig(file)
	if err != nil {
		return err
	}
	if err := c.Err(); err != nil {
		return err
	}
	flows, err := chosenFlows(c, flags.flow)
	if err != nil {
		return err
	}
	interrupted := ctx
	if flags.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, flags.timeout, fmt.Errorf("stopped after %s, as --timeout says", flags.timeout))
		defer cancel()
	}
	earlier, err := readReport(flags.since)
	if err != nil {
		return err
	}
	all := comparisons{Verdict: verify.VerdictEqual, Flows: []verified{}}
	var failure error
	for _, f := range flows {
		var got verified
		got, failure = verifyFlow(ctx, logs, f, names, earlier.of(f), flags)
		if errors.Is(failure, errNothingToCompare) {
			failure = nil
			all.Skipped = append(all.Skipped, f.String())
			continue
		}
		if len(got.Topics) > 0 {
			all.Flows = append(all.Flows, got)
		}
		all.Verdict = all.Verdict.Worst(got.Verdict)
		if failure != nil {
			break
		}
	}
	if failure == nil && len(all.Flows) == 0 {
		return nothingToCompare(flows, flags.topics)
	}
	// Where nothing was compared, nothing is written, for it could be in the place of
	// a report that proves something.
	if flags.report != "" && len(all.Flows) > 0 {
		if err := all.with(earlier).write(flags.report); err != nil {
			return err
		}
	}
	if flags.json {
		all.forget()
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(all)
	} else {
		err = printVerified(out, all.Flows, all.Skipped, flags.differences)
	}
	switch {
	case err != nil:
		return fmt.Errorf("print the comparison: %w", err)
	case interrupted.Err() != nil:
		return interrupted.Err()
	case failure != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case failure != nil:
		return verifyFailure(failure)
	case all.Verdict != verify.VerdictEqual && all.Verdict != verify.VerdictSampled:
		return exit(exitFailed, nil)
	}
	return nil
}

// errNothingToCompare is of a flow that copies none of the wanted topics.
var errNothingToCompare = errors.New("no topic is to be compared")

// nothingToCompare is the answer where no flow has such a topic.
func nothingToCompare(flows []config.Flow, wanted string) error {
	which := ""
	if wanted != "" {
		which = " that matches --topics " + wanted
	}
	names := make([]string, len(flows))
	for i, f := range flows {
		names[i] = f.String()
	}
	return fmt.Errorf("%s: no topic%s is to be compared; mirrorless plan --json lists which are copied", strings.Join(names, ", "), which)
}

func verifyFailure(err error) error {
	if _, ok := errors.AsType[*cluster.Error](err); ok {
		return exit(exitUnreachable, err)
	}
	return err
}

// reachWithin is what a cluster gets to answer at first.
const reachWithin = 20 * time.Second

// verifyFlow compares the topics of a flow. The report of one that failed says
// how far it came.
func verifyFlow(ctx context.Context, logs io.Writer, f config.Flow, names flow.Patterns, since *verify.Report, flags verifyFlags) (verified, error) {
	dial := func(alias string, properties map[string]string) func(context.Context) (*kgo.Client, error) {
		return func(ctx context.Context) (*kgo.Client, error) {
			ctx, cancel := context.WithTimeout(ctx, reachWithin)
			defer cancel()
			return cluster.Connect(ctx, alias, properties, kgo.DisableClientMetrics(), account())
		}
	}
	o := verify.Options{
		Source: verify.Cluster{
			Name: f.Source, Dial: dial(f.Source, f.SourceClient(config.Consumer)),
			Committed: f.IsolationLevel == "read_committed",
		},
		Target: verify.Cluster{
			Name: f.Target, Dial: dial(f.Target, f.TargetClient(config.Consumer)),
			Committed: f.ExactlyOnce,
		},
		FromLatest:       f.AutoOffsetReset == "latest",
		AllowLostHeaders: flags.allowLostHeaders,
		AllowUnprovable:  flags.allowUnprovable,
		Keep:             flags.report != "",
		Since:            since,
		Parallel:         flags.parallel,
		Findings:         max(flags.differences, 100),
	}
	if flags.sample > 0 {
		o.Sample = &verify.Sample{Ranges: flags.sample, Seed: flags.seed}
	}
	v := verified{Flow: f.String(), Report: verify.Report{Verdict: verify.VerdictFailed}, settings: f}
	var err error
	if o.Pairs, v.NotCompared, err = pairsOf(ctx, f, names, o.Source.Dial, flags.topics != ""); err != nil {
		return v, err
	}
	progress, done := verifyBar(logs, f)
	o.Progress = progress
	v.Report, err = verify.New(o).Run(ctx)
	done()
	v.Sentence = verifySentence(v)
	return v, err
}

// pairsOf returns the topics of the flow's source that are copied, under their
// names on both sides. Without a wish, heartbeats are left out: they are
// always behind.
func pairsOf(ctx context.Context, f config.Flow, names flow.Patterns, dial func(context.Context) (*kgo.Client, error), wished bool) (pairs []verify.Pair, left []string, err error) {
	client, err := dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list topics of %s: %w", f.Source, cluster.Explain(client, err))
	}
	selector := f.Selector()
	for _, topic := range topics.Names() {
		if !selector.Select(topic).Copy || wished && !names.Match(topic) {
			continue
		}
		if !wished && f.Policy.IsHeartbeats(topic) {
			left = append(left, topic)
			continue
		}
		pairs = append(pairs, verify.Pair{Source: topic, Target: selector.Remote(topic)})
	}
	if len(pairs) == 0 {
		return nil, left, errNothingToCompare
	}
	slices.SortFunc(pairs, func(p, q verify.Pair) int {
		if p.Source < q.Source {
			return -1
		}
		return 1
	})
	return pairs, left, nil
}

// verifyBar shows the progress where logs is a terminal.
func verifyBar(logs io.Writer, f config.Flow) (progress func(done, total int64), finish func()) {
	file, ok := logs.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(logs), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("records"), progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetDescription(f.String()))
	// The bar is only an ornament; its errors are those of the terminal.
	return func(done, total int64) {
			bar.ChangeMax64(max(total, 1))
			_ = bar.Set64(done)
		}, func() {
			_ = bar.Clear()
		}
}
