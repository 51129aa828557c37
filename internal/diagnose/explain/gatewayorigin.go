package explain

import (
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// gatewaysBehind are the Gateways that a router's listener or routes come from: of a listener those with
// a server at its port, which may be several.
func gatewaysBehind(snap *store.Snapshot, p distribution.Part) []model.Key {
	if p.Proxy == nil || p.Proxy.Type != model.ProxyRouter {
		return nil
	}
	var out []model.Key
	for _, kind := range gatewayKinds {
		for o := range snap.All(kind) {
			g, ok := o.(*model.Gateway)
			if ok && selects(g, p.Proxy) && slices.ContainsFunc(g.Servers, func(s model.GatewayServer) bool { return comesFrom(snap, p, g, &s) }) {
				out = append(out, g.Key)
			}
		}
	}
	slices.SortFunc(out, model.Key.Compare)
	return out
}

// comesFrom tells by its name whether a router's resource may come from a server.
func comesFrom(snap *store.Snapshot, p distribution.Part, g *model.Gateway, s *model.GatewayServer) bool {
	switch name := p.Entry.Name; p.Type {
	case resource.Listener:
		address, port := name[:max(strings.LastIndexByte(name, '_'), 0)], name[strings.LastIndexByte(name, '_')+1:]
		anyAddress := address == "0.0.0.0" || address == "::"
		return (s.Bind == address || s.Bind == "" && anyAddress) && listensAt(snap, p.Proxy, s, port)
	case resource.RouteConfig:
		return routesFrom(snap, p.Proxy, g, s, name)
	case resource.VirtualHost:
		return routesFrom(snap, p.Proxy, g, s, table.RouteConfigOf(name))
	}
	return false
}

// routesFrom tells whether a router's route configuration is for requests that come by a server.
func routesFrom(snap *store.Snapshot, p *model.Proxy, g *model.Gateway, s *model.GatewayServer, name string) bool {
	rest, plain := strings.CutPrefix(name, "http.")
	if !plain {
		return s.TLS != nil && strings.HasPrefix(name+".", securedRoutes(g, s)+".")
	}
	port, bind, _ := strings.Cut(rest, ".")
	return s.TLS == nil && s.IsHTTP() && s.Bind == bind && listensAt(snap, p, s, port)
}

// securedRoutes names the route configuration of a server with TLS, but for its address.
func securedRoutes(g *model.Gateway, s *model.GatewayServer) string {
	return "https." + s.PortText() + "." + s.Port.Name + "." + g.RouteName() + "." + g.Namespace
}

// listensAt tells whether a router listens on a port for a server: on the server's own, or on the one
// that a Service of the router leads it to.
func listensAt(snap *store.Snapshot, p *model.Proxy, s *model.GatewayServer, port string) bool {
	if s.PortText() == port {
		return true
	}
	for o := range snap.All(model.KindService) {
		svc, ok := o.(*model.Service)
		if !ok || svc.Namespace != p.Namespace || len(svc.Selector) == 0 || !model.SelectorMatches(svc.Selector, p.Labels) {
			continue
		}
		if sp := svc.Port(s.Port.Number); sp != nil && portText(sp, p) == port {
			return true
		}
	}
	return false
}

// portText is the workload's port that a Service's leads to.
func portText(sp *model.ServicePort, p *model.Proxy) string {
	if sp.TargetName != "" {
		return strconv.FormatUint(uint64(p.NamedPorts[sp.TargetName]), 10)
	}
	return strconv.FormatUint(uint64(sp.TargetPort), 10)
}

// ofGateway tests for what has the names of a Gateway's route configurations. Those in plain text it may
// share with others; a listener that reads no requests is not found.
func ofGateway(snap *store.Snapshot, g *model.Gateway) test {
	names := routeNames(snap, g)
	return func(t resource.Type, e *table.Entry) bool {
		switch t {
		case resource.RouteConfig:
			return slices.Contains(names, e.Name)
		case resource.VirtualHost:
			return slices.Contains(names, table.RouteConfigOf(e.Name))
		case resource.Listener:
			return slices.ContainsFunc(names, func(name string) bool { return holds(e, name) })
		}
		return false
	}
}

// routeNames are those that the route configurations of a Gateway's servers may have.
func routeNames(snap *store.Snapshot, g *model.Gateway) []string {
	var out []string
	for i := range g.Servers {
		s, bind := &g.Servers[i], ""
		if s.Bind != "" {
			bind = "." + s.Bind
		}
		switch {
		case !s.IsHTTP():
		case s.TLS != nil:
			out = append(out, securedRoutes(g, s)+bind)
		default:
			for _, port := range portsFor(snap, s) {
				out = append(out, "http."+port+bind)
			}
		}
	}
	return out
}

// portsFor are the ports on which some router may listen for a server.
func portsFor(snap *store.Snapshot, s *model.GatewayServer) []string {
	out := []string{s.PortText()}
	for o := range snap.All(model.KindService) {
		svc, ok := o.(*model.Service)
		if !ok {
			continue
		}
		if sp := svc.Port(s.Port.Number); sp != nil && sp.TargetPort != 0 {
			out = append(out, strconv.FormatUint(uint64(sp.TargetPort), 10))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
