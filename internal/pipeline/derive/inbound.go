package derive

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// inboundSource is the address that sidecars call their application from: interception
// leaves it alone.
const (
	inboundSource  = "127.0.0.6"
	inboundSource6 = "::6"
)

// sourceOf has a cluster call the application from the addresses that interception leaves alone.
func (s *proxyGroup) sourceOf(c *ir.Cluster) *ir.Cluster {
	switch s.Key.Families {
	case model.IPv6:
		c.SourceAddress = inboundSource6
	case model.DualStack:
		c.SourceAddress, c.SourceAddress6 = inboundSource, inboundSource6
	default:
		c.SourceAddress = inboundSource
	}
	return c
}

// deriveInbound makes all that a workload's own sidecar listens for.
func (s *proxyGroup) deriveInbound(r *index.Reader) {
	out := newDelta()
	s.addInboundClusters(r, out)
	ports, tls := slices.DeleteFunc(s.inboundPorts(r), func(p inboundPort) bool { return p.isOwn(r.Mesh()) }), s.inboundTLS(r)
	var chains []ir.FilterChain
	for i := range ports {
		p := &ports[i]
		mark := r.Mark()
		r.Used.AddAll(p.from)
		p.retry, p.pool = inboundRetry(r.Mesh(), p.protocol), poolOf(r, p)
		c := s.inboundCluster(r.Mesh(), p)
		c.Made = r.MadeSince(mark)
		r.Unread(mark)
		r.Used.AddAll(p.from)
		out.Clusters[c.Name] = c
		if p.own != nil {
			l := s.ownListener(tls, p)
			if !s.Opens(ir.ListenerKey{Address: l.Address, Port: l.Port}) {
				continue
			}
			out.Listeners[l.Name] = l
			continue
		}
		chains = append(chains, portChains(tls, p)...)
	}
	if s.Key.Interception != model.InterceptNone && s.Key.Type == model.ProxySidecar {
		out.Listeners["virtualInbound"] = s.virtualInbound(r.Mesh(), tls, ports, chains)
		out.Listeners["virtualInbound"].Transparent = s.Key.Interception == model.InterceptTProxy
	}
	s.authorize(r, out)
	for _, l := range out.Listeners {
		finish(s.Client, r.Mesh(), l)
		mark := r.Mark()
		s.observe(l, &r.Used)
		s.extend(l, &r.Used)
		l.Made = r.MadeSince(0)
		r.Unread(mark)
	}
	s.replaceInbound(out)
}

// replaceInbound puts out what the inbound unit gives now, and takes away what it gave before.
func (s *proxyGroup) replaceInbound(now *Delta) {
	if s.inbound != nil {
		for n := range s.inbound.Clusters {
			s.out.Clusters[n] = nil
		}
		for n := range s.inbound.Listeners {
			s.out.Listeners[n] = nil
		}
	}
	for n, c := range now.Clusters {
		s.out.Clusters[n] = c
	}
	for n, l := range now.Listeners {
		s.out.Listeners[n] = l
	}
	s.inbound = now
}

func (s *proxyGroup) addInboundClusters(r *index.Reader, out *Delta) {
	if s.Key.Interception == model.InterceptNone {
		return
	}
	out.Clusters[ir.InboundPassthroughCluster] = s.sourceOf(&ir.Cluster{
		Name: ir.InboundPassthroughCluster, Discovery: ir.DiscoverOriginalDst, Inbound: true,
		ConnectTimeout: r.Mesh().ConnectTimeout, Keepalive: r.Mesh().Keepalive,
	})
}

func inboundName(p *inboundPort) string { return ir.InboundCluster(p.number) }

func (s *proxyGroup) inboundCluster(mesh *model.Mesh, p *inboundPort) *ir.Cluster {
	c := &ir.Cluster{
		Name: inboundName(p), Inbound: true, Port: p.port, Protocol: p.protocol,
		Service: p.service, ConnectTimeout: mesh.ConnectTimeout, Keepalive: mesh.Keepalive, KeepCase: s.Headers(mesh).KeepCase,
		Policy: model.TrafficPolicy{ConnectionPool: p.pool},
	}
	if p.address == "" {
		c.Discovery = ir.DiscoverOriginalDst
		return s.sourceOf(c)
	}
	c.Discovery = ir.DiscoverStatic
	c.Localities = []ir.LocalityEndpoints{{Endpoints: []ir.Endpoint{{
		Address: p.address, Port: p.appPort, Weight: 1,
	}}}}
	return c
}

