package simulate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
)

// effectivePolicy is the metadata key, after the prefix of shadow rules, with the name of the policy that
// they found.
const effectivePolicy = "shadow_effective_policy_id"

// evaluate finds the first policy, by name, that matches a call, and reports whether the rules let it pass.
func (r *request) evaluate(rules *rbacv3.RBAC) (policy string, passes bool, err error) {
	if rules.GetAuditLoggingOptions() != nil {
		return "", false, fmt.Errorf("audit_logging_options are unknown to the simulator")
	}
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		ok, err := r.matchesPolicy(rules.GetPolicies()[name])
		if err != nil {
			return "", false, fmt.Errorf("policy %s: %w", name, err)
		}
		if ok {
			return name, rules.GetAction() != rbacv3.RBAC_DENY, nil
		}
	}
	return "", rules.GetAction() != rbacv3.RBAC_ALLOW, nil
}

func (r *request) matchesPolicy(p *rbacv3.Policy) (bool, error) {
	if p.GetCondition() != nil || p.GetCheckedCondition() != nil {
		return false, fmt.Errorf("conditions are unknown to the simulator")
	}
	ok, err := some(p.GetPermissions(), r.permits)
	if !ok || err != nil {
		return false, err
	}
	return some(p.GetPrincipals(), r.isCalledBy)
}

// some reports whether an element matches.
func some[T any](list []T, match func(T) (bool, error)) (bool, error) {
	for _, e := range list {
		if ok, err := match(e); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// every reports whether all elements match.
func every[T any](list []T, match func(T) (bool, error)) (bool, error) {
	for _, e := range list {
		if ok, err := match(e); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// permits reports whether a permission matches the target of a call.
func (r *request) permits(p *rbacv3.Permission) (bool, error) {
	switch rule := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return rule.Any, nil
	case *rbacv3.Permission_AndRules:
		return every(rule.AndRules.GetRules(), r.permits)
	case *rbacv3.Permission_OrRules:
		return some(rule.OrRules.GetRules(), r.permits)
	case *rbacv3.Permission_NotRule:
		ok, err := r.permits(rule.NotRule)
		return !ok, err
	case *rbacv3.Permission_Header:
		return matchesHeader(rule.Header, r.headers)
	case *rbacv3.Permission_UrlPath:
		path, _, _ := strings.Cut(r.path(), "#")
		return matchesString(rule.UrlPath.GetPath(), path)
	case *rbacv3.Permission_UriTemplate:
		return matchesTemplate(rule.UriTemplate, r.path())
	case *rbacv3.Permission_DestinationIp:
		return inBlock(rule.DestinationIp, r.to.Addr()), nil
	case *rbacv3.Permission_DestinationPort:
		return uint32(r.to.Port()) == rule.DestinationPort, nil
	case *rbacv3.Permission_RequestedServerName:
		return matchesString(rule.RequestedServerName, r.sni)
	case *rbacv3.Permission_SourcedMetadata:
		return r.matchesMetadata(rule.SourcedMetadata.GetMetadataMatcher())
	case *rbacv3.Permission_Metadata: // deprecated, but EnvoyFilters may use it
		return r.matchesMetadata(rule.Metadata)
	default:
		return false, fmt.Errorf("permission %T is unknown to the simulator", rule)
	}
}

// isCalledBy reports whether a principal matches the caller.
func (r *request) isCalledBy(p *rbacv3.Principal) (bool, error) {
	switch id := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return id.Any, nil
	case *rbacv3.Principal_AndIds:
		return every(id.AndIds.GetIds(), r.isCalledBy)
	case *rbacv3.Principal_OrIds:
		return some(id.OrIds.GetIds(), r.isCalledBy)
	case *rbacv3.Principal_NotId:
		ok, err := r.isCalledBy(id.NotId)
		return !ok, err
	case *rbacv3.Principal_Authenticated_:
		return r.isAuthenticated(id.Authenticated)
	case *rbacv3.Principal_DirectRemoteIp:
		return inBlock(id.DirectRemoteIp, r.from.Addr()), nil
	case *rbacv3.Principal_RemoteIp:
		return inBlock(id.RemoteIp, r.remote()), nil
	case *rbacv3.Principal_Header:
		return matchesHeader(id.Header, r.headers)
	case *rbacv3.Principal_SourcedMetadata:
		return r.matchesMetadata(id.SourcedMetadata.GetMetadataMatcher())
	case *rbacv3.Principal_Metadata: // deprecated, but EnvoyFilters may use it
		return r.matchesMetadata(id.Metadata)
	default:
		return false, fmt.Errorf("principal %T is unknown to the simulator", id)
	}
}

// isAuthenticated is false for every caller in plain text.
func (r *request) isAuthenticated(a *rbacv3.Principal_Authenticated) (bool, error) {
	if !r.secured || r.Principal == "" {
		return false, nil
	}
	if a.GetPrincipalName() == nil {
		return true, nil
	}
	return matchesString(a.GetPrincipalName(), r.Principal)
}

// remote returns the client's address as reported by trusted proxies.
func (r *request) remote() netip.Addr {
	if r.hcm == nil {
		return r.from.Addr()
	}
	return r.client
}

// readClient finds the client's address: X-Forwarded-For counts back as many entries as there are trusted proxies. A sidecar
// trusts its caller, a gateway trusts no proxy. Then a gateway appends the address of the connection. For a loopback address,
// Envoy appends its own address instead. The simulator appends nothing: the next proxy sees Envoy's address anyway, as that of
// the connection.
func (r *request) readClient() {
	const name = "x-forwarded-for"
	r.client = r.from.Addr()
	n, direct := int(r.hcm.GetXffNumTrustedHops()), r.hcm.GetUseRemoteAddress().GetValue()
	if !direct {
		n++
	}
	if list := strings.Split(r.headers[name], ","); n > 0 && n <= len(list) {
		if a, err := netip.ParseAddr(strings.TrimSpace(list[len(list)-n])); err == nil {
			r.client = a
		}
	}
	if direct && !r.hcm.GetSkipXffAppend() && !r.from.Addr().IsLoopback() {
		addOne(r.headers, name, r.from.Addr().String(), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	}
}

func inBlock(c *corev3.CidrRange, ip netip.Addr) bool {
	a, err := netip.ParseAddr(c.GetAddressPrefix())
	return err == nil && netip.PrefixFrom(a, int(c.GetPrefixLen().GetValue())).Contains(ip)
}
