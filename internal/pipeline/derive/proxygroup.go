package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// proxyGroup is the derived state of one GroupKey.
type proxyGroup struct {
	*index.Client // fixed, except for a change of its Sidecar

	// Touched only by whoever derives the scope: one goroutine at a time.
	dependents *index.Dependents[unit]
	hosts      map[model.Host]*hostState
	refs       map[model.Host]*index.OriginCounts // hosts that others route to, however egress is narrowed
	listeners  map[ir.ListenerKey]*listenerClaims
	domains    map[domainKey][]model.Host     // who wants a domain of a route configuration
	routeUses  map[ir.ListenerKey]routeUse    // which route configuration a listener uses
	routeUsers map[string]routeUsers          // how many listeners use a route configuration
	served     map[model.Host][]string        // EDS resources by host
	inbound    *Delta                         // what the inbound unit gave last
	split      *sharder                       // nil: route configurations are served whole
	plugins    []*model.WasmPlugin            // in force, in order
	telemetry  *ir.Telemetry                  // what listeners tell; all share it
	observed   *model.Origins                 // that telemetry is made from
	collectors []model.Host                   // services that telemetry goes to
	patches    *ir.Patches                    // that are in force; nil: not known yet
	addedHosts map[string][]string            // resource names of virtual hosts that patches add, by route configuration
	extensions map[string]bool                // plugins that are out, by name
	bootstraps map[string]bool                // likewise
	named      map[model.Host]bool            // hosts whose names are out
	secretRefs map[string]*index.OriginCounts // hosts whose clusters ask for a secret
	ingress    []secretRef                    // secrets that the Sidecar's own listeners ask for
	router     *router                        // nil: the scope is not one of routers
	egressRef  model.Host                     // of the Sidecar's egress proxy, as it is counted in refs
	egressFrom *model.Origins                 // likewise
	out        *Delta
	dirty      dirtyUnits
}

// domainKey is a domain of one route configuration.
type domainKey struct{ routeConfig, domain string }

func newProxyGroup(k GroupKey, sidecar *model.Sidecar, by Sharding) *proxyGroup {
	s := &proxyGroup{
		Client: index.NewClient(k, sidecar), dependents: index.NewDependents[unit](),
		hosts:      map[model.Host]*hostState{},
		refs:       map[model.Host]*index.OriginCounts{},
		listeners:  map[ir.ListenerKey]*listenerClaims{},
		domains:    map[domainKey][]model.Host{},
		routeUses:  map[ir.ListenerKey]routeUse{},
		routeUsers: map[string]routeUsers{},
		served:     map[model.Host][]string{},
		secretRefs: map[string]*index.OriginCounts{},
		named:      map[model.Host]bool{},
		out:        newDelta(),
	}
	if k.Type == model.ProxyRouter && !k.Names {
		s.router = newRouter()
	}
	s.split = newSharder(by, &k)
	s.askForIngress()
	return s
}

// derive works until nothing is dirty and gives what differs. The order of units within a
// kind does not matter: each depends only on the index and on the kinds before.
func (s *proxyGroup) derive(x *index.Index, memo *endpointMemo) *Delta {
	if s.Key.Names || s.Key.Extensions {
		return s.deriveForAgent(x)
	}
	s.deriveGround(x)
	s.deriveHosts(x)
	s.each(x, unitEndpoints, func(r *index.Reader, u unit) { s.deriveEndpoints(r, u.host(), memo) })
	s.each(x, unitSecret, func(r *index.Reader, u unit) { s.deriveSecret(r, u.name) })
	s.deriveListeners(x)
	s.each(x, unitInbound, func(r *index.Reader, _ unit) { s.deriveInbound(r) })
	out := s.takeOut()
	if s.split != nil {
		s.split.cut(out)
	}
	return out
}

// deriveGround derives what hosts and listeners are made with: first what EnvoyFilters change.
func (s *proxyGroup) deriveGround(x *index.Index) {
	s.each(x, unitPatches, func(r *index.Reader, _ unit) { s.derivePatches(r) })
	s.each(x, unitTelemetry, func(r *index.Reader, _ unit) { s.deriveTelemetry(r) })
	s.each(x, unitWasm, func(r *index.Reader, _ unit) { s.deriveWasm(r) })
	s.each(x, unitFixed, func(r *index.Reader, _ unit) { s.deriveFixed(r) })
	s.each(x, unitGateways, func(r *index.Reader, _ unit) { s.deriveGateways(r) })
}

// deriveHosts derives hosts until none brings another into sight, and then what their virtual hosts share.
func (s *proxyGroup) deriveHosts(x *index.Index) {
	for more := true; more; {
		more = s.each(x, unitHost, func(r *index.Reader, u unit) { s.replaceHost(u.host(), s.deriveHost(r, u.host())) })
	}
	if s.router != nil {
		s.deriveRouter(x)
	}
	for _, u := range s.dirty.take(unitDomains) {
		s.resettle(x.NewReader(s.Client), u.host())
	}
	if s.split != nil {
		s.resplit(x)
	}
}

func (s *proxyGroup) deriveListeners(x *index.Index) {
	if s.router != nil {
		s.each(x, unitListener, func(r *index.Reader, u unit) { s.deriveGatewayListener(r, u.listener()) })
		return
	}
	for _, u := range s.dirty.take(unitListener) {
		s.deriveListener(x.Mesh(), u.listener())
	}
}

// deriveForAgent is derive for what a sidecar's agent asks for itself.
func (s *proxyGroup) deriveForAgent(x *index.Index) *Delta {
	s.each(x, unitHost, func(r *index.Reader, u unit) { s.deriveNames(r, u.host()) })
	s.each(x, unitWasm, func(r *index.Reader, _ unit) { s.deriveExtensions(r) })
	s.each(x, unitPatches, func(r *index.Reader, _ unit) { s.deriveBootstraps(r) })
	return s.takeOut()
}

// each derives the dirty units of a kind, in no order, and tells whether there were any.
func (s *proxyGroup) each(x *index.Index, kind unitKind, f func(*index.Reader, unit)) bool {
	units := s.dirty.take(kind)
	for _, u := range units {
		s.run(x, u, f)
	}
	return len(units) > 0
}

func (s *proxyGroup) run(x *index.Index, u unit, f func(*index.Reader, unit)) {
	r := x.NewReader(s.Client)
	f(r, u)
	if u.kind == unitHost && !s.Key.Names && s.hosts[u.host()] == nil && s.refs[u.host()].Total() == 0 {
		// Nobody sees the host: touch finds it should it come into sight.
		r.ForgetFacts()
	}
	s.dependents.Replace(u, r.Facts())
}

// mark makes a unit dirty.
func (s *proxyGroup) mark(u unit) { s.dirty.mark(u) }

// takeOut takes what differs.
func (s *proxyGroup) takeOut() *Delta {
	out := s.out
	s.out = newDelta()
	return out
}
