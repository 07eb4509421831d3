// Package verify proves that topics of one cluster are on another: it reads both
// sides of every partition and compares key, value, headers, timestamp and order
// of the records. It knows the names of the topics and nothing else of how they
// were copied, and shares no code with what copied them.
//
//	report, err := verify.New(verify.Options{
//		Source: verify.Cluster{Name: "A", Dial: dialA},
//		Target: verify.Cluster{Name: "B", Dial: dialB},
//		Pairs:  []verify.Pair{{Source: "orders", Target: "A.orders"}},
//	}).Run(ctx)
//
// The ends of the partitions are noted at the start, the target's first, so
// that a replication that goes on is at most behind. What one side no longer has
// (retention, DeleteRecords) is unprovable, never equal.
//
// Records are compared by 64-bit digests of each field under a random seed, so
// two that differ pass for equal once in about 10^19. After a difference, both
// sides are searched for the place where they go on alike, so that one record
// that is missing is one finding, whatever follows. Memory does not depend on
// the number or the size of the records.
//
// Of a topic that is compacted on either side, only the last record of each key
// has to be on both, so these are what is compared, and the report says so.
package verify

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Options says what to compare.
type Options struct {
	Source, Target Cluster
	Pairs          []Pair
	// FromLatest: records that were on the source before the copy began were not
	// to be copied (auto.offset.reset = latest), so those before the first one on
	// the target are unprovable, not missing.
	FromLatest bool
	// AllowLostHeaders and AllowUnprovable let a topic with nothing worse be
	// equal. What they allow is reported all the same.
	AllowLostHeaders bool
	AllowUnprovable  bool
	// Parallel is how many partitions are compared at the same time, 4 if 0. Each
	// takes one client a side and up to 50 MB, more where batches are larger.
	Parallel int
	// Findings is how many findings are kept of each topic, 100 if 0.
	Findings int
	// Keep puts into the report what a later comparison can build on; it costs a
	// SHA-256 of everything. Since, if not nil, is such a report of an earlier one,
	// which had the same clusters: what it proves and what is still there as it was
	// is not read again.
	Keep  bool
	Since *Report
	// Sample, if not nil, compares only some ranges of each partition, but small
	// ones and those of compacted topics in full. What has expired on one side is
	// not in the sample.
	Sample *Sample
	// Progress, if any, is told how many offsets of both sides were read, and of
	// how many in all. Calls do not overlap.
	Progress func(done, total int64)
}

// Cluster is one side.
type Cluster struct {
	// Name is for errors and reasons.
	Name string
	// Dial returns a new client, which is closed by the caller.
	Dial func(context.Context) (*kgo.Client, error)
	// Committed reads only what committed transactions wrote, up to the last
	// stable offset (read_committed).
	Committed bool
}

// Pair is a topic of the source and the topic of the target it was copied to.
type Pair struct{ Source, Target string }

// Verification is a comparison to be run; make one with New.
type Verification struct {
	Options
	seed       maphash.Seed
	fetchBytes int32
	keys       int   // of a compacted partition in memory
	length     int64 // of a proven range

	mu          sync.Mutex // of the progress
	done, total int64
}

// New returns a comparison that is ready to run.
func New(o Options) *Verification {
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.Findings <= 0 {
		o.Findings = 100
	}
	o.Keep = o.Keep || o.Since != nil
	return &Verification{Options: o, seed: maphash.MakeSeed(), fetchBytes: 4 << 20, keys: keysInMemory, length: provenLength}
}

// Run compares. The error is that of a cluster that cannot be asked for its
// topics, or of a context that ended; the report then says how far it came. What
// goes wrong with one topic or partition is in the report, whose verdict is not
// VerdictEqual then.
func (v *Verification) Run(ctx context.Context) (Report, error) {
	if len(v.Pairs) == 0 {
		return Report{Verdict: VerdictFailed}, errors.New("compare topics: there is none")
	}
	first, err := v.dial(ctx)
	if err != nil {
		return Report{Verdict: VerdictFailed}, err
	}
	defer first.close()
	topics, err := v.survey(ctx, first)
	if err != nil {
		return Report{Verdict: VerdictFailed}, err
	}
	jobs := queue(topics)
	for _, j := range jobs {
		v.total += v.work(j)
	}
	work := make(chan *job)
	var wg sync.WaitGroup
	for n := range min(v.Parallel, len(jobs)) {
		wg.Go(func() {
			sides := first
			var err error
			if n > 0 {
				if sides, err = v.dial(ctx); err == nil {
					defer sides.close()
				}
			}
			for j := range work {
				if err == nil {
					v.compare(ctx, sides, j)
				} else {
					j.fail(err)
				}
			}
		})
	}
	for _, j := range jobs {
		work <- j
	}
	close(work)
	wg.Wait()
	report := v.report(topics)
	if ctx.Err() != nil {
		return report, context.Cause(ctx)
	}
	return report, nil
}

// sides is a client of each cluster.
type sides struct{ source, target *reader }

