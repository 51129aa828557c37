package derive

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// unitKind orders the work within a scope: hosts tell which endpoints and listeners there are.
type unitKind uint8

const (
	unitTelemetry unitKind = iota // what the scope's listeners tell of calls
	unitWasm                      // what plugins its listeners have
	unitFixed                     // what every scope of its kind has
	unitGateways                  // what a router's Gateways come to
	unitHost
	unitPatches     // what EnvoyFilters change, before all others
	unitGatewayHost // a virtual host of a router
	unitRouteConfig // a route configuration of a router
	unitDomains     // a host's virtual hosts again: others have changed its share of the domains
	unitEndpoints
	unitSecret
	unitListener
	unitInbound
)

// unit is the smallest thing that is derived again.
type unit struct {
	kind unitKind
	port uint32 // of the listener
	name string // of the host or secret, or the listener's address
}

func hostUnit(h model.Host) unit      { return unit{kind: unitHost, name: string(h)} }
func domainsUnit(h model.Host) unit   { return unit{kind: unitDomains, name: string(h)} }
func secretUnit(name string) unit     { return unit{kind: unitSecret, name: name} }
func endpointsUnit(h model.Host) unit { return unit{kind: unitEndpoints, name: string(h)} }
func listenerUnit(k listenerKey) unit { return unit{kind: unitListener, name: k.address, port: k.port} }

func (u unit) host() model.Host      { return model.Host(u.name) }
func (u unit) listener() listenerKey { return listenerKey{u.name, u.port} }

// listenerKey is where a listener listens.
type listenerKey struct {
	address string
	port    uint32
}

// name is Istio's: "0.0.0.0_80".
func (k listenerKey) name() string { return fmt.Sprintf("%s_%d", k.address, k.port) }

// scope is the derived state of one ScopeKey.
type scope struct {
	// Fixed when the scope is made, but for a change of its Sidecar.
	Key     ScopeKey
	labels  map[string]string
	sidecar *model.Sidecar
	egress  []egress
	own     map[listenerKey]bool // where egress listeners with a port of their own listen

	// Touched only by whoever derives the scope: one goroutine at a time.
	dependents map[string][]dependent // by the facts' name
	asked      map[unit]factList
	hosts      map[model.Host]*hostState
	refs       map[model.Host]int // hosts that others route to, however egress is narrowed
	listeners  map[listenerKey]*listenerClaims
	domains    map[domainKey][]model.Host // who wants a domain of a route configuration
	routeUses  map[listenerKey]routeUse   // which route configuration a listener uses
	routeUsers map[string]routeUsers      // how many listeners use a route configuration
	served     map[model.Host][]string    // EDS resources by host
	inbound    *Delta                     // what the inbound unit gave last
	split      *splitter                  // nil: route configurations are served whole
	plugins    []*model.WasmPlugin        // in force, in order
	telemetry  *view.Telemetry            // what listeners tell; all share it
	collectors []model.Host               // services that telemetry goes to
	patches    *view.Patches              // that are in force; nil: not known yet
	addedHosts map[string][]string        // resource names of virtual hosts that patches add, by route configuration
	extensions map[string]bool            // plugins that are out, by name
	bootstraps map[string]bool            // likewise
	named      map[model.Host]bool        // hosts whose names are out
	secretRefs map[string]int             // hosts whose clusters ask for a secret
	ingress    []string                   // secrets that the Sidecar's own listeners ask for
	router     *router                    // nil: the scope is not one of routers
	egressRef  model.Host                 // of the Sidecar's egress proxy, as it is counted in refs
	out        *Delta
	dirty      map[unit]struct{}
}

// domainKey is a domain of one route configuration.
type domainKey struct{ routeConfig, domain string }

