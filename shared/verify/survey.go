package verify

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

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
		var err error
		if all[i].topics, err = adm.ListTopics(ctx, names[i]...); err == nil {
			if all[i].start, err = adm.ListStartOffsets(ctx, names[i]...); err == nil {
				all[i].end, err = r.ends(ctx, names[i]...)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list topics and offsets of %s: %w", r.name, err)
		}
	}
	policies := []policies{s.source.policies(ctx, names[0]), s.target.policies(ctx, names[1])}
	var subjects []*subject
	for _, p := range v.Pairs {
		t := &subject{Topic: Topic{Source: p.Source, Target: p.Target, Compared: ByRecord, Partitions: []Partition{}, Findings: []Finding{}}}
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
		t.compaction(policies, p)
		t.SourceID, t.TargetID = hex.EncodeToString(a.ID[:]), hex.EncodeToString(b.ID[:])
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
	slices.SortStableFunc(jobs, func(a, b *job) int { return cmp.Compare(b.size(), a.size()) })
	return jobs
}

// policies is the cleanup.policy of a cluster's topics.
type policies struct {
	cluster string
	of      map[string]string
	err     error // why some are not known
}

// policies asks for the cleanup.policy of topics. What may not be read is left
// out: the comparison can do without.
func (r *reader) policies(ctx context.Context, topics []string) policies {
	p := policies{cluster: r.name, of: map[string]string{}}
	var configs kadm.ResourceConfigs
	if configs, p.err = kadm.NewClient(r.client).DescribeTopicConfigs(ctx, topics...); p.err != nil {
		return p
	}
	for _, topic := range configs {
		if topic.Err != nil {
			if !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
				p.err = topic.Err
			}
			continue
		}
		if i := slices.IndexFunc(topic.Configs, func(c kadm.Config) bool { return c.Key == "cleanup.policy" }); i >= 0 {
			p.of[topic.Name] = topic.Configs[i].MaybeValue()
		}
	}
	return p
}

// compaction decides how a topic is compared: by key where either side is
// compacted.
func (t *subject) compaction(sides []policies, pair Pair) {
	for i, topic := range []string{pair.Source, pair.Target} {
		side := sides[i]
		policy, known := side.of[topic]
		switch {
		case slices.Contains(strings.Split(policy, ","), "compact"):
			t.Compared = ByKey
			t.Notes = append(t.Notes, fmt.Sprintf("compared by the last record of each key, for %s is compacted on %s", topic, side.cluster))
			return
		case !known:
			t.unknown = fmt.Sprintf("what was compacted away on one side only counts as missing or extra, if %s is compacted on %s: its cleanup.policy cannot be read: %v", topic, side.cluster, side.err)
		}
	}
}

// ends are where the logs of topics end, as the side reads them.
func (r *reader) ends(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	if r.committed {
		return kadm.NewClient(r.client).ListCommittedOffsets(ctx, topics...)
	}
	return kadm.NewClient(r.client).ListEndOffsets(ctx, topics...)
}

// grown returns where the log ends now.
func (l *brokerLog) grown(ctx context.Context) (int64, error) {
	listed, err := l.ends(ctx, l.topic)
	if err != nil {
		return 0, fmt.Errorf("list offsets of %s of %s: %w", l.topic, l.name, err)
	}
	at, ok := listed.Lookup(l.topic, l.partition)
	if !ok {
		return 0, fmt.Errorf("list offsets of %s of %s: partition %d is not there", l.topic, l.name, l.partition)
	}
	if at.Err != nil {
		return 0, fmt.Errorf("list offsets of %s of %s: %w", l.topic, l.name, at.Err)
	}
	return at.Offset, nil
}
