package analyze

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

func (c routeChecks) virtualService(v *model.VirtualService) {
	for i := range v.HTTP {
		c.httpRoute(v, fmt.Sprintf("spec.http[%d]", i), &v.HTTP[i])
	}
	for i, r := range v.TLS {
		c.backends(v, fmt.Sprintf("spec.tls[%d]", i), r.Backends)
	}
	for i, r := range v.TCP {
		c.backends(v, fmt.Sprintf("spec.tcp[%d]", i), r.Backends)
	}
	gatewayChecks(c).boundTo(v)
	c.unreachableHTTP(v)
	c.unreachableTCP(v)
	c.repeatedL4(v)
	c.unsplitAtGateway(v)
	c.unusedDelegate(v)
	c.ownHosts(v)
}

func (c routeChecks) backends(v *model.VirtualService, field string, list []model.Backend) {
	for i, b := range list {
		destinationChecks(c).destination(v, fmt.Sprintf("%s.route[%d].destination", field, i), b.Destination)
	}
}

func (c routeChecks) mirrors(v *model.VirtualService, field string, mirrors *model.Mirrors) {
	if mirrors == nil {
		return
	}
	if mirrors.Single != nil {
		destinationChecks(c).destination(v, field+".mirror", *mirrors.Single)
	}
	for i, m := range mirrors.List {
		destinationChecks(c).destination(v, fmt.Sprintf("%s.mirrors[%d].destination", field, i), m.Destination)
	}
}

func (c routeChecks) httpRoute(v *model.VirtualService, field string, r *model.HTTPRoute) {
	c.backends(v, field, r.Backends)
	c.mirrors(v, field, r.Mirrors)
	for i, m := range r.Matches {
		for j, g := range m.Gateways {
			if !slices.Contains(v.Gateways, g) && len(v.Hosts) > 0 {
				c.warnf(code.MatchOfOtherGateway, v, fmt.Sprintf("%s.match[%d].gateways[%d]", field, i, j),
					"%s is not one of spec.gateways, so this never matches; add it there", g)
			}
		}
	}
	if r.Delegate == nil {
		return
	}
	switch d := c.virtuals[*r.Delegate]; {
	case d == nil && c.broken[*r.Delegate]:
	case d == nil && c.onlyFiles && !c.routesIn(r.Delegate.Namespace, v.Key):
		c.elsewhere(v.Key, field+".delegate", r.Delegate.String(), "other VirtualServices of namespace "+r.Delegate.Namespace)
	case d == nil:
		c.errorf(code.DelegateNotFound, v, field+".delegate", "%s: not found: create it, or correct name and namespace", r.Delegate)
	case len(d.Hosts) > 0:
		c.errorf(code.InvalidDelegate, v, field+".delegate", "%s has hosts, so it cannot be delegated to; remove its hosts", r.Delegate)
	default:
		c.replacedHeaders(v, field, r, d)
	}
}

// replacedHeaders reports changes of headers that rules of a delegate do without, because they have changes of their own.
func (c routeChecks) replacedHeaders(v *model.VirtualService, field string, r *model.HTTPRoute, d *model.VirtualService) {
	i := slices.IndexFunc(d.HTTP, func(of model.HTTPRoute) bool { return !of.Headers.ChangeNone() })
	if i >= 0 && !r.Headers.ChangeNone() {
		c.warnf(code.NoEffect, v, field+".headers", "do not apply to %s of %s, whose own headers replace them all; repeat them there", ruleName(d, i), d.Key)
	}
}

// routesIn reports whether a namespace has VirtualServices besides one.
func (c routeChecks) routesIn(ns string, besides model.Key) bool {
	for k := range c.virtuals {
		if k.Namespace == ns && k != besides {
			return true
		}
	}
	return false
}

