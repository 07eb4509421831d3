package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RightError is a right that a cluster did not give. It is in the errors of a
// round wherever one is missing.
type RightError struct {
	// Right is Kafka's operation, as in ALTER_CONFIGS.
	Right string
	// Resource is "topic", "group" or "cluster", and Name the resource's name,
	// empty for the cluster.
	Resource, Name string
	Cluster        string // alias
	// For says what cannot be done without it, if Err does not.
	For string
	// Err is the broker's refusal; nil where it told what is allowed.
	Err error
}

func (e *RightError) Error() string {
	wish := fmt.Sprintf("grant %s on cluster %s", e.Right, e.Cluster)
	if e.Name != "" {
		wish = fmt.Sprintf("grant %s on %s %s of cluster %s", e.Right, e.Resource, e.Name, e.Cluster)
	}
	switch {
	case e.Err != nil:
		return fmt.Sprintf("%v: %s", e.Err, wish)
	case e.For != "":
		return wish + ": " + e.For
	}
	return wish
}

func (e *RightError) Unwrap() error { return e.Err }

// hint says which right is missing.
func hint(err error, right, topic, alias string) error {
	if !isAuthorization(err) {
		return err
	}
	return &RightError{Right: right, Resource: "topic", Name: topic, Cluster: alias, Err: err}
}

// A Need is what one of the flow's clients has to be allowed to do with topics
// and groups.
type Need struct {
	Cluster string // alias
	Client  *kgo.Client
	// For says what it is needed for, as in "mirror appends to it".
	For string
	// Topics are asked about if they exist, Groups whether they do or not.
	Topics, Groups []string
	// Operations are needed on each topic; READ is on each group.
	Operations []kmsg.ACLOperation
}

// MissingRights asks the brokers which rights the clients lack (KIP-430: a broker
// tells what the asker may do). Brokers that do not tell, Kafka before 2.3 for
// one, lack nothing. It changes nothing. With an error the rights are those that
// were found out.
func MissingRights(ctx context.Context, needs ...Need) ([]*RightError, error) {
	var missing []*RightError
	var errs []error
	for _, n := range needs {
		c := cluster{n.Cluster, n.Client, patience}
		for _, ask := range []func(context.Context, Need) ([]*RightError, error){c.missingOnTopics, c.missingOnGroups} {
			got, err := ask(ctx, n)
			missing, errs = append(missing, got...), append(errs, err)
		}
	}
	slices.SortStableFunc(missing, func(a, b *RightError) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Right, b.Right))
	})
	return missing, errors.Join(errs...)
}

// untold is what brokers answer that do not know what is asked.
const untold = math.MinInt32

// lacking returns the operations that are not among the allowed ones, which are
// bits by their numbers.
func lacking(allowed int32, needed []kmsg.ACLOperation) []kmsg.ACLOperation {
	if allowed == untold {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(needed), func(op kmsg.ACLOperation) bool { return allowed&(1<<op) != 0 })
}

func (c cluster) missingOnTopics(ctx context.Context, n Need) ([]*RightError, error) {
	if len(n.Topics) == 0 {
		return nil, nil // no name would ask for all
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range n.Topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, fmt.Errorf("read the rights on topics of cluster %s: %w", c.alias, cause(ctx, err))
	}
	var missing []*RightError
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		lacks := lacking(t.AuthorizedOperations, n.Operations)
		switch err := answer(t.ErrorCode, nil); {
		case isAuthorization(err): // not even DESCRIBE, which any other right implies
			lacks = n.Operations
		case err != nil:
			continue
		}
		for _, op := range lacks {
			missing = append(missing, &RightError{Right: op.String(), Resource: "topic", Name: *t.Topic, Cluster: c.alias, For: n.For})
		}
	}
	return missing, nil
}

// groupsTopic is where Kafka keeps groups. It is made when somebody asks for a
// group's coordinator for the first time, which a question must not.
const groupsTopic = "__consumer_offsets"

// missingOnGroups: of a group that does not exist a broker tells only whether
// it may be asked about, which READ implies.
func (c cluster) missingOnGroups(ctx context.Context, n Need) ([]*RightError, error) {
	if len(n.Groups) == 0 {
		return nil, nil
	}
	v, err := c.metadata(ctx, false, groupsTopic)
	if err != nil {
		return nil, err
	}
	if _, there := v.topics[groupsTopic]; !there {
		return nil, nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = n.Groups
	req.IncludeAuthorizedOperations = true
	var missing []*RightError
	for _, shard := range c.client.RequestSharded(ctx, req) {
		asked := shard.Req.(*kmsg.DescribeGroupsRequest).Groups
		switch {
		case is(shard.Err, kerr.GroupAuthorizationFailed): // of finding the coordinator
			for _, group := range asked {
				missing = append(missing, &RightError{Right: "READ", Resource: "group", Name: group, Cluster: c.alias, For: n.For})
			}
			continue
		case is(shard.Err, kerr.CoordinatorNotAvailable): // nobody has used a group yet
			continue
		case shard.Err != nil:
			return missing, fmt.Errorf("read the rights on groups of cluster %s: %w", c.alias, cause(ctx, shard.Err))
		}
		for _, g := range shard.Resp.(*kmsg.DescribeGroupsResponse).Groups {
			err := answer(g.ErrorCode, nil)
			told := err == nil && len(lacking(g.AuthorizedOperations, []kmsg.ACLOperation{kmsg.ACLOperationRead})) > 0
			if told || is(err, kerr.GroupAuthorizationFailed) {
				missing = append(missing, &RightError{Right: "READ", Resource: "group", Name: g.Group, Cluster: c.alias, For: n.For})
			}
		}
	}
	return missing, nil
}

// mayCreateACLs asks whether the client may create ACLs; true where the brokers
// do not tell.
func (c cluster) mayCreateACLs(ctx context.Context) bool {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp, err := req.RequestWith(ctx, c.client)
	return err != nil || resp.ErrorCode != 0 || len(lacking(resp.ClusterAuthorizedOperations, []kmsg.ACLOperation{kmsg.ACLOperationAlter})) == 0
}
