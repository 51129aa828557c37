package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

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
