// Package cost says what a flow costs in a month: its functions and what they need
// in AWS, from measured invocations and a file of prices, beside Amazon MSK
// Replicator and a MirrorMaker 2 that always runs.
//
//	prices, err := cost.DefaultPrices()
//	bill := cost.Mirrorless(cost.Load{GBPerDay: 10, Topics: 5, ActiveHours: 24}, prices)
//	fmt.Println(bill.Total())
//
// What all three have in common is left out: the two clusters, and what their
// brokers' traffic between zones and regions costs. So are free tiers.
package cost

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// MegabytesOfProcessor is the memory in MB with which a function of AWS Lambda has
// one processor; with less it has that part of one (Lambda Developer Guide,
// "Configure Lambda function memory").
const MegabytesOfProcessor = 1769

// Duration is what Lambda bills for work that takes a processor for so long, in a
// function of so much memory, if it does nothing but that: whole milliseconds. More
// than one processor is of no use here.
func Duration(processor time.Duration, megabytes int) time.Duration {
	billed := float64(processor) * stretch(megabytes)
	return time.Duration(math.Ceil(billed/float64(time.Millisecond))) * time.Millisecond
}

// Days and hours of a month, a twelfth of a year.
const (
	days  = 365.0 / 12
	hours = 24 * days
)

// Network is how functions in a VPC reach AWS.
type Network string

// The kinds of [Network].
const (
	// NoVPC is for functions and clusters that are on the internet.
	NoVPC Network = "none"
	// Endpoints are interface end points for Lambda, STS and Secrets Manager, those
	// for DynamoDB and S3 being free.
	Endpoints Network = "endpoints"
	NAT       Network = "nat"
)

// Load is what is replicated, and how. The zero value is an idle flow.
type Load struct {
	// GBPerDay are keys and values in GB of 10⁹ bytes.
	GBPerDay float64
	Topics   int
	// ActiveHours of a day are those in which records arrive.
	ActiveHours float64
	// Window is how long an event source waits to fill a batch; DefaultWindow if 0.
	Window time.Duration
	// PollerUnits are event poller units of provisioned mode; 0 is on-demand.
	PollerUnits int
	Network     Network
	// Zones are those of the VPC in which end points or NAT gateways are.
	Zones int
	// Memory of mirror in MB; DefaultMemory if 0.
	Memory int
}

// Check says what is wrong with a load, all at once.
func (l Load) Check() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(l.GBPerDay < 0 || math.IsNaN(l.GBPerDay) || math.IsInf(l.GBPerDay, 0), "%v GB a day: set 0 or more", l.GBPerDay)
	wrong(l.Topics < 0, "%d topics: set 0 or more", l.Topics)
	wrong(!(l.ActiveHours >= 0 && l.ActiveHours <= 24), "%v active hours: a day has 0 to 24", l.ActiveHours)
	wrong(l.GBPerDay > 0 && l.ActiveHours == 0, "no active hours: %v GB a day need some", l.GBPerDay)
	wrong(l.Window < 0 || l.Window > 300*time.Second, "window %s: set 0 to 5m", l.Window)
	wrong(l.PollerUnits < 0, "%d event poller units: set 0 or more", l.PollerUnits)
	wrong(l.Network != NoVPC && l.Network != Endpoints && l.Network != NAT && l.Network != "", "network %q: set none, endpoints or nat", l.Network)
	wrong(l.Zones < 0, "%d zones: set 1 or more", l.Zones)
	wrong(l.Memory != 0 && (l.Memory < 128 || l.Memory > 10240), "%d MB: Lambda has 128 to 10240", l.Memory)
	return errors.Join(errs...)
}

// DefaultWindow is that of mirrorless.batch.window.
const DefaultWindow = 500 * time.Millisecond

// Line is one item of a bill.
type Line struct {
	What string
	// USD a month.
	USD float64
	// How says how it comes about.
	How string
}

// Bill is what something costs in a month.
type Bill []Line

// Total is the sum in USD.
func (b Bill) Total() (sum float64) {
	for _, l := range b {
		sum += l.USD
	}
	return sum
}

