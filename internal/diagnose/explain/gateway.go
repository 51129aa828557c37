package explain

import (
	"net"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
)

// gatewayKinds are those of both APIs.
var gatewayKinds = []model.Kind{model.KindGateway, model.KindKubernetesGateway}

// enter makes a call one from outside to a router: whatever its name is, DNS leads it there.
func (w *Why) enter(p *model.Proxy, world *simulate.World, call *simulate.Call) {
	_, port, err := net.SplitHostPort(call.To)
	if err != nil {
		return
	}
	call.Direct, call.From = true, net.JoinHostPort(elsewhere, "40000")
	call.To = net.JoinHostPort(firstIP(p), port)
	if l, err := world.Entry(*call); err == nil && l == "" {
		w.Notes = append(w.Notes, "the router listens at "+strings.Join(world.Outbound(), ", ")+" alone: give the port that its Service leads to")
	}
}

// gateways adds the Gateways whose servers a router's call came to.
func (s *sourceList) gateways(p *model.Proxy, r *simulate.Result) {
	if p.Type != model.ProxyRouter || r.Listener == "" {
		return
	}
	for _, kind := range gatewayKinds {
		s.gatewaysOf(kind, p, r)
	}
}

func (s *sourceList) gatewaysOf(kind model.Kind, p *model.Proxy, r *simulate.Result) {
	for o := range s.snap.All(kind) {
		g, ok := o.(*model.Gateway)
		if !ok || !selects(g, p) {
			continue
		}
		for i := range g.Servers {
			if opens(g, &g.Servers[i], r) {
				s.add(g.Key, "listener "+r.Listener)
				break
			}
		}
	}
}

// opens tells whether a call may have come by a server: of route configurations with TLS the name
// says it, of the others the host that was found.
func opens(g *model.Gateway, server *model.GatewayServer, r *simulate.Result) bool {
	switch {
	case strings.HasPrefix(r.RouteConfig, "https."):
		return strings.HasPrefix(r.RouteConfig+".", securedRoutes(g, server)+".")
	case (server.TLS == nil) != r.EndsTLS && server.IsHTTP() == (r.RouteConfig != ""):
		host, _, _ := strings.Cut(r.VirtualHost[strings.LastIndexByte(r.VirtualHost, '/')+1:], ":")
		return host == "" || len(model.CommonHosts(server.AllHosts(), []model.Host{model.Host(host)})) > 0
	}
	return false
}

// selects tells whether a Gateway counts for a router.
func selects(g *model.Gateway, p *model.Proxy) bool {
	return (!g.OwnNamespace || g.Namespace == p.Namespace) && model.SelectorMatches(g.Selector, p.Labels)
}
