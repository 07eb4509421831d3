package cost_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mirrorless/shared/config"
	"mirrorless/shared/cost"
	"mirrorless/shared/metrics"
)

func defaultPrices(t *testing.T) cost.Prices {
	t.Helper()
	p, err := cost.DefaultPrices()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLambdaBillsAShareOfAProcessorAsTime(t *testing.T) {
	for _, test := range []struct {
		processor time.Duration
		megabytes int
		want      time.Duration
	}{
		{100 * time.Millisecond, 1769, 100 * time.Millisecond},
		{100 * time.Millisecond, 128, 1383 * time.Millisecond}, // 1382.03…
		{100 * time.Millisecond, 3538, 100 * time.Millisecond},
		{time.Microsecond, 1769, time.Millisecond},
	} {
		if got := cost.Duration(test.processor, test.megabytes); got != test.want {
			t.Errorf("Duration(%v, %d MB): got %v, want %v", test.processor, test.megabytes, got, test.want)
		}
	}
}

func find(t *testing.T, b cost.Bill, what string) float64 {
	t.Helper()
	for _, l := range b {
		if l.What == what {
			return l.USD
		}
	}
	return 0
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.005 }

func TestABillIsTheSumOfWhatIsUsed(t *testing.T) {
	p := defaultPrices(t)
	load := cost.Load{GBPerDay: 24, Topics: 3, ActiveHours: 24, Network: cost.Endpoints, Zones: 2}
	b := cost.Mirrorless(load, p)
	if got, want := find(t, b, "end points"), 3*2*730*0.01; !near(got, want) {
		t.Errorf("end points: got %.2f, want %.2f", got, want)
	}
	if got, want := find(t, b, "events through end points"), 730*cost.Measured().PayloadPerByte*0.01; !near(got, want) {
		t.Errorf("events through end points: got %.2f, want %.2f", got, want)
	}
	sum := 0.0
	for _, l := range b {
		sum += l.USD
	}
	if got := b.Total(); got != sum {
		t.Errorf("total: got %v, want %v", got, sum)
	}
	load.PollerUnits = 2
	b = cost.Mirrorless(load, p)
	if got, want := find(t, b, "provisioned pollers"), 2*730*0.185; !near(got, want) {
		t.Errorf("provisioned pollers: got %.2f, want %.2f", got, want)
	}
	if got := find(t, b, "events through end points"); got != 0 {
		t.Errorf("events through end points of provisioned pollers: got %.2f, want none: they do not come from the VPC", got)
	}
	if got, want := cost.Replicator(load, p).Total(), 730*0.3+730*0.08; !near(got, want) {
		t.Errorf("replicator: got %.2f, want %.2f", got, want)
	}
	if got, want := cost.MirrorMaker(load, p).Total(), 2*730*(0.03238+4*0.00356); !near(got, want) {
		t.Errorf("MirrorMaker 2: got %.2f, want %.2f", got, want)
	}
}

// Records that come slowly fill no batch: an invocation for each window of each
// topic, but never more than records.
func TestSlowRecordsTakeAnInvocationForEachWindow(t *testing.T) {
	p := defaultPrices(t)
	invocations := func(l cost.Load) float64 {
		const beats = 365.0 / 12 * 24 * 60
		return find(t, cost.Mirrorless(l, p), "mirror: invocations")/0.0000002 - beats
	}
	const days = 365.0 / 12
	slow := cost.Load{GBPerDay: 1, Topics: 2, ActiveHours: 12, Window: 10 * time.Second}
	if got, want := invocations(slow), days*2*12*360; math.Abs(got-want) > 1 {
		t.Errorf("got %.0f invocations, want %.0f", got, want)
	}
	few := cost.Load{GBPerDay: 1e-6, Topics: 100, ActiveHours: 24} // one record of 1,000 bytes a day
	if got := invocations(few); math.Abs(got-days) > 1 {
		t.Errorf("got %.0f invocations, want one a day", got)
	}
	burst := cost.Load{GBPerDay: 1000, Topics: 1, ActiveHours: 1}
	if got, want := invocations(burst), days*1e12/cost.Measured().FullEvent; math.Abs(got-want) > 1 {
		t.Errorf("got %.0f invocations, want %.0f", got, want)
	}
}

func TestTheWindowIsTheConfigurationsDefault(t *testing.T) {
	i := slices.IndexFunc(config.Keys(), func(k config.Key) bool { return k.Name == "mirrorless.batch.window" })
	if got, want := config.Keys()[i].Default, strconv.FormatInt(cost.DefaultWindow.Milliseconds(), 10); got != want {
		t.Errorf("got a window of %s ms in shared/config, want %s", got, want)
	}
}

func TestEveryMetricOfAFlowIsCounted(t *testing.T) {
	if got, want := int(cost.Measured().Metrics), len(metrics.Table()); got != want {
		t.Errorf("got %d metrics, want the %d of shared/metrics", got, want)
	}
}

func TestEveryMBOfMemoryThatWaitsCosts(t *testing.T) {
	p := defaultPrices(t)
	load := cost.Load{GBPerDay: 100, Topics: 1, ActiveHours: 24, Memory: 256}
	small := find(t, cost.Mirrorless(load, p), "mirror: time")
	load.Memory = 1769
	if large := find(t, cost.Mirrorless(load, p), "mirror: time"); large <= small {
		t.Errorf("got %.2f with 1,769 MB and %.2f with 256 MB, want more", large, small)
	}
}

func TestEveryPriceHasAUnitAndASource(t *testing.T) {
	p := defaultPrices(t)
	if _, err := time.Parse(time.DateOnly, p.Date); err != nil || p.Region == "" || p.Currency == "" {
		t.Errorf("got %q, %q, %q, want a date, a region and a currency", p.Date, p.Region, p.Currency)
	}
	for _, price := range p.List {
		if price.Value <= 0 || price.Unit == "" || !strings.HasPrefix(price.Source, "https://aws.amazon.com/") {
			t.Errorf("%+v is incomplete", price)
		}
	}
}

// A file in somebody's repository is no page about prices.
func TestNoPriceIsReadInARepository(t *testing.T) {
	for _, price := range defaultPrices(t).List {
		if strings.Contains(price.Seen, "://git") || strings.Contains(price.Seen, "/commit/") {
			t.Errorf("%s was read on %s, want a page, or none", price.Name, price.Seen)
		}
	}
}

func TestPricesOfOnesOwnReplaceOthers(t *testing.T) {
	base := defaultPrices(t)
	p, err := cost.ParsePrices([]byte(`{"region": "x", "prices": [{"name": "alarm-month", "value": 7}]}`), base)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := find(t, cost.Mirrorless(cost.Load{}, p), "alarms"), 7*cost.Measured().Alarms; got != want {
		t.Errorf("got %v for alarms, want %v", got, want)
	}
	if len(p.List) != len(base.List) {
		t.Errorf("got %d prices, want %d", len(p.List), len(base.List))
	}
	for text, want := range map[string]string{
		`{"prices": [{"name": "alarm-year", "value": 7}]}`:   "there is no alarm-year: the names are lambda-gb-second-arm64,",
		`{"prices": [{"name": "alarm-month", "value": -7}]}`: "alarm-month is negative",
		`{"price": []}`: `unknown field "price"`,
		`[]`:            "read prices",
	} {
		if _, err := cost.ParsePrices([]byte(text), base); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestAFileOfPricesAloneIsOfTheRegionTheCurrencyAndTheDateOfTheOthers(t *testing.T) {
	base := defaultPrices(t)
	p, err := cost.ParsePrices([]byte(`{"prices": [{"name": "alarm-month", "value": 7}]}`), base)
	if err != nil {
		t.Fatal(err)
	}
	if p.Region != base.Region || p.Currency != base.Currency || p.Date != base.Date {
		t.Errorf("got %q, %q, %q, want %q, %q, %q", p.Region, p.Currency, p.Date, base.Region, base.Currency, base.Date)
	}
	if p, err = cost.ParsePrices([]byte(`{"region": "x", "currency": "EUR", "date": "2027-01-01"}`), base); err != nil || p.Region != "x" || p.Currency != "EUR" || p.Date != "2027-01-01" {
		t.Errorf("got %q, %q, %q, %v, want those of the file", p.Region, p.Currency, p.Date, err)
	}
}

func TestALoadThatCannotBeIsRefusedAtOnce(t *testing.T) {
	err := cost.Load{GBPerDay: math.NaN(), Topics: -1, ActiveHours: 25, Window: -1, PollerUnits: -1, Network: "vpn", Zones: -1, Memory: 64}.Check()
	if err == nil || strings.Count(err.Error(), "\n") != 7 {
		t.Errorf("got %v, want eight mistakes", err)
	}
	if err := (cost.Load{GBPerDay: 1}).Check(); err == nil {
		t.Error("got no error of records in no hour")
	}
	if err := (cost.Load{}).Check(); err != nil {
		t.Errorf("got %v of an idle flow", err)
	}
}
