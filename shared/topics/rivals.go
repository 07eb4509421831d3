package topics

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
)

// RivalError is another deployment of the same flow that is at work on a topic.
// Each of the two would copy every record: what makes copies unique is the
// position, and they do not share one.
type RivalError struct {
	Flow    flow.Flow
	Topic   string // of the source
	Group   string // of the other's event source
	Cluster string // alias of the source
}

func (e *RivalError) Error() string {
	return fmt.Sprintf("another deployment of %s is copying topic %s, its group %s on cluster %s has members: stop that one first, or give this one its state; the next round looks again",
		e.Flow, e.Topic, e.Group, e.Cluster)
}

// observeRivals finds the groups of other deployments that read the topics of this
// flow. Groups that this client may not see are not found.
func (t *Topics) observeRivals(ctx context.Context, o *observation) {
	found, err := t.rivals(ctx, o.topics)
	if err != nil {
		o.rivalsUnknown = true
		o.errs = append(o.errs, fmt.Errorf("look for other deployments of %s in the groups of cluster %s: %w", t.Settings.Flow, t.source.alias, err))
	}
	o.rivals = found
}

// rivals are groups with members by topic.
func (t *Topics) rivals(ctx context.Context, topics []topic) (map[string]string, error) {
	ctx, cancel := t.source.bounded(ctx)
	defer cancel()
	others := map[string]string{} // groups by how they name the topic
	err := eachAnswer(ctx, t.source, kmsg.NewPtrListGroupsRequest(), func(resp *kmsg.ListGroupsResponse) {
		for _, g := range resp.Groups {
			if name, ok := t.rules.rival(g.Group); ok {
				others[g.Group] = name
			}
		}
	})
	if err != nil || len(others) == 0 {
		return nil, err
	}
	describe, names := kmsg.NewPtrDescribeGroupsRequest(), groupNames(topics)
	for group, name := range others {
		if names[name] != "" {
			describe.Groups = append(describe.Groups, group)
		}
	}
	if len(describe.Groups) == 0 {
		return nil, nil
	}
	found := map[string]string{}
	err = eachAnswer(ctx, t.source, describe, func(resp *kmsg.DescribeGroupsResponse) {
		for _, g := range resp.Groups {
			if len(g.Members) > 0 {
				found[names[others[g.Group]]] = g.Group
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// eachAnswer hands out what each broker answers. What it may not tell is left out.
func eachAnswer[R kmsg.Response](ctx context.Context, c cluster, req kmsg.Request, each func(R)) error {
	for _, shard := range c.client.RequestSharded(ctx, req) {
		switch {
		case shard.Err == nil:
			each(shard.Resp.(R))
		case !isAuthorization(shard.Err):
			return cause(ctx, shard.Err)
		}
	}
	return nil
}

// rival reports whether a group is that of another deployment's event source of
// this flow, and how it names the topic.
func (r rules) rival(group string) (topic string, ok bool) {
	rest, ours := strings.CutPrefix(group, flow.OwnGroups)
	stack, rest, _ := strings.Cut(rest, "/")
	topic, ok = strings.CutPrefix(rest, r.settings.Source+"/"+r.settings.Target+"/")
	return topic, ok && ours && stack != r.stack
}

// groupNames are the topics by what groups can name them: themselves, or a hash.
func groupNames(topics []topic) map[string]string {
	names := make(map[string]string, 2*len(topics))
	for _, t := range topics {
		names[t.name], names[hashOf(t.name)] = t.name, t.name
	}
	return names
}

func hashOf(topic string) string {
	sum := sha256.Sum256([]byte(topic))
	return hex.EncodeToString(sum[:16])
}

// diffRivals keeps a topic from beginning that another deployment is at. One that
// has begun goes on, for the other one may be what has to go.
func (r rules) diffRivals(o observation, p *Plan) {
	for _, t := range o.topics {
		group, there := o.rivals[t.name]
		begun := t.prepared > 0
		for n := range t.partitions() {
			_, stored := o.positions[flow.TopicPartition{Topic: t.name, Partition: n}]
			begun = begun || stored
		}
		switch {
		case begun && there:
			p.Warnings = append(p.Warnings, Warning{
				Message: "another deployment of the flow is copying the topic too, so that each record is copied twice: stop one of them",
				Topic:   t.name, Detail: []any{"group", group},
			})
		case !begun && there:
			p.Problems = append(p.Problems, &RivalError{Flow: r.settings.Flow, Topic: t.name, Group: group, Cluster: r.settings.Source})
			p.bookkeeping.blocked[t.name] = true
		case !begun && o.rivalsUnknown:
			p.bookkeeping.blocked[t.name] = true
		}
	}
}