// unreachableHTTP reports rules behind one that takes everything they would match.
func (c routeChecks) unreachableHTTP(v *model.VirtualService) {
	all := -1
	for i := range v.HTTP {
		r := &v.HTTP[i]
		field := fmt.Sprintf("spec.http[%d]", i)
		if all >= 0 {
			c.warnf(code.RuleNeverUsed, v, field, "is never used: %s takes all requests; move that to the end", ruleName(v, all))
			continue
		}
		for j := range r.Matches {
			if other := sameMatch(v, i, &r.Matches[j]); other >= 0 {
				c.warnf(code.RuleNeverUsed, v, fmt.Sprintf("%s.match[%d]", field, j), "is never used: %s has the same match; remove one", ruleName(v, other))
			}
		}
		if takesAll(r) {
			all = i
		}
	}
}

func ruleName(v *model.VirtualService, i int) string {
	if n := v.HTTP[i].Name; n != "" {
		return fmt.Sprintf("rule %q (http[%d])", n, i)
	}
	return fmt.Sprintf("http[%d]", i)
}

// takesAll reports whether a rule matches every request.
func takesAll(r *model.HTTPRoute) bool {
	if len(r.Matches) == 0 {
		return r.Delegate == nil // requests that the delegate does not match go on
	}
	return slices.ContainsFunc(r.Matches, func(m model.HTTPMatch) bool {
		m.Name, m.StatPrefix, m.IgnoreURICase = "", "", false
		if u := m.URI; u != nil && (u.Kind == model.MatchPrefix && (u.Value == "/" || u.Value == "") ||
			u.Kind == model.MatchRegex && u.Value == ".*" || u.Kind == model.MatchPresent) {
			m.URI = nil
		}
		return reflect.ValueOf(m).IsZero() && r.Delegate == nil
	})
}

// sameMatch is the rule before rule i that has the very match m, or -1.
func sameMatch(v *model.VirtualService, i int, m *model.HTTPMatch) int {
	bare := func(m model.HTTPMatch) model.HTTPMatch {
		m.Name, m.StatPrefix = "", ""
		return m
	}
	for j := range v.HTTP[:i] {
		if v.HTTP[j].Delegate != nil {
			continue
		}
		for k := range v.HTTP[j].Matches {
			if reflect.DeepEqual(bare(v.HTTP[j].Matches[k]), bare(*m)) {
				return j
			}
		}
	}
	return -1
}

func (c routeChecks) unreachableTCP(v *model.VirtualService) {
	all := -1
	for i, r := range v.TCP {
		if all >= 0 {
			c.warnf(code.RuleNeverUsed, v, fmt.Sprintf("spec.tcp[%d]", i), "is never used: tcp[%d] takes all connections; move that to the end", all)
		} else if len(r.Matches) == 0 || slices.ContainsFunc(r.Matches, func(m model.L4Match) bool { return reflect.ValueOf(m).IsZero() }) {
			all = i
		}
	}
}

// repeatedL4 reports matches of connections that an earlier rule takes.
func (c routeChecks) repeatedL4(v *model.VirtualService) {
	var tls, tcp [][]model.L4Match
	for _, r := range v.TLS {
		tls = append(tls, r.Matches)
	}
	for _, r := range v.TCP {
		tcp = append(tcp, r.Matches)
	}
	c.repeatedIn(v, "tls", tls)
	c.repeatedIn(v, "tcp", tcp)
}

func (c routeChecks) repeatedIn(v *model.VirtualService, kind string, rules [][]model.L4Match) {
	for i, matches := range rules {
		for j := range matches {
			m := &matches[j]
			earlier := slices.IndexFunc(rules[:i], func(list []model.L4Match) bool {
				return slices.ContainsFunc(list, func(o model.L4Match) bool { return takesConnections(&o, m) })
			})
			if earlier >= 0 {
				c.warnf(code.RuleNeverUsed, v, fmt.Sprintf("spec.%s[%d].match[%d]", kind, i, j), "is never used: %s[%d] takes its connections; remove one, or change the match", kind, earlier)
			}
		}
	}
}

