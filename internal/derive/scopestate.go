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
	unitFixed unitKind = iota // what every scope of its kind has
	unitHost
	unitEndpoints
	unitListener
	unitInbound
)

// unit is the smallest thing that is derived again.
type unit struct {
	kind unitKind
	name string // of the host, or the listener's address
	port uint32 // of the listener
}

func hostUnit(h model.Host) unit      { return unit{kind: unitHost, name: string(h)} }
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
	// Fixed when the scope is made.
	Key     ScopeKey
	labels  map[string]string
	sidecar *model.Sidecar
	egress  []egress

	// Touched only by whoever derives the scope: one goroutine at a time.
	dependents map[fact][]unit
	asked      map[unit]factList
	hosts      map[model.Host]*hostResult
	refs       map[model.Host]int // hosts that others route to, however egress is narrowed
	listeners  map[listenerKey]*listenerClaims
	domains    map[domainKey][]model.Host // who wants a domain of a route configuration
	routeUses  map[listenerKey]routeUse   // which route configuration a listener uses
	served     map[model.Host][]string    // EDS resources by host
	inbound    *Delta                     // what the inbound unit gave last
	out        *Delta
	dirty      map[unit]struct{}
}

// domainKey is a domain of one route configuration.
type domainKey struct{ routeConfig, domain string }

func newScope(k ScopeKey, s *model.Sidecar) *scope {
	return &scope{
		Key: k, labels: parseLabels(k.Labels), sidecar: s, egress: egressOf(s),
		dependents: map[fact][]unit{},
		asked:      map[unit]factList{},
		hosts:      map[model.Host]*hostResult{},
		refs:       map[model.Host]int{},
		listeners:  map[listenerKey]*listenerClaims{},
		domains:    map[domainKey][]model.Host{},
		routeUses:  map[listenerKey]routeUse{},
		served:     map[model.Host][]string{},
		out:        newDelta(),
		dirty:      map[unit]struct{}{},
	}
}

// Delta is what differs in a scope since it was derived last: views by resource name, nil
// for what is gone.
type Delta struct {
	Clusters     map[string]*view.Cluster
	Endpoints    map[string]*view.Endpoints
	Listeners    map[string]*view.Listener
	RouteConfigs map[string]*view.RouteConfig
	VirtualHosts map[string]*view.VirtualHost // by ResourceName
}

func newDelta() *Delta {
	return &Delta{
		Clusters: map[string]*view.Cluster{}, Endpoints: map[string]*view.Endpoints{},
		Listeners: map[string]*view.Listener{}, RouteConfigs: map[string]*view.RouteConfig{},
		VirtualHosts: map[string]*view.VirtualHost{},
	}
}

// Len counts what differs.
func (d *Delta) Len() int {
	return len(d.Clusters) + len(d.Endpoints) + len(d.Listeners) + len(d.RouteConfigs) + len(d.VirtualHosts)
}

// mark makes u dirty.
func (s *scope) mark(u unit) { s.dirty[u] = struct{}{} }

// touch makes dirty what depends on the facts, and hosts that came into sight.
func (s *scope) touch(t *touched) {
	for f := range t.facts {
		s.touchFact(f)
	}
	if s.Key.Inbound {
		return
	}
	for _, svc := range t.services {
		if s.sees(svc) || s.hosts[svc.Hostname] != nil {
			s.mark(hostUnit(svc.Hostname))
		}
	}
	for _, v := range t.routes {
		if !s.importsRoutes(v) {
			continue
		}
		for _, h := range v.Hosts {
			s.mark(hostUnit(h))
		}
	}
}

// touchFact makes dirty what has asked for a fact, or for one that its wildcard covers.
func (s *scope) touchFact(f fact) {
	for _, u := range s.dependents[f] {
		s.mark(u)
	}
	if f.kind > factDestinationRule || !model.Host(f.name).IsWildcard() {
		return
	}
	for have, units := range s.dependents {
		if have.coveredBy(f.kind, model.Host(f.name)) {
			for _, u := range units {
				s.mark(u)
			}
		}
	}
}

// depend replaces what a unit has asked for.
func (s *scope) depend(u unit, facts factList) {
	old := s.asked[u]
	for _, f := range old {
		if !slices.Contains(facts, f) {
			s.dependents[f] = slices.DeleteFunc(s.dependents[f], func(o unit) bool { return o == u })
			dropEmpty(s.dependents, f)
		}
	}
	if len(facts) == 0 {
		delete(s.asked, u)
		return
	}
	s.asked[u] = facts
	for _, f := range facts {
		if !slices.Contains(old, f) {
			s.dependents[f] = append(s.dependents[f], u)
		}
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
	for _, u := range s.takeDirty(unitFixed) {
		s.run(x, u, s.deriveFixed)
	}
	for units := s.takeDirty(unitHost); len(units) > 0; units = s.takeDirty(unitHost) {
		for _, u := range units {
			s.run(x, u, func(r *reader) { s.replaceHost(u.host(), s.deriveHost(r, u.host())) })
		}
	}
	for _, u := range s.takeDirty(unitEndpoints) {
		s.run(x, u, func(r *reader) { s.deriveEndpoints(r, u.host(), memo) })
	}
	for _, u := range s.takeDirty(unitListener) {
		s.deriveListener(x.mesh, u.listener())
	}
	for _, u := range s.takeDirty(unitInbound) {
		s.run(x, u, s.deriveInbound)
	}
	out := s.out
	s.out = newDelta()
	return out
}

func (s *scope) run(x *Index, u unit, f func(*reader)) {
	r := newReader(x, s)
	f(r)
	if u.kind == unitHost && s.hosts[u.host()] == nil && s.refs[u.host()] == 0 {
		// Nobody sees the host: touch finds it should it come into sight.
		r.facts = nil
	}
	s.depend(u, r.facts)
}
