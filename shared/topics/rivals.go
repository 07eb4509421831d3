package topics

import (
	"context"
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
	return fmt.Sprintf("another deployment of %s is copying topic %s, its group %s on cluster %s has members: stop that one first, or give this one its state",
		e.Flow, e.Topic, e.Group, e.Cluster)
}

// rivals names, by topic, the groups of other deployments that read topics which
// this one has not begun. Groups that this client may not see are not found.
func (t *Topics) rivals(ctx context.Context, asked map[flow.TopicPartition]beginning) (map[string]string, error) {
	begun := map[string]bool{}
	for tp, b := range asked {
		if b.stored.Version == 0 {
			begun[tp.Topic] = true
		}
	}
	if len(begun) == 0 {
		return nil, nil
	}
	ctx, cancel := t.source.bounded(ctx)
	defer cancel()
	describe, topicOf := kmsg.NewPtrDescribeGroupsRequest(), map[string]string{}
	for _, shard := range t.source.client.RequestSharded(ctx, kmsg.NewPtrListGroupsRequest()) {
		if shard.Err != nil {
			if isAuthorization(shard.Err) {
				continue
			}
			return nil, cause(ctx, shard.Err)
		}
		for _, g := range shard.Resp.(*kmsg.ListGroupsResponse).Groups {
			for topic := range begun {
				if t.rules.rival(g.Group, topic) {
					describe.Groups = append(describe.Groups, g.Group)
					topicOf[g.Group] = topic
				}
			}
		}
	}
	if len(describe.Groups) == 0 {
		return nil, nil
	}
	found := map[string]string{}
	for _, shard := range t.source.client.RequestSharded(ctx, describe) {
		if shard.Err != nil {
			if isAuthorization(shard.Err) {
				continue
			}
			return nil, cause(ctx, shard.Err)
		}
		for _, g := range shard.Resp.(*kmsg.DescribeGroupsResponse).Groups {
			if len(g.Members) > 0 {
				found[topicOf[g.Group]] = g.Group
			}
		}
	}
	return found, nil
}

// rival reports whether a group is that of another deployment's event source of
// this flow and topic.
func (r rules) rival(group, topic string) bool {
	rest, ok := strings.CutPrefix(group, groupPrefix)
	stack, _, _ := strings.Cut(rest, "/")
	return ok && stack != r.stack && group == Group(stack, r.settings.Flow, topic)
}

// refuseRivals keeps the partitions from beginning that another deployment is at.
// Where that cannot be found out none of them begins: the next round asks again.
func (t *Topics) refuseRivals(ctx context.Context, asked map[flow.TopicPartition]beginning, failures map[flow.TopicPartition]error) {
	found, err := t.rivals(ctx, asked)
	if err != nil {
		err = fmt.Errorf("look for other deployments of %s in the groups of cluster %s: %w", t.Settings.Flow, t.source.alias, err)
	}
	for tp, b := range asked {
		refused := err
		if group := found[tp.Topic]; group != "" {
			refused = &RivalError{Flow: t.Settings.Flow, Topic: tp.Topic, Group: group, Cluster: t.source.alias}
		}
		if refused != nil && b.stored.Version == 0 {
			failures[tp] = refused
			delete(asked, tp)
		}
	}
}
