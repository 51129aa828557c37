package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Listener makes a listener of the plan; nil: its servers have no destination for connections. dynamic counts, by route
// configuration, the virtual hosts with hosts that Envoy resolves for each request. uses is what connections lead to.
func Listener(r *index.Reader, plan *Plan, k ir.ListenerKey, dynamic map[string]*index.OriginCounts, filters *policy.Filters) (l *ir.Listener, uses outbound.Uses) {
	p := plan.Listeners[k]
	if p == nil {
		return nil, uses
	}
	r.Used.AddAll(originsOf(p.servers))
	m := &maker{r, dynamic, &uses}
	l = &ir.Listener{Name: k.Name(), Address: k.Address, Port: k.Port, BindToPort: true, ProxyProtocol: m.topology().ProxyProtocol}
	if p.tls {
		if chains := m.tlsServers(l.Name, p); len(chains) > 0 { // otherwise nothing takes connections from a narrower listener
			l.Chains, l.Default = outbound.JoinChains(chains, m.closing(p))
		}
		l.InspectTLS = len(l.Chains) > 0
	} else {
		l.Default = m.plainServer(l.Name, p)
	}
	if len(l.Chains) == 0 && l.Default == nil {
		return nil, uses
	}
	for i := range l.Chains {
		l.Chains[i].Name = fmt.Sprintf("%s#%d", l.Name, i)
	}
	policy.Finish(r.Client, r.Mesh(), l)
	policy.Authorize(r, l)
	filters.AddTo(r.Client, l, &r.Used)
	l.Made = r.MadeSince(0)
	uses.Sort()
	return l, uses
}

// maker makes the chains of one listener.
type maker struct {
	*index.Reader
	dynamic map[string]*index.OriginCounts
	uses    *outbound.Uses
}

// topology is what is before the gateway: by its own setting, else by the mesh's.
func (m *maker) topology() model.Topology {
	if m.Key.Topology.Set {
		return m.Key.Topology
	}
	return m.Mesh().Topology
}

// plainServer accepts everything: requests, or bytes for the first server that has a route.
func (m *maker) plainServer(name string, p *PlannedListener) *ir.FilterChain {
	if p.routeConfig != "" {
		grpcWeb := slices.ContainsFunc(p.servers, func(b boundServer) bool { return b.server.Port.Protocol == model.ProtocolGRPCWeb })
		return &ir.FilterChain{Name: name, HTTP: m.httpChain("outbound_"+name, p.routeConfig, grpcWeb)}
	}
	for _, b := range p.servers {
		if tcp := m.tcpChain(b); tcp != nil {
			return &ir.FilterChain{Name: name, TCP: tcp}
		}
	}
	return nil
}

func (m *maker) httpChain(statPrefix, routeConfig string, grpcWeb bool) *ir.HTTPChain {
	m.Used.AddAll(m.dynamic[routeConfig].Common())
	return &ir.HTTPChain{
		StatPrefix: statPrefix, RouteConfig: routeConfig, Gateway: true, GRPCWeb: grpcWeb,
		ForwardProxy: m.dynamic[routeConfig].Total() > 0, Families: m.Key.Families, Topology: m.topology(),
	}
}

