package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// deriveFixed makes what every outbound scope has: the clusters for unknown destinations,
// and the listener that redirected connections come to.
func (s *proxyGroup) deriveFixed(r *index.Reader) {
	s.out.Clusters[ir.BlackHoleCluster] = &ir.Cluster{Name: ir.BlackHoleCluster, Discovery: ir.DiscoverStatic}
	s.out.Clusters[ir.PassthroughCluster] = &ir.Cluster{
		Name: ir.PassthroughCluster, Discovery: ir.DiscoverOriginalDst,
		Policy:         model.TrafficPolicy{ConnectionPool: spoken(r.Mesh().Baseline.ConnectionPool, "")},
		ConnectTimeout: r.Mesh().ConnectTimeout, Keepalive: r.Mesh().Keepalive, KeepCase: s.Headers(r.Mesh()).KeepCase,
	}
	if s.split.asks() {
		s.out.Listeners[routeshard.Listener] = scopesListener()
	}
	s.refEgressProxy()
	s.deriveCatchAll(r.Mesh())
}

// deriveCatchAll makes the listener that redirected connections come to.
func (s *proxyGroup) deriveCatchAll(mesh *model.Mesh) {
	if s.Key.Interception == model.InterceptNone || s.Key.Type != model.ProxySidecar {
		return
	}
	l := &ir.Listener{
		Name: "virtualOutbound", Address: s.Any(), Port: mesh.OutboundPort,
		BindToPort: true, UseOriginalDst: true,
		Chains:  []ir.FilterChain{blackHoleChain("virtualOutbound"+blackHoleSuffix, mesh.OutboundPort)},
		Default: s.unknownChain(mesh),
	}
	listenOnBoth(s.Client, l)
	var from model.OriginList
	s.observe(l, &from)
	s.extend(l, &from)
	l.Origins = from.Since(0)
	s.out.Listeners[l.Name] = l
}

// refEgressProxy has the cluster of the Sidecar's egress proxy be there, and no longer that of
// the one before.
func (s *proxyGroup) refEgressProxy() {
	old, from := s.egressRef, s.egressFrom
	s.egressRef = ""
	if p := s.EgressProxy(); p != nil {
		s.egressRef = p.Host
		s.countRef(p.Host, s.UnknownMade().Origins, 1)
		s.mark(hostUnit(p.Host))
	}
	if old != "" {
		s.countRef(old, from, -1)
	}
	s.egressFrom = s.UnknownMade().Origins
}

// scopesListener has Envoy subscribe to scopes as long as it lives, where it needs some. Listeners that use
// scopes come and go, and Envoy 1.40 says nothing to the server when the last one goes, nor
// when another comes: that one would wait for scopes for ever. Its address is reserved for
// documentation, and it is not bound.
func scopesListener() *ir.Listener {
	return &ir.Listener{
		Name: routeshard.Listener, Address: "192.0.2.1", Port: 1,
		Default: &ir.FilterChain{Name: routeshard.Listener, HTTP: &ir.HTTPChain{
			StatPrefix: routeshard.Listener, RouteConfig: routeshard.Listener, ShardBits: 1,
		}},
	}
}

// unknownChain takes connections to addresses that no listener has.
func (s *proxyGroup) unknownChain(mesh *model.Mesh) *ir.FilterChain {
	c := s.passthroughChain(mesh)
	if p := s.EgressProxy(); p != nil && s.UnknownCluster(mesh) == ir.PassthroughCluster {
		c.TCP.Backends[0].Cluster = ir.OutboundCluster(p.Port, p.Subset, p.Host)
	}
	c.Name = "virtualOutbound-catchall-tcp"
	return c
}

// blackHoleSuffix ends the names of what blackHoleChain gives.
const blackHoleSuffix = "-blackhole"

// blackHoleChain closes connections that were made to the sidecar's own port: passing them
// on would come back.
func blackHoleChain(name string, port uint32) ir.FilterChain {
	return ir.FilterChain{
		Name:  name,
		Match: ir.ChainMatch{DestinationPort: port},
		TCP: &ir.TCPChain{
			StatPrefix: ir.BlackHoleCluster,
			Backends:   []ir.Backend{{Cluster: ir.BlackHoleCluster, Weight: 1}},
		},
	}
}
