// Package metrics writes what the functions have come to as metrics of Amazon
// CloudWatch, in its embedded metric format: each line of JSON that a function
// prints is a log event, which CloudWatch Logs turns into metrics.
//
//	w := metrics.New(os.Stdout, metrics.Options{Settings: settings})
//	mirror.New(mirror.Options{Observe: w.Mirrored, …})
//	checkpoint.New(checkpoint.Options{Observe: w.Checkpointed, …})
//	topics.New(topics.Options{Observe: w.Reconciled, …})
//
// [Table] lists the metrics. They are in [Namespace], of the flow by the dimensions
// source and target, and, where mirrorless.metrics says so, of each topic and of
// each partition as well. The topic is the one on the target, as in MirrorMaker 2's
// MBeans. Each kind of line has its own set of dimensions, so that no sum of
// CloudWatch counts anything twice.
//
// The specification (docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring,
// CloudWatch_Embedded_Metric_Format_Specification.html) allows a number or up to
// 100 numbers as a metric's value, and nothing that sums up more. So durations of
// many records are written as up to 100 that have the same minimum, maximum and
// mean; percentiles of them say nothing.
package metrics

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"mirrorless/shared/checkpoint"
	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/mirror"
	"mirrorless/shared/topics"
)

// Namespace is CloudWatch's, of all metrics.
const Namespace = "mirrorless"

// The names of the dimensions.
const (
	sourceName    = "source"
	targetName    = "target"
	groupName     = "group"
	topicName     = "topic"
	partitionName = "partition"
)

// Options of New. Settings are needed; their Metrics say what the metrics are of.
type Options struct {
	Settings config.Flow
	// Logger is told once that nothing can be written. It discards if nil.
	Logger *slog.Logger
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Writer writes the metrics of one flow. It is safe for concurrent use. A line is
// written as a whole, and all lines of a report at once.
type Writer struct {
	o     Options
	units map[string]string

	mu     sync.Mutex
	out    io.Writer
	begun  bool // everything has been written once
	failed bool // and said so
}

// New returns a Writer to out.
func New(out io.Writer, o Options) *Writer {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	w := &Writer{o: o, out: out, units: map[string]string{}}
	for _, m := range Table() {
		w.units[m.Name] = m.Unit
	}
	return w
}

// Mirrored writes what mirror reports.
func (w *Writer) Mirrored(r mirror.Report) {
	p := page{}
	w.copied(&p, r, false)
	w.write(p)
}

// copied adds up what was copied. Durations of no record are left out, unless all
// is to be there.
func (w *Writer) copied(p *page, r mirror.Report, all bool) {
	sums := perEntity[mirror.Copied]{}
	sums.of(flowWide)
	for _, c := range r.Partitions {
		for _, e := range w.entities(flow.TopicPartition{Topic: c.Remote, Partition: c.Partition}, "") {
			sum := sums.of(e)
			*sum = add(*sum, c)
		}
	}
	seconds := max(r.Took, time.Millisecond).Seconds()
	for _, e := range sums.order {
		c := sums.of(e)
		p.add(e, recordCount, float64(c.Records))
		p.add(e, recordRate, rounded(float64(c.Records)/seconds))
		p.add(e, byteCountOfValues, float64(c.ValueBytes))
		p.add(e, byteRate, rounded(float64(c.ValueBytes)/seconds))
		p.add(e, copiedBytes, float64(c.Bytes))
		for _, d := range []struct {
			name string
			mirror.Spread
		}{{recordAge, c.Age}, {latency, c.Latency}} {
			if d.N > 0 || all {
				p.add(e, d.name, values(d.Spread)...)
			}
		}
		p.add(e, refused, float64(c.Found+c.Repeated))
		p.add(e, detected, float64(c.Second))
		p.add(e, holes, float64(c.Holes))
		p.add(e, lostHeaders, float64(c.LostHeaders))
		p.add(e, deadLetters, float64(c.DeadLetters))
	}
}

func add(a, b mirror.Copied) mirror.Copied {
	a.Records, a.Found, a.Repeated = a.Records+b.Records, a.Found+b.Found, a.Repeated+b.Repeated
	a.ValueBytes, a.Bytes = a.ValueBytes+b.ValueBytes, a.Bytes+b.Bytes
	a.Second, a.Holes = a.Second+b.Second, a.Holes+b.Holes
	a.LostHeaders, a.DeadLetters = a.LostHeaders+b.LostHeaders, a.DeadLetters+b.DeadLetters
	a.Age, a.Latency = a.Age.Add(b.Age), a.Latency.Add(b.Latency)
	return a
}

// Checkpointed writes what checkpoint reports. With the first lags, it also writes
// every metric of mirror, at zero: whoever looks for one finds it, although nothing
// has been copied yet.
func (w *Writer) Checkpointed(r checkpoint.Report) {
	p := page{}
	first := r.Lags != nil && w.first()
	if first {
		var none mirror.Report
		for _, l := range r.Lags {
			none.Partitions = append(none.Partitions, mirror.Copied{TopicPartition: l.TopicPartition, Remote: l.Remote})
		}
		w.copied(&p, none, true)
	}
	if r.Lags != nil {
		w.lags(&p, r.Lags)
	}
	if r.Heartbeat >= 0 || first {
		p.add(flowWide, heartbeatAge, millis(max(0, r.Heartbeat)))
	}
	w.checkpoints(&p, r.Checkpoints, first)
	w.write(p)
}

// first says whether this is the first time that it is asked.
func (w *Writer) first() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	begun := w.begun
	w.begun = true
	return !begun
}

