// Package inbound derives what a workload's own sidecar listens for: listeners and clusters for the ports of its
// application. It is pure.
//
//	inbound.go  start reading at Derive
//	ports.go    the ports: of services that select the workload, or of the Sidecar's ingress listeners
//	tls.go      the filter chains of a port, by what PeerAuthentication accepts there
package inbound

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Output is everything inbound of a group, by resource name.
type Output struct {
	Clusters  map[string]*ir.Cluster
	Listeners map[string]*ir.Listener
}

// Derive makes everything that a workload's own sidecar listens for.
func Derive(r *index.Reader, filters *policy.Filters) *Output {
	out := &Output{Clusters: map[string]*ir.Cluster{}, Listeners: map[string]*ir.Listener{}}
	addPassthrough(r, out)
	ports, tls := slices.DeleteFunc(portsOf(r), func(p port) bool { return p.isSidecars(r.Mesh()) }), tlsOf(r)
	var chains []ir.FilterChain
	for i := range ports {
		p := &ports[i]
		mark := r.Mark()
		r.Used.AddAll(p.from)
		p.retry, p.pool = retryOf(r.Mesh(), p.protocol), poolOf(r, p)
		c := cluster(r.Client, r.Mesh(), p)
		r.Used.AddAll(p.othersFrom)
		c.Made = r.MadeSince(mark)
		r.Unread(mark)
		r.Used.AddAll(p.from)
		out.Clusters[c.Name] = c
		if p.own != nil {
			l := ownListener(r.Client, tls, p)
			if !r.Opens(ir.ListenerKey{Address: l.Address, Port: l.Port}) {
				continue
			}
			out.Listeners[l.Name] = l
			continue
		}
		chains = append(chains, portChains(tls, p, ir.ListenerKey{Address: r.Any(), Port: p.number})...)
	}
	if r.Key.Interception != model.InterceptNone && r.Key.Type == model.ProxySidecar {
		l := virtualInbound(r.Client, r.Mesh(), tls, ports, chains)
		l.Transparent = r.Key.Interception == model.InterceptTProxy
		out.Listeners[l.Name] = l
	}
	list := make([]*ir.Listener, 0, len(out.Listeners))
	for _, l := range out.Listeners {
		list = append(list, l)
	}
	policy.Authorize(r, list...)
	for _, l := range list {
		policy.Finish(r.Client, r.Mesh(), l)
		mark := r.Mark()
		filters.AddTo(r.Client, l, &r.Used)
		l.Made = r.MadeSince(0)
		r.Unread(mark)
	}
	return out
}

// The addresses from which sidecars call their application. Interception ignores connections from there.
const (
	sourceAddress  = "127.0.0.6"
	sourceAddress6 = "::6"
)

// withSource makes a cluster call the application from addresses that interception ignores.
func withSource(client *index.Client, c *ir.Cluster) *ir.Cluster {
	switch client.Key.Families {
	case model.IPv6:
		c.SourceAddress = sourceAddress6
	case model.DualStack:
		c.SourceAddress, c.SourceAddress6 = sourceAddress, sourceAddress6
	default:
		c.SourceAddress = sourceAddress
	}
	return c
}

// addPassthrough adds the cluster for ports without a service.
func addPassthrough(r *index.Reader, out *Output) {
	if r.Key.Interception == model.InterceptNone {
		return
	}
	out.Clusters[ir.InboundPassthroughCluster] = withSource(r.Client, &ir.Cluster{
		Name: ir.InboundPassthroughCluster, Discovery: ir.DiscoverOriginalDst, Inbound: true,
		Policy:         model.TrafficPolicy{ConnectionPool: policy.PassthroughPool(r.Mesh())},
		ConnectTimeout: r.Mesh().ConnectTimeout, Keepalive: r.Mesh().Keepalive, KeepCase: r.Headers(r.Mesh()).KeepCase,
	})
}

func cluster(client *index.Client, mesh *model.Mesh, p *port) *ir.Cluster {
	of := resourcename.Cluster{Direction: resourcename.Inbound, Port: p.number}
	c := &ir.Cluster{
		Name: of.String(), Of: of, Inbound: true, Protocol: p.protocol,
		Service: p.service, OtherHosts: p.others, ConnectTimeout: mesh.ConnectTimeout, Keepalive: mesh.Keepalive, KeepCase: client.Headers(mesh).KeepCase,
		Policy: model.TrafficPolicy{ConnectionPool: p.pool},
	}
	if p.address == "" {
		c.Discovery = ir.DiscoverOriginalDst
		return withSource(client, c)
	}
	c.Discovery = ir.DiscoverStatic
	c.Localities = []ir.LocalityEndpoints{{Endpoints: []ir.Endpoint{{
		Address: p.address, Port: p.appPort, Weight: 1,
	}}}}
	if ip, err := netip.ParseAddr(p.address); err == nil && !ip.IsLoopback() {
		return withSource(client, c) // interception would send the connection back to the sidecar
	}
	return c
}

