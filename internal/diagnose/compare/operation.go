package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/moonsail/moonsail/internal/diagnose/sample"
)

// operation is a request that a rule of a policy matches, as far as it could be found.
type operation struct {
	sample.Request
	host, principal, from string
}

// maxOperations bounds the operations of a filter chain.
const maxOperations = 60

// sampler finds operations.
type sampler struct {
	dropped map[string]bool // texts of those that exceed maxOperations
}

// add adds an operation to a list, if there is room.
func (s *sampler) add(list *[]operation, o operation) {
	if len(*list) < maxOperations {
		*list = append(*list, o)
	} else {
		s.dropped[fmt.Sprint(o)] = true
	}
}

// operationsOf returns requests that the rules of a filter chain's policies match.
func (s *sampler) operationsOf(chain *listenerv3.FilterChain) []operation {
	var out []operation
	for _, rules := range rulesOf(chain) {
		for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
			policy := rules.GetPolicies()[name]
			for _, p := range anyOf(s, policy.GetPermissions(), s.permission) {
				for _, c := range anyOf(s, policy.GetPrincipals(), s.principal) {
					s.add(&out, p.merge(c))
				}
			}
		}
	}
	return out
}

// rulesOf returns the rules of the RBAC filters of a chain, for connections and for requests.
func rulesOf(chain *listenerv3.FilterChain) []*rbacv3.RBAC {
	var out []*rbacv3.RBAC
	keep := func(r *rbacv3.RBAC) {
		if r != nil {
			out = append(out, r)
		}
	}
	for _, f := range chain.GetFilters() {
		tcp := &rbactcpv3.RBAC{}
		if f.GetTypedConfig().MessageIs(tcp) && f.GetTypedConfig().UnmarshalTo(tcp) == nil {
			keep(tcp.GetRules())
			keep(tcp.GetShadowRules())
		}
	}
	for _, f := range hcmOf(chain).GetHttpFilters() {
		http := &rbachttpv3.RBAC{}
		if f.GetTypedConfig().MessageIs(http) && f.GetTypedConfig().UnmarshalTo(http) == nil {
			keep(http.GetRules())
			keep(http.GetShadowRules())
		}
	}
	return out
}

// merge returns an operation with the fields of both; o wins.
func (o operation) merge(with operation) operation {
	set := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	set(&o.Method, with.Method)
	set(&o.Path, with.Path)
	set(&o.host, with.host)
	set(&o.principal, with.principal)
	set(&o.from, with.from)
	if len(with.Headers) > 0 {
		all := maps.Clone(with.Headers)
		maps.Copy(all, o.Headers)
		o.Headers = all
	}
	return o
}

// anyOf returns the operations of alternatives.
func anyOf[T any](s *sampler, list []T, of func(T) []operation) []operation {
	var out []operation
	for _, e := range list {
		for _, o := range of(e) {
			s.add(&out, o)
		}
	}
	return out
}

// allOf returns operations that have what all of a list require.
func allOf[T any](s *sampler, list []T, of func(T) []operation) []operation {
	out := []operation{{}}
	for _, e := range list {
		var next []operation
		for _, o := range out {
			for _, more := range of(e) {
				s.add(&next, o.merge(more))
			}
		}
		out = next
	}
	return out
}

// permission returns operations that a permission matches. What it cannot choose, such as a negation, it leaves open.
func (s *sampler) permission(p *rbacv3.Permission) []operation {
	o := operation{}
	switch rule := p.GetRule().(type) {
	case *rbacv3.Permission_AndRules:
		return allOf(s, rule.AndRules.GetRules(), s.permission)
	case *rbacv3.Permission_OrRules:
		return anyOf(s, rule.OrRules.GetRules(), s.permission)
	case *rbacv3.Permission_NotRule: // what it excludes is worth a call, too
		return append(s.permission(rule.NotRule), o)
	case *rbacv3.Permission_Header:
		return []operation{header(rule.Header)}
	case *rbacv3.Permission_UrlPath:
		o.Path, _ = sample.Text(rule.UrlPath.GetPath())
	}
	return []operation{o}
}

func (s *sampler) principal(p *rbacv3.Principal) []operation {
	o := operation{}
	switch id := p.GetIdentifier().(type) {
	case *rbacv3.Principal_AndIds:
		return allOf(s, id.AndIds.GetIds(), s.principal)
	case *rbacv3.Principal_OrIds:
		return anyOf(s, id.OrIds.GetIds(), s.principal)
	case *rbacv3.Principal_NotId:
		return append(s.principal(id.NotId), o)
	case *rbacv3.Principal_Authenticated_:
		if text, ok := sample.Text(id.Authenticated.GetPrincipalName()); ok {
			o.principal = identity(text)
		}
	case *rbacv3.Principal_DirectRemoteIp:
		o.from = address(id.DirectRemoteIp)
	case *rbacv3.Principal_RemoteIp:
		o.from = address(id.RemoteIp)
	case *rbacv3.Principal_Header:
		return []operation{header(id.Header)}
	}
	return []operation{o}
}

func address(c *corev3.CidrRange) string { return c.GetAddressPrefix() }

// identity completes the sample of a pattern for names in certificates.
func identity(text string) string {
	const scheme = "spiffe://"
	switch {
	case strings.HasPrefix(text, scheme):
		return text
	case strings.HasPrefix(text, "/"):
		return scheme + "cluster.local" + text
	}
	return scheme + text
}

func header(m *routev3.HeaderMatcher) operation {
	o := operation{}
	value, ok := "any", true
	if s := m.GetStringMatch(); s != nil {
		value, ok = sample.Text(s)
	}
	if !ok || m.GetInvertMatch() {
		return o
	}
	switch name := strings.ToLower(m.GetName()); name {
	case ":method":
		o.Method = value
	case ":authority":
		o.host = value
	case ":path":
		o.Path = value
	default:
		if !strings.HasPrefix(name, ":") {
			o.Headers = map[string]string{name: value}
		}
	}
	return o
}
