package topics

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// acls reads the topic entries of a cluster.
func (c cluster) acls(ctx context.Context) ([]ACL, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType = kmsg.ACLResourceTypeTopic
	req.ResourcePatternType = kmsg.ACLResourcePatternTypeAny
	req.Operation = kmsg.ACLOperationAny
	req.PermissionType = kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = answer(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return nil, cause(ctx, err)
	}
	acls := []ACL{}
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			acls = append(acls, ACL{
				Resource: r.ResourceType, Pattern: r.ResourcePatternType, Name: r.ResourceName,
				Principal: a.Principal, Host: a.Host, Operation: a.Operation, Permission: a.PermissionType,
			})
		}
	}
	return acls, nil
}

// createBatch bounds a request with many small parts.
const createBatch = 500

// createACLs creates entries. The answers are in their order.
func (c cluster) createACLs(ctx context.Context, acls []ACL) ([]error, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, a := range acls {
		n := kmsg.NewCreateACLsRequestCreation()
		n.ResourceType, n.ResourcePatternType, n.ResourceName = a.Resource, a.Pattern, a.Name
		n.Principal, n.Host, n.Operation, n.PermissionType = a.Principal, a.Host, a.Operation, a.Permission
		req.Creations = append(req.Creations, n)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, cause(ctx, err)
	}
	errs := make([]error, len(acls))
	for i, r := range resp.Results {
		if i < len(errs) {
			errs[i] = answer(r.ErrorCode, r.ErrorMessage)
		}
	}
	return errs, nil
}

// observeACLs reads the entries of both clusters. Where one has none to give,
// the sync is off: that is told once and is no error, since data flows.
func (t *Topics) observeACLs(ctx context.Context, o *observation) {
	var read [2][]ACL
	for i, c := range []cluster{t.source, t.target} {
		acls, err := c.acls(ctx)
		switch {
		case is(err, kerr.SecurityDisabled):
			t.tell(ctx, "no-authorizer "+c.alias, "cluster has no authorizer, so no ACL is synced", "cluster", c.alias)
			return
		case isAuthorization(err):
			o.warnings = append(o.warnings, Warning{
				Message: "ACLs cannot be read, so none is synced: grant DESCRIBE on the cluster, or set sync.topic.acls.enabled = false",
				Detail:  []any{"cluster", c.alias},
			})
			return
		case err != nil:
			o.errs = append(o.errs, fmt.Errorf("read the ACLs of cluster %s: %w", c.alias, err))
			return
		}
		read[i] = acls
	}
	o.acls, o.remoteACLs, o.syncACLs = read[0], read[1], true
}

// createACLs gives the target the entries that it lacks.
func (t *Topics) createACLs(ctx context.Context, acls []ACL) []error {
	failed := map[string]error{}
	for batch := range slices.Chunk(acls, createBatch) {
		errs, err := t.target.createACLs(ctx, batch)
		for i, a := range batch {
			switch {
			case err != nil:
				failed[a.String()] = err
			case isAuthorization(errs[i]):
				t.warn(ctx, noACLs(t.target.alias))
			case errs[i] != nil:
				failed[a.String()] = errs[i]
			default:
				t.Logger.InfoContext(ctx, "created ACL", "topic", a.Name, "acl", a.String())
			}
		}
	}
	return together("create ACL", failed)
}

func noACLs(alias string) Warning {
	return Warning{
		Message: "ACLs cannot be created: grant ALTER on the cluster, or set sync.topic.acls.enabled = false",
		Detail:  []any{"cluster", alias},
	}
}
