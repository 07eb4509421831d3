package topics

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/flow"
)

// ACL is one access control entry of a topic.
type ACL struct {
	Resource   kmsg.ACLResourceType
	Pattern    kmsg.ACLResourcePatternType
	Name       string
	Principal  string
	Host       string
	Operation  kmsg.ACLOperation
	Permission kmsg.ACLPermissionType
}

// String is the form that people know from kafka-acls.
func (a ACL) String() string {
	return fmt.Sprintf("%s %s %s of %s topic %s from host %s", a.Permission, a.Principal, a.Operation, a.Pattern, a.Name, a.Host)
}

func (a ACL) compare(b ACL) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.Principal, b.Principal),
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Permission, b.Permission))
}

// aclRule says which entries of the source are given to the target, and how
// they read there.
//
// MirrorMaker 2 takes the literal entries of copied topics over as they are,
// without ALLOW WRITE and with READ instead of ALL (MirrorSourceConnector,
// shouldReplicateAcl and targetAclBinding); compat does the same. Some of what
// then passes does harm: rights to delete or to alter a copy, a DENY that shuts
// out the principal that writes it, and for "*" the literal topic "A.*", which
// does not exist. So the rule is:
//
//   - only reading rights: READ, DESCRIBE, DESCRIBE_CONFIGS; ALL stands for them
//   - no DENY for User:*, which could mean the principal that writes the copy
//   - "*" becomes everything that begins with the source's alias
//
// Neither transfers prefixed entries, nor those of groups or the cluster, and
// nothing is ever removed.
type aclRule struct {
	selector flow.Selector
	compat   bool
}

// everybody is the principal of an entry for all users.
const everybody = "User:*"

// onTarget returns what becomes of an entry of the source, nothing if it stays
// there.
func (r aclRule) onTarget(a ACL) []ACL {
	switch {
	case a.Resource != kmsg.ACLResourceTypeTopic, a.Pattern != kmsg.ACLResourcePatternTypeLiteral:
		return nil
	case !r.selector.Select(a.Name).Copy:
		return nil
	}
	if r.compat {
		return r.asMM2(a)
	}
	remote, ok := r.remote(a)
	if !ok || a.Permission == kmsg.ACLPermissionTypeDeny && a.Principal == everybody {
		return nil
	}
	var out []ACL
	for _, operation := range reading(a) {
		remote.Operation = operation
		out = append(out, remote)
	}
	return out
}

func (r aclRule) asMM2(a ACL) []ACL {
	if a.Permission == kmsg.ACLPermissionTypeAllow {
		switch a.Operation {
		case kmsg.ACLOperationWrite:
			return nil
		case kmsg.ACLOperationAll:
			a.Operation = kmsg.ACLOperationRead
		}
	}
	a.Name = r.selector.Remote(a.Name)
	return []ACL{a}
}

// reading is the part of an entry that is about reading. ALLOW READ implies
// DESCRIBE; DENY READ does not.
func reading(a ACL) []kmsg.ACLOperation {
	switch a.Operation {
	case kmsg.ACLOperationAll:
		if a.Permission == kmsg.ACLPermissionTypeAllow {
			return []kmsg.ACLOperation{kmsg.ACLOperationRead}
		}
		return []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs}
	case kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs:
		return []kmsg.ACLOperation{a.Operation}
	}
	return nil
}

// remote renames the resource. Where no prefix sets copies apart, "*" would open
// other topics of the target too, so it stays behind.
func (r aclRule) remote(a ACL) (ACL, bool) {
	if a.Name != "*" {
		a.Name = r.selector.Remote(a.Name)
		return a, true
	}
	separator := r.selector.Policy.Separator()
	if r.selector.Policy.Identity() || separator == "" {
		return ACL{}, false
	}
	a.Name, a.Pattern = r.selector.Flow.Source+separator, kmsg.ACLResourcePatternTypePrefixed
	return a, true
}

// diffACLs finds the entries that the target lacks.
func (r rules) diffACLs(o observation, p *Plan) {
	rule := aclRule{selector: r.selector, compat: r.settings.Compat}
	there := make(map[ACL]bool, len(o.remoteACLs))
	for _, a := range o.remoteACLs {
		there[a] = true
	}
	for _, a := range o.acls {
		for _, wanted := range rule.onTarget(a) {
			if !there[wanted] {
				there[wanted] = true
				p.ACLs = append(p.ACLs, wanted)
			}
		}
	}
	slices.SortFunc(p.ACLs, ACL.compare)
}
