package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"mirrorless/localstack/stack"
)

// tally is what a run's event sources know of its progress.
type tally struct {
	Time time.Time `json:"time"`
	Flow string    `json:"flow"`
	// Copied counts records since the run began, Behind the offsets that the
	// source has and that are not copied.
	Copied int64 `json:"copied"`
	Behind int64 `json:"behind"`
	// Partitions are those that the run reads, Failing those of which a batch is
	// being sent again.
	Partitions int `json:"partitions"`
	Failing    int `json:"failing"`
	// Failed are scheduled functions that fail, with their last error.
	Failed map[string]string `json:"failed,omitempty"`
}

func tallyOf(s *stack.Stack) tally {
	c := tally{Time: time.Now().UTC().Truncate(time.Millisecond), Flow: s.Flow().String(), Failed: map[string]string{}}
	for name, f := range s.Failed() {
		c.Failed[name] = f.Error
	}
	for _, m := range s.Sources().Progress() {
		for _, p := range m.Partitions {
			c.Partitions++
			c.Copied += p.Delivered
			c.Behind += p.Behind()
			if p.Failed > 0 {
				c.Failing++
			}
		}
	}
	return c
}

// show prints the progress until ctx is done: a bar on a terminal, one JSON line
// a minute and flow elsewhere.
func (r *runner) show(ctx context.Context) {
	if f, ok := r.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		r.bar(ctx, f)
		return
	}
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	lines := json.NewEncoder(r.out)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range r.stacks {
			_ = lines.Encode(tallyOf(s)) // a reader that has gone is no reason to stop
		}
	}
}

// bar shows all flows as one: the backlog while there is one, then how far
// behind the copy is.
func (r *runner) bar(ctx context.Context, out io.Writer) {
	bar := progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("records"), progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetRenderBlankState(true))
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	defer fmt.Fprintln(out)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var all tally
		var flows []string
		for _, s := range r.stacks {
			c := tallyOf(s)
			flows = append(flows, c.Flow)
			all.Copied += c.Copied
			all.Behind += c.Behind
			all.Partitions += c.Partitions
			all.Failing += c.Failing + len(c.Failed)
		}
		bar.Describe(describe(strings.Join(flows, ", "), all))
		bar.ChangeMax64(max(all.Copied+all.Behind, 1))
		_ = bar.Set64(all.Copied)
	}
}

func describe(flows string, c tally) string {
	switch {
	case c.Partitions == 0:
		return flows + ": looking for topics"
	case c.Failing > 0:
		return fmt.Sprintf("%s: %d failing, see the log", flows, c.Failing)
	case c.Behind > 0:
		return fmt.Sprintf("%s: %d behind in %d partitions", flows, c.Behind, c.Partitions)
	}
	return fmt.Sprintf("%s: caught up, %d partitions", flows, c.Partitions)
}
