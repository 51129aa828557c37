package derive

import (
	"reflect"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// hostResult is all that one host adds to a scope.
type hostResult struct {
	hostState
	clusters []*ir.Cluster
	vhosts   []*ir.VirtualHost // by route configuration; domains before conflicts are settled
	dynamic  bool              // a route leads to a host that Envoy resolves by the request
	byKey    map[ir.ListenerKey]*listenerDemand
}

// hostState is what a scope remembers of a host, so that it can take it back. A scope has
// many hosts: what has been put out is not kept.
type hostState struct {
	service *model.Service
	names   []string // of its clusters
	eds     []edsPlan
	domains []domainKey // that it wants
	sent    []string    // resource names of its virtual hosts
	claims  []hostClaim
	secrets []secretRef    // that its clusters ask for
	refs    []model.Host   // hosts that its routes need clusters of
	routed  *model.Origins // that its routes are made from, and so refs
}

// hostClaim is a host's claim on one listener.
type hostClaim struct {
	key ir.ListenerKey
	*listenerDemand
}

// edsPlan says how the endpoints of one cluster are chosen.
type edsPlan struct {
	cluster string
	port    *model.ServicePort // the service's own
	labels  map[string]string  // of the subset
	lb      *model.LoadBalancer
	near    model.Distribution // of the service
	mesh    *model.LocalityLB  // of the mesh
	outlier bool               // failing endpoints are found
	from    *model.Origins     // beside what the endpoints are made from
}

// deriveHost makes a host's clusters, virtual hosts and claims on listeners; nil where the
// proxyGroup does not see it.
func (s *proxyGroup) deriveHost(r *index.Reader, h model.Host) *hostResult {
	svc := r.Service(h)
	if s.router != nil {
		return s.deriveReachable(r, svc)
	}
	routes := r.VirtualServices(h)
	visible := svc != nil && s.Sees(svc)
	if target := r.Aliased(svc); target != nil && visible {
		return s.deriveAlias(r, svc, target, routes).finish()
	}
	needed := svc != nil && (visible || s.refs[h].Total() > 0)
	routed := !visible && len(routes) > 0 && slices.Contains(routes[0].Hosts, h)
	if !needed && !routed {
		return nil
	}
	// What a host refers to must not depend on who refers to it: the two would chase each other.
	out := &hostResult{hostState: hostState{service: svc}}
	if needed {
		s.deriveClusters(r, svc, out)
	}
	if visible {
		for i := range s.Egress {
			s.deriveEgress(r, &s.Egress[i], svc, routes, out)
		}
	}
	if routed {
		for i := range s.Egress {
			s.deriveRoutesOnly(r, &s.Egress[i], h, routes, out)
		}
	}
	return out.finish()
}

// finish notes what is needed to take the result back.
func (out *hostResult) finish() *hostResult {
	out.noteRouted()
	for _, c := range out.claims {
		if c.dynamic = out.dynamic; c.dynamic {
			c.from = c.from.Union(out.routed)
		}
	}
	out.refs = slices.Compact(slices.Sorted(slices.Values(out.refs)))
	for _, c := range out.clusters {
		out.names = append(out.names, c.Name)
		out.secrets = append(out.secrets, refsOf(secretsOf(c.Policy.TLS), c.Origins)...)
	}
	out.secrets = sortSecrets(out.secrets)
	for _, v := range out.vhosts {
		out.sent = append(out.sent, v.ResourceName())
		for _, d := range v.Domains {
			out.domains = append(out.domains, domainKey{v.RouteConfig, d})
		}
	}
	return out
}

// noteRouted notes what routes are made from, where they lead to other hosts.
func (out *hostResult) noteRouted() {
	if len(out.refs) == 0 {
		return
	}
	var list model.OriginList
	for _, v := range out.vhosts {
		list.AddAll(v.Origins)
	}
	for _, c := range out.claims {
		for i := range c.chains {
			list.AddAll(c.chains[i].Origins)
		}
	}
	out.routed = list.Since(0)
}

// deriveEgress makes what one egress listener adds for a service.
func (s *proxyGroup) deriveEgress(r *index.Reader, e *index.Egress, svc *model.Service, routes []*model.VirtualService, out *hostResult) {
	if !e.Imports(svc.Namespace, svc.Hostname) {
		return
	}
	for i := range svc.Ports {
		port := &svc.Ports[i]
		if port.Protocol == model.ProtocolUDP || e.Port != nil && e.Port.Number != port.Number {
			continue
		}
		s.derivePort(r, e, svc, port, routes, out)
	}
}

// derivePort chooses how one port is served: by requests, by connections, or by what the
// first bytes show.
func (s *proxyGroup) derivePort(r *index.Reader, e *index.Egress, svc *model.Service, port *model.ServicePort, routes []*model.VirtualService, out *hostResult) {
	protocol, mark := e.Protocol(port), r.Mark()
	r.Use(svc)
	s.useEgress(r, e)
	at := place(r, e, svc, port, protocol)
	if svc.Headless && !protocol.IsHTTP() && !at.bound {
		at = placePods(r, svc, port, protocol)
	}
	if len(at.keys) == 0 || taken(s.Client, e, at) {
		return
	}
	var chains []ir.FilterChain
	read, from := r.Mark(), r.Used.Since(mark)
	if !protocol.IsHTTP() {
		chains = s.l4Chains(r, svc, port, protocol, routes, at, out)
		for i := range chains {
			chains[i].Made = r.MadeSince(mark)
		}
		r.Unread(read)
	}
	for _, key := range at.keys {
		c := out.claim(key, svc, e.CaptureNone(s.Key.Interception))
		c.from = c.from.Union(from)
		c.chains = append(c.chains, chains...)
		if protocol.IsHTTP() || protocol == model.ProtocolAuto {
			c.routes = at.routes
			c.grpcWeb = c.grpcWeb || protocol == model.ProtocolGRPCWeb
		}
	}
	if protocol.IsHTTP() || protocol == model.ProtocolAuto {
		v := s.deriveVirtualHost(r, at, svc.Hostname, svc, port, routes, out)
		v.Made = r.MadeSince(mark)
		s.addVirtualHost(out, v)
	}
	r.Unread(mark)
}

// useEgress notes the Sidecar where its egress listener says where applications are listened to.
func (s *proxyGroup) useEgress(r *index.Reader, e *index.Egress) {
	if s.Sidecar != nil && (e.Port != nil || e.Bind != "" || e.Capture != model.CaptureDefault) {
		r.Use(s.Sidecar)
	}
}

// deriveRoutesOnly serves a host of virtual services that is no service: on the ports of the
// wildcard service that covers it, or on port 80, or on the egress listener's HTTP port.
func (s *proxyGroup) deriveRoutesOnly(r *index.Reader, e *index.Egress, h model.Host, routes []*model.VirtualService, out *hostResult) {
	routes = slices.DeleteFunc(slices.Clone(routes), func(v *model.VirtualService) bool {
		return len(v.HTTP) == 0 || !e.ImportsAny(v.Namespace, []model.Host{h})
	})
	if len(routes) == 0 {
		return
	}
	mark := r.Mark()
	s.useEgress(r, e)
	ports := []model.ServicePort{{Number: 80, Protocol: model.ProtocolHTTP}}
	if cover := r.CoveringService(h); cover != nil {
		ports = cover.Ports
	}
	if e.Port != nil {
		ports = []model.ServicePort{{Number: e.Port.Number, Protocol: e.Port.Protocol}}
	}
	for i := range ports {
		s.deriveRoutesOnPort(r, mark, e, h, &ports[i], routes, out)
	}
	r.Unread(mark)
}

// deriveRoutesOnPort makes what deriveRoutesOnly adds on one port. What was read since mark decides of it.
func (s *proxyGroup) deriveRoutesOnPort(r *index.Reader, mark int, e *index.Egress, h model.Host, port *model.ServicePort, routes []*model.VirtualService, out *hostResult) {
	if !port.Protocol.IsHTTP() {
		return
	}
	at, read := place(r, e, nil, port, port.Protocol), r.Mark()
	v := s.deriveVirtualHost(r, at, h, nil, port, routes, out)
	v.Made = r.MadeSince(mark)
	r.Unread(read)
	if len(v.Routes) == 0 || len(at.keys) == 0 || taken(s.Client, e, at) {
		return
	}
	for _, key := range at.keys {
		c := out.claim(key, routes[0], e.CaptureNone(s.Key.Interception))
		c.routes, c.from = at.routes, c.from.Union(v.Origins)
	}
	s.addVirtualHost(out, v)
}

// addVirtualHost adds v unless another egress listener with the same route configuration did.
func (s *proxyGroup) addVirtualHost(out *hostResult, v *ir.VirtualHost) {
	for _, have := range out.vhosts {
		if have.ResourceName() == v.ResourceName() {
			return
		}
	}
	out.vhosts = append(out.vhosts, v)
}

// listenerDemand finds or makes the host's claim on a listener.
func (out *hostResult) claim(k ir.ListenerKey, owner model.Object, bound bool) *listenerDemand {
	if c := out.byKey[k]; c != nil {
		return c
	}
	if out.byKey == nil {
		out.byKey = map[ir.ListenerKey]*listenerDemand{}
	}
	c := &listenerDemand{owner: owner, bound: bound}
	out.byKey[k] = c
	out.claims = append(out.claims, hostClaim{k, c})
	return c
}

// replaceHost takes a host's new result into the scope: what differs goes to the delta or
// makes other units dirty. nil takes the host away.
func (s *proxyGroup) replaceHost(h model.Host, now *hostResult) {
	old := s.hosts[h]
	if old == nil && now == nil {
		return
	}
	if old == nil {
		old = &hostState{}
	}
	if now == nil {
		delete(s.hosts, h)
		now = &hostResult{}
	} else {
		keep := now.hostState
		s.hosts[h] = &keep
	}
	s.diffClusters(old, now)
	s.diffVirtualHosts(h, old, now)
	s.diffClaims(h, old, now)
	s.diffRefs(old, now)
	s.diffSecrets(old, now)
	// A change of the service or its endpoints touches their fact; here the choice of the
	// service, which a Sidecar can change, and of endpoints for each cluster counts.
	if old.service != now.service || !reflect.DeepEqual(old.eds, now.eds) {
		s.mark(endpointsUnit(h))
	}
}

func (s *proxyGroup) diffClusters(old *hostState, now *hostResult) {
	for _, name := range old.names {
		s.out.Clusters[name] = nil
	}
	for _, c := range now.clusters {
		s.out.Clusters[c.Name] = c
	}
}

// diffClaims replaces a host's claims. Listeners whose claim is the same again are left
// alone, unless the domains have changed: those tell who takes unknown hosts. A headless
// service has a listener for each of its Pods, of which one comes or goes at a time.
func (s *proxyGroup) diffClaims(h model.Host, old *hostState, now *hostResult) {
	was := make(map[ir.ListenerKey]*listenerDemand, len(old.claims))
	for _, c := range old.claims {
		was[c.key] = c.listenerDemand
		s.listeners[c.key].remove(h, c.listenerDemand)
	}
	force := !slices.Equal(old.domains, now.domains)
	for _, c := range now.claims {
		if s.listeners[c.key] == nil {
			s.listeners[c.key] = &listenerClaims{}
		}
		s.listeners[c.key].add(h, c.listenerDemand)
		if force || !c.same(was[c.key]) {
			s.mark(listenerUnit(c.key))
		}
	}
	for _, c := range old.claims {
		if now.byKey[c.key] == nil {
			s.mark(listenerUnit(c.key))
		}
	}
}

// diffRefs counts who routes to which host; one that is needed for the first or last time
// is derived again.
func (s *proxyGroup) diffRefs(old *hostState, now *hostResult) {
	if slices.Equal(old.refs, now.refs) && old.routed == now.routed {
		return
	}
	for _, h := range now.refs {
		s.countRef(h, now.routed, 1)
	}
	for _, h := range old.refs {
		s.countRef(h, old.routed, -1)
	}
}

// countRef counts one need of a host's clusters, for what is made from some objects. Where these are
// why the host has clusters at all it is derived again.
func (s *proxyGroup) countRef(h model.Host, from *model.Origins, by int) {
	first, differs := index.CountIn(s.refs, h, from, by)
	if first || differs && !s.isVisible(h) {
		s.mark(hostUnit(h))
	}
}

// isVisible reports whether the group has a host of its own accord, and not only as others route to it.
func (s *proxyGroup) isVisible(h model.Host) bool {
	state := s.hosts[h]
	return state != nil && state.service != nil && s.Sees(state.service)
}
