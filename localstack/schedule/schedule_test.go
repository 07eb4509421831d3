package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/localstack/schedule"
)

// diary notes what happened when, in seconds since the test began.
type diary struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v ", time.Since(d.begin))+fmt.Sprintf(format, args...))
}

func TestJobsRunAtOnceAndThenAtTheirRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beats, checkpoints diary
		beats.begin, checkpoints.begin = time.Now(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		schedule.Run(ctx, schedule.Options{},
			schedule.Job{Name: "heartbeat", Every: time.Second, Run: func(context.Context) error { beats.note("beat"); return nil }},
			schedule.Job{Name: "checkpoint", Every: 2 * time.Second, Run: func(context.Context) error { checkpoints.note("checkpoint"); return nil }},
		)
		if diff := cmp.Diff([]string{"0s beat", "1s beat", "2s beat", "3s beat"}, beats.lines); diff != "" {
			t.Errorf("beats differ (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"0s checkpoint", "2s checkpoint"}, checkpoints.lines); diff != "" {
			t.Errorf("checkpoints differ (-want +got):\n%s", diff)
		}
	})
}

func TestALongRoundIsNeverOverlapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		d.begin = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		schedule.Run(ctx, schedule.Options{Grace: time.Minute}, schedule.Job{Every: time.Second, Run: func(context.Context) error {
			d.note("begin")
			time.Sleep(3500 * time.Millisecond)
			d.note("end")
			return nil
		}})
		want := []string{"0s begin", "3.5s end", "3.5s begin", "7s end", "7s begin", "10.5s end"}
		if diff := cmp.Diff(want, d.lines); diff != "" {
			t.Errorf("rounds differ (-want +got):\n%s", diff)
		}
	})
}

func TestAFailedRoundIsToldAndTheNextStillComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		d.begin = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		failed := func(job string, err error) { d.note("%s: %v", job, err) }
		schedule.Run(ctx, schedule.Options{Failed: failed}, schedule.Job{Name: "topics", Every: time.Second, Run: func(context.Context) error {
			return errors.New("no brokers")
		}})
		if diff := cmp.Diff([]string{"0s topics: no brokers", "1s topics: no brokers"}, d.lines); diff != "" {
			t.Errorf("errors differ (-want +got):\n%s", diff)
		}
	})
}

func TestTheEndInterruptsARoundAfterTheGrace(t *testing.T) {
	for _, test := range []struct {
		grace time.Duration
		want  []string
	}{
		{0, []string{"1s context canceled"}},
		{2 * time.Second, []string{"3s context canceled"}},
	} {
		t.Run(test.grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				d.begin = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				told := func(job string, err error) { t.Errorf("got %v told, want silence about an interruption", err) }
				schedule.Run(ctx, schedule.Options{Grace: test.grace, Failed: told}, schedule.Job{Every: time.Minute, Run: func(ctx context.Context) error {
					<-ctx.Done()
					d.note("%v", ctx.Err())
					return ctx.Err()
				}})
				if diff := cmp.Diff(test.want, d.lines); diff != "" {
					t.Errorf("end differs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestNothingStartsAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	schedule.Run(ctx, schedule.Options{}, schedule.Job{Every: time.Second, Run: func(context.Context) error {
		t.Error("a round ran")
		return nil
	}})
}