// tlsServers makes the chains of servers that SNI selects.
func (m *maker) tlsServers(name string, p *PlannedListener) []ir.FilterChain {
	var out []ir.FilterChain
	for _, b := range p.servers {
		if !b.server.TLS.EndsTLS() {
			out = append(out, m.passedServers(p, b)...)
			continue
		}
		if b.server.Takes(model.KindTLSRoute) { // TLSRoutes match SNI, also if TLS ends here
			for _, chain := range m.passedServers(p, b) {
				m.endTLS(&chain, b.server.TLS)
				out = append(out, chain)
			}
		}
		chain := ir.FilterChain{Name: name, Match: ir.ChainMatch{ServerNames: outbound.ServerNames(hostsOf(b.server))}}
		m.endTLS(&chain, b.server.TLS)
		if b.routes != "" {
			chain.HTTP = m.httpChain(cmp.Or(b.server.Name, "outbound_"+name), b.routes, false)
		} else if chain.TCP = m.tcpChain(b); chain.TCP == nil {
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

// endTLS makes a chain decrypt as a server does.
func (m *maker) endTLS(chain *ir.FilterChain, t *model.ServerTLS) {
	chain.HandshakeTimeout = m.Mesh().HandshakeTimeout
	if t.Mode != model.ServerIstioMutual {
		chain.TLS = &ir.ServerTLS{Server: m.Mesh().TLSDefaults.Under(t), AgentFiles: m.Key.Files}
		return
	}
	chain.TLS = ir.MeshTLS(m.Mesh())
	chain.TLS.Server = t
}

// tcpChain sends a server's connections to the first route that matches them; nil: there is none.
func (m *maker) tcpChain(b boundServer) *ir.TCPChain {
	for _, v := range m.boundL4(b) {
		rt := m.routing(b, v)
		for i := range v.TCP {
			route := &v.TCP[i]
			if len(route.Matches) > 0 && !slices.ContainsFunc(route.Matches, func(m model.L4Match) bool { return rt.AppliesL4(&m) }) {
				continue
			}
			if chains := rt.UseL4(v, rt.RouteChain(v, ir.ChainMatch{}, route.Backends)); len(chains) > 0 {
				return chains[0].TCP
			}
		}
	}
	return nil
}

// passedServers forwards TLS connections by SNI without decryption, except those for narrower listeners. As in Istio the
// subnets of a match do not count: they are those of services, and clients connect to the gateway.
func (m *maker) passedServers(p *PlannedListener, b boundServer) []ir.FilterChain {
	listeners := p.listeners()
	var out []ir.FilterChain
	for _, v := range m.boundL4(b) {
		rt := m.routing(b, v)
		for i := range v.TLS {
			for j := range v.TLS[i].Matches {
				match := &v.TLS[i].Matches[j]
				names := slices.DeleteFunc(model.CommonHosts(b.server.HostsFor(v.Namespace), match.SNIHosts), func(h model.Host) bool {
					return b.leaves(h, listeners)
				})
				if !rt.AppliesL4(match) || len(names) == 0 {
					continue
				}
				chain := ir.ChainMatch{ServerNames: outbound.ServerNames(names)}
				out = append(out, rt.UseL4(v, rt.RouteChain(v, chain, v.TLS[i].Backends))...)
			}
		}
	}
	return out
}

func (m *maker) routing(b boundServer, v *model.VirtualService) *outbound.Routing {
	return &outbound.Routing{
		Reader: m.Reader, Host: v.Hosts[0], Port: serverPort(b.server), Uses: m.uses, Gateway: b.gateways[0], Of: outbound.GrantsFor(v),
	}
}

// boundL4 lists the virtual services for connections that are bound to a server, in the order of boundTo.
func (m *maker) boundL4(b boundServer) []*model.VirtualService {
	var out []*model.VirtualService
	seen := map[*model.VirtualService]bool{}
	for _, gateway := range b.gateways {
		for _, v := range m.BoundTo(gateway) {
			if len(v.TCP)+len(v.TLS) > 0 && v.Visibility.Sees(m.Key.Namespace) && !seen[v] && b.server.AttachBound(v).Reason == model.Attached {
				out, seen[v] = append(out, v), true
			}
		}
	}
	sortByRank(m.Client, out)
	return out
}

// sortByRank puts virtual services in order by rank, in each the oldest first. For routes of the Gateway API the namespace of the
// gateway makes no difference.
func sortByRank(c *index.Client, list []*model.VirtualService) {
	rank := func(v *model.VirtualService) int {
		if v.Kind.IsKubernetesRoute() {
			return 0
		}
		return c.Rank(v)
	}
	slices.SortFunc(list, func(x, y *model.VirtualService) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), model.CompareAge(x, y))
	})
}