func newScope(k ScopeKey, sidecar *model.Sidecar, by Split) *scope {
	s := &scope{
		Key: k, labels: parseLabels(k.Labels),
		dependents: map[string][]dependent{},
		asked:      map[unit]factList{},
		hosts:      map[model.Host]*hostState{},
		refs:       map[model.Host]int{},
		listeners:  map[listenerKey]*listenerClaims{},
		domains:    map[domainKey][]model.Host{},
		routeUses:  map[listenerKey]routeUse{},
		routeUsers: map[string]routeUsers{},
		served:     map[model.Host][]string{},
		secretRefs: map[string]int{},
		named:      map[model.Host]bool{},
		out:        newDelta(),
		dirty:      map[unit]struct{}{},
	}
	if k.Type == model.ProxyRouter && !k.Names {
		s.router = newRouter()
	}
	s.split = newSplitter(by, &k)
	s.setEgress(sidecar)
	return s
}

// Delta is what differs in a scope since it was derived last: views by resource name, nil
// for what is gone.
type Delta struct {
	Clusters     map[string]*view.Cluster
	Endpoints    map[string]*view.Endpoints
	Secrets      map[string]*view.Secret
	Scopes       map[string]*view.Scope
	Listeners    map[string]*view.Listener
	RouteConfigs map[string]*view.RouteConfig
	VirtualHosts map[string]*view.VirtualHost // by ResourceName
	Names        map[string]*view.Names       // by host
	Extensions   map[string]*view.Wasm        // plugins whose modules agents fetch
	Bootstraps   map[string]*view.Bootstrap
	// Unfetched are the plugins whose modules nobody fetches for the scope's proxies, until others
	// are given; nil: as before.
	Unfetched []string
	// Patches are what EnvoyFilters change of these and of all later views of the scope, until
	// others are given; nil: as before.
	Patches *view.Patches
}

func newDelta() *Delta {
	return &Delta{
		Clusters: map[string]*view.Cluster{}, Endpoints: map[string]*view.Endpoints{}, Secrets: map[string]*view.Secret{},
		Scopes: map[string]*view.Scope{}, Listeners: map[string]*view.Listener{}, RouteConfigs: map[string]*view.RouteConfig{},
		VirtualHosts: map[string]*view.VirtualHost{}, Names: map[string]*view.Names{}, Extensions: map[string]*view.Wasm{}, Bootstraps: map[string]*view.Bootstrap{},
	}
}

// Len counts what differs.
func (d *Delta) Len() int {
	n := len(d.Clusters) + len(d.Endpoints) + len(d.Secrets) + len(d.Scopes) + len(d.Listeners) + len(d.RouteConfigs) + len(d.VirtualHosts) + len(d.Names) + len(d.Extensions) + len(d.Bootstraps)
	if d.Patches != nil {
		n++
	}
	if d.Unfetched != nil {
		n++
	}
	return n
}

// mark makes u dirty.
func (s *scope) mark(u unit) { s.dirty[u] = struct{}{} }

// touch makes dirty what depends on the facts, and hosts that came into sight.
func (s *scope) touch(t *touched) {
	for f := range t.facts {
		s.touchFact(f)
	}
	if s.Key.Inbound || s.Key.Extensions {
		return
	}
	for _, svc := range t.services {
		if s.sees(svc) || s.hosts[svc.Hostname] != nil || s.named[svc.Hostname] {
			s.mark(hostUnit(svc.Hostname))
		}
	}
	if s.router != nil {
		for _, v := range t.bound {
			s.touchBound(v)
		}
		return
	}
	for _, v := range t.routes {
		if s.Key.Names || !s.importsRoutes(v) {
			continue
		}
		for _, h := range v.Hosts {
			s.mark(hostUnit(h))
		}
	}
}

// touchFact makes dirty what has asked for a fact, or for one that its wildcard covers. Who
// asks for a host writes down that one name, not one for each pattern that could cover it;
// a change of a wildcard, which is rare, looks through all facts instead.
func (s *scope) touchFact(f fact) {
	s.markDependents(s.dependents[f.name], f.kinds)
	h := model.Host(f.name)
	if f.kinds&factsOfWildcards == 0 || !h.IsWildcard() {
		return
	}
	for name, list := range s.dependents {
		if h.Matches(model.Host(name)) {
			s.markDependents(list, f.kinds)
		}
	}
}

func (s *scope) markDependents(list []dependent, kinds factKind) {
	for _, d := range list {
		if d.kinds&kinds != 0 {
			s.mark(d.unit)
		}
	}
}