// takesConnections reports whether a match has no condition but those of another one. A match without any is a case of
// unreachableTCP. Envoy prefers narrower subnets and names whatever the order of the rules, so these must be the same.
func takesConnections(m, other *model.L4Match) bool {
	return !reflect.ValueOf(*m).IsZero() && slices.Equal(m.Destinations, other.Destinations) &&
		(m.Port == 0 || m.Port == other.Port) &&
		(m.SourceNamespace == "" || m.SourceNamespace == other.SourceNamespace) &&
		model.SelectorMatches(m.SourceLabels, other.SourceLabels) &&
		(len(m.Gateways) == 0 || len(other.Gateways) > 0 && subsetOf(other.Gateways, m.Gateways)) &&
		subsetOf(other.SNIHosts, m.SNIHosts)
}

// subsetOf reports whether all elements of a list are in another one.
func subsetOf[T comparable](list, all []T) bool {
	return !slices.ContainsFunc(list, func(e T) bool { return !slices.Contains(all, e) })
}

// unsplitAtGateway reports routes of gateways to all workloads of a host that a VirtualService for sidecars divides among subsets:
// routes for sidecars are not for requests of gateways.
func (c routeChecks) unsplitAtGateway(v *model.VirtualService) {
	if v.InMesh() || len(v.Hosts) == 0 {
		return
	}
	for i := range v.HTTP {
		for j, b := range v.HTTP[i].Backends {
			if b.Destination.Subset != "" {
				continue
			}
			if k, divided := c.dividing(b.Destination.Host, v); divided {
				c.infof(code.UnsplitAtGateway, v, fmt.Sprintf("spec.http[%d].route[%d].destination", i, j),
					"requests of the gateway go to all workloads of %s: the routes to subsets in %s are for sidecars only; write the subsets here, too", b.Destination.Host, k)
			}
		}
	}
}

// dividing returns a VirtualService for sidecars that has routes to several subsets of a host.
func (c routeChecks) dividing(h model.Host, besides *model.VirtualService) (found model.Key, divided bool) {
	for _, k := range slices.SortedFunc(maps.Keys(c.virtuals), model.Key.Compare) {
		v, subsets := c.virtuals[k], map[string]bool{}
		if v == besides || !v.InMesh() || !slices.Contains(v.Hosts, h) || !v.Visibility.Sees(besides.Namespace) {
			continue
		}
		for i := range v.HTTP {
			for _, b := range v.HTTP[i].Backends {
				if b.Destination.Host == h && b.Destination.Subset != "" {
					subsets[b.Destination.Subset] = true
				}
			}
		}
		if len(subsets) > 1 {
			return k, true
		}
	}
	return model.Key{}, false
}

// unusedDelegate reports a delegate that no virtual service delegates to.
func (c routeChecks) unusedDelegate(v *model.VirtualService) {
	if len(v.Hosts) > 0 {
		return
	}
	for _, root := range c.virtuals {
		for _, r := range root.HTTP {
			if r.Delegate != nil && *r.Delegate == v.Key {
				return
			}
		}
	}
	c.warnf(code.InvalidDelegate, v, "spec", "has no hosts, and no VirtualService delegates to it, so it has no effect; add hosts, or delegate to it")
}

// ownHosts reports hosts of the cluster that no service has. Other hosts may be anything.
func (c routeChecks) ownHosts(v *model.VirtualService) {
	if !v.InMesh() || v.Kind.IsKubernetesRoute() { // statuses report missing parents of routes
		return
	}
	for i, h := range v.Hosts {
		if full := model.Host(string(h) + ".svc." + c.domain); c.byHost[full] != nil && c.byHost[h] == nil {
			c.warnf(code.HostNotFound, v, fmt.Sprintf("spec.hosts[%d]", i), "service %s: not found, so the routes do not apply to calls of %s: write the full name", h, full).Set(string(full))
		}
		if !strings.HasSuffix(string(h), ".svc."+c.domain) || c.matchesAny(h) {
			continue
		}
		_, hidden := c.find(h, v.Namespace)
		destinationChecks(c).missing(problem.SeverityWarning, v, fmt.Sprintf("spec.hosts[%d]", i), h, hidden, "")
	}
}

// matchesAny reports whether some service belongs to h.
func (c routeChecks) matchesAny(h model.Host) bool {
	return slices.ContainsFunc(c.services, func(s *model.Service) bool { return h.Overlaps(s.Hostname) })
}
