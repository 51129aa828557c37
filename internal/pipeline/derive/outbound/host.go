package outbound

import (
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/endpoint"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Result is everything that one host adds to a group.
type Result struct {
	State
	Clusters     []*ir.Cluster
	VirtualHosts []*ir.VirtualHost // with all their domains: other hosts may want the same

	byKey map[ir.ListenerKey]*Demand
}

// State is what a group remembers of a host, so that it can take back what the host added. A group has many hosts: it does
// not keep their clusters and virtual hosts.
type State struct {
	Service      *model.Service
	ClusterNames []string
	Endpoints    []endpoint.Plan
	Domains      []DomainKey // that it wants
	Sent         []string    // resource names of its virtual hosts
	Demands      []HostDemand
	Secrets      []policy.SecretRef // that its clusters ask for
	Uses
	Routed *model.Origins // that its routes are made from, and so Refs
}

// Uses is what routes lead to.
type Uses struct {
	Refs    []model.Host // hosts whose clusters they need
	Dynamic bool         // one is a host that Envoy resolves for each request
}

// Sort puts the hosts in order, each once.
func (u *Uses) Sort() { u.Refs = slices.Compact(slices.Sorted(slices.Values(u.Refs))) }

// DomainKey is a domain of one route configuration.
type DomainKey struct{ RouteConfig, Domain string }

// Relative is the key of the domain without a final dot. A host that has one has the other.
func (k DomainKey) Relative() DomainKey {
	return DomainKey{k.RouteConfig, strings.TrimSuffix(k.Domain, ".")}
}

// HostDemand is what a host wants of one listener.
type HostDemand struct {
	Key ir.ListenerKey
	*Demand
}

// Host makes a host's clusters, virtual hosts and demands on listeners; nil: the clients do not see it. needed counts the
// routes that lead to the host, also from hosts that the clients see through a narrower egress.
func Host(r *index.Reader, h model.Host, needed *index.OriginCounts) *Result {
	svc := r.Service(h)
	if r.Key.IsRouter() {
		return reachable(r, svc, needed)
	}
	visible := svc != nil && r.Sees(svc)
	if visible && svc.ExternalName != "" {
		return alias(r, svc, r.Aliased(svc), needed).finish()
	}
	wanted := svc != nil && (visible || needed.Total() > 0)
	named := false
	routes, own := make([][]*model.VirtualService, len(r.Egress)), make([][]*model.VirtualService, len(r.Egress))
	for i := range r.Egress {
		routes[i] = r.VirtualServices(&r.Egress[i], h)
		own[i] = naming(routes[i], h)
		named = named || len(own[i]) > 0
	}
	if !wanted && !named {
		return nil
	}
	// What a host refers to must not depend on what refers to it: otherwise the two could make each other dirty for ever.
	out := &Result{State: State{Service: svc}}
	if wanted {
		var why *model.Origins
		if !visible {
			why = needed.Common()
		}
		clusters(r, svc, why, out)
	}
	if visible {
		for i := range r.Egress {
			throughEgress(r, &r.Egress[i], svc, routes[i], out)
		}
	}
	for i := range r.Egress {
		routesOnly(r, &r.Egress[i], h, svc, own[i], out)
	}
	return out.finish()
}

// naming are the virtual services that list the host itself, and have rules for requests.
func naming(list []*model.VirtualService, h model.Host) []*model.VirtualService {
	return slices.DeleteFunc(slices.Clone(list), func(v *model.VirtualService) bool {
		return len(v.HTTP) == 0 || v.Kind.IsKubernetesRoute() || !slices.Contains(v.Hosts, h)
	})
}

// reachable makes the clusters of a service that a gateway may call.
func reachable(r *index.Reader, svc *model.Service, needed *index.OriginCounts) *Result {
	if svc == nil || needed.Total() == 0 && !r.Offers(svc) {
		return nil
	}
	out := &Result{State: State{Service: svc}}
	switch alias := r.Aliased(svc) != nil; { // routes to an alias lead to another service
	case r.Offers(svc) && !alias:
		clusters(r, svc, nil, out)
	case needed.Total() > 0:
		clusters(r, svc, needed.Common(), out)
	}
	return out.finish()
}

// finish records what is needed to take the result back.
func (out *Result) finish() *Result {
	out.noteRouted()
	for _, d := range out.Demands {
		if d.dynamic = out.Dynamic; d.dynamic {
			d.From = d.From.Union(out.Routed)
		}
	}
	out.Sort()
	for _, c := range out.Clusters {
		out.ClusterNames = append(out.ClusterNames, c.Name)
		out.Secrets = append(out.Secrets, policy.SecretRefs(policy.ClientSecrets(c.Policy.TLS), c.Origins)...)
	}
	out.Secrets = policy.SortSecretRefs(out.Secrets)
	for _, v := range out.VirtualHosts {
		out.Sent = append(out.Sent, v.ResourceName())
		for _, d := range v.Domains {
			out.Domains = append(out.Domains, DomainKey{v.RouteConfig, d})
		}
	}
	return out
}

// noteRouted records what routes are made from, if they lead to other hosts.
func (out *Result) noteRouted() {
	if len(out.Refs) == 0 {
		return
	}
	var list model.OriginList
	for _, v := range out.VirtualHosts {
		list.AddAll(v.Origins)
	}
	for _, d := range out.Demands {
		for i := range d.chains {
			list.AddAll(d.chains[i].Origins)
		}
	}
	out.Routed = list.Since(0)
}

// Wants reports whether the host wants something of a listener.
func (out *Result) Wants(k ir.ListenerKey) bool { return out.byKey[k] != nil }

// demand finds or makes the host's demand on a listener.
func (out *Result) demand(k ir.ListenerKey, owner model.Object, bound bool) *Demand {
	if d := out.byKey[k]; d != nil {
		return d
	}
	if out.byKey == nil {
		out.byKey = map[ir.ListenerKey]*Demand{}
	}
	d := &Demand{owner: owner, bound: bound}
	out.byKey[k] = d
	out.Demands = append(out.Demands, HostDemand{k, d})
	return d
}

// addVirtualHost adds v unless another egress listener with the same route configuration did.
func (out *Result) addVirtualHost(v *ir.VirtualHost) {
	for _, have := range out.VirtualHosts {
		if have.RouteConfig == v.RouteConfig && have.Name == v.Name {
			return
		}
	}
	out.VirtualHosts = append(out.VirtualHosts, v)
}

// Holder are the objects for which a host has its domains.
func (h *State) Holder() *model.Origins {
	if len(h.Demands) == 0 {
		return nil
	}
	return h.Demands[0].From
}

// throughEgress makes what one egress listener adds for a service.
func throughEgress(r *index.Reader, e *index.Egress, svc *model.Service, routes []*model.VirtualService, out *Result) {
	if !e.Imports(svc.Namespace, svc.Hostname) {
		return
	}
	for _, part := range r.PartsOf(svc) {
		for i := range part.Ports {
			port := &part.Ports[i]
			if port.Protocol == model.ProtocolUDP || e.Port != nil && e.Port.Number != port.Number {
				continue
			}
			servePort(r, e, svc, part, port, routes, out)
		}
	}
}

// servePort serves one port of a part of a service by its protocol: as requests, as connections, or by what the first bytes
// show.
func servePort(r *index.Reader, e *index.Egress, svc, part *model.Service, port *model.ServicePort, routes []*model.VirtualService, out *Result) {
	protocol, mark := e.Protocol(port), r.Mark()
	r.Use(part)
	useEgress(r, e)
	list := place(r, e, part, port, protocol)
	if part.Headless && !protocol.IsHTTP() && e.Port == nil && !e.CaptureNone(r.Key.Interception) {
		list = placePods(r, e, part, port, protocol)
	}
	for _, at := range list {
		serveAt(r, e, svc, part, port, routes, at, mark, out)
	}
	r.Unread(mark)
}

// serveAt serves a port at some listeners. The objects since mark are origins.
func serveAt(r *index.Reader, e *index.Egress, svc, part *model.Service, port *model.ServicePort, routes []*model.VirtualService, at placement, mark int, out *Result) {
	protocol := e.Protocol(port)
	var chains []ir.FilterChain
	read, from := r.Mark(), r.Used.Since(mark)
	if !protocol.IsHTTP() {
		chains = l4Chains(r, e, svc, port, protocol, at, out)
		for i := range chains {
			chains[i].Made = r.MadeSince(mark)
		}
		r.Unread(read)
	}
	for _, key := range at.keys {
		d := out.demand(key, part, e.CaptureNone(r.Key.Interception))
		d.From = d.From.Union(from)
		d.chains = append(d.chains, chains...)
		if protocol.IsHTTP() || protocol == model.ProtocolAuto {
			d.routes = at.routes
			d.grpcWeb = d.grpcWeb || protocol == model.ProtocolGRPCWeb
			d.sniffed = protocol == model.ProtocolAuto
		}
	}
	if protocol.IsHTTP() || protocol == model.ProtocolAuto {
		v := virtualHost(r, at, svc.Hostname, svc, port, routes, out)
		v.Made = r.MadeSince(mark)
		r.Unread(read)
		out.addVirtualHost(v)
	}
}

// useEgress adds the Sidecar to the origins if its egress listener decides where the proxies listen.
func useEgress(r *index.Reader, e *index.Egress) {
	if r.Sidecar != nil && (e.Port != nil || e.Bind != "" || e.Capture != model.CaptureDefault) {
		r.Use(r.Sidecar)
	}
}

// routesOnly serves a host of virtual services at ports that no service of the host has. As in Istio, these are port 80 and the HTTP
// ports of services that the same virtual service names. A host without a service also gets the ports of wildcard services that
// include it. An egress listener with a port serves that port only.
func routesOnly(r *index.Reader, e *index.Egress, h model.Host, svc *model.Service, routes []*model.VirtualService, out *Result) {
	mark, ports := r.Mark(), routedPorts{}
	useEgress(r, e)
	for _, v := range routes {
		addRoutedPorts(r, e, v, ports)
		if svc == nil && e.Port == nil {
			addWildcardPorts(r, e, h, v, ports)
		}
	}
	if svc != nil && r.Sees(svc) && e.Imports(svc.Namespace, svc.Hostname) {
		for _, part := range r.PartsOf(svc) {
			for i := range part.Ports {
				delete(ports, part.Ports[i].Number)
			}
		}
	}
	for _, number := range slices.Sorted(maps.Keys(ports)) {
		read := r.Mark()
		if p := ports[number]; number != httpPort && len(p.because) == 1 {
			r.Use(p.because[0])
		}
		routesOnPort(r, mark, e, h, nil, number, ports[number].routes, out)
		r.Unread(read)
	}
	r.Unread(mark)
}

// httpPort is where virtual services apply to any host.
const httpPort = 80

// routedPort is a port where virtual services apply to a host that is no service there.
type routedPort struct {
	routes  []*model.VirtualService
	because []*model.Service // that they name, or that include the host
}

// routedPorts are by number.
type routedPorts map[uint32]*routedPort

// add adds a virtual service at a port because of a service, or of none.
func (p routedPorts) add(number uint32, v *model.VirtualService, because *model.Service) {
	at := p[number]
	if at == nil {
		at = &routedPort{}
		p[number] = at
	}
	if !slices.Contains(at.routes, v) {
		at.routes = append(at.routes, v)
	}
	if because != nil {
		at.because = append(at.because, because)
	}
}

// addRequests adds a virtual service at the ports where a service reads requests.
func (p routedPorts) addRequests(r *index.Reader, v *model.VirtualService, svc *model.Service) {
	for _, part := range r.PartsOf(svc) {
		for i := range part.Ports {
			if port := &part.Ports[i]; port.Protocol.IsHTTP() || port.Protocol == model.ProtocolAuto {
				p.add(port.Number, v, part)
			}
		}
	}
}

// addRoutedPorts adds the ports of a virtual service. The services that it names become no origins: routesOnly adds the one
// that decides.
func addRoutedPorts(r *index.Reader, e *index.Egress, v *model.VirtualService, ports routedPorts) {
	if e.Port != nil {
		ports.add(e.Port.Number, v, nil)
		return
	}
	ports.add(httpPort, v, nil)
	mark := r.Mark()
	defer r.Unread(mark)
	for i := 0; len(v.Hosts) > 1 && i < len(v.Hosts); i++ {
		if svc := r.Service(v.Hosts[i]); svc != nil && e.Imports(svc.Namespace, svc.Hostname) {
			ports.addRequests(r, v, svc)
		}
	}
}

// addWildcardPorts adds the ports of wildcard services that include a host.
func addWildcardPorts(r *index.Reader, e *index.Egress, h model.Host, v *model.VirtualService, ports routedPorts) {
	mark := r.Mark()
	defer r.Unread(mark)
	for _, wildcard := range h.Covering()[1:] {
		if svc := r.Service(wildcard); svc != nil && e.Imports(svc.Namespace, svc.Hostname) {
			ports.addRequests(r, v, svc)
		}
	}
}

// routesOnPort makes what routes alone add on one port; svc is nil, or another name. The objects since mark are origins. Envoy
// does not listen because of routes alone, unless an egress listener asks for the port.
func routesOnPort(r *index.Reader, mark int, e *index.Egress, h model.Host, svc *model.Service, number uint32, routes []*model.VirtualService, out *Result) {
	port := &model.ServicePort{Number: number, Protocol: model.ProtocolHTTP}
	if e.Port != nil {
		port.Protocol = e.Port.Protocol
	}
	if !port.Protocol.IsHTTP() {
		return
	}
	list, read := place(r, e, nil, port, port.Protocol), r.Mark()
	if len(list) == 0 {
		return
	}
	at := list[0]
	v := virtualHost(r, at, h, nil, port, routes, out)
	v.Made = r.MadeSince(mark)
	r.Unread(read)
	if len(v.Routes) == 0 {
		return
	}
	if svc != nil {
		v.Domains, v.Absolute = hostDomains(r.Client, h, svc), hasAbsoluteName(r, h)
	}
	for _, key := range at.keys {
		if out.byKey[key] != nil {
			continue
		}
		d := out.demand(key, routes[0], e.CaptureNone(r.Key.Interception))
		d.routesOnly, d.routes, d.From = e.Port == nil, at.routes, d.From.Union(v.Origins)
	}
	out.addVirtualHost(v)
}

// alias serves requests for an ExternalName Service as those for its target: on the target's ports, by the target's rules.
// As in Istio rules of the alias itself count at its own ports, and a name of something outside of the mesh (without target)
// has nothing else. Connections need nothing, because clients that resolve the alias connect to the target's address.
func alias(r *index.Reader, svc, target *model.Service, needed *index.OriginCounts) *Result {
	out := &Result{}
	mark := r.Mark()
	if needed.Total() > 0 { // by a Sidecar's egress proxy, or by routes to something outside
		out.Service = svc
		clusters(r, svc, needed.Common(), out)
	}
	r.Unread(mark) // the alias and its target stay
	if target != nil {
		out.Refs = []model.Host{target.Hostname}
	}
	own := make([][]*model.VirtualService, len(r.Egress))
	for i := range r.Egress {
		e := &r.Egress[i]
		own[i] = slices.DeleteFunc(r.VirtualServices(e, svc.Hostname), func(v *model.VirtualService) bool { return len(v.HTTP) == 0 })
		if e.Imports(svc.Namespace, svc.Hostname) {
			aliasThrough(r, e, svc, target, own[i], out)
		}
	}
	for i := range r.Egress {
		routesOnly(r, &r.Egress[i], svc.Hostname, svc, naming(own[i], svc.Hostname), out)
	}
	return out
}

// aliasThrough makes what one egress listener adds for an alias. own are the rules of the alias itself.
func aliasThrough(r *index.Reader, e *index.Egress, svc, target *model.Service, own []*model.VirtualService, out *Result) {
	for j := 0; len(own) > 0 && j < len(svc.Ports); j++ {
		if port := &svc.Ports[j]; hasRules(own, port) && (e.Port == nil || e.Port.Number == port.Number) {
			read := r.Mark()
			r.Use(svc)
			useEgress(r, e)
			routesOnPort(r, read, e, svc.Hostname, svc, port.Number, own, out)
			r.Unread(read)
		}
	}
	if target == nil {
		return
	}
	routes := r.VirtualServices(e, target.Hostname)
	for j := range target.Ports {
		port := &target.Ports[j]
		if (e.Port == nil || e.Port.Number == port.Number) && !hasRules(own, svc.Port(port.Number)) {
			aliasPort(r, e, svc, target, port, routes, out)
		}
	}
}

// hasRules reports whether virtual services of an alias count at one of its ports; nil: it does not have the port.
func hasRules(own []*model.VirtualService, port *model.ServicePort) bool {
	return len(own) > 0 && port != nil && (port.Protocol.IsHTTP() || port.Protocol == model.ProtocolAuto)
}

func aliasPort(r *index.Reader, e *index.Egress, svc, target *model.Service, port *model.ServicePort, routes []*model.VirtualService, out *Result) {
	protocol := e.Protocol(port)
	if !protocol.IsHTTP() && protocol != model.ProtocolAuto || target.Headless && !protocol.IsHTTP() {
		return
	}
	for _, at := range place(r, e, target, port, protocol) {
		if !at.sniffed { // else the target's own route configuration takes any host
			aliasAt(r, e, svc, target, port, routes, at, out)
		}
	}
}

func aliasAt(r *index.Reader, e *index.Egress, svc, target *model.Service, port *model.ServicePort, routes []*model.VirtualService, at placement, out *Result) {
	mark := r.Mark()
	useEgress(r, e)
	from := r.Used.Since(0)
	for _, key := range at.keys {
		d := out.demand(key, svc, e.CaptureNone(r.Key.Interception))
		d.routes, d.From = at.routes, d.From.Union(from)
	}
	v := virtualHost(r, at, svc.Hostname, target, port, routes, out)
	v.Made = r.MadeSince(0)
	r.Unread(mark)
	v.Domains = hostDomains(r.Client, svc.Hostname, svc)
	out.addVirtualHost(v)
}
