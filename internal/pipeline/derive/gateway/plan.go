package gateway

import (
	"reflect"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Plan is the result of all Gateways of a group: listeners, each of one or several servers, and the route configurations
// of servers that read requests.
type Plan struct {
	Listeners map[ir.ListenerKey]*PlannedListener
	Routes    map[string]*PlannedRoutes // by name
	// Granted are the Secrets of other namespaces that servers may use, by their names in SDS.
	Granted map[string]bool
}

// PlannedListener has servers that end or pass on TLS, selected by SNI; or servers in plain text that share a route
// configuration; or one server for bytes.
type PlannedListener struct {
	servers     []boundServer
	unserved    []boundServer // listeners of the same Gateways that keep their hosts from wider ones
	tls         bool
	routeConfig string // of servers in plain text
}

// PlannedRoutes is a route configuration with the servers that use it.
type PlannedRoutes struct {
	Key      ir.RouteConfigKey
	Listener ir.ListenerKey
	servers  []boundServer
	others   []boundServer // listeners without routes here that requests may belong to
	// shared: hosts of other servers at the port get status 421 here (see neighbors.go). neighbor are the origins of these servers
	// if all are of one Gateway.
	shared   bool
	neighbor *model.Origins
	// narrower are the hosts of other servers that a host here includes, with the servers' origins.
	narrower map[model.Host]*model.Origins
}

// boundServer is a server with the names by which virtual services are bound to it.
type boundServer struct {
	root     string   // the name of the Gateway; of a ListenerSet that of its Gateway
	gateways []string // its Gateway's or ListenerSet's name first
	server   *model.GatewayServer
	routes   string // the route configuration; empty: it reads no requests, or is not served
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

// Origins are those of the servers.
func (p *PlannedRoutes) Origins() *model.Origins { return originsOf(p.servers) }

// Equal compares listeners; nil is equal to nil.
func (p *PlannedListener) Equal(o *PlannedListener) bool { return reflect.DeepEqual(p, o) }

// Equal compares route configurations; nil is equal to nil.
func (p *PlannedRoutes) Equal(o *PlannedRoutes) bool { return reflect.DeepEqual(p, o) }

// NewPlan makes a plan without Gateways.
func NewPlan() *Plan {
	return &Plan{Listeners: map[ir.ListenerKey]*PlannedListener{}, Routes: map[string]*PlannedRoutes{}, Granted: map[string]bool{}}
}

// MakePlan joins the Gateways that select the clients, each with its ListenerSets.
func MakePlan(r *index.Reader) *Plan {
	p := NewPlan()
	at := ports{target: targetPorts(r), unserved: map[ir.ListenerKey][]boundServer{}}
	for _, g := range r.Gateways() {
		if g.OwnNamespace && g.Namespace != r.Key.Namespace {
			continue
		}
		owners := append([]*model.Gateway{g}, listenerSets(r, g)...)
		displaced := model.Displaced(owners)
		p.grant(r, g, g.ClientCertificate)
		for _, owner := range owners {
			for i := range owner.Servers {
				if server := &owner.Servers[i]; displaced[server].Reason == "" {
					p.addServer(r, g, owner, server, true, at)
				}
			}
			for i := range owner.Reserved {
				if server := &owner.Reserved[i]; displaced[server].Reason == "" {
					p.addServer(r, g, owner, server, false, at)
				}
			}
		}
	}
	p.isolate(at.unserved)
	p.meetNeighbors()
	return p
}

// listenerSets lists the ListenerSets that belong to a Gateway, the oldest first.
func listenerSets(r *index.Reader, g *model.Gateway) []*model.Gateway {
	if g.ListenerSets == nil {
		return nil
	}
	return slices.DeleteFunc(r.ListenerSets(), func(set *model.Gateway) bool {
		return !g.AttachSet(set, func(s *model.LabelSelector) bool { return slices.Contains(r.Namespaces(s), set.Namespace) })
	})
}

// addServer adds a server of a Gateway, or of one of its ListenerSets, which is the owner. served is false for a listener
// that cannot be served.
func (p *Plan) addServer(r *index.Reader, g, owner *model.Gateway, server *model.GatewayServer, served bool, at ports) {
	mark := r.Mark()
	r.Use(g)
	r.Use(owner)
	b := boundServer{root: g.FullName(), gateways: owner.ServerNames(server), server: server}
	k := at.key(r, server)
	var resolved *model.GatewayServer
	if served {
		resolved = verifying(r, g, p.resolve(r, owner, server))
	}
	if resolved == nil || !resolved.IsServed(r.Key.Identity) || !p.fits(k, resolved) {
		b.from = r.Used.Since(mark)
		at.unserved[k] = append(at.unserved[k], b)
	} else {
		b.server = resolved
		p.add(r, mark, owner, b, k)
	}
	r.Unread(mark)
}

// ports are where routers listen, and the servers there that are not served.
type ports struct {
	target   map[uint32]targetedPort
	unserved map[ir.ListenerKey][]boundServer
}

// key is where routers listen for a server.
func (p ports) key(r *index.Reader, server *model.GatewayServer) ir.ListenerKey {
	k := ir.ListenerKey{Address: server.Bind, Port: server.Port.Number}
	if t := p.target[k.Port]; t.number != 0 {
		k.Port = t.number
		r.Used.AddAll(t.from)
	}
	if k.Address == "" {
		k.Address = r.Any()
	}
	return k
}

// targetedPort is where a Service leads a port of a Gateway.
type targetedPort struct {
	number uint32
	from   *model.Origins
}

// targetPorts are the ports that gateways listen on, by those of their services. As in Istio the oldest service wins.
func targetPorts(r *index.Reader) map[uint32]targetedPort {
	out := map[uint32]targetedPort{}
	for _, s := range r.Served() {
		if port := s.Port.Number; out[port].number == 0 && translatesPorts(s.Service) {
			out[port] = targetedPort{s.Number, model.OriginsOf(s.Service.Key).Union(s.Origins)}
		}
	}
	return out
}

// translatesPorts reports whether the ports of Gateways are the Service's. A label makes them the gateways' own.
func translatesPorts(svc *model.Service) bool {
	_, off := svc.Labels["experimental.istio.io/disable-gateway-port-translation"]
	return !off
}

// resolve returns a server with the namespaces that it selects. Of Secrets of other namespaces it keeps those that the
// server may refer to; nil: none of its Secrets is left.
func (p *Plan) resolve(r *index.Reader, g *model.Gateway, server *model.GatewayServer) *model.GatewayServer {
	if server.Namespaces != nil {
		server = server.Admit(r.Namespaces(server.Namespaces))
	}
	t := server.TLS
	if !t.EndsTLS() || !slices.ContainsFunc(t.CredentialNames, func(name string) bool { c, _ := model.ParseCredential(name); return c.Namespace != "" }) {
		return server
	}
	granted := *server
	if granted.TLS = p.grantedTLS(r, g, t); len(granted.TLS.CredentialNames) == 0 {
		return nil
	}
	return &granted
}

// grantedTLS leaves out the Secrets that the Gateway may not refer to, and records in the plan the others that are not in
// the routers' namespace. The CAs of clients stay those of the first Secret: if that is not granted, no client is accepted.
func (p *Plan) grantedTLS(r *index.Reader, g *model.Gateway, t *model.ServerTLS) *model.ServerTLS {
	out := *t
	out.CACredentialName, out.CredentialNames = t.CACredential(), nil
	for _, name := range t.CredentialNames {
		if p.grant(r, g, name) {
			out.CredentialNames = append(out.CredentialNames, name)
		}
	}
	return &out
}

// grant reports whether the Gateway may refer to a Secret, and records it in the plan if it is not in the routers' namespace.
func (p *Plan) grant(r *index.Reader, g *model.Gateway, name string) bool {
	if k, needs := g.NeedsGrant(name); needs && !r.Granted(g.GrantFrom(), k) {
		return false
	}
	if c, _ := model.ParseCredential(name); g.IsKubernetes() && c.Namespace != "" && c.Namespace != r.Key.Namespace {
		p.Granted[model.CredentialURL(name)] = true
	}
	return true
}

// verifying returns a server that verifies clients as the Gateway demands; nil: it has no usable CAs. nil passes.
func verifying(r *index.Reader, g *model.Gateway, server *model.GatewayServer) *model.GatewayServer {
	if server == nil {
		return nil
	}
	v, ok := g.ValidationAt(server)
	if !ok {
		return server
	}
	out := *server
	out.TLS = v.Verifying(server.TLS, func(k model.Key) bool {
		mark := r.Mark()
		if k.Namespace != g.Namespace && !r.Granted(g.GrantFrom(), k) {
			return false
		}
		if secret := r.Secret(k); secret == nil || secret.CAProblem != "" {
			r.Unread(mark)
			return false
		}
		return true
	})
	if out.TLS == nil {
		return nil
	}
	return &out
}

// add adds a server to the plan. The objects since mark are its origins.
func (p *Plan) add(r *index.Reader, mark int, g *model.Gateway, b boundServer, k ir.ListenerKey) {
	server := b.server
	routes := routesOf(g, server, k.Port)
	b.routes, b.from = routes.Name, r.Used.Since(mark)
	l := p.Listeners[k]
	if l == nil {
		l = &PlannedListener{tls: server.TLS != nil}
		p.Listeners[k] = l
		if !l.tls {
			l.routeConfig = b.routes
		}
	}
	l.servers = append(l.servers, b)
	if b.routes == "" {
		return
	}
	planned := p.Routes[b.routes]
	if planned == nil {
		planned = &PlannedRoutes{Key: routes, Listener: k}
		p.Routes[b.routes] = planned
	}
	planned.servers = append(planned.servers, b)
	if planned.Key.Plain != nil {
		planned.Key.Plain.Add(server.Port.Number)
	}
}

// fits reports whether a server can share a listener with the servers that it has: as in Istio the older Gateway wins.
func (p *Plan) fits(k ir.ListenerKey, server *model.GatewayServer) bool {
	l := p.Listeners[k]
	return l == nil || !slices.ContainsFunc(l.servers, func(b boundServer) bool { return b.server.Conflict(server).Reason != "" })
}

// routesOf is the route configuration of a server; without a name: the server reads no requests. port is the one that the
// gateway listens on.
func routesOf(g *model.Gateway, server *model.GatewayServer, port uint32) ir.RouteConfigKey {
	switch {
	case !server.IsHTTP():
		return ir.RouteConfigKey{}
	case server.TLS != nil:
		return ir.GatewayTLSRoutes(g, server)
	}
	return ir.GatewayRoutes(port, server.Bind)
}

// Secrets are those that the plan's servers ask for, sorted.
func (p *Plan) Secrets() []policy.SecretRef {
	var out []policy.SecretRef
	for _, l := range p.Listeners {
		for _, b := range l.servers {
			out = append(out, policy.SecretRefs(policy.ServerSecrets(b.server.TLS), b.from)...)
		}
	}
	return policy.SortSecretRefs(out)
}

// EachHost calls f for each host that may have a virtual host in the route configuration. boundTo lists the virtual services
// that are bound to a gateway.
func (p *PlannedRoutes) EachHost(c *index.Client, boundTo func(gateway string) []*model.VirtualService, f func(model.Host)) {
	for _, o := range p.others {
		f(o.server.Hosts[0].Host)
	}
	p.eachUnrouted(f)
	for _, b := range p.servers {
		if b.server.HTTPSRedirect || b.server.IsListener() {
			for _, h := range b.server.Hosts {
				f(h.Host)
			}
		}
		for _, gateway := range b.gateways {
			for _, v := range boundTo(gateway) {
				b.eachHost(c, v, f)
			}
		}
	}
}

// eachHost calls f for each host that a virtual service has at a server.
func (b boundServer) eachHost(c *index.Client, v *model.VirtualService, f func(model.Host)) {
	if !v.Visibility.Sees(c.Key.Namespace) {
		return
	}
	for _, h := range b.server.AttachBound(v).Hosts {
		f(h)
	}
}

// Concerns calls host for each virtual host, and listener for each listener, that a change of a virtual service concerns.
func (p *Plan) Concerns(c *index.Client, v *model.VirtualService, host func(routeConfig string, h model.Host), listener func(ir.ListenerKey)) {
	for name, routes := range p.Routes {
		for _, b := range routes.servers {
			if v.BoundTo(b.gateways) {
				b.eachHost(c, v, func(h model.Host) {
					host(name, h)
					routes.eachNarrower(h, func(narrower model.Host) { host(name, narrower) })
				})
			}
		}
	}
	if len(v.TCP)+len(v.TLS) == 0 {
		return
	}
	for k, l := range p.Listeners {
		if slices.ContainsFunc(l.servers, func(b boundServer) bool { return v.BoundTo(b.gateways) && !b.server.IsHTTP() }) {
			listener(k)
		}
	}
}
