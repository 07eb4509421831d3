package cost_test

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mirrorless/docs/docstest"
	"mirrorless/shared/cost"
	"mirrorless/shared/metrics"
)

//go:generate go test -run TestTheCostPageIsCurrent -update .

//go:embed testdata/invocations.txt
var printed string

func TestTheCostPageIsCurrent(t *testing.T) {
	docstest.Current(t, "cost.md", document(t))
}

// examples are the loads of the page.
var examples = []struct {
	name string
	load cost.Load
}{
	{"idle", cost.Load{Topics: 10}},
	{"1 GB a day, all day, 10 topics", cost.Load{GBPerDay: 1, Topics: 10, ActiveHours: 24}},
	{"the same with `mirrorless.batch.window = 10000`", cost.Load{GBPerDay: 1, Topics: 10, ActiveHours: 24, Window: 10 * time.Second}},
	{"10 GB in one hour a day, 10 topics", cost.Load{GBPerDay: 10, Topics: 10, ActiveHours: 1}},
	{"100 GB a day, all day, 10 topics", cost.Load{GBPerDay: 100, Topics: 10, ActiveHours: 24}},
	{"1,000 GB a day, all day, 50 topics", cost.Load{GBPerDay: 1000, Topics: 50, ActiveHours: 24}},
}

// document writes docs/cost.md.
func document(t *testing.T) string {
	p, m := defaultPrices(t), cost.Measured()
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	say(`<!-- Generated from shared/cost by: go generate ./shared/cost -->
# Cost

What a flow costs in AWS in a month, in %s of %s, with the prices of %s. What A and B cost
themselves, and their brokers' traffic between zones and regions, is left out: it is the same for
whoever copies. So are free tiers. For your own load:

`+"```"+`
bin/mirrorless cost --gb-per-day 10 --topics 5 --active-hours 8 --network endpoints
bin/mirrorless cost --help
`+"```"+`

**Nothing here was measured on AWS.** Invocations were measured on one machine, as processor time,
and are converted by Lambda's rule that a function has one processor at %s MB and less in proportion.
Prices that were found on no page are marked in the table below.

## Beside others

GB are those of keys and values. *Bare* is without a VPC; *end points* is with three interface end
points in two zones, through which on-demand event sources invoke; *NAT* is with two gateways instead;
*provisioned* is with end points for the functions, and as many event poller units, of 20 MB/s
each, as the load wants while it comes; shared by all topics (`+"`PollerGroupName`"+`).

| a month | bare | end points | NAT | provisioned | MSK Replicator | MirrorMaker 2 |
|---|---|---|---|---|---|---|
`, p.Currency, p.Region, p.Date, "1,769")
	for _, e := range examples {
		with := func(n cost.Network, units int) float64 {
			l := e.load
			l.Network, l.Zones, l.PollerUnits = n, 2, units
			return cost.Mirrorless(l, p).Total()
		}
		units := max(1, int(e.load.GBPerDay*1000*m.PayloadPerByte/(max(e.load.ActiveHours, 1)*3600)/20)+1)
		say("| %s | %s | %s | %s | %s | %s | %s |\n", e.name,
			usd(with(cost.NoVPC, 0)), usd(with(cost.Endpoints, 0)), usd(with(cost.NAT, 0)), usd(with(cost.Endpoints, units)),
			usd(cost.Replicator(e.load, p).Total()), usd(cost.MirrorMaker(e.load, p).Total()))
	}
	say(`
- A network in which functions have no way to AWS costs more than the functions: end points and NAT
  gateways cost by the hour. They are shared with whatever else is in the VPC, and by all flows.
- Records that trickle into many topics fill no batch: an invocation for each window of each topic.
  A longer `+"`mirrorless.batch.window`"+` costs delay, and saves that.
- %s
- MSK Replicator costs by the hour and by the GB. It copies between MSK clusters of one account, and
  from other clusters into MSK with Express brokers; where it can be used, nobody operates it.
- MirrorMaker 2 is two tasks of AWS Fargate with one vCPU and 4 GB (arm64), one of which may fail, and more
  where its %.0f seconds of a processor for a GB, with default settings, want more than 70 %% of them.
  On machines that you have already it costs less; tuned, it needs a third of the processor.

## Idle

`, breakEven(p), m.MirrorMakerPerGB.Seconds())
	bill(&b, cost.Mirrorless(cost.Load{Topics: 10, Network: cost.Endpoints, Zones: 2}, p))
	say(`
Without alarms and dashboard (`+"`Monitoring = none`"+`) and without metrics (`+"`mirrorless.metrics = off`"+`), the
functions themselves are %s of it. An account's first three dashboards cost nothing. One schedule in a
minute is the least: heartbeats and group offsets follow it.

## For a GB

In a burst, with full batches, a GB of keys and values costs %s of Lambda, requests and DynamoDB, and
%s more through interface end points, or %s through NAT, with on-demand event sources.

100 GB a day, all day, in 10 topics, with end points in two zones:

`, usd(idleFunctions(p)), usd(perGB(p, cost.NoVPC)), usd(perGB(p, cost.Endpoints)-perGB(p, cost.NoVPC)), usd(perGB(p, cost.NAT)-perGB(p, cost.NoVPC)))
	bill(&b, cost.Mirrorless(cost.Load{GBPerDay: 100, Topics: 10, ActiveHours: 24, Network: cost.Endpoints, Zones: 2}, p))
	b.WriteString(measured())
	say(`
## Prices

One file, `+"`shared/cost/prices.json`"+`; `+"`mirrorless cost --prices FILE`"+` takes another one, with all of them or
some. %s

| | %s | for a | AWS's page | read on |
|---|---|---|---|---|
`, p.Note, p.Currency)
	for _, price := range p.List {
		seen := "**nowhere: check it**"
		if price.Seen != "" {
			seen = "[" + host(price.Seen) + "](" + price.Seen + ")"
		}
		say("| `%s` | %s | %s | [%s](%s) | %s |\n", price.Name, plain(price.Value), price.Unit, strings.TrimPrefix(price.Source, "https://"), price.Source, seen)
	}
	return b.String()
}

