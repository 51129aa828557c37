package derive

import (
	"fmt"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// inspectTimeout bounds how long a client may keep silent before its connection is taken
// for one where the server speaks first.
const inspectTimeout = 5 * time.Second

// plainHTTP are the application protocols that http_inspector finds.
var plainHTTP = []string{"http/1.0", "http/1.1", "h2c"}

// deriveListener joins all claims on one address into a listener, with the route
// configuration that it needs.
func (s *scope) deriveListener(mesh *model.Mesh, k listenerKey) {
	claims := s.listeners[k]
	if claims == nil || len(claims.all) == 0 {
		delete(s.listeners, k)
		s.out.Listeners[k.name()] = nil
		s.dropRouteConfig(mesh, k)
		return
	}
	routeConfig := claims.routeConfig()
	l := &view.Listener{Name: k.name(), Address: k.address, Port: k.port, BindToPort: claims.bound > 0}
	l.Chains, l.Default = joinChains(sortClaims(claims.withChains))
	if routeConfig != "" {
		s.addHTTP(mesh, l, routeConfig, claims)
	}
	l.InspectTLS = slices.ContainsFunc(l.Chains, func(c view.FilterChain) bool {
		return len(c.Match.ServerNames) > 0 || c.Match.TransportProtocol == "tls"
	}) || l.InspectHTTP
	if l.InspectTLS || l.InspectHTTP {
		l.InspectTimeout, l.ContinueOnTimeout = inspectTimeout, true
	}
	if l.Default == nil && !l.BindToPort {
		l.Default = s.passthroughChain(mesh)
	}
	for i := range l.Chains {
		l.Chains[i].Name = fmt.Sprintf("%s#%d", l.Name, i)
	}
	s.out.Listeners[l.Name] = l
	s.serveRouteConfig(mesh, k, routeUse{routeConfig, l.BindToPort})
}

// joinChains gathers chains. Envoy refuses two chains with one match, so what an earlier
// claim matches already is taken out of later ones.
func joinChains(claims []*claim) (chains []view.FilterChain, fallback *view.FilterChain) {
	seen := map[string]bool{}
	for _, c := range claims {
		for _, chain := range c.chains {
			if len(chain.Match.ServerNames)+len(chain.Match.Destinations) == 0 {
				if fallback == nil {
					fallback = &chain
				}
				continue
			}
			if unseen(&chain, seen) {
				chains = append(chains, chain)
			}
		}
	}
	return chains, fallback
}

// unseen takes out of a chain's match what has been seen, and tells whether anything is left.
func unseen(c *view.FilterChain, seen map[string]bool) bool {
	prefix := fmt.Sprint(c.Match.Destinations, c.Match.ALPN, c.Match.TransportProtocol)
	if len(c.Match.ServerNames) == 0 {
		fresh := !seen[prefix]
		seen[prefix] = true
		return fresh
	}
	var names []string
	for _, n := range c.Match.ServerNames {
		if !seen[prefix+n] {
			seen[prefix+n] = true
			names = append(names, n)
		}
	}
	c.Match.ServerNames = names
	return len(names) > 0
}

// addHTTP adds the connection manager: for everything where nothing else can want the
// listener's connections, else for those whose first bytes look like HTTP. Connections to
// any address of the port come to a listener that is not bound: what is not HTTP there
// belongs to destinations that nobody knows.
func (s *scope) addHTTP(mesh *model.Mesh, l *view.Listener, routeConfig string, claims *listenerClaims) {
	http := view.FilterChain{HTTP: &view.HTTPChain{
		StatPrefix:    "outbound_" + l.Name,
		RouteConfig:   routeConfig,
		GRPCWeb:       claims.grpcWeb > 0,
		ForwardProxy:  claims.dynamic > 0,
		AccessLogFile: mesh.AccessLogFile,
	}}
	catchesAll := l.Address == anyAddress && !l.BindToPort
	if len(l.Chains) == 0 && l.Default == nil && !catchesAll {
		l.Default = &http
		return
	}
	l.InspectHTTP = true
	http.Match.ALPN = plainHTTP
	http.Match.TransportProtocol = "raw_buffer"
	l.Chains = append(l.Chains, http)
}

// passthroughChain takes connections that no service of the listener's port claims.
func (s *scope) passthroughChain(mesh *model.Mesh) *view.FilterChain {
	cluster := s.unknownCluster(mesh)
	return &view.FilterChain{
		Name: cluster,
		TCP: &view.TCPChain{
			StatPrefix:    cluster,
			Backends:      []view.Backend{{Cluster: cluster, Weight: 1}},
			AccessLogFile: mesh.AccessLogFile,
		},
	}
}

// unknownCluster is where traffic to unknown destinations goes.
func (s *scope) unknownCluster(mesh *model.Mesh) string {
	if s.outboundMode(mesh) == model.OutboundRegistryOnly {
		return view.BlackHoleCluster
	}
	return view.PassthroughCluster
}

func (s *scope) outboundMode(mesh *model.Mesh) model.OutboundMode {
	if s.sidecar != nil && s.sidecar.Outbound != "" {
		return s.sidecar.Outbound
	}
	return mesh.Outbound
}
