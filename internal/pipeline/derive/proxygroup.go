package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/dns"
	"github.com/moonsail/moonsail/internal/pipeline/derive/endpoint"
	"github.com/moonsail/moonsail/internal/pipeline/derive/inbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
)

// proxyGroup is the derived state of one group. One goroutine at a time derives it.
//
// What each unit gives is computed by functions of the subpackages. The group keeps what it needs to take a result back,
// and decides which other units a new result makes dirty.
type proxyGroup struct {
	*index.Client // fixed, except for a change of its Sidecar

	dependents *index.Dependents[unit]
	dirty      dirtyUnits
	out        *Delta // since the last derivation

	hosts     hostStates
	listeners listenerDemands
	domains   domainOwners
	routes    routeUses
	refs      originCounts[model.Host] // hosts that others route to, however egress is narrowed
	secrets   originCounts[string]     // what asks for a secret, by its name
	served    map[model.Host][]string  // EDS resources by host
	inbound   *inbound.Output          // the last one
	filters   policy.Filters           // of all listeners
	fixed     fixedRefs                // what counts in refs and secrets beside hosts
	patches   patchState
	agent     agentState
	router    *router  // nil: the group is not one of gateways
	shards    *sharder // nil: route configurations are served whole
	precedes  precedes // of groups with clusters on demand
}

// originCounts counts uses by name, with the origins of each use.
type originCounts[K comparable] map[K]*index.OriginCounts

// fixedRefs are uses of hosts and secrets that come from no host.
type fixedRefs struct {
	providers  []policy.Provider  // services that receive telemetry or authorize calls
	egress     model.Host         // of the Sidecar's egress proxy
	egressFrom *model.Origins     // of the use of egress
	ingress    []policy.SecretRef // of the Sidecar's own listeners
	gatewayTLS []policy.SecretRef // of a gateway's servers
}

// agentState is what a sidecar's agent has received: names of resources, to take them back.
type agentState struct {
	names      map[model.Host]bool
	extensions map[string]bool
	bootstraps map[string]bool
}

func newProxyGroup(k GroupKey, sidecar *model.Sidecar, by Sharding) *proxyGroup {
	g := &proxyGroup{
		Client: index.NewClient(k, sidecar), dependents: index.NewDependents[unit](), out: newDelta(),
		hosts:     hostStates{},
		listeners: listenerDemands{},
		domains:   domainOwners{},
		routes:    newRouteUses(),
		refs:      originCounts[model.Host]{},
		secrets:   originCounts[string]{},
		served:    map[model.Host][]string{},
		agent:     agentState{names: map[model.Host]bool{}},
		shards:    newSharder(by, &k),
		precedes:  precedes{names: map[string]bool{}},
	}
	if k.IsRouter() {
		g.router = newRouter()
	}
	g.replaceIngressSecrets()
	return g
}

// derive works until nothing is dirty, and returns what differs. The order of units of one kind does not matter: each
// depends only on the index and on the kinds before.
func (g *proxyGroup) derive(x *index.Index, memo *endpoint.Memo) *Delta {
	g.Root, g.RoutedOnly = x.Mesh().RootNamespace, g.Key.IsRouter() && x.Mesh().GatewayClustersOfRoutes
	if g.Key.Names || g.Key.Extensions {
		return g.deriveForAgent(x)
	}
	g.each(x, unitPatches, func(r *index.Reader, _ unit) { g.derivePatches(r) })
	g.each(x, unitTelemetry, func(r *index.Reader, _ unit) { g.deriveTelemetry(r) })
	g.each(x, unitProviders, func(r *index.Reader, _ unit) { g.refProviders(r) })
	g.each(x, unitWasm, func(r *index.Reader, _ unit) { g.derivePlugins(r) })
	g.each(x, unitFixed, func(r *index.Reader, _ unit) { g.deriveFixed(r.Mesh()) })
	g.each(x, unitGateways, func(r *index.Reader, _ unit) { g.deriveGateways(r) })
	if g.router != nil {
		g.deriveRouter(x)
	}
	g.deriveHosts(x)
	g.each(x, unitEndpoints, func(r *index.Reader, u unit) { g.deriveEndpoints(r, u.host(), memo) })
	g.each(x, unitSecret, func(r *index.Reader, u unit) { g.deriveSecret(r, u.name) })
	for _, u := range g.dirty.take(unitListener) {
		g.deriveListener(x.Mesh(), u.listener())
	}
	g.each(x, unitInbound, func(r *index.Reader, _ unit) {
		now := inbound.Derive(r, &g.filters)
		g.out.replaceInbound(g.inbound, now)
		g.inbound = now
	})
	g.decideOnDemand(x)
	out := g.out
	g.out = newDelta()
	if g.shards != nil {
		g.shards.shardDelta(out)
	}
	return out
}

