package security

import (
	"fmt"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"github.com/moonsail/moonsail/internal/model"
)

// rules translates authorization policies to RBAC rules.
type rules struct {
	trustDomains []string
	// tcp: only attributes of connections can be compared.
	tcp bool
	// prefix precedes the names of policies, and suffix follows them.
	prefix, suffix string
}

// policyName is Istio's name of a policy in logs and metadata.
func (r *rules) policyName(p *model.AuthorizationPolicy, rule int) string {
	return fmt.Sprintf("%sns[%s]-policy[%s]-rule[%d]%s", r.prefix, p.Namespace, p.Name, rule, r.suffix)
}

// nothing never matches. It stands for an AuthorizationPolicy without rules.
var nothing = &rbacv3.Policy{
	Permissions: []*rbacv3.Permission{noPermission},
	Principals:  []*rbacv3.Principal{noPrincipal},
}

// rbac translates the policies of one action; nil: none. On TCP, a rule that needs HTTP is left out if it allows
// requests. If it refuses requests it applies without its HTTP conditions. Both are stricter, as in Istio.
func (r *rules) rbac(action rbacv3.RBAC_Action, policies []*model.AuthorizationPolicy, dry bool) *rbacv3.RBAC {
	out := &rbacv3.RBAC{Action: action, Policies: map[string]*rbacv3.Policy{}}
	found := false
	for _, p := range policies {
		if p.DryRun != dry {
			continue
		}
		found = true
		if len(p.Rules) == 0 {
			out.Policies[r.policyName(p, 0)] = nothing
		}
		for i := range p.Rules {
			if r.tcp && action == rbacv3.RBAC_ALLOW && needsHTTP(&p.Rules[i]) {
				continue
			}
			out.Policies[r.policyName(p, i)] = r.policy(&p.Rules[i], p.Namespace, action != rbacv3.RBAC_ALLOW)
		}
	}
	if !found {
		return nil
	}
	return out
}

// needsHTTP reports whether a rule compares attributes that only requests have.
func needsHTTP(r *model.AuthorizationRule) bool {
	for _, m := range append(append([]model.AuthorizationMatch{r.When}, r.From...), r.To...) {
		for _, c := range m {
			if c.Attribute.HTTPOnly() {
				return true
			}
		}
	}
	return false
}

// policy translates a rule of a policy in namespace ns. refuses: requests that match the rule are refused, or an
// external authorizer is asked about them.
func (r *rules) policy(rule *model.AuthorizationRule, ns string, refuses bool) *rbacv3.Policy {
	out := &rbacv3.Policy{}
	for _, m := range orAlways(rule.To) {
		out.Permissions = append(out.Permissions, r.permission(append(ofOperation(rule.When), m...), refuses))
	}
	for _, m := range orAlways(rule.From) {
		out.Principals = append(out.Principals, r.principal(append(ofCaller(rule.When), m...), ns, refuses))
	}
	return out
}

func orAlways(list []model.AuthorizationMatch) []model.AuthorizationMatch {
	if len(list) == 0 {
		return []model.AuthorizationMatch{nil}
	}
	return list
}

func ofOperation(m model.AuthorizationMatch) (out model.AuthorizationMatch) {
	for _, c := range m {
		if c.Attribute.OfOperation() {
			out = append(out, c)
		}
	}
	return out
}

func ofCaller(m model.AuthorizationMatch) (out model.AuthorizationMatch) {
	for _, c := range m {
		if !c.Attribute.OfOperation() {
			out = append(out, c)
		}
	}
	return out
}

// permission is the conjunction of the conditions about the operation. Where a request is refused if a comparison is
// true, the comparison is loose. It is exact where a request passes if it is true.
func (r *rules) permission(m model.AuthorizationMatch, refuses bool) *rbacv3.Permission {
	var all []*rbacv3.Permission
	for i := range m {
		if r.tcp && m[i].Attribute.HTTPOnly() {
			continue
		}
		if v := permissions(&m[i], m[i].Values, refuses); len(v) > 0 {
			all = append(all, permissionOr(v))
		}
		if v := permissions(&m[i], m[i].Not, !refuses); len(v) > 0 {
			all = append(all, permissionNot(permissionOr(v)))
		}
	}
	switch len(all) {
	case 0:
		return anyPermission
	case 1:
		return all[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: all}}}
}

// principal is the conjunction of the conditions about the caller. Where a request is refused if a comparison is true, an
// unknown attribute matches.
func (r *rules) principal(m model.AuthorizationMatch, ns string, refuses bool) *rbacv3.Principal {
	var all []*rbacv3.Principal
	for i := range m {
		if r.tcp && m[i].Attribute.HTTPOnly() {
			continue
		}
		if v := r.principals(&m[i], m[i].Values, ns, refuses); len(v) > 0 {
			all = append(all, principalOr(v))
		}
		if v := r.principals(&m[i], m[i].Not, ns, !refuses); len(v) > 0 {
			all = append(all, principalNot(principalOr(v)))
		}
	}
	switch len(all) {
	case 0:
		return anyPrincipal
	case 1:
		return all[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: all}}}
}

var (
	anyPermission = &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
	noPermission  = permissionNot(anyPermission)
	anyPrincipal  = &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	noPrincipal   = principalNot(anyPrincipal)
)

func permissionOr(list []*rbacv3.Permission) *rbacv3.Permission {
	if len(list) == 1 {
		return list[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: list}}}
}

func permissionNot(p *rbacv3.Permission) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: p}}
}

func principalOr(list []*rbacv3.Principal) *rbacv3.Principal {
	if len(list) == 1 {
		return list[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: list}}}
}

func principalNot(p *rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: p}}
}
