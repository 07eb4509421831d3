package mapping

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

const (
	// interval is between requests, after the first burst of them.
	interval = 200 * time.Millisecond
	burst    = 5
	// attemptTimeout bounds one request: a connection that died while its Lambda
	// environment was frozen answers nothing, not even an error.
	attemptTimeout = 10 * time.Second
	// Backoff doubles from first to most, and varies below.
	firstBackoff = 500 * time.Millisecond
	mostBackoff  = 10 * time.Second
	// mostAttempts is for errors of one mapping, which should not use up the time
	// of the others, mostThrottled for throttling without a deadline.
	mostAttempts  = 4
	mostThrottled = 12
)

// A call is a method of the client.
type call[In, Out any] func(context.Context, *In, ...func(*lambda.Options)) (*Out, error)

// request makes one request of Lambda until it is answered, each attempt when its
// turn comes. Throttling it sits out for as long as ctx lasts; server errors and
// lost connections it tries again a few times, so that what it asks for may have
// been done before its answer.
func request[In, Out any](ctx context.Context, e *EventSources, do call[In, Out], in *In) (*Out, error) {
	_, bounded := ctx.Deadline()
	var last error
	for attempt := 0; ; attempt++ {
		if err := e.pace.wait(ctx); err != nil {
			if last != nil {
				return nil, fmt.Errorf("gave up after %d attempts: %w: %w", attempt, err, last)
			}
			return nil, err
		}
		out, err := once(ctx, do, in)
		if err == nil {
			return out, nil
		}
		last = err
		throttled := isThrottle(err)
		most := mostAttempts
		if throttled {
			most = mostThrottled
		}
		if !throttled && !passes(err) || attempt+1 >= most && !(throttled && bounded) {
			return nil, err
		}
		e.pace.hold(max(backoff(attempt), wished(err)))
	}
}

// once makes one attempt.
func once[In, Out any](ctx context.Context, do call[In, Out], in *In) (*Out, error) {
	limited, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errNoAnswer)
	defer cancel()
	out, err := do(limited, in, func(o *lambda.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errNoAnswer) {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return out, err
}

// errNoAnswer ends one attempt.
var errNoAnswer = fmt.Errorf("no answer within %v", attemptTimeout)

// passes says whether an error may be gone with the next attempt.
func passes(err error) bool {
	return errors.Is(err, errNoAnswer) ||
		retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}

func isThrottle(err error) bool {
	return isA[*types.TooManyRequestsException](err) ||
		retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary
}

// wished is the pause that Lambda asks for, 0 for none.
func wished(err error) time.Duration {
	throttled, ok := errors.AsType[*types.TooManyRequestsException](err)
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(aws.ToString(throttled.RetryAfterSeconds), 64)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n*float64(time.Second)), time.Minute)
}

// backoff is the pause after an attempt that failed.
func backoff(attempt int) time.Duration {
	longest := mostBackoff
	if attempt < 8 {
		longest = min(mostBackoff, firstBackoff<<attempt)
	}
	return longest/2 + rand.N(longest/2)
}

// pacer spaces the requests of everybody who shares it. The zero pacer is ready.
type pacer struct {
	mu sync.Mutex
	// next is the turn of the next request. While nobody asks, up to burst turns
	// collect behind the present.
	next time.Time
}

// wait returns when it is the caller's turn. It refuses where ctx ends earlier.
func (p *pacer) wait(ctx context.Context) error {
	turn, err := p.take(ctx)
	if err != nil {
		return err
	}
	d := time.Until(turn)
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pacer) take(ctx context.Context) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn := p.next
	if earliest := time.Now().Add(-(burst - 1) * interval); turn.Before(earliest) {
		turn = earliest
	}
	if deadline, ok := ctx.Deadline(); ok && turn.After(deadline) {
		return turn, context.DeadlineExceeded
	}
	p.next = turn.Add(interval)
	return turn, nil
}

// hold lets nobody have a turn for d.
func (p *pacer) hold(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d); p.next.Before(until) {
		p.next = until
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
