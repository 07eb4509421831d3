package mapping_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/topics"
)

func TestRequestsKeepBelowLambdasRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{}
		s := sourcesOf(t, lambdaapi.New(lambdaapi.Options{Rate: 15, Faults: w.faults()}), mskFile)
		start := time.Now()
		for range 50 {
			if _, err := s.List(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := time.Since(start), 9*time.Second; got != want {
			t.Errorf("got %v for 50 requests, want %v: five at once, then five a second", got, want)
		}
		time.Sleep(time.Hour) // which saves up no more than a burst
		for range 20 {
			if _, err := s.List(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.expectRate(t, 10)
		if got := w.total(); got != 70 {
			t.Errorf("got %d calls, want 70: none was throttled", got)
		}
	})
}

func TestThrottlingIsSatOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Others use up most of the account's rate.
		w := &watch{}
		s := sourcesOf(t, lambdaapi.New(lambdaapi.Options{Rate: 1, Faults: w.faults()}), mskFile)
		for _, topic := range []string{"a", "b", "c", "d", "e", "f"} {
			must[topics.EventSource](t)(s.Create(within(t, 5*time.Minute), specOf(topic)))
		}
		if got := list(t, s); len(got) != 6 {
			t.Errorf("got %d mappings, want 6", len(got))
		}
		if got := w.total(); got < 8 || got > 30 {
			t.Errorf("got %d calls for 7, want some to be throttled, and not many", got)
		}
	})
}

func TestThrottlingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := &lambdaapi.Error{Status: 429, Code: "TooManyRequestsException", Message: "Rate exceeded"}
		w := &watch{before: map[int]error{}}
		for n := range 1000 {
			w.before[n] = refuse
		}
		s := sourcesOf(t, lambdaapi.New(lambdaapi.Options{Faults: w.faults()}), mskFile)
		start := time.Now()
		_, err := s.List(within(t, 40*time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Rate exceeded") {
			t.Errorf("got %v, want the deadline and Lambda's last answer", err)
		}
		if d := time.Since(start); d < 25*time.Second || d > 40*time.Second {
			t.Errorf("got it after %v, want it near the deadline", d)
		}
		// Without a deadline there is an end, too.
		if _, err := s.List(t.Context()); err == nil || !strings.Contains(err.Error(), "Rate exceeded") {
			t.Errorf("got %v, want Lambda's answer", err)
		}
	})
}

func TestACancelledRoundStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := &lambdaapi.Error{Status: 429, Code: "TooManyRequestsException", Message: "Rate exceeded"}
		w := &watch{before: map[int]error{1: refuse, 2: refuse, 3: refuse, 4: refuse, 5: refuse}}
		s := sourcesOf(t, lambdaapi.New(lambdaapi.Options{Faults: w.faults()}), mskFile)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		start := time.Now()
		if _, err := s.List(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want it cancelled", err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("got it after %v, want 2s", d)
		}
	})
}

func TestFailuresOfTheServerAreTriedAgainAFewTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &lambdaapi.Error{Status: 500, Code: "ServiceException", Message: "An internal error occurred"}
		w := &watch{before: map[int]error{1: broken, 2: errors.New("lost")}}
		s := sourcesOf(t, lambdaapi.New(lambdaapi.Options{Faults: w.faults()}), mskFile)
		must[topics.EventSource](t)(s.Create(t.Context(), specOf("orders")))
		if got := w.total(); got != 3 {
			t.Errorf("got %d calls, want 3", got)
		}
		for n := range 100 {
			w.before[n] = broken
		}
		if _, err := s.Create(within(t, time.Hour), specOf("clicks")); err == nil || !strings.Contains(err.Error(), "internal error") {
			t.Errorf("got %v, want Lambda's answer", err)
		}
		if got := w.total(); got != 3+4 {
			t.Errorf("got %d calls, want 4 more", got)
		}
	})
}

func TestWhatLambdaRefusesIsNotTriedAgain(t *testing.T) {
	w := &watch{}
	s := sourcesOf(t, lambdaapi.New(lambdaapi.Options{Faults: w.faults()}), mskFile)
	spec := specOf("orders")
	spec.BatchSize = 20_000
	if _, err := s.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "BatchSize") {
		t.Errorf("got %v, want Lambda's reason", err)
	}
	if got := w.total(); got != 1 {
		t.Errorf("got %d calls, want 1", got)
	}
}
