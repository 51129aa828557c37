package derive

import (
	"reflect"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// deriveTelemetry finds what the group's listeners report. If that differs from before, all listeners are derived again.
func (g *proxyGroup) deriveTelemetry(r *index.Reader) {
	now := policy.Telemetry(r)
	from := r.Used.Since(0)
	same := from.Equal(g.filters.Observed) && reflect.DeepEqual(now, g.filters.Telemetry)
	g.filters.Observed = from
	if same {
		return
	}
	g.filters.Telemetry = now
	g.markFiltered(r.Mesh())
}

// refProviders keeps the clusters of services that the listeners of the group's proxies call themselves, however egress is
// narrowed. Only outbound groups have clusters of other services, so that they keep those of inbound listeners, too. It
// comes before hosts, because providers are hosts.
func (g *proxyGroup) refProviders(r *index.Reader) {
	now := policy.Providers(r)
	for _, p := range now {
		g.countRef(p.Host, p.From, 1)
	}
	for _, p := range g.fixed.providers {
		g.countRef(p.Host, p.From, -1)
	}
	g.fixed.providers = now
}

// derivePlugins finds the plugins of the group's listeners. If they differ from before, all listeners are derived again.
func (g *proxyGroup) derivePlugins(r *index.Reader) {
	now := policy.Plugins(r)
	if reflect.DeepEqual(now, g.filters.Plugins) {
		return
	}
	g.filters.Plugins = now
	if !g.Key.Modules {
		g.out.Unfetched = policy.Unfetched(now)
	}
	g.markFiltered(r.Mesh())
}

// markFiltered derives all listeners again.
func (g *proxyGroup) markFiltered(mesh *model.Mesh) {
	if g.Key.Inbound {
		g.mark(unit{kind: unitInbound})
		return
	}
	g.markListeners()
	g.out.addListener(outbound.VirtualOutbound(g.Client, mesh, &g.filters))
}

// deriveFixed makes what every outbound group has: clusters for unknown destinations, and the listener that receives
// redirected connections.
func (g *proxyGroup) deriveFixed(mesh *model.Mesh) {
	for _, c := range outbound.FixedClusters(g.Client, mesh) {
		g.out.Clusters[c.Name] = c
	}
	if g.shards.asks() {
		g.out.Listeners[routeshard.Listener] = outbound.ScopesListener()
	}
	g.refEgressProxy()
	g.out.addListener(outbound.VirtualOutbound(g.Client, mesh, &g.filters))
}

// refEgressProxy keeps the cluster of the Sidecar's egress proxy, instead of that of the proxy before.
func (g *proxyGroup) refEgressProxy() {
	old, from := g.fixed.egress, g.fixed.egressFrom
	g.fixed.egress = ""
	if p := g.EgressProxy(); p != nil {
		g.fixed.egress = p.Host
		g.countRef(p.Host, g.UnknownMade().Origins, 1)
		g.mark(hostUnit(p.Host))
	}
	if old != "" {
		g.countRef(old, from, -1)
	}
	g.fixed.egressFrom = g.UnknownMade().Origins
}
