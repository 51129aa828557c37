package outbound

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// FixedClusters are those that every outbound group has, for unknown destinations.
func FixedClusters(c *index.Client, mesh *model.Mesh) []*ir.Cluster {
	return []*ir.Cluster{
		{Name: ir.BlackHoleCluster, Discovery: ir.DiscoverStatic},
		{
			Name: ir.PassthroughCluster, Discovery: ir.DiscoverOriginalDst,
			Policy:         model.TrafficPolicy{ConnectionPool: policy.PassthroughPool(mesh)},
			ConnectTimeout: mesh.ConnectTimeout, Keepalive: mesh.Keepalive, KeepCase: c.Headers(mesh).KeepCase,
		},
	}
}

// VirtualOutbound is the listener that receives redirected connections; nil: the clients redirect none.
func VirtualOutbound(c *index.Client, mesh *model.Mesh, filters *policy.Filters) *ir.Listener {
	if c.Key.Interception == model.InterceptNone || c.Key.Type != model.ProxySidecar {
		return nil
	}
	l := &ir.Listener{
		Name: ir.VirtualOutbound, Address: c.Any(), Port: mesh.OutboundPort,
		BindToPort: true, UseOriginalDst: true,
		Chains:  []ir.FilterChain{policy.ClosingChain(ir.VirtualOutbound+"-blackhole", mesh.OutboundPort)},
		Default: unknownChain(c, mesh),
	}
	policy.ListenOnBoth(c, l)
	var from model.OriginList
	filters.AddTo(c, l, &from)
	l.Origins = from.Since(0)
	return l
}

// unknownChain takes connections to addresses without a listener.
func unknownChain(c *index.Client, mesh *model.Mesh) *ir.FilterChain {
	chain := passthroughChain(c, mesh)
	chain.Name = ir.VirtualOutbound + "-catchall-tcp"
	return chain
}

// ScopesListener makes Envoy subscribe to scopes as long as the listener exists. Listeners that use scopes come and go.
// Envoy 1.40 reports neither the removal of the last one nor a later one, which then waits for scopes for ever.
// The listener's address is reserved for documentation, and is not bound.
func ScopesListener() *ir.Listener {
	return &ir.Listener{
		Name: routeshard.Listener, Address: "192.0.2.1", Port: 1,
		Default: &ir.FilterChain{Name: routeshard.Listener, HTTP: &ir.HTTPChain{
			StatPrefix: routeshard.Listener, RouteConfig: routeshard.Listener, ShardBits: 1,
		}},
	}
}
