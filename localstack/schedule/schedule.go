// Package schedule stands in for EventBridge Scheduler: it runs jobs at fixed
// rates in this process.
//
//	schedule.Run(ctx, schedule.Options{Failed: report}, jobs...)
//
// Unlike the real one it starts every job at once, keeps to seconds where
// EventBridge keeps to minutes, never runs a job beside itself, and does not
// retry: the next round does the work.
package schedule

import (
	"context"
	"sync"
	"time"
)

// Job is work to be done again and again.
type Job struct {
	// Name is what Failed is told.
	Name string
	// Every is the time from start to start, and must be positive. A round that
	// takes longer is followed at once by the next, and the rounds that had come
	// due meanwhile are left out.
	Every time.Duration
	// Run does one round. It should return soon after ctx is done.
	Run func(ctx context.Context) error
}

// Options are what [Run] needs besides the jobs; the zero value reports nothing
// and interrupts rounds at once.
type Options struct {
	// Failed is told of each round that returned an error, from the job's own
	// goroutine. Errors after the end was asked for are told too, except those
	// that only say so.
	Failed func(job string, err error)
	// Grace is how long a round that is running at the end may go on before its
	// context is done.
	Grace time.Duration
}

// Run runs the jobs side by side until ctx is done, and returns when the last
// round has. No round starts after ctx is done.
func Run(ctx context.Context, o Options, jobs ...Job) {
	// Rounds get a context that outlives ctx by the grace.
	rounds, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if o.Grace <= 0 {
			cancel()
			return
		}
		timer := time.NewTimer(o.Grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-rounds.Done():
		}
	})
	defer stop()

	var wg sync.WaitGroup
	for _, job := range jobs {
		wg.Go(func() { repeat(ctx, rounds, o.Failed, job) })
	}
	wg.Wait()
}

func repeat(ctx, rounds context.Context, failed func(string, error), job Job) {
	ticker := time.NewTicker(job.Every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := job.Run(rounds); err != nil && failed != nil && rounds.Err() == nil {
			failed(job.Name, err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