// portChains are the chains of one port, which clients reach at an address.
func portChains(t serverTLS, p *port, at ir.ListenerKey) []ir.FilterChain {
	name := ir.InboundCluster(p.number)
	var out []ir.FilterChain
	if tls := t.ends(p); tls != nil {
		out = []ir.FilterChain{outsideChain(p, tls)}
	} else {
		out = t.build(name, p.number, readingOf(p.protocol), httpChain(p), tcpChain(name))
	}
	for i := range out {
		out[i].IstioName = at.Name()
	}
	return out
}

// outsideChain accepts only the TLS of clients without a sidecar.
func outsideChain(p *port, tls *ir.ServerTLS) ir.FilterChain {
	out := ir.FilterChain{
		Name: ir.InboundCluster(p.number), TLS: tls,
		Match: ir.ChainMatch{DestinationPort: p.number, TransportProtocol: transportTLS},
	}
	if readingOf(p.protocol) == readRequests {
		out.HTTP = httpChain(p)
		out.HTTP.Outside = true
	} else {
		out.TCP = tcpChain(out.Name)
	}
	return out
}

// retryOf is the mesh's; nil: no retries. There is only one application, and no other host to try. As in Istio, ports of
// gRPC have no retries, because streams last long.
func retryOf(mesh *model.Mesh, p model.Protocol) *model.Retry {
	if mesh.InboundRetry.Attempts == 0 || p == model.ProtocolGRPC || p == model.ProtocolGRPCWeb {
		return nil
	}
	out, again := mesh.InboundRetry, false
	out.IgnorePreviousHostsFlag = &again
	return &out
}

func httpChain(p *port) *ir.HTTPChain {
	routes := ir.InboundRoutes(p.number)
	return requestsTo(routes.Name, routes, fmt.Sprintf("inbound_0.0.0.0_%d", p.number), p)
}

// passthroughHTTP sends requests to the port that they came for, which no service has.
func passthroughHTTP(mesh *model.Mesh, number uint32) *ir.HTTPChain {
	const name = ir.InboundPassthroughCluster
	p := &port{protocol: model.ProtocolAuto, retry: retryOf(mesh, model.ProtocolAuto)}
	return requestsTo(name, ir.RouteConfigKey{Name: name, Port: number}, name, p)
}

// requestsTo sends all requests of a port to a cluster.
func requestsTo(cluster string, routes ir.RouteConfigKey, statPrefix string, p *port) *ir.HTTPChain {
	name := routes.Name
	return &ir.HTTPChain{
		StatPrefix: statPrefix, Inbound: true,
		GRPCWeb: p.protocol == model.ProtocolGRPCWeb,
		Inline: &ir.InlineRoutes{
			RouteConfig: ir.RouteConfig{Name: name, Of: routes, Inbound: true},
			VirtualHosts: []ir.VirtualHost{{
				RouteConfig: name, Of: routes, Name: ir.InboundVirtualHost(p.port), Domains: []string{"*"},
				Routes: []ir.Route{{
					Name:      "default",
					Retry:     p.retry,
					Backends:  []ir.Backend{{Cluster: cluster, Weight: 1}},
					Operation: fmt.Sprintf("%s:%d/*", p.service.Host, p.port),
				}},
			}},
		},
	}
}

func tcpChain(cluster string) *ir.TCPChain {
	return &ir.TCPChain{
		StatPrefix: cluster,
		Backends:   []ir.Backend{{Cluster: cluster, Weight: 1}},
	}
}

// virtualInbound is the listener that receives redirected inbound connections.
func virtualInbound(c *index.Client, mesh *model.Mesh, t serverTLS, ports []port, chains []ir.FilterChain) *ir.Listener {
	l := &ir.Listener{
		Name: ir.VirtualInbound, Address: c.Any(), Port: mesh.InboundPort, Inbound: true,
		BindToPort: true, ReadOriginalDst: true, ExactBalance: !c.Key.AnyWorker,
		Chains: append([]ir.FilterChain{policy.ClosingChain(ir.VirtualInbound+"-blackhole", mesh.InboundPort)}, chains...),
	}
	t.catchAll(mesh, l, ports)
	inspect(l)
	if l.InspectTLS {
		l.Uninspected = t.uninspected(ports)
	}
	if l.InspectHTTP {
		l.UninspectedHTTP = undetected(ports)
	}
	return l
}

// ownListener is an ingress listener that clients connect to by its own address.
func ownListener(c *index.Client, t serverTLS, p *port) *ir.Listener {
	address := p.own.Bind
	if address == "" {
		address = c.Key.IP
	}
	k := ir.ListenerKey{Address: address, Port: p.number}
	l := &ir.Listener{
		Name: k.Name(), Address: k.Address, Port: k.Port,
		Inbound: true, BindToPort: true, ExactBalance: !c.Key.AnyWorker,
		Chains: portChains(t, p, k),
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
