package outbound

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// l4Chains makes the filter chains for connections to one port of a service: by the tls routes and then the tcp routes of
// all virtual services, else to the service itself.
func l4Chains(r *index.Reader, e *index.Egress, svc *model.Service, port *model.ServicePort, p model.Protocol, at placement, out *Result) []ir.FilterChain {
	rt := &Routing{Reader: r, Host: svc.Hostname, service: svc, Port: port, Uses: &out.Uses}
	var chains []ir.FilterChain
	routes := slices.DeleteFunc(r.ConnectionRules(e, svc.Hostname), func(v *model.VirtualService) bool { return !rt.parentOf(v) })
	for i := 0; i < len(routes) && (p.IsTLS() || p == model.ProtocolAuto); i++ {
		chains = append(chains, rt.UseL4(routes[i], rt.tlsChains(routes[i], at))...)
	}
	for i := 0; i < len(routes) && !p.IsTLS(); i++ {
		tcp := rt.UseL4(routes[i], rt.tcpChains(routes[i], at))
		chains = append(chains, tcp...)
		if len(tcp) > 0 && matchesAll(tcp[len(tcp)-1].Match, at) {
			return chains
		}
	}
	if len(chains) > 0 && p.IsTLS() { // as in Istio, what no rule matches is for an unknown destination
		return chains
	}
	return append(chains, rt.serviceChain(p, at))
}

// UseL4 adds a virtual service to the origins if it gives chains.
func (rt *Routing) UseL4(v *model.VirtualService, chains []ir.FilterChain) []ir.FilterChain {
	if len(chains) > 0 {
		rt.Use(v)
	}
	return chains
}

// serviceChain sends connections to the service. On a shared listener SNI selects TLS services, and address ranges select
// services that have them. If Envoy connects to the host in SNI, that must be one of the service's names.
func (rt *Routing) serviceChain(p model.Protocol, at placement) ir.FilterChain {
	match := ir.ChainMatch{Destinations: at.prefixes}
	if p.IsTLS() && (at.shared || rt.service.Resolution == model.ResolutionDynamicDNS) {
		match.ServerNames = ServerNames([]model.Host{rt.Host})
	}
	backends := []ir.Backend{{Cluster: ir.OutboundCluster(rt.Port.Number, "", rt.Host), Host: rt.Host, Weight: 1}}
	return rt.chain(match, backends, []model.Destination{{Host: rt.Host, Port: rt.Port.Number}})
}

// chain proxies connections to backends under a match. to are the destinations of the backends.
func (rt *Routing) chain(match ir.ChainMatch, backends []ir.Backend, to []model.Destination) ir.FilterChain {
	first := to[0]
	tcp := &ir.TCPChain{
		StatPrefix: backends[0].Cluster,
		Backends:   backends,
		Hash:       rt.hashPolicy(first),
	}
	if len(backends) > 1 {
		tcp.StatPrefix = fmt.Sprintf("%s.%s", rt.Host, rt.Port.Name)
	}
	if tcp.Hash != nil && !tcp.Hash.SourceIP {
		tcp.Hash = nil
	}
	rt.poolSettings(first, tcp)
	tcp.Tunnel = rt.tunnel(to)
	tcp.OnDemand = rt.Key.Asking != index.AsksNothing && len(backends) == 1 && tcp.Tunnel == nil && tcp.ForwardSNIPort == 0
	tcp.Opaque = rt.Key.Identity && slices.ContainsFunc(to, rt.takenForHTTP)
	return ir.FilterChain{Match: match, TCP: tcp}
}

// poolSettings sets the fields of a destination's policy that concern whole connections.
func (rt *Routing) poolSettings(d model.Destination, tcp *ir.TCPChain) {
	svc := rt.destination(d.Host)
	if svc == nil {
		return
	}
	rule := rt.RuleFor(svc.Hostname, svc.Namespace, index.SetsPool)
	traffic := policy.WithBaseline(rt.Mesh(), policy.ForPort(rule, rt.destinationPort(d)), model.ProtocolTCP)
	if pool := traffic.ConnectionPool; pool != nil {
		tcp.IdleTimeout, tcp.MaxDuration = pool.TCPIdleTimeout, pool.MaxConnectionDuration
	}
	if svc.Resolution == model.ResolutionDynamicDNS {
		tcp.ForwardSNIPort, tcp.Families = rt.destinationPort(d), rt.Key.Families
	}
}

// tunnel is that of a single destination's subset, or of the first destination's rule. As in Istio a subset inherits none.
func (rt *Routing) tunnel(to []model.Destination) *model.Tunnel {
	svc := rt.destination(to[0].Host)
	if svc == nil {
		return nil
	}
	rule := rt.RuleFor(svc.Hostname, svc.Namespace, index.SetsPool)
	if rule == nil {
		return nil
	}
	if len(to) > 1 || to[0].Subset == "" {
		return rule.Policy.Tunnel
	}
	for i := range rule.Subsets {
		if rule.Subsets[i].Name == to[0].Subset {
			return rule.Subsets[i].Policy.Tunnel
		}
	}
	return nil
}