func (w *Writer) lags(p *page, lags []checkpoint.Lag) {
	sums := perEntity[int64]{}
	sums.of(flowWide)
	for _, l := range lags {
		for _, e := range w.entities(flow.TopicPartition{Topic: l.Remote, Partition: l.Partition}, "") {
			*sums.of(e) += l.Offsets
		}
	}
	for _, e := range sums.order {
		p.add(e, offsetLag, float64(*sums.of(e)))
	}
}

func (w *Writer) checkpoints(p *page, written []checkpoint.Latency, all bool) {
	spreads := perEntity[mirror.Spread]{}
	if all {
		spreads.of(flowWide)
	}
	for _, c := range written {
		for _, e := range w.entities(c.TopicPartition, c.Group) {
			spread := spreads.of(e)
			*spread = spread.Add(mirror.Spread{Least: c.Took, Most: c.Took, Sum: c.Took, N: 1})
		}
	}
	for _, e := range spreads.order {
		p.add(e, checkpointLatency, values(*spreads.of(e))...)
	}
}

// Reconciled writes what topics reports.
func (w *Writer) Reconciled(r topics.Report) {
	p := page{}
	p.add(flowWide, notEnabled, float64(r.NotEnabled))
	w.write(p)
}

// entity is what a line is of.
type entity struct {
	group, topic string
	partition    int32
}

// noPartition stands for all partitions.
const noPartition = -1

var flowWide = entity{partition: noPartition}

// entities are those that something of a partition is to be told of.
func (w *Writer) entities(tp flow.TopicPartition, group string) []entity {
	switch w.o.Settings.Metrics {
	case config.MetricsTopics:
		return []entity{flowWide, {group, tp.Topic, noPartition}}
	case config.MetricsPartitions:
		return []entity{flowWide, {group, tp.Topic, noPartition}, {group, tp.Topic, tp.Partition}}
	}
	return []entity{flowWide}
}

// perEntity has something of each entity, in the order in which they came.
type perEntity[T any] struct {
	order []entity
	all   map[entity]*T
}

// of is the entity's, zero at first.
func (p *perEntity[T]) of(e entity) *T {
	if p.all == nil {
		p.all = map[entity]*T{}
	}
	if p.all[e] == nil {
		p.order = append(p.order, e)
		p.all[e] = new(T)
	}
	return p.all[e]
}

// page is what is written at once: a line for each entity.
type page struct{ perEntity[[]sample] }

type sample struct {
	name   string
	values []float64
}

func (p *page) add(e entity, name string, values ...float64) {
	samples := p.of(e)
	*samples = append(*samples, sample{name, values})
}

// The format's objects.
type (
	metadata struct {
		Timestamp         int64
		CloudWatchMetrics []directive
	}
	directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []definition
	}
	definition struct{ Name, Unit string }
)

func (w *Writer) write(p page) {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	at := w.o.Now().UnixMilli()
	for _, e := range p.order {
		names, document := w.dimensions(e)
		d := directive{Namespace: Namespace, Dimensions: [][]string{names}}
		for _, s := range *p.of(e) {
			d.Metrics = append(d.Metrics, definition{s.name, w.units[s.name]})
			document[s.name] = s.values
			if len(s.values) == 1 {
				document[s.name] = s.values[0]
			}
		}
		document["_aws"] = metadata{at, []directive{d}}
		_ = encoder.Encode(document) // of texts and finite numbers, into memory
	}
	if lines.Len() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.out.Write(lines.Bytes()); err != nil && !w.failed {
		w.failed = true
		w.o.Logger.Warn("metrics cannot be written", "error", err.Error())
	}
}

// dimensions are an entity's, with the document that has their values.
func (w *Writer) dimensions(e entity) (names []string, document map[string]any) {
	document = map[string]any{}
	set := func(name, value string) {
		names = append(names, name)
		document[name] = dimension(value)
	}
	set(sourceName, w.o.Settings.Source)
	set(targetName, w.o.Settings.Target)
	if e.group != "" {
		set(groupName, e.group)
	}
	if e.topic != "" {
		set(topicName, e.topic)
	}
	if e.partition != noPartition {
		set(partitionName, strconv.Itoa(int(e.partition)))
	}
	return names, document
}

// mostDimension is the length of a dimension's value, by CloudWatch's API.
const mostDimension = 1024

// dimension makes a value what CloudWatch takes: printable ASCII. A group may have
// any name.
func dimension(value string) string {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		value = strings.Trim(strconv.QuoteToASCII(value), `"`)
	}
	return value[:min(len(value), mostDimension)]
}