// Mirrorless is the bill of one flow with its stack.
func Mirrorless(load Load, prices Prices) Bill {
	m := Measured()
	memory, window := cmp.Or(load.Memory, DefaultMemory), cmp.Or(load.Window, DefaultWindow)
	invocations := invocationsPerDay(load, window, m) * days
	gb := load.GBPerDay * days
	var b Bill
	add := func(usd float64, what, how string, args ...any) {
		if usd > 0 {
			b = append(b, Line{what, usd, fmt.Sprintf(how, args...)})
		}
	}

	seconds := invocations*(m.PerInvocation.Seconds()*stretch(memory)+m.Waiting.Seconds()) + gb*m.PerGB.Seconds()*stretch(memory)
	gbSeconds := seconds * float64(memory) / 1024
	add(gbSeconds*prices.of("lambda-gb-second-arm64"), "mirror: time", "%s GB-seconds of %d MB", amount(gbSeconds), memory)
	add(invocations*prices.of("lambda-request"), "mirror: invocations", "%s", amount(invocations))

	minutes := 60 * hours
	round := func(processor time.Duration, megabytes int) float64 {
		return (Duration(processor, megabytes) + m.RoundWaiting).Seconds() * float64(megabytes) / 1024
	}
	scheduled := minutes * (round(m.Topics, ScheduledMemory) + round(m.Checkpoint, ScheduledMemory) + round(m.Heartbeat, HeartbeatMemory))
	add(scheduled*prices.of("lambda-gb-second-arm64"), "topics, heartbeat, checkpoint: time", "%s GB-seconds, each once a minute", amount(scheduled))
	add(3*minutes*(prices.of("lambda-request")+prices.of("scheduler-invocation")), "topics, heartbeat, checkpoint: invocations", "%s, and as many of schedules", amount(3*minutes))

	writes := invocations*m.Writes + minutes*m.IdleWrites
	reads := minutes * (m.IdleReads + m.IdleReadsOfTopic*float64(load.Topics))
	add(writes*prices.of("dynamodb-write-unit")+reads*prices.of("dynamodb-read-unit"), "DynamoDB", "%s write and %s read units", amount(writes), amount(reads))

	logs := (invocations*m.LogBytes + 3*minutes*m.LogBytes) / 1e9
	add(logs*prices.of("logs-gb"), "logs", "%.2f GB", logs)
	add(m.Metrics*prices.of("metric-month"), "metrics", "%.0f, with mirrorless.metrics = flow", m.Metrics)
	add(m.Alarms*prices.of("alarm-month"), "alarms", "%.0f", m.Alarms)

	add(float64(load.PollerUnits)*hours*prices.of("event-poller-unit-hour"), "provisioned pollers", "%d event poller units", load.PollerUnits)
	zones := float64(max(load.Zones, 1))
	through := 0.0 // on-demand pollers invoke Lambda from the VPC
	if load.PollerUnits == 0 {
		through = gb * m.PayloadPerByte
	}
	switch load.Network {
	case Endpoints:
		add(3*zones*hours*prices.of("endpoint-hour"), "end points", "Lambda, STS and Secrets Manager in %.0f zones", zones)
		add(through*prices.of("endpoint-gb"), "events through end points", "%s GB", amount(through))
	case NAT:
		add(zones*hours*prices.of("nat-hour"), "NAT gateways", "one in each of %.0f zones", zones)
		add(through*prices.of("nat-gb"), "events through NAT", "%s GB", amount(through))
	}
	return b
}

// invocationsPerDay of mirror: full batches in a burst; where records come slowly, one
// in each window of each topic, or for each record; and one for each heartbeat.
func invocationsPerDay(load Load, window time.Duration, m Measurement) float64 {
	const beats = 24 * 60
	bytes := load.GBPerDay * 1e9
	full := bytes / m.FullEvent
	slow := min(bytes/m.Record, float64(load.Topics)*load.ActiveHours*3600/window.Seconds())
	return max(full, slow) + beats
}

// stretch is how much longer a function with so much memory takes than one that has
// a processor.
func stretch(megabytes int) float64 {
	return MegabytesOfProcessor / float64(min(megabytes, MegabytesOfProcessor))
}

// Replicator is the bill of an Amazon MSK Replicator.
func Replicator(load Load, prices Prices) Bill {
	gb := load.GBPerDay * days
	return Bill{
		{"replicator", hours * prices.of("replicator-hour"), fmt.Sprintf("%.0f hours", hours)},
		{"data", gb * prices.of("replicator-gb"), amount(gb) + " GB"},
	}
}

// MirrorMaker is the bill of a MirrorMaker 2 in dedicated mode that always runs, in
// as many tasks of AWS Fargate as its measured need of processors wants at the hours
// with records, two at least: one may fail. Each has one vCPU and 4 GB.
func MirrorMaker(load Load, prices Prices) Bill {
	const vCPU, memory, busy = 1, 4, 0.7
	m := Measured()
	tasks := 2.0
	if load.ActiveHours > 0 {
		processors := load.GBPerDay * m.MirrorMakerPerGB.Seconds() / (load.ActiveHours * 3600)
		tasks = max(tasks, math.Ceil(processors/busy/vCPU))
	}
	each := vCPU*prices.of("fargate-vcpu-hour") + memory*prices.of("fargate-gb-hour")
	return Bill{{"Fargate tasks", tasks * hours * each, fmt.Sprintf("%.0f of %d vCPU and %d GB", tasks, vCPU, memory)}}
}

// amount writes a number with the digits that matter.
func amount(n float64) string {
	switch {
	case n >= 1e6:
		return strconv.FormatFloat(n/1e6, 'f', 1, 64) + " million"
	case n >= 10:
		s := strconv.FormatFloat(n, 'f', 0, 64)
		if len(s) > 3 {
			s = s[:len(s)-3] + "," + s[len(s)-3:]
		}
		return s
	}
	return strconv.FormatFloat(n, 'f', 1, 64)
}