func (rt *Routing) tlsChains(v *model.VirtualService, at placement) []ir.FilterChain {
	var out []ir.FilterChain
	for i := range v.TLS {
		route := &v.TLS[i]
		for j := range route.Matches {
			m := &route.Matches[j]
			names := rt.sniHosts(v, m)
			if !rt.AppliesL4(m) || len(names) == 0 {
				continue
			}
			match := ir.ChainMatch{ServerNames: ServerNames(names), Destinations: subnets(m, at)}
			out = append(out, rt.RouteChain(v, match, route.Backends)...)
		}
	}
	return out
}

// sniHosts are the SNI of a match for connections to the host; none if the match is for others. A TLSRoute without
// hostnames has the host as SNI. A TLSRoute may name hosts that differ from its parent's; they are used as they are.
func (rt *Routing) sniHosts(v *model.VirtualService, m *model.L4Match) []model.Host {
	related := slices.DeleteFunc(slices.Clone(m.SNIHosts), func(h model.Host) bool { return !h.Overlaps(rt.Host) })
	switch {
	case !v.Kind.IsKubernetesRoute() && len(related) > 0:
		return m.SNIHosts
	case v.Kind.IsKubernetesRoute() && slices.Contains(m.SNIHosts, "*"):
		return []model.Host{rt.Host}
	case v.Kind.IsKubernetesRoute() && len(related) == 0:
		return m.SNIHosts
	}
	return related
}

func (rt *Routing) tcpChains(v *model.VirtualService, at placement) []ir.FilterChain {
	var out []ir.FilterChain
	for i := range v.TCP {
		route := &v.TCP[i]
		if len(route.Matches) == 0 {
			return append(out, rt.RouteChain(v, ir.ChainMatch{Destinations: at.prefixes}, route.Backends)...)
		}
		for j := range route.Matches {
			m := &route.Matches[j]
			if rt.AppliesL4(m) {
				out = append(out, rt.RouteChain(v, ir.ChainMatch{Destinations: subnets(m, at)}, route.Backends)...)
			}
		}
	}
	return out
}

// AppliesL4 decides the parts of a match that do not depend on the connection. As in Istio, gateways ignore who calls:
// those parts are about sidecars.
func (rt *Routing) AppliesL4(m *model.L4Match) bool {
	if rt.Gateway != "" {
		return rt.applies(m.Port, nil, "", m.Gateways)
	}
	return rt.applies(m.Port, m.SourceLabels, m.SourceNamespace, m.Gateways)
}

// RouteChain makes a chain for backends of a virtual service. If all have weight 0 there is none; a route of the Gateway API
// closes connections then.
func (rt *Routing) RouteChain(v *model.VirtualService, match ir.ChainMatch, list []model.Backend) []ir.FilterChain {
	var ignored ir.Route
	backends := rt.backends(list, &ignored)
	switch {
	case len(backends) == 0 && v.Kind.IsKubernetesRoute():
		return []ir.FilterChain{{Match: match, TCP: policy.Refusal()}}
	case len(backends) == 0:
		return nil
	}
	to := make([]model.Destination, 0, len(list))
	for _, b := range list {
		to = append(to, b.Destination)
	}
	return []ir.FilterChain{rt.chain(match, backends, to)}
}

// takenForHTTP reports whether a destination's sidecars would treat a connection as HTTP, because of what its cluster
// offers in the handshake of the mesh's TLS.
func (rt *Routing) takenForHTTP(d model.Destination) bool {
	svc := rt.destination(d.Host)
	if svc == nil {
		return false
	}
	port := svc.Port(rt.destinationPort(d))
	if port == nil || !port.Protocol.IsHTTP() && port.Protocol != model.ProtocolAuto {
		return false
	}
	rule := rt.RuleFor(svc.Hostname, svc.Namespace, index.SetsTLS)
	traffic, _ := policy.WithBackendTLS(rt.Reader, policy.ForSubset(rule, d.Subset, port.Number), rule, svc, port)
	c := &ir.Cluster{Policy: traffic, Discovery: discovery(rt.Reader, svc, port, traffic)}
	policy.Secure(rt.Reader, svc, c, nil)
	return c.MeshTLS()
}

// subnets are a match's own, or the service's addresses.
func subnets(m *model.L4Match, at placement) []netip.Prefix {
	if len(m.Destinations) > 0 {
		return m.Destinations
	}
	return at.prefixes
}

// matchesAll reports whether a chain leaves nothing for later ones.
func matchesAll(m ir.ChainMatch, at placement) bool {
	return len(m.ServerNames) == 0 && slices.Equal(m.Destinations, at.prefixes)
}

// ServerNames are hosts as Envoy matches SNI; nil: "*" is among them, which matches everything.
func ServerNames(hosts []model.Host) []string {
	out := make([]string, 0, len(hosts))
	for _, h := range hosts {
		if h == "*" {
			return nil
		}
		out = append(out, string(h))
	}
	return out
}
