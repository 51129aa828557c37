package derive

import (
	"reflect"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// gatewayPlan is what the Gateways of a router come to: listeners, each of one or several servers,
// and the route configurations of those that read requests.
type gatewayPlan struct {
	listeners map[ir.ListenerKey]*plannedListener
	routes    map[string]*plannedRoutes
	// granted are the Secrets of other namespaces that servers may have, as SDS calls them.
	granted map[string]bool
}

// plannedListener has either servers that end or pass on TLS, told apart by SNI, or such in plain
// text that share a route configuration, or one of bytes.
type plannedListener struct {
	servers     []boundServer
	tls         bool
	routeConfig string // of servers in plain text
}

// plannedRoutes is a route configuration with the servers that use it.
type plannedRoutes struct {
	key      ir.RouteConfigKey
	servers  []boundServer
	listener ir.ListenerKey
	others   []boundServer // with TLS: those that requests here may belong to
}

// boundServer is a server with its Gateway's name, by which virtual services are bound to it.
type boundServer struct {
	gateways []string // its Gateway's name, and others by which virtual services are bound to it
	server   *model.GatewayServer
	routes   string // the route configuration; empty: it reads no requests
	from     *model.Origins
}

// originsOf are those of several servers.
func originsOf(servers []boundServer) *model.Origins {
	var out model.OriginList
	for _, b := range servers {
		out.AddAll(b.from)
	}
	return out.Since(0)
}

func (b boundServer) isBound(v *model.VirtualService) bool {
	return slices.ContainsFunc(b.gateways, func(g string) bool { return slices.Contains(v.Gateways, g) })
}

func newGatewayPlan() *gatewayPlan {
	return &gatewayPlan{listeners: map[ir.ListenerKey]*plannedListener{}, routes: map[string]*plannedRoutes{}, granted: map[string]bool{}}
}

func (p *plannedListener) equal(o *plannedListener) bool { return reflect.DeepEqual(p, o) }

func (p *plannedRoutes) equal(o *plannedRoutes) bool { return reflect.DeepEqual(p, o) }

// planServer adds a server to the plan, unless those before leave it no room: as in Istio the older
// Gateway wins.
// What was read since mark are its origins.
func (s *proxyGroup) planServer(r *index.Reader, mark int, p *gatewayPlan, g *model.Gateway, server *model.GatewayServer, target map[uint32]targetedPort) {
	port := server.Port.Number
	if t := target[port]; t.number != 0 {
		port = t.number
		r.Used.AddAll(t.from)
	}
	k := ir.ListenerKey{Address: server.Bind, Port: port}
	if k.Address == "" {
		k.Address = s.Any()
	}
	if !s.canServe(server) || !p.fits(k, server) {
		return
	}
	routes := gatewayRoutes(g, server, port)
	b := boundServer{gateways: g.ServerNames(server), server: server, routes: routes.Name, from: r.Used.Since(mark)}
	l := p.listeners[k]
	if l == nil {
		l = &plannedListener{tls: server.TLS != nil}
		p.listeners[k] = l
		if !l.tls {
			l.routeConfig = b.routes
		}
	}
	l.servers = append(l.servers, b)
	if b.routes == "" {
		return
	}
	if p.routes[b.routes] == nil {
		p.routes[b.routes] = &plannedRoutes{key: routes, listener: k}
	}
	p.routes[b.routes].servers = append(p.routes[b.routes].servers, b)
}

// canServe: Envoy would wait for the mesh's certificates where nobody serves them.
func (s *proxyGroup) canServe(server *model.GatewayServer) bool {
	if server.TLS == nil {
		return true
	}
	return server.TLS.Mode != model.ServerAutoPassthrough && (server.TLS.Mode != model.ServerIstioMutual || s.Key.Identity)
}

// fits tells whether a server can share a listener with those that are there.
func (p *gatewayPlan) fits(k ir.ListenerKey, server *model.GatewayServer) bool {
	l := p.listeners[k]
	return l == nil || !slices.ContainsFunc(l.servers, func(b boundServer) bool { return b.server.Conflict(server) != "" })
}

// gatewayRoutes names a route configuration as Istio does; empty for a server that reads no
// requests. port is the one that the router listens on.
func gatewayRoutes(g *model.Gateway, server *model.GatewayServer, port uint32) ir.RouteConfigKey {
	switch {
	case !server.IsHTTP():
		return ir.RouteConfigKey{}
	case server.TLS != nil:
		return ir.GatewayTLSRoutes(g, server)
	}
	return ir.GatewayRoutes(port, server.Bind)
}

// secrets are those that the plan's servers ask for, as translate spells them; sorted.
func (p *gatewayPlan) secrets() []secretRef {
	var out []secretRef
	for _, l := range p.listeners {
		for _, b := range l.servers {
			out = append(out, refsOf(serverSecrets(b.server.TLS), b.from)...)
		}
	}
	return sortSecrets(out)
}

func serverSecrets(t *model.ServerTLS) []string {
	if !t.EndsTLS() {
		return nil
	}
	var out []string
	for _, name := range t.CredentialNames {
		out = append(out, model.CredentialURL(name))
	}
	if ca := t.CACredential(); ca != "" {
		out = append(out, t.CAResource())
	}
	return out
}
