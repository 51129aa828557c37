package derive

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// deriveGatewayListener makes a listener of a router; none where its servers have nowhere to send
// connections to.
func (s *proxyGroup) deriveGatewayListener(r *index.Reader, k ir.ListenerKey) {
	s.out.Listeners[k.Name()] = nil
	p := s.router.plan.listeners[k]
	if p == nil {
		return
	}
	r.Used.AddAll(originsOf(p.servers))
	l := &ir.Listener{Name: k.Name(), Address: k.Address, Port: k.Port, BindToPort: true, ProxyProtocol: s.topology(r).ProxyProtocol}
	if p.tls {
		l.Chains, l.Default = joinChains([]*listenerDemand{{chains: s.tlsServers(r, l.Name, p)}})
		l.InspectTLS = len(l.Chains) > 0
	} else {
		l.Default = s.plainServer(r, l.Name, p)
	}
	if len(l.Chains) == 0 && l.Default == nil {
		return
	}
	for i := range l.Chains {
		l.Chains[i].Name = fmt.Sprintf("%s#%d", l.Name, i)
	}
	finish(s.Client, r.Mesh(), l)
	s.authorizeListener(r, l)
	s.observe(l, &r.Used)
	s.extend(l, &r.Used)
	l.Made = r.MadeSince(0)
	s.out.Listeners[l.Name] = l
}

// topology is what is before the router: as it says, else as the mesh says.
func (s *proxyGroup) topology(r *index.Reader) model.Topology {
	if s.Key.Topology.Said {
		return s.Key.Topology
	}
	return r.Mesh().Topology
}

// authorizeListener puts what decides about calls on a router's chains.
func (s *proxyGroup) authorizeListener(r *index.Reader, l *ir.Listener) {
	policy, tokens := s.authorization(r), s.tokens(r)
	for i := range l.Chains {
		protect(&l.Chains[i], policy, tokens)
	}
	if l.Default != nil {
		protect(l.Default, policy, tokens)
	}
}

// plainServer takes whatever comes: requests, or bytes of the first server that has a route.
func (s *proxyGroup) plainServer(r *index.Reader, name string, p *plannedListener) *ir.FilterChain {
	if p.routeConfig != "" {
		grpcWeb := slices.ContainsFunc(p.servers, func(b boundServer) bool { return b.server.Port.Protocol == model.ProtocolGRPCWeb })
		return &ir.FilterChain{Name: name, HTTP: s.gatewayHTTP(r, "outbound_"+name, p.routeConfig, grpcWeb)}
	}
	for _, b := range p.servers {
		if tcp := s.gatewayTCP(r, b); tcp != nil {
			return &ir.FilterChain{Name: name, TCP: tcp}
		}
	}
	return nil
}

func (s *proxyGroup) gatewayHTTP(r *index.Reader, statPrefix, routeConfig string, grpcWeb bool) *ir.HTTPChain {
	s.useDynamic(r, routeConfig)
	return &ir.HTTPChain{
		StatPrefix: statPrefix, RouteConfig: routeConfig, Gateway: true, GRPCWeb: grpcWeb,
		ForwardProxy: s.router.dynamic[routeConfig].Total() > 0, Topology: s.topology(r),
	}
}

// tlsServers makes the chains of servers that connections are told apart for by SNI.
func (s *proxyGroup) tlsServers(r *index.Reader, name string, p *plannedListener) []ir.FilterChain {
	var out []ir.FilterChain
	for _, b := range p.servers {
		if !b.server.TLS.EndsTLS() {
			out = append(out, s.passedServers(r, b)...)
			continue
		}
		if b.server.Takes(model.KindTLSRoute) { // by SNI, too, where TLS ends here
			for _, chain := range s.passedServers(r, b) {
				chain.TLS = s.endTLS(r, b.server.TLS)
				out = append(out, chain)
			}
		}
		chain := ir.FilterChain{Name: name, Match: ir.ChainMatch{ServerNames: serverNames(hostsOf(b.server))}, TLS: s.endTLS(r, b.server.TLS)}
		if b.routes != "" {
			chain.HTTP = s.gatewayHTTP(r, cmp.Or(b.server.Name, "outbound_"+name), b.routes, false)
		} else if chain.TCP = s.gatewayTCP(r, b); chain.TCP == nil {
			continue
		}
		out = append(out, chain)
	}
	return out
}

// hostsOf are a server's hosts, each once, sorted.
func hostsOf(server *model.GatewayServer) []model.Host {
	out := server.AllHosts()
	slices.Sort(out)
	return slices.Compact(out)
}

// endTLS is how a server decrypts.
func (s *proxyGroup) endTLS(r *index.Reader, t *model.ServerTLS) *ir.ServerTLS {
	if t.Mode != model.ServerIstioMutual {
		return &ir.ServerTLS{Server: r.Mesh().TLSDefaults.Under(t), AgentFiles: s.Key.Files}
	}
	out := ir.MeshTLS(r.Mesh())
	out.Server = t
	return out
}

// gatewayTCP is where a server's connections go: to the first route that meets them. nil: there is
// none.
func (s *proxyGroup) gatewayTCP(r *index.Reader, b boundServer) *ir.TCPChain {
	for _, v := range s.boundL4(r, b) {
		rt := s.gatewayRouting(r, b, v)
		for i := range v.TCP {
			route := &v.TCP[i]
			if len(route.Matches) > 0 && !slices.ContainsFunc(route.Matches, func(m model.L4Match) bool { return rt.appliesL4(&m) }) {
				continue
			}
			if chains := rt.used4(v, rt.routeChain(ir.ChainMatch{}, route.Backends)); len(chains) > 0 {
				return chains[0].TCP
			}
		}
	}
	return nil
}

// passedServers sends TLS connections on by SNI, as they are.
func (s *proxyGroup) passedServers(r *index.Reader, b boundServer) []ir.FilterChain {
	var out []ir.FilterChain
	for _, v := range s.boundL4(r, b) {
		rt := s.gatewayRouting(r, b, v)
		for i := range v.TLS {
			for j := range v.TLS[i].Matches {
				m := &v.TLS[i].Matches[j]
				names := model.CommonHosts(b.server.HostsFor(v.Namespace), m.SNIHosts)
				if !rt.appliesL4(m) || len(names) == 0 {
					continue
				}
				match := ir.ChainMatch{ServerNames: serverNames(names), Destinations: m.Destinations}
				out = append(out, rt.used4(v, rt.routeChain(match, v.TLS[i].Backends))...)
			}
		}
	}
	return out
}

func (s *proxyGroup) gatewayRouting(r *index.Reader, b boundServer, v *model.VirtualService) *routing {
	return &routing{Reader: r, s: s, host: v.Hosts[0], port: serverPort(b.server), out: &hostResult{}, gateway: b.gateways[0], of: grantsFor(v)}
}

// boundL4 lists the virtual services that are bound to a server, in the order of boundTo.
func (s *proxyGroup) boundL4(r *index.Reader, b boundServer) []*model.VirtualService {
	var out []*model.VirtualService
	seen := map[*model.VirtualService]bool{}
	for _, gateway := range b.gateways {
		for _, v := range r.BoundTo(gateway) {
			if len(v.TCP)+len(v.TLS) > 0 && v.Visibility.Sees(s.Key.Namespace) && !seen[v] && attachBound(b.server, v).Reason == Attached {
				out, seen[v] = append(out, v), true
			}
		}
	}
	slices.SortFunc(out, func(x, y *model.VirtualService) int {
		return cmp.Or(cmp.Compare(s.Rank(x), s.Rank(y)), model.CompareAge(x, y))
	})
	return out
}
