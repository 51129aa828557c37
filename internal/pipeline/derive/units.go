package derive

import (
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// unitKind is what a unit derives. proxyGroup.derive works on the kinds in a fixed order.
type unitKind uint8

const (
	unitTelemetry   unitKind = iota // telemetry of the group's listeners
	unitProviders                   // services that listeners of the group's proxies call themselves
	unitWasm                        // plugins of the group's listeners
	unitFixed                       // what every group of its kind has
	unitGateways                    // the plan of a gateway's Gateways
	unitHost                        // a host's clusters, virtual hosts and demands on listeners
	unitPatches                     // what EnvoyFilters change; before all others
	unitGatewayHost                 // a virtual host of a gateway
	unitRouteConfig                 // a route configuration of a gateway
	unitDomains                     // a host's virtual hosts again: other hosts changed its share of the domains
	unitEndpoints                   // a host's endpoints
	unitSecret
	unitListener
	unitInbound // everything inbound

	unitKinds = iota
)

// unit is the smallest piece that is derived separately.
type unit struct {
	kind unitKind
	port uint32 // of the listener
	name string // of the host or secret, or the listener's address
}

func hostUnit(h model.Host) unit      { return unit{kind: unitHost, name: string(h)} }
func domainsUnit(h model.Host) unit   { return unit{kind: unitDomains, name: string(h)} }
func secretUnit(name string) unit     { return unit{kind: unitSecret, name: name} }
func endpointsUnit(h model.Host) unit { return unit{kind: unitEndpoints, name: string(h)} }
func listenerUnit(k ir.ListenerKey) unit {
	return unit{kind: unitListener, name: k.Address, port: k.Port}
}
func routeConfigUnit(name string) unit { return unit{kind: unitRouteConfig, name: name} }
func gatewayHostUnit(routeConfig string, h model.Host) unit {
	return unit{kind: unitGatewayHost, name: routeConfig + "/" + string(h)}
}

func (u unit) host() model.Host         { return model.Host(u.name) }
func (u unit) listener() ir.ListenerKey { return ir.ListenerKey{Address: u.name, Port: u.port} }
func (u unit) gatewayHost() (routeConfig string, h model.Host) {
	rc, host, _ := strings.Cut(u.name, "/")
	return rc, model.Host(host)
}

// dirtyUnits are the units to derive again, by kind. A kind's map is given up once its units are taken: at first everything
// is dirty, and iterating over a map that was large stays slow when it is empty.
type dirtyUnits [unitKinds]map[unit]struct{}

// any reports whether a unit is dirty.
func (d *dirtyUnits) any() bool {
	return slices.ContainsFunc(d[:], func(units map[unit]struct{}) bool { return len(units) > 0 })
}

// mark makes u dirty.
func (d *dirtyUnits) mark(u unit) {
	if d[u.kind] == nil {
		d[u.kind] = map[unit]struct{}{}
	}
	d[u.kind][u] = struct{}{}
}

// take takes the dirty units of one kind.
func (d *dirtyUnits) take(kind unitKind) []unit {
	units := d[kind]
	d[kind] = nil
	return slices.AppendSeq(make([]unit, 0, len(units)), maps.Keys(units))
}

// touch makes dirty what depends on a batch: units that asked for its facts, and hosts that the clients see now or saw
// before.
func (g *proxyGroup) touch(t *index.Touched) {
	mark := g.mark
	for f := range t.Facts {
		g.dependents.Of(f, mark)
	}
	if g.Key.Inbound || g.Key.Extensions {
		return
	}
	for _, svc := range t.Services {
		if g.Sees(svc) || g.hosts[svc.Hostname] != nil || g.agent.names[svc.Hostname] {
			g.mark(hostUnit(svc.Hostname))
		}
	}
	if g.router != nil {
		for _, v := range t.Bound {
			g.router.plan.Concerns(g.Client, v,
				func(routeConfig string, h model.Host) { g.mark(gatewayHostUnit(routeConfig, h)) },
				func(k ir.ListenerKey) { g.mark(listenerUnit(k)) })
		}
		return
	}
	for _, v := range t.Routes {
		if g.Key.Names || !g.ImportsRoutes(v) {
			continue
		}
		for _, h := range v.MeshHosts() {
			g.mark(hostUnit(h))
		}
	}
}

// markAll makes everything dirty that the group may have.
func (g *proxyGroup) markAll(x *index.Index) {
	host := func(h model.Host) { g.mark(hostUnit(h)) }
	switch {
	case g.Key.Names && g.Key.Inbound:
		return
	case g.Key.Names:
		x.SeenServices(g.Client, host)
		return
	case g.Key.Extensions:
		g.mark(unit{kind: unitWasm})
		g.mark(unit{kind: unitPatches})
		return
	}
	g.mark(unit{kind: unitTelemetry})
	g.mark(unit{kind: unitWasm})
	g.mark(unit{kind: unitPatches})
	if g.Key.Inbound {
		g.mark(unit{kind: unitInbound})
		return
	}
	g.mark(unit{kind: unitProviders})
	g.mark(unit{kind: unitFixed})
	if g.router == nil {
		x.VisibleHosts(g.Client, host)
		return
	}
	x.SeenServices(g.Client, host)
	g.mark(unit{kind: unitGateways})
	for name := range g.router.plan.Routes {
		g.markGatewayRoutes(x.BoundTo, name)
	}
}

// markListeners makes all listeners dirty except those that every group has.
func (g *proxyGroup) markListeners() {
	for k := range g.listeners {
		g.mark(listenerUnit(k))
	}
	if g.router != nil {
		for k := range g.router.plan.Listeners {
			g.mark(listenerUnit(k))
		}
	}
}

// mark makes a unit dirty.
func (g *proxyGroup) mark(u unit) { g.dirty.mark(u) }
