package eventsource

import (
	"errors"
	"time"
)

// Faults are where a test can make the mapping misbehave. A nil func does
// nothing. They are called from the invocation's goroutine, with no lock held,
// and may block, or kill the mapping.
type Faults struct {
	// BeforeInvoke is called with every invocation, also with repeated ones.
	BeforeInvoke func(Invocation) Fault
	// BeforeCommit is called when the function has succeeded, before anything
	// is made of that.
	BeforeCommit func(Invocation)
}

// Fault is what happens to one invocation; the zero value is none.
type Fault struct {
	// Delay passes before the function gets the payload.
	Delay time.Duration
	// Lose keeps the payload from the function; the mapping sees a failure.
	Lose bool
	// LoseReply lets the function run, but the mapping sees a failure.
	LoseReply bool
	// Duplicates is how many copies of the payload the function gets besides,
	// DuplicateDelay after the first. Nobody waits for them, and their replies
	// count for nothing: they may run beside, and after, the invocations that
	// follow.
	Duplicates     int
	DuplicateDelay time.Duration
}

// ErrLost is the failure of an invocation that a [Fault] had lost.
var ErrLost = errors.New("invocation lost by a fault")

// Invocation describes one invocation of the function.
type Invocation struct {
	// Attempt counts from 1; more than 1 is a repetition.
	Attempt int
	// Ranges are the partitions of the payload in its order.
	Ranges []Range
	// Size is the payload's, in bytes.
	Size int
}

// Range is what an invocation holds of one partition.
type Range struct {
	Topic       string
	Partition   int32
	First, Last int64 // offsets of the first and the last record
	Records     int
}
