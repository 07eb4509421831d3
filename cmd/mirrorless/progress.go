package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
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
	// source has and that are not copied. Heartbeats do not count.
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
		if s.Flow().Policy.IsHeartbeats(m.Topic) {
			continue // there is always one on its way
		}
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

// screen is a terminal with a bar in its last line, above which other lines come.
type screen struct {
	mu  sync.Mutex
	to  io.Writer
	bar *progressbar.ProgressBar
}

func newScreen(to io.Writer) *screen {
	return &screen{to: to, bar: progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(to), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())}
}

// Write prints lines in the place of the bar, which comes back below them.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.bar.Clear()
	return s.to.Write(p)
}

func (s *screen) set(text string, done, all int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar.Describe(text)
	s.bar.ChangeMax64(max(all, 1))
	_ = s.bar.Set64(min(done, max(all, 1)-1)) // a bar that is full would end
	_ = s.bar.RenderBlank()
}

// newRunner returns a runner without stacks. On a terminal everything is for a
// person; elsewhere stdout has JSON lines of progress and nothing else.
func newRunner(out, logs io.Writer) *runner {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s := newScreen(out)
		return &runner{out: out, logs: s, screen: s, logger: slog.New(slog.NewTextHandler(s, nil))}
	}
	return &runner{out: out, logs: logs, logger: slog.New(slog.NewJSONHandler(logs, nil))}
}

// show prints the progress until ctx is done: a bar on a terminal, one JSON line
// a minute and flow elsewhere.
func (r *runner) show(ctx context.Context) {
	every := time.Minute
	if r.screen != nil {
		every = 250 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	lines := json.NewEncoder(r.out)
	lines.SetEscapeHTML(false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.screen != nil {
			r.draw()
			continue
		}
		for _, s := range r.stacks {
			_ = lines.Encode(tallyOf(s)) // a reader that has gone is no reason to stop
		}
	}
}

// draw shows all flows as one.
func (r *runner) draw() {
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
	r.screen.set(describe(strings.Join(flows, ", "), all), all.Copied, all.Copied+all.Behind)
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