// depend replaces what a unit has asked for.
func (s *scope) depend(u unit, facts factList) {
	old := s.asked[u]
	for _, f := range old {
		if !facts.has(f.name) {
			s.dependents[f.name] = slices.DeleteFunc(s.dependents[f.name], func(d dependent) bool { return d.unit == u })
			dropEmpty(s.dependents, f.name)
		}
	}
	for _, f := range facts {
		list := s.dependents[f.name]
		if !old.has(f.name) {
			s.dependents[f.name] = append(list, dependent{u, f.kinds})
			continue
		}
		list[slices.IndexFunc(list, func(d dependent) bool { return d.unit == u })].kinds = f.kinds
	}
	if len(facts) == 0 {
		delete(s.asked, u)
	} else {
		s.asked[u] = slices.Clip(facts)
	}
}

// takeDirty takes the dirty units of one kind.
func (s *scope) takeDirty(kind unitKind) []unit {
	var out []unit
	for u := range s.dirty {
		if u.kind == kind {
			out = append(out, u)
			delete(s.dirty, u)
		}
	}
	return out
}

// derive works until nothing is dirty and gives what differs. The order of units within a
// kind does not matter: each depends only on the index and on the kinds before.
func (s *scope) derive(x *Index, memo *endpointMemo) *Delta {
	if s.Key.Names || s.Key.Extensions {
		return s.deriveForAgent(x)
	}
	for _, u := range s.takeDirty(unitPatches) {
		s.run(x, u, s.derivePatches)
	}
	for _, u := range s.takeDirty(unitTelemetry) {
		s.run(x, u, s.deriveTelemetry)
	}
	for _, u := range s.takeDirty(unitWasm) {
		s.run(x, u, s.deriveWasm)
	}
	for _, u := range s.takeDirty(unitFixed) {
		s.run(x, u, s.deriveFixed)
	}
	for _, u := range s.takeDirty(unitGateways) {
		s.run(x, u, s.deriveGateways)
	}
	for units := s.takeDirty(unitHost); len(units) > 0; units = s.takeDirty(unitHost) {
		for _, u := range units {
			s.run(x, u, func(r *reader) { s.replaceHost(u.host(), s.deriveHost(r, u.host())) })
		}
	}
	if s.router != nil {
		s.deriveRouter(x)
	}
	for _, u := range s.takeDirty(unitDomains) {
		s.resettle(newReader(x, s), u.host())
	}
	if s.split != nil {
		s.resplit(x)
	}
	for _, u := range s.takeDirty(unitEndpoints) {
		s.run(x, u, func(r *reader) { s.deriveEndpoints(r, u.host(), memo) })
	}
	for _, u := range s.takeDirty(unitSecret) {
		s.run(x, u, func(r *reader) { s.deriveSecret(r, u.name) })
	}
	for _, u := range s.takeDirty(unitListener) {
		if s.router != nil {
			s.run(x, u, func(r *reader) { s.deriveGatewayListener(r, u.listener()) })
			continue
		}
		s.deriveListener(x.mesh, u.listener())
	}
	for _, u := range s.takeDirty(unitInbound) {
		s.run(x, u, s.deriveInbound)
	}
	out := s.out
	s.out = newDelta()
	if s.split != nil {
		s.split.cut(out)
	}
	return out
}

// deriveForAgent is derive for what a sidecar's agent asks for itself.
func (s *scope) deriveForAgent(x *Index) *Delta {
	for _, u := range s.takeDirty(unitHost) {
		s.run(x, u, func(r *reader) { s.deriveNames(r, u.host()) })
	}
	for _, u := range s.takeDirty(unitWasm) {
		s.run(x, u, s.deriveExtensions)
	}
	for _, u := range s.takeDirty(unitPatches) {
		s.run(x, u, s.deriveBootstraps)
	}
	out := s.out
	s.out = newDelta()
	return out
}

func (s *scope) run(x *Index, u unit, f func(*reader)) {
	r := newReader(x, s)
	f(r)
	if u.kind == unitHost && !s.Key.Names && s.hosts[u.host()] == nil && s.refs[u.host()] == 0 {
		// Nobody sees the host: touch finds it should it come into sight.
		r.facts = nil
	}
	s.depend(u, r.facts)
}
