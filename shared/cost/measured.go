package cost

import "time"

// What template.yaml gives the functions, in MB.
const (
	DefaultMemory   = 512
	ScheduledMemory = 256
	HeartbeatMemory = 128
)

// Measurement is what invocations take.
type Measurement struct {
	// PerGB and PerInvocation are processor time of mirror: for a GB of keys and
	// values, and besides, for each event.
	PerGB, PerInvocation time.Duration
	// Topics, Heartbeat and Checkpoint are processor time of one idle round.
	Topics, Heartbeat, Checkpoint time.Duration
	// Waiting is what mirror waits for B and for the table, RoundWaiting what a
	// scheduled function waits for both clusters and the table. Both are assumed.
	Waiting, RoundWaiting time.Duration
	// FullEvent are the bytes of keys and values of the largest event, Record those of
	// one record, PayloadPerByte how much larger an event is than they are.
	FullEvent, Record, PayloadPerByte float64
	// PeakMemory of mirror in bytes, with full events.
	PeakMemory float64
	// Writes are DynamoDB's units of an invocation of mirror: of an item of one to two
	// KB, which has sixteen partitions. The others are those of all scheduled
	// functions in a minute: leases, and the items of each topic.
	Writes, IdleWrites, IdleReads, IdleReadsOfTopic float64
	// LogBytes are those of one invocation: Lambda's own three lines, and metrics.
	LogBytes float64
	// Metrics and Alarms are those of a flow, as infra/monitoring.yaml and
	// mirrorless.metrics = flow have them.
	Metrics, Alarms float64
	// MirrorMakerPerGB is processor time of MirrorMaker 2 with default settings,
	// without that of its brokers.
	MirrorMakerPerGB time.Duration
}

// Measured is what BenchmarkInvocation in stories printed (testdata/invocations.txt:
// of mirror, the mean at all sizes of memory), and what is counted in the code and in
// infra/. The figure of MirrorMaker 2 is that of BenchmarkAgainstMirrorMaker2.
func Measured() Measurement {
	return Measurement{
		PerGB: 8200 * time.Millisecond, PerInvocation: 2200 * time.Microsecond,
		Topics: 1700 * time.Microsecond, Heartbeat: 700 * time.Microsecond, Checkpoint: 400 * time.Microsecond,
		Waiting: 20 * time.Millisecond, RoundWaiting: 50 * time.Millisecond,
		FullEvent: 4.236e6, Record: 1000, PayloadPerByte: 1.485, PeakMemory: 110e6,
		Writes: 2, IdleWrites: 2, IdleReads: 4, IdleReadsOfTopic: 2,
		LogBytes: 1500, Metrics: 16, Alarms: 9,
		MirrorMakerPerGB: 34 * time.Second,
	}
}