// portChains are the chains of one port.
func portChains(t inboundTLS, p *inboundPort) []ir.FilterChain {
	name := inboundName(p)
	if tls := t.ends(p); tls != nil {
		return []ir.FilterChain{outsideChain(p, tls)}
	}
	return t.build(name, p.number, readingOf(p.protocol), inboundHTTP(p), inboundTCP(name))
}

// outsideChain takes the TLS of clients that are no sidecars, and nothing else.
func outsideChain(p *inboundPort, tls *ir.ServerTLS) ir.FilterChain {
	out := ir.FilterChain{
		Name: inboundName(p), TLS: tls,
		Match: ir.ChainMatch{DestinationPort: p.number, TransportProtocol: transportTLS},
	}
	if readingOf(p.protocol) == readRequests {
		out.HTTP = inboundHTTP(p)
		out.HTTP.Outside = true
	} else {
		out.TCP = inboundTCP(out.Name)
	}
	return out
}

// inboundRetry is the mesh's, nil where retries are off. There is one application, so that there is no other
// host to look for. Ports of gRPC have none, as in Istio: streams go on for long.
func inboundRetry(mesh *model.Mesh, p model.Protocol) *model.Retry {
	if mesh.InboundRetry.Attempts == 0 || p == model.ProtocolGRPC || p == model.ProtocolGRPCWeb {
		return nil
	}
	out, again := mesh.InboundRetry, false
	out.IgnorePreviousHostsFlag = &again
	return &out
}

func inboundHTTP(p *inboundPort) *ir.HTTPChain {
	routes := ir.InboundRoutes(p.number)
	name := routes.Name
	return &ir.HTTPChain{
		StatPrefix: fmt.Sprintf("inbound_0.0.0.0_%d", p.number), Inbound: true,
		GRPCWeb: p.protocol == model.ProtocolGRPCWeb,
		Inline: &ir.InlineRoutes{
			RouteConfig: ir.RouteConfig{Name: name, Of: routes, Inbound: true},
			VirtualHosts: []ir.VirtualHost{{
				RouteConfig: name, Of: routes, Name: fmt.Sprintf("inbound|http|%d", p.port), Domains: []string{"*"},
				Routes: []ir.Route{{
					Name:      "default",
					Retry:     p.retry,
					Backends:  []ir.Backend{{Cluster: name, Weight: 1}},
					Operation: fmt.Sprintf("%s:%d/*", p.service.Host, p.port),
				}},
			}},
		},
	}
}

func inboundTCP(cluster string) *ir.TCPChain {
	return &ir.TCPChain{
		StatPrefix: cluster,
		Backends:   []ir.Backend{{Cluster: cluster, Weight: 1}},
	}
}

// virtualInbound is the listener that redirected inbound connections come to.
func (s *proxyGroup) virtualInbound(mesh *model.Mesh, t inboundTLS, ports []inboundPort, chains []ir.FilterChain) *ir.Listener {
	l := &ir.Listener{
		Name: "virtualInbound", Address: s.Any(), Port: mesh.InboundPort, Inbound: true,
		BindToPort: true, ReadOriginalDst: true, ExactBalance: !s.Key.AnyWorker,
		Chains: append([]ir.FilterChain{blackHoleChain(inboundBlackHole, mesh.InboundPort)}, chains...),
	}
	t.catchAll(l, ports, inboundTCP(ir.InboundPassthroughCluster))
	inspect(l)
	if l.InspectTLS && (t.server != nil || t.endsAny(ports)) {
		l.Uninspected = t.uninspected(ports)
	}
	return l
}

// ownListener is an ingress listener that clients connect to by its own address.
func (s *proxyGroup) ownListener(t inboundTLS, p *inboundPort) *ir.Listener {
	address := p.own.Bind
	if address == "" {
		address = s.Key.IP
	}
	k := ir.ListenerKey{Address: address, Port: p.number}
	l := &ir.Listener{
		Name: k.Name(), Address: k.Address, Port: k.Port,
		Inbound: true, BindToPort: true, ExactBalance: !s.Key.AnyWorker,
		Chains: portChains(t, p),
	}
	for i := range l.Chains {
		l.Chains[i].Match.DestinationPort = 0
	}
	last := &l.Chains[len(l.Chains)-1]
	if last.Match.TransportProtocol == "" {
		l.Default, l.Chains = last, l.Chains[:len(l.Chains)-1]
	}
	inspect(l)
	return l
}
