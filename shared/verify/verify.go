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
// Compacted topics are compared record by record: what was compacted away on one
// side only is a difference.
package verify

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
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
	return &Verification{Options: o, seed: maphash.MakeSeed(), fetchBytes: 4 << 20}
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
		v.total += j.size()
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
	v.explain(ctx, first, &report)
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
		return &reader{name: c.Name, client: client, committed: c.Committed, seed: v.seed, bytes: v.fetchBytes, leaders: map[place]int32{}}
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
	// settled: there is nothing to read, the verdict is in the result.
	settled bool
}

func (j *job) size() int64 {
	return j.result.SourceEnd - j.result.SourceStart + j.result.TargetEnd - j.result.TargetStart
}

func (j *job) fail(err error) {
	j.result.Verdict, j.result.Error = VerdictFailed, err.Error()
}

// survey finds the partitions and where they begin and end.
func (v *Verification) survey(ctx context.Context, s sides) ([]*subject, error) {
	var names [2][]string
	for _, p := range v.Pairs {
		names[0] = append(names[0], p.Source)
		names[1] = append(names[1], p.Target)
	}
	var all [2]struct {
		topics     kadm.TopicDetails
		start, end kadm.ListedOffsets
	}
	// What follows on the source after the target's end was noted is behind.
	for _, i := range []int{1, 0} {
		r := []*reader{s.source, s.target}[i]
		adm := kadm.NewClient(r.client)
		ends := adm.ListEndOffsets
		if r.committed {
			ends = adm.ListCommittedOffsets
		}
		var err error
		if all[i].topics, err = adm.ListTopics(ctx, names[i]...); err == nil {
			if all[i].start, err = adm.ListStartOffsets(ctx, names[i]...); err == nil {
				all[i].end, err = ends(ctx, names[i]...)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list topics and offsets of %s: %w", r.name, err)
		}
	}
	var subjects []*subject
	for _, p := range v.Pairs {
		t := &subject{Topic: Topic{Source: p.Source, Target: p.Target, Partitions: []Partition{}, Findings: []Finding{}}}
		subjects = append(subjects, t)
		a, b := all[0].topics[p.Source], all[1].topics[p.Target]
		switch {
		case a.Err != nil:
			t.Verdict, t.Error = VerdictFailed, fmt.Sprintf("read topic %s of %s: %v", p.Source, v.Source.Name, a.Err)
			continue
		case errors.Is(b.Err, kerr.UnknownTopicOrPartition):
			t.Verdict, t.Error = VerdictDifferent, fmt.Sprintf("topic %s is not on %s", p.Target, v.Target.Name)
			continue
		case b.Err != nil:
			t.Verdict, t.Error = VerdictFailed, fmt.Sprintf("read topic %s of %s: %v", p.Target, v.Target.Name, b.Err)
			continue
		}
		for n := range int32(max(len(a.Partitions), len(b.Partitions))) {
			j := &job{subject: t, sourceID: a.ID, targetID: b.ID, result: Partition{Partition: n}}
			t.jobs = append(t.jobs, j)
			inSource := j.bounds(all[0].start, all[0].end, p.Source, &j.result.SourceStart, &j.result.SourceEnd)
			inTarget := j.bounds(all[1].start, all[1].end, p.Target, &j.result.TargetStart, &j.result.TargetEnd)
			if !j.settled && (!inSource || !inTarget) {
				j.settled, j.result.Verdict = true, VerdictEqual
				where := v.Target.Name
				if !inSource {
					where = v.Source.Name
				}
				if text := fmt.Sprintf("partition %d is not on %s", n, where); j.size() > 0 {
					j.result.Verdict, j.result.Error = VerdictDifferent, text
				} else {
					t.Notes = append(t.Notes, text+"; it is empty")
				}
			}
		}
	}
	return subjects, nil
}

// bounds fills in the offsets of one side, and reports whether it has the
// partition.
func (j *job) bounds(starts, ends kadm.ListedOffsets, topic string, start, end *int64) bool {
	s, ok := starts.Lookup(topic, j.result.Partition)
	e, ok2 := ends.Lookup(topic, j.result.Partition)
	if !ok || !ok2 {
		return false
	}
	if err := errors.Join(s.Err, e.Err); err != nil {
		j.settled = true
		j.fail(fmt.Errorf("list offsets of %s-%d: %w", topic, j.result.Partition, err))
	}
	*start, *end = s.Offset, e.Offset
	return true
}

// queue returns the partitions that have to be read, the longest first.
func queue(topics []*subject) []*job {
	var jobs []*job
	for _, t := range topics {
		for _, j := range t.jobs {
			if !j.settled {
				jobs = append(jobs, j)
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b *job) int {
		switch x, y := a.size(), b.size(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return jobs
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
	if !j.result.Counts.balanced() {
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
	a := openStream(ctx, &brokerLog{reader: s.source, place: place{j.subject.Source, n}, id: j.sourceID, last: j.result.SourceEnd}, j.result.SourceStart, v.passed)
	defer a.close()
	b := openStream(ctx, &brokerLog{reader: s.target, place: place{j.subject.Target, n}, id: j.targetID, last: j.result.TargetEnd}, j.result.TargetStart, v.passed)
	defer b.close()
	c := &comparison{source: a, target: b, ledger: newLedger(n, v.Findings)}
	switch {
	case j.result.TargetStart > 0:
		c.notTarget = "expired on " + v.Target.Name
	case v.FromLatest:
		c.notTarget = "perhaps from before the copy began (auto.offset.reset = latest)"
	}
	if j.result.SourceStart > 0 {
		c.notSource = "expired on " + v.Source.Name
	}
	err := c.run(ctx)
	j.result.Counts = c.ledger.counts
	j.findings, j.omitted = c.ledger.findings, c.ledger.omitted
	j.noTimestamp, j.appended = a.noTimestamp, b.appended
	return err
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
	r := Report{Verdict: VerdictEqual, Topics: []Topic{}}
	for _, t := range topics {
		if t.Verdict == "" {
			t.Verdict = VerdictEqual
		}
		var noTimestamp, appended bool
		for _, j := range t.jobs {
			t.Verdict = t.Verdict.Worst(j.result.Verdict)
			t.Counts.add(j.result.Counts)
			t.Partitions = append(t.Partitions, j.result)
			keep := min(len(j.findings), v.Findings-len(t.Findings))
			t.Findings = append(t.Findings, j.findings[:keep]...)
			t.Omitted += j.omitted + int64(len(j.findings)-keep)
			noTimestamp, appended = noTimestamp || j.noTimestamp, appended || j.appended
		}
		if appended {
			t.Notes = append(t.Notes, fmt.Sprintf("timestamps are not compared where %s sets its own (message.timestamp.type = LogAppendTime)", v.Target.Name))
		}
		if noTimestamp {
			t.Notes = append(t.Notes, fmt.Sprintf("timestamps are not compared where the record on %s has none", v.Source.Name))
		}
		r.Verdict = r.Verdict.Worst(t.Verdict)
		r.Counts.add(t.Counts)
		r.Topics = append(r.Topics, t.Topic)
	}
	return r
}

// explain notes which topics are compacted, where records are on one side only.
// It is no more than a hint, so nothing comes of it if it cannot be had.
func (v *Verification) explain(ctx context.Context, s sides, r *Report) {
	for i := range r.Topics {
		t := &r.Topics[i]
		if t.Counts.Missing+t.Counts.Extra == 0 {
			continue
		}
		for _, side := range []struct {
			r     *reader
			topic string
		}{{s.source, t.Source}, {s.target, t.Target}} {
			configs, err := kadm.NewClient(side.r.client).DescribeTopicConfigs(ctx, side.topic)
			if err != nil || len(configs) == 0 {
				continue
			}
			if slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool {
				return c.Key == "cleanup.policy" && c.Value != nil && (*c.Value == "compact" || *c.Value == "compact,delete" || *c.Value == "delete,compact")
			}) {
				t.Notes = append(t.Notes, fmt.Sprintf("%s is compacted on %s: what was compacted away on one side only counts as missing or extra", side.topic, side.r.name))
			}
		}
	}
}
