package security

import (
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Many servers drop the parameters of path segments: they serve /admin for /public/..;x=y/admin. So does Envoy's
// normalization for dot segments, but before it decodes %2e. It turns /public/%2e%2e;x=y/admin into /public/..;x=y/admin,
// which policies on /admin or /public/* do not take for what the server serves. Requests that have such a segment after
// normalization are therefore refused, if policies compare paths. No other path has one.

// dotSegmentPolicy names the policy that refuses these requests. The simulator knows the name.
const dotSegmentPolicy = "dot-segment-with-parameters"

var dotSegment = &rbacv3.Policy{
	Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_UrlPath{
		UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: likeRegex(`.*/\.\.?;.*`)}},
	}}},
	Principals: []*rbacv3.Principal{anyPrincipal},
}

// refuseDotSegments adds dotSegment to the rules of the action DENY; nil: there are none.
func refuseDotSegments(deny *rbacv3.RBAC) *rbacv3.RBAC {
	if deny == nil {
		deny = &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	}
	deny.Policies[dotSegmentPolicy] = dotSegment
	return deny
}

// comparesPaths reports whether the path of a request decides whether it is accepted.
func comparesPaths(v *ir.Authorization) bool {
	custom := slices.ContainsFunc(v.Custom, func(c ir.ExternalAuthorization) bool { return slices.ContainsFunc(c.Policies, enforcesPaths) })
	return custom || slices.ContainsFunc(v.Deny, enforcesPaths) || slices.ContainsFunc(v.Allow, enforcesPaths)
}

func enforcesPaths(p *model.AuthorizationPolicy) bool {
	return !p.DryRun && slices.ContainsFunc(p.Rules, func(r model.AuthorizationRule) bool {
		return slices.ContainsFunc(r.When, isPath) || slices.ContainsFunc(r.To, func(m model.AuthorizationMatch) bool {
			return slices.ContainsFunc(m, isPath)
		})
	})
}

// isPath reports whether a condition compares the path, or the header that has it with the query.
func isPath(c model.AuthorizationCondition) bool {
	return c.Attribute == model.AttributePath ||
		c.Attribute == model.AttributeHeaders && slices.ContainsFunc(c.Names, func(name string) bool { return strings.EqualFold(name, ":path") })
}