// The figures are the means of what was printed.
func TestMeasuredIsWhatWasPrinted(t *testing.T) {
	sums, counts := map[string]float64{}, map[string]float64{}
	for line := range strings.Lines(printed) {
		fields := strings.Fields(line)
		name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "BenchmarkInvocation/"), "/")
		if strings.Contains(line, "/10_records") {
			name = "small"
		}
		if i := slices.Index(fields, "cpu-ms"); i > 0 {
			took, err := strconv.ParseFloat(fields[i-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sums[name] += took
			counts[name]++
		}
	}
	m := cost.Measured()
	full := m.PerInvocation + time.Duration(m.FullEvent/1e9*float64(m.PerGB))
	for name, used := range map[string]time.Duration{"topics": m.Topics, "heartbeat": m.Heartbeat, "checkpoint": m.Checkpoint, "small": m.PerInvocation, "mirror": full} {
		want := sums[name] / counts[name]
		if got := used.Seconds() * 1000; !(math.Abs(got-want) < 0.1) {
			t.Errorf("%s: got %.2f ms, want %.2f ms as printed", name, got, want)
		}
	}
}

func bill(b *strings.Builder, lines cost.Bill) {
	b.WriteString("| | a month | |\n|---|---|---|\n")
	for _, l := range lines {
		fmt.Fprintf(b, "| %s | %s | %s |\n", l.What, usd(l.USD), l.How)
	}
	fmt.Fprintf(b, "| **all** | **%s** | |\n", usd(lines.Total()))
}

// idleFunctions are functions, their invocations and their table at rest.
func idleFunctions(p cost.Prices) (sum float64) {
	for _, l := range cost.Mirrorless(cost.Load{Topics: 10}, p) {
		if l.What != "metrics" && l.What != "alarms" {
			sum += l.USD
		}
	}
	return sum
}

// perGB is what a GB more costs in a burst.
func perGB(p cost.Prices, n cost.Network) float64 {
	at := func(gb float64) float64 {
		return cost.Mirrorless(cost.Load{GBPerDay: gb, Topics: 1, ActiveHours: 0.001, Network: n}, p).Total()
	}
	return (at(200) - at(100)) / 100 / (365.0 / 12)
}

func usd(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("$%d,%03d", int(v+0.5)/1000, int(v+0.5)%1000)
	case v >= 100:
		return fmt.Sprintf("$%.0f", v)
	case v >= 0.1:
		return fmt.Sprintf("$%.2f", v)
	}
	return fmt.Sprintf("$%.4f", v)
}

func plain(v float64) string {
	s := strings.TrimRight(fmt.Sprintf("%.12f", v), "0")
	return strings.TrimSuffix(s, ".")
}