// deriveHosts derives hosts until none makes another one needed, and then what their virtual hosts share.
func (g *proxyGroup) deriveHosts(x *index.Index) {
	for more := true; more; {
		more = g.each(x, unitHost, func(r *index.Reader, u unit) {
			g.replaceHost(u.host(), outbound.Host(r, u.host(), g.refs[u.host()]))
		})
	}
	for _, u := range g.dirty.take(unitDomains) {
		g.resettle(x.NewReader(g.Client), u.host())
	}
	if g.shards != nil {
		g.reshard(x)
	}
}

// each derives the dirty units of a kind, in no order, and reports whether there were any.
func (g *proxyGroup) each(x *index.Index, kind unitKind, f func(*index.Reader, unit)) bool {
	units := g.dirty.take(kind)
	for _, u := range units {
		r := x.NewReader(g.Client)
		f(r, u)
		if u.kind == unitHost && !g.Key.Names && g.hosts[u.host()] == nil && g.refs[u.host()].Total() == 0 {
			r.ForgetFacts() // the host is not visible: touch marks it when it becomes visible
		}
		g.dependents.Replace(u, r.Facts())
	}
	return len(units) > 0
}

// deriveEndpoints makes the EDS resources of one host.
func (g *proxyGroup) deriveEndpoints(r *index.Reader, h model.Host, memo *endpoint.Memo) {
	for _, cluster := range g.served[h] {
		g.out.Endpoints[cluster] = nil
	}
	delete(g.served, h)
	host := g.hosts[h]
	if host == nil || len(host.Endpoints) == 0 {
		return
	}
	set := r.Endpoints(host.Service)
	for _, plan := range host.Endpoints {
		g.out.Endpoints[plan.Cluster] = memo.Get(g.Client, host.Service, set, plan)
		g.served[h] = append(g.served[h], plan.Cluster)
	}
}

// deriveSecret makes a secret that the group asks for.
func (g *proxyGroup) deriveSecret(r *index.Reader, name string) {
	g.out.Secrets[name] = nil
	refs := g.secrets[name]
	if refs.Total() == 0 {
		return
	}
	granted := func(name string) bool { return g.router != nil && g.router.plan.Granted[name] }
	if v := policy.Secret(r, name, granted); v != nil {
		r.Used.AddAll(refs.Origins())
		v.Made = r.MadeSince(0)
		g.out.Secrets[name] = v
	}
}

// deriveForAgent is derive for what a sidecar's agent asks for itself.
func (g *proxyGroup) deriveForAgent(x *index.Index) *Delta {
	g.each(x, unitHost, func(r *index.Reader, u unit) { g.agent.deriveNames(g.out, r, u.host()) })
	g.each(x, unitWasm, func(r *index.Reader, _ unit) {
		g.agent.extensions = replaceAll(g.out.Extensions, g.agent.extensions, policy.Extensions(r))
	})
	g.each(x, unitPatches, func(r *index.Reader, _ unit) {
		g.agent.bootstraps = replaceAll(g.out.Bootstraps, g.agent.bootstraps, policy.Bootstraps(r))
	})
	out := g.out
	g.out = newDelta()
	return out
}

// replaceAll puts out what there is now, and takes back what is gone. It returns the names of what is out.
func replaceAll[V any](out map[string]*V, was map[string]bool, now map[string]*V) map[string]bool {
	names := map[string]bool{}
	for name, v := range now {
		names[name], out[name] = true, v
	}
	for name := range was {
		if !names[name] {
			out[name] = nil
		}
	}
	return names
}

// deriveNames makes what the DNS proxy answers for a host.
func (a *agentState) deriveNames(out *Delta, r *index.Reader, h model.Host) {
	svc := r.Service(h)
	if svc == nil || !r.Sees(svc) {
		if a.names[h] {
			out.Names[string(h)] = nil
			delete(a.names, h)
		}
		r.ForgetFacts() // touch marks the host when it becomes visible
		return
	}
	v := dns.Names(r, svc)
	if v == nil && a.names[h] {
		out.Names[string(h)] = nil
		delete(a.names, h)
	}
	if v != nil {
		out.Names[string(h)] = v
		a.names[h] = true
	}
}