func (v *Verification) dial(ctx context.Context) (sides, error) {
	var clients [2]*kgo.Client
	for i, c := range []Cluster{v.Source, v.Target} {
		client, err := c.Dial(ctx)
		if err != nil {
			if i > 0 {
				clients[0].Close()
			}
			return sides{}, err
		}
		clients[i] = client
	}
	of := func(c Cluster, client *kgo.Client) *reader {
		return &reader{name: c.Name, client: client, committed: c.Committed, seed: v.seed, lasting: v.Keep, bytes: v.fetchBytes, leaders: map[place]int32{}}
	}
	return sides{of(v.Source, clients[0]), of(v.Target, clients[1])}, nil
}

func (s sides) close() {
	s.source.client.Close()
	s.target.client.Close()
}

// subject is a topic under comparison.
type subject struct {
	Topic
	jobs []*job
	// unknown is why it is not known whether the topic is compacted, or empty.
	unknown string
}

// job is a partition under comparison.
type job struct {
	subject            *subject
	sourceID, targetID [16]byte
	result             Partition
	findings           []Finding
	omitted            int64
	noTimestamp        bool
	appended           bool
	unkeyed            int64
	unbalanced         bool // not every record is accounted for
	// settled: there is nothing to read, the verdict is in the result.
	settled bool
}

func (j *job) size() int64 {
	return j.result.SourceEnd - j.result.SourceStart + j.result.TargetEnd - j.result.TargetStart
}

// work is how many offsets of a partition are to be read, about.
func (v *Verification) work(j *job) int64 {
	if v.Sample != nil && j.subject.Compared == ByRecord && !v.Sample.small(&j.result) {
		return 2 * int64(v.Sample.Ranges+2) * sampleLength
	}
	return j.size()
}

func (j *job) fail(err error) {
	j.result.Verdict, j.result.Error = VerdictFailed, err.Error()
}

// attempts is how often a partition is begun anew whose log loses its beginning
// faster than it is read.
const attempts = 3

// compare compares a partition.
func (v *Verification) compare(ctx context.Context, s sides, j *job) {
	var err error
	for range attempts {
		if ctx.Err() != nil {
			j.fail(fmt.Errorf("not compared: %w", context.Cause(ctx)))
			return
		}
		err = v.compareOnce(ctx, s, j)
		if _, expired := errors.AsType[*expiredError](err); !expired {
			break
		}
		if listErr := v.restart(ctx, s, j); listErr != nil {
			err = listErr
			break
		}
	}
	if err != nil {
		j.fail(err)
		return
	}
	j.result.Verdict = v.verdict(j.result.Counts)
	if j.result.Verdict == VerdictEqual && len(j.result.Sampled) > 0 {
		j.result.Verdict = VerdictSampled
	}
	if j.unbalanced {
		j.fail(fmt.Errorf("compare partition %d: the counts do not add up, which is an error of this program", j.result.Partition))
	}
}

// restart takes note of where a partition begins now.
func (v *Verification) restart(ctx context.Context, s sides, j *job) error {
	for _, side := range []struct {
		r     *reader
		topic string
		start *int64
		end   int64
	}{
		{s.source, j.subject.Source, &j.result.SourceStart, j.result.SourceEnd},
		{s.target, j.subject.Target, &j.result.TargetStart, j.result.TargetEnd},
	} {
		starts, err := kadm.NewClient(side.r.client).ListStartOffsets(ctx, side.topic)
		if err != nil {
			return fmt.Errorf("list offsets of %s of %s: %w", side.topic, side.r.name, err)
		}
		if at, ok := starts.Lookup(side.topic, j.result.Partition); ok && at.Err == nil {
			*side.start = min(at.Offset, side.end)
		}
	}
	return nil
}

func (v *Verification) compareOnce(ctx context.Context, s sides, j *job) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := j.result.Partition
	j.result.Known, j.result.Ranges, j.result.Sampled = 0, nil, nil
	j.take(newLedger(n, v.Findings))
	p := pair{
		source: &brokerLog{reader: s.source, place: place{j.subject.Source, n}, id: j.sourceID, last: j.result.SourceEnd},
		target: &brokerLog{reader: s.target, place: place{j.subject.Target, n}, id: j.targetID, last: j.result.TargetEnd},
		ledger: newLedger(n, v.Findings),
	}
	switch {
	case j.result.TargetStart > 0:
		p.notTarget = "expired on " + v.Target.Name
	case v.FromLatest:
		p.notTarget = "perhaps from before the copy began (auto.offset.reset = latest)"
	}
	if j.result.SourceStart > 0 {
		p.notSource = "expired on " + v.Source.Name
	}
	switch {
	case j.subject.Compared == ByKey:
		return v.compareKeys(ctx, j, p)
	case v.Sample != nil && !v.Sample.small(&j.result):
		return v.compareSample(ctx, j, p)
	}
	return v.compareRecords(ctx, j, p)
}

// pair is the two sides of a partition, and where the findings go.
type pair struct {
	source, target       *brokerLog
	notTarget, notSource string // why records may be on one side only, as in comparison
	ledger               *ledger
}