func host(url string) string {
	h, _, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	return h
}

// breakEven says how much a day costs as much as MirrorMaker 2.
func breakEven(p cost.Prices) string {
	at := func(load cost.Load) string {
		low, high := 0.0, 1e5
		for range 60 {
			load.GBPerDay = (low + high) / 2
			if cost.Mirrorless(load, p).Total() < cost.MirrorMaker(cost.Load{}, p).Total() {
				low = load.GBPerDay
			} else {
				high = load.GBPerDay
			}
		}
		if low < 10 {
			return fmt.Sprintf("%.1f GB", low)
		}
		return strings.TrimPrefix(usd(low), "$") + " GB"
	}
	return fmt.Sprintf("A MirrorMaker 2 that is always busy costs less than functions that are. Functions cost less than its\n"+
		"  two tasks up to %s a day in full batches; with end points, up to %s; with records in 10 topics all\n"+
		"  day and the default window, which fills no batch, up to %s.",
		at(cost.Load{Topics: 10, ActiveHours: 1}), at(cost.Load{Topics: 10, ActiveHours: 1, Network: cost.Endpoints, Zones: 2}),
		at(cost.Load{Topics: 10, ActiveHours: 24}))
}

// measured is the part of the page that says where the figures come from.
func measured() string {
	var b strings.Builder
	m := cost.Measured()
	fmt.Fprintf(&b, `
## What was measured

The bootstrap binaries that are deployed, driven by Lambda's Runtime API, with real Kafka 4.3.1 as A and B
and an emulated DynamoDB, on an Intel Xeon (amd64). Time is that of the function's process, not of
the clock: the machine was busy. Anyone can do the same, with Java 17, Maven and Python 3; it printed, but for blanks:

`+"```"+`
$ MIRRORLESS_REAL=1 go test -run '^$' -bench Invocation -benchtime 30x ./stories
%s`+"```"+`

`+"`cold`"+` is the first invocation of a new process. The memory that a function is told has no effect on what it
takes; the means of mirror are:

| | processor time | billed at 128 MB | 256 MB | 512 MB | 1,024 MB | 1,769 MB |
|---|---|---|---|---|---|---|
`, printed)
	full := m.PerInvocation + time.Duration(m.FullEvent/1e9*float64(m.PerGB))
	for _, row := range []struct {
		what string
		took time.Duration
	}{
		{"mirror, an event of 6.29 MB: 4,236 records of 1,000 bytes in 4 partitions", full},
		{"mirror, an event of ten records", m.PerInvocation},
		{"topics, nothing to do", m.Topics},
		{"checkpoint, nothing to do", m.Checkpoint},
		{"heartbeat", m.Heartbeat},
	} {
		fmt.Fprintf(&b, "| %s | %.1f ms |", row.what, row.took.Seconds()*1000)
		for _, megabytes := range []int{128, 256, 512, 1024, cost.MegabytesOfProcessor} {
			fmt.Fprintf(&b, " %d ms |", cost.Duration(row.took, megabytes).Milliseconds())
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, `
*Billed* is converted, without waiting, to which %d ms are added for mirror and %d ms for the others: that
is assumed, for brokers in the same region. The most memory of mirror was %.0f MB, without a limit: 128 MB
leave it little room. A GB of keys and values takes %.1f seconds of a processor.

Memory hardly changes what computing costs, because half of it takes twice the time; it is what
waiting costs. So the template gives little: mirror %d MB, in which a full event takes an eighth of a
second and what may be read from A besides (four batches at a time, 16 MB of records) has room;
topics and checkpoint %d MB; heartbeat %d MB.

Counted, not measured: %.0f write units for an invocation (an item holds sixteen partitions, in one or two
KB), %.0f bytes of logs, %.0f metrics, %.0f alarms.
`, m.Waiting.Milliseconds(), m.RoundWaiting.Milliseconds(), m.PeakMemory/1e6, m.PerGB.Seconds(),
		cost.DefaultMemory, cost.ScheduledMemory, cost.HeartbeatMemory, m.Writes, m.LogBytes, m.Metrics, m.Alarms)
	return b.String()
}

func TestTheMetricsOfAFlowAreThoseThatAreWritten(t *testing.T) {
	if got, want := cost.Measured().Metrics, float64(len(metrics.Table())); got != want {
		t.Errorf("got %v metrics of a flow, want %v", got, want)
	}
}
