package derive

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// l4Chains makes the filter chains for connections to one port of a service: by the tls and
// then the tcp routes of all virtual services, else straight to the service.
func (s *proxyGroup) l4Chains(r *index.Reader, svc *model.Service, port *model.ServicePort, p model.Protocol, routes []*model.VirtualService, at placement, out *hostResult) []ir.FilterChain {
	rt := &routing{Reader: r, s: s, host: svc.Hostname, service: svc, port: port, out: out}
	var chains []ir.FilterChain
	for i := 0; i < len(routes) && (p.IsTLS() || p == model.ProtocolAuto); i++ {
		chains = append(chains, rt.used4(routes[i], rt.tlsChains(routes[i], at))...)
	}
	for i := 0; i < len(routes) && !p.IsTLS(); i++ {
		tcp := rt.used4(routes[i], rt.tcpChains(routes[i], at))
		chains = append(chains, tcp...)
		if len(tcp) > 0 && matchesAll(tcp[len(tcp)-1].Match, at) {
			return chains
		}
	}
	if len(chains) > 0 && p.IsTLS() && at.shared {
		return chains
	}
	if len(chains) == 0 {
		for _, keeps := range routes { // others from being asked
			r.Use(keeps)
		}
	}
	return append(chains, rt.serviceChain(p, at))
}

// used4 notes a virtual service that gives chains.
func (rt *routing) used4(v *model.VirtualService, chains []ir.FilterChain) []ir.FilterChain {
	if len(chains) > 0 {
		rt.Use(v)
	}
	return chains
}

// serviceChain sends connections to the service. On a shared listener TLS services are
// told apart by SNI, and services with address ranges by those. Where SNI says whom Envoy connects to, it has to be one
// of the service's names.
func (rt *routing) serviceChain(p model.Protocol, at placement) ir.FilterChain {
	match := ir.ChainMatch{Destinations: at.prefixes}
	if p.IsTLS() && (at.shared || rt.service.Resolution == model.ResolutionDynamicDNS) {
		match.ServerNames = serverNames([]model.Host{rt.host})
	}
	backends := []ir.Backend{{Cluster: ir.OutboundCluster(rt.port.Number, "", rt.host), Host: rt.host, Weight: 1}}
	return rt.chain(match, backends, []model.Destination{{Host: rt.host, Port: rt.port.Number}})
}

// chain proxies connections to backends under a match; to are what they were asked for as.
func (rt *routing) chain(match ir.ChainMatch, backends []ir.Backend, to []model.Destination) ir.FilterChain {
	first := to[0]
	tcp := &ir.TCPChain{
		StatPrefix: backends[0].Cluster,
		Backends:   backends,
		Hash:       rt.hashPolicy(first),
	}
	if len(backends) > 1 {
		tcp.StatPrefix = fmt.Sprintf("%s.%s", rt.host, rt.port.Name)
	}
	if tcp.Hash != nil && !tcp.Hash.SourceIP {
		tcp.Hash = nil
	}
	rt.poolSettings(first, tcp)
	tcp.Opaque = rt.Key.Identity && slices.ContainsFunc(to, rt.takenForHTTP)
	return ir.FilterChain{Match: match, TCP: tcp}
}

// poolSettings takes what a destination's policy says of connections as a whole.
func (rt *routing) poolSettings(d model.Destination, tcp *ir.TCPChain) {
	svc := rt.destination(d.Host)
	if svc == nil {
		return
	}
	policy := based(rt.Reader, portPolicy(rt.RuleFor(svc.Hostname, svc.Namespace, index.SetsPool), rt.destinationPort(d)), model.ProtocolTCP)
	if pool := policy.ConnectionPool; pool != nil {
		tcp.IdleTimeout, tcp.MaxDuration = pool.TCPIdleTimeout, pool.MaxConnectionDuration
	}
	tcp.Tunnel = policy.Tunnel
	if svc.Resolution == model.ResolutionDynamicDNS {
		tcp.ForwardSNIPort = rt.destinationPort(d)
	}
}

func (rt *routing) tlsChains(v *model.VirtualService, at placement) []ir.FilterChain {
	var out []ir.FilterChain
	for i := range v.TLS {
		route := &v.TLS[i]
		for j := range route.Matches {
			m := &route.Matches[j]
			if !rt.appliesL4(m) || !slices.ContainsFunc(m.SNIHosts, func(h model.Host) bool { return h.Overlaps(rt.host) }) {
				continue
			}
			match := ir.ChainMatch{ServerNames: serverNames(m.SNIHosts), Destinations: subnets(m, at)}
			out = append(out, rt.routeChain(match, route.Backends)...)
		}
	}
	return out
}

func (rt *routing) tcpChains(v *model.VirtualService, at placement) []ir.FilterChain {
	var out []ir.FilterChain
	for i := range v.TCP {
		route := &v.TCP[i]
		if len(route.Matches) == 0 {
			return append(out, rt.routeChain(ir.ChainMatch{Destinations: at.prefixes}, route.Backends)...)
		}
		for j := range route.Matches {
			m := &route.Matches[j]
			if rt.appliesL4(m) {
				out = append(out, rt.routeChain(ir.ChainMatch{Destinations: subnets(m, at)}, route.Backends)...)
			}
		}
	}
	return out
}

func (rt *routing) appliesL4(m *model.L4Match) bool {
	return rt.applies(m.Port, m.SourceLabels, m.SourceNamespace, m.Gateways)
}

// routeChain resolves backends; none where all have weight 0.
func (rt *routing) routeChain(match ir.ChainMatch, list []model.Backend) []ir.FilterChain {
	var ignored ir.Route
	backends := rt.backends(list, &ignored)
	if len(backends) == 0 {
		return nil
	}
	to := make([]model.Destination, 0, len(list))
	for _, b := range list {
		to = append(to, b.Destination)
	}
	return []ir.FilterChain{rt.chain(match, backends, to)}
}

// takenForHTTP tells whether a destination's sidecars would take a connection for HTTP, by
// what its cluster says in the handshake of the mesh's TLS.
func (rt *routing) takenForHTTP(d model.Destination) bool {
	svc := rt.destination(d.Host)
	if svc == nil {
		return false
	}
	port := svc.Port(rt.destinationPort(d))
	if port == nil || !port.Protocol.IsHTTP() && port.Protocol != model.ProtocolAuto {
		return false
	}
	rule := rt.RuleFor(svc.Hostname, svc.Namespace, index.SetsTLS)
	policy, _ := rt.s.withBackendTLS(rt.Reader, subsetPolicy(rule, d.Subset, port.Number), rule, svc, port)
	c := &ir.Cluster{Policy: policy, Discovery: rt.s.discovery(svc, policy)}
	rt.s.secure(rt.Reader, svc, c, nil)
	return c.MeshTLS()
}

// subnets are a match's own, or the service's addresses.
func subnets(m *model.L4Match, at placement) []netip.Prefix {
	if len(m.Destinations) > 0 {
		return m.Destinations
	}
	return at.prefixes
}

// matchesAll tells whether nothing is left for chains after this one.
func matchesAll(m ir.ChainMatch, at placement) bool {
	return len(m.ServerNames) == 0 && slices.Equal(m.Destinations, at.prefixes)
}

// serverNames is SNI as Envoy matches it: "*" is no condition.
func serverNames(hosts []model.Host) []string {
	out := make([]string, 0, len(hosts))
	for _, h := range hosts {
		if h == "*" {
			return nil
		}
		out = append(out, string(h))
	}
	return out
}