func (v *Verification) compareKeys(ctx context.Context, j *job, p pair) error {
	k := &keyed{
		source:    keyedSide{log: p.source, start: j.result.SourceStart, grown: p.source.grown, passed: v.passed},
		target:    keyedSide{log: p.target, start: j.result.TargetStart, grown: p.target.grown, passed: v.passed},
		notTarget: p.notTarget, notSource: p.notSource, limit: v.keys, ledger: p.ledger,
	}
	err := k.run(ctx)
	j.take(p.ledger)
	j.noTimestamp, j.appended, j.unkeyed, j.unbalanced = k.noTimestamp, k.appended, k.unkeyed, !k.balanced()
	return err
}

func (v *Verification) compareSample(ctx context.Context, j *job, p pair) error {
	sm := &sampler{
		source: p.source, sourceStart: j.result.SourceStart, sourceEnd: j.result.SourceEnd,
		target: p.target, targetStart: j.result.TargetStart, targetEnd: j.result.TargetEnd,
		targetName: v.Target.Name, ledger: p.ledger, passed: v.passed,
	}
	err := sm.run(ctx, v.Sample.Ranges, v.Sample.random(j.subject.Source, j.result.Partition), p.notTarget == "" && p.notSource == "")
	j.take(p.ledger)
	j.noTimestamp, j.appended, j.unbalanced = sm.noTimestamp, sm.appended, !p.ledger.counts.balanced()
	j.result.Sampled = sm.sampled
	return err
}

func (v *Verification) compareRecords(ctx context.Context, j *job, p pair) error {
	c := &comparison{ledger: p.ledger, notTarget: p.notTarget, notSource: p.notSource}
	fromSource, fromTarget := j.result.SourceStart, j.result.TargetStart
	if v.Keep {
		c.proof = newProof(v.length)
		ranges, unprovable, err := v.resume(ctx, p.source, p.target, j)
		if err != nil {
			return err
		}
		if len(ranges) > 0 {
			last := ranges[len(ranges)-1]
			c.resumed, c.proof.ranges = true, ranges
			j.result.Known = int64(len(ranges)) * v.length
			c.ledger.resume(j.result.Known, unprovable)
			if err := c.recall(ctx, p.source, last.Source); err != nil {
				return err
			}
			v.passed(last.Source.Last + 1 - fromSource + last.Target.Last + 1 - fromTarget)
			fromSource, fromTarget = last.Source.Last+1, last.Target.Last+1
		}
	}
	a := openStream(ctx, p.source, fromSource, v.passed)
	defer a.close()
	b := openStream(ctx, p.target, fromTarget, v.passed)
	defer b.close()
	c.source, c.target = a, b
	err := c.run(ctx)
	j.take(p.ledger)
	if c.proof != nil {
		c.proof.close()
		j.result.Ranges = c.proof.ranges
	}
	j.noTimestamp, j.appended, j.unbalanced = a.noTimestamp, b.appended, !c.ledger.counts.balanced()
	return err
}

func (j *job) take(l *ledger) {
	j.result.Counts, j.findings, j.omitted = l.counts, l.findings, l.omitted
}

// passed adds to the progress. A partition that is begun anew is not counted
// twice.
func (v *Verification) passed(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = min(v.done+n, v.total)
	if v.Progress != nil {
		v.Progress(v.done, v.total)
	}
}

// report puts the partitions together.
func (v *Verification) report(topics []*subject) Report {
	r := Report{Verdict: VerdictEqual, Topics: []Topic{}, Sample: v.Sample}
	if v.Keep {
		r.Kept = &Kept{Version: keptVersion, Length: v.length, Time: time.Now().UTC().Truncate(time.Second), SourceCommitted: v.Source.Committed, TargetCommitted: v.Target.Committed}
	}
	for _, t := range topics {
		if t.Verdict == "" {
			t.Verdict = VerdictEqual
		}
		var noTimestamp, appended bool
		var unkeyed int64
		for _, j := range t.jobs {
			v.keepUnread(j)
			t.Verdict = t.Verdict.Worst(j.result.Verdict)
			t.Counts.add(j.result.Counts)
			t.Partitions = append(t.Partitions, j.result)
			keep := min(len(j.findings), v.Findings-len(t.Findings))
			t.Findings = append(t.Findings, j.findings[:keep]...)
			t.Omitted += j.omitted + int64(len(j.findings)-keep)
			unkeyed += j.unkeyed
			noTimestamp, appended = noTimestamp || j.noTimestamp, appended || j.appended
		}
		if appended {
			t.Notes = append(t.Notes, fmt.Sprintf("timestamps are not compared where %s sets its own (message.timestamp.type = LogAppendTime)", v.Target.Name))
		}
		if noTimestamp {
			t.Notes = append(t.Notes, fmt.Sprintf("timestamps are not compared where the record on %s has none", v.Source.Name))
		}
		if unkeyed > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%d records without a key are not compared", unkeyed))
		}
		if t.unknown != "" && t.Counts.Missing+t.Counts.Extra > 0 {
			t.Notes = append(t.Notes, t.unknown)
		}
		r.Verdict = r.Verdict.Worst(t.Verdict)
		r.Counts.add(t.Counts)
		r.Topics = append(r.Topics, t.Topic)
	}
	return r
}
