package derive

import (
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// hostStates is what a group remembers of its hosts.
type hostStates map[model.Host]*outbound.State

// replaceHost takes a host's new result into the group. What differs goes to the delta, or makes other units dirty. nil
// takes the host away.
func (g *proxyGroup) replaceHost(h model.Host, now *outbound.Result) {
	old := g.hosts[h]
	if old == nil && now == nil {
		return
	}
	if old == nil {
		old = &outbound.State{}
	}
	if now == nil {
		delete(g.hosts, h)
		now = &outbound.Result{}
	} else {
		keep := now.State
		g.hosts[h] = &keep
	}
	for _, name := range old.ClusterNames {
		g.out.Clusters[name] = nil
	}
	for _, c := range now.Clusters {
		g.out.Clusters[c.Name] = c
	}
	g.diffVirtualHosts(h, old, now)
	for _, k := range g.listeners.replace(h, old, now) {
		g.mark(listenerUnit(k))
	}
	g.replaceRefs(refs{old.Refs, old.Routed}, refs{now.Refs, now.Routed})
	g.refSecrets(old.Secrets, now.Secrets)
	// A change of the service or its endpoints changes their fact. Here the choice of the service counts, which a Sidecar can
	// change, and the choice of endpoints for each cluster.
	if old.Service != now.Service || !reflect.DeepEqual(old.Endpoints, now.Endpoints) {
		g.mark(endpointsUnit(h))
	}
}

// listenerDemands is what hosts want of listeners.
type listenerDemands map[ir.ListenerKey]*outbound.Demands

// replace replaces a host's demands, and returns the listeners that may differ. A listener whose demand stays the same
// differs only if the domains have changed: these decide which requests are for unknown hosts. A headless service has a
// listener for each of its Pods, of which one comes or goes at a time.
func (l listenerDemands) replace(h model.Host, old *outbound.State, now *outbound.Result) (differ []ir.ListenerKey) {
	was := make(map[ir.ListenerKey]*outbound.Demand, len(old.Demands))
	for _, d := range old.Demands {
		was[d.Key] = d.Demand
		l[d.Key].Remove(h, d.Demand)
	}
	force := !slices.Equal(old.Domains, now.Domains)
	for _, d := range now.Demands {
		if l[d.Key] == nil {
			l[d.Key] = &outbound.Demands{}
		}
		l[d.Key].Add(h, d.Demand)
		if force || !d.Same(was[d.Key]) {
			differ = append(differ, d.Key)
		}
	}
	for _, d := range old.Demands {
		if !now.Wants(d.Key) {
			differ = append(differ, d.Key)
		}
	}
	return differ
}

// deriveListener joins all demands on one address into a listener, with the route configuration that it needs.
func (g *proxyGroup) deriveListener(mesh *model.Mesh, k ir.ListenerKey) {
	demands := g.listeners[k]
	if demands.IsEmpty() {
		delete(g.listeners, k)
	}
	if demands == nil || !demands.Listens() {
		g.out.Listeners[k.Name()] = nil
		g.serveRoutes(mesh, k, outbound.RouteUse{})
		return
	}
	l, use := outbound.Listener(g.Client, mesh, k, demands, g.shards.uses, &g.filters)
	g.out.Listeners[l.Name] = l
	g.serveRoutes(mesh, k, use)
}

// refs are the hosts whose clusters something uses.
type refs struct {
	hosts []model.Host   // sorted, each once
	from  *model.Origins // what they are used by
}

// replaceRefs counts what uses each host's clusters.
func (g *proxyGroup) replaceRefs(old, now refs) {
	if slices.Equal(old.hosts, now.hosts) && old.from == now.from {
		return
	}
	for _, h := range now.hosts {
		g.countRef(h, now.from, 1)
	}
	for _, h := range old.hosts {
		g.countRef(h, old.from, -1)
	}
}

// countRef counts one use of a host's clusters. The host is derived again if it is needed for the first or the last time, or
// if the uses are why it has clusters and their origins differ.
func (g *proxyGroup) countRef(h model.Host, from *model.Origins, by int) {
	first, differs := index.CountIn(g.refs, h, from, by)
	offered := func() bool {
		state := g.hosts[h]
		return state != nil && state.Service != nil && state.Service.ExternalName == "" && g.Offers(state.Service)
	}
	if first || differs && !offered() {
		g.mark(hostUnit(h))
	}
}

// refSecrets replaces the secrets that a host, the servers of a gateway, or a Sidecar's listeners ask for.
func (g *proxyGroup) refSecrets(old, now []policy.SecretRef) {
	if slices.Equal(old, now) {
		return
	}
	for _, ref := range now {
		index.CountIn(g.secrets, ref.Name, ref.From, 1)
		g.mark(secretUnit(ref.Name))
	}
	for _, ref := range old {
		if first, differs := index.CountIn(g.secrets, ref.Name, ref.From, -1); first || differs {
			g.mark(secretUnit(ref.Name))
		}
	}
}

// replaceIngressSecrets counts the secrets that the Sidecar's own listeners ask for.
func (g *proxyGroup) replaceIngressSecrets() {
	if g.Key.Inbound || g.Key.Names || g.Key.Extensions {
		return
	}
	was := g.fixed.ingress
	g.fixed.ingress = policy.IngressSecrets(g.Client)
	g.refSecrets(was, g.fixed.ingress)
}

// domainOwners are the hosts that want a domain of a route configuration, in order. The first one has it.
type domainOwners map[outbound.DomainKey][]model.Host

// add adds a host, and reports whether it has the domain now.
func (o domainOwners) add(k outbound.DomainKey, h model.Host) (owns bool) {
	list := o[k]
	i, found := slices.BinarySearchFunc(list, h, func(a, b model.Host) int { return compareOwners(k.Domain, a, b) })
	if found {
		return false
	}
	o[k] = slices.Insert(list, i, h)
	return i == 0
}

// remove removes a host, and reports whether it had the domain.
func (o domainOwners) remove(k outbound.DomainKey, h model.Host) (owned bool) {
	list := o[k]
	i := slices.Index(list, h)
	if i < 0 {
		return false
	}
	if o[k] = slices.Delete(list, i, i+1); len(o[k]) == 0 {
		delete(o, k)
	}
	return i == 0
}

// compareOwners puts the host first whose own name the domain is, then the smaller name.
func compareOwners(domain string, a, b model.Host) int {
	if (string(a) == domain) != (string(b) == domain) {
		if string(a) == domain {
			return -1
		}
		return 1
	}
	return strings.Compare(string(a), string(b))
}

// diffVirtualHosts takes a host's virtual hosts into the group. Envoy refuses a route configuration in which two virtual
// hosts have one domain. Each domain therefore goes to one host, and hosts whose share changes are sent again.
func (g *proxyGroup) diffVirtualHosts(h model.Host, old *outbound.State, now *outbound.Result) {
	for _, name := range old.Sent {
		g.out.VirtualHosts[name] = nil
	}
	if !old.Holder().Equal(now.Holder()) {
		for _, k := range now.Domains {
			g.markOthers(k, h)
		}
	}
	if !slices.Equal(old.Domains, now.Domains) {
		for _, k := range old.Domains {
			if g.domains.remove(k, h) {
				g.markOthers(k, h)
			}
		}
		for _, k := range now.Domains {
			if g.domains.add(k, h) {
				g.markOthers(k, h)
			}
		}
	}
	for _, v := range now.VirtualHosts {
		g.out.VirtualHosts[v.ResourceName()] = g.settleDomains(v)
	}
}

// markOthers marks the other hosts that want a domain.
func (g *proxyGroup) markOthers(k outbound.DomainKey, h model.Host) {
	for _, other := range g.domains[k] {
		if other != h {
			g.mark(domainsUnit(other))
		}
	}
}

// resettle puts a host's virtual hosts out again with the domains that it has now. It derives them once more: few hosts
// compete for domains, and groups do not keep virtual hosts.
func (g *proxyGroup) resettle(r *index.Reader, h model.Host) {
	if g.hosts[h] == nil {
		return
	}
	for _, v := range outbound.Host(r, h, g.refs[h]).VirtualHosts {
		g.out.VirtualHosts[v.ResourceName()] = g.settleDomains(v)
	}
}

// settleDomains leaves a virtual host the domains that its host has; nil: none.
func (g *proxyGroup) settleDomains(v *ir.VirtualHost) *ir.VirtualHost {
	var won []string
	var from model.OriginList
	from.AddAll(v.Origins)
	for _, d := range v.Domains {
		k := outbound.DomainKey{RouteConfig: v.RouteConfig, Domain: d}
		if owners := g.domains[k]; len(owners) > 0 && owners[0] == v.Host {
			won = append(won, d)
		} else {
			from.AddAll(g.holderOf(k))
		}
	}
	if len(won) == 0 {
		return nil
	}
	out := *v
	if len(won) < len(v.Domains) {
		out.Domains, out.Origins = won, from.Since(0)
	}
	out.Domains = out.WithAbsolute()
	return &out
}

// holderOf are the objects for which a host has a domain.
func (g *proxyGroup) holderOf(k outbound.DomainKey) *model.Origins {
	owners := g.domains[k]
	if len(owners) == 0 {
		return nil
	}
	if g.router != nil {
		if h := g.router.hosts[gatewayHostUnit(k.RouteConfig, owners[0])]; h != nil {
			return h.from
		}
		return nil
	}
	if state := g.hosts[owners[0]]; state != nil {
		return state.Holder()
	}
	return nil
}
