package derive

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// inspectTimeout bounds how long a client may keep silent before its connection is taken
// for one where the server speaks first.
const inspectTimeout = 5 * time.Second

// plainHTTP are the application protocols that http_inspector finds.
var plainHTTP = []string{"http/1.0", "http/1.1", "h2c"}

// deriveListener joins all claims on one address into a listener, with the route
// configuration that it needs.
func (s *proxyGroup) deriveListener(mesh *model.Mesh, k ir.ListenerKey) {
	claims := s.listeners[k]
	if claims == nil || claims.empty() {
		delete(s.listeners, k)
		s.out.Listeners[k.Name()] = nil
		s.serveRouteConfig(mesh, k, routeUse{})
		return
	}
	routes := claims.routeConfig()
	l := &ir.Listener{Name: k.Name(), Address: k.Address, Port: k.Port, BindToPort: claims.bound > 0}
	l.Chains, l.Default = joinChains(sortClaims(claims.withChains))
	if routes.Name != "" {
		s.addHTTP(l, routes.Name, claims)
	}
	l.InspectTLS = slices.ContainsFunc(l.Chains, func(c ir.FilterChain) bool {
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
	finish(s.Client, mesh, l)
	var from model.OriginList
	claims.origins(&from)
	s.observe(l, &from)
	s.extend(l, &from)
	l.Origins = from.Since(0)
	s.out.Listeners[l.Name] = l
	s.serveRouteConfig(mesh, k, routeUse{routes, l.BindToPort, claims.requests()})
}

// joinChains gathers chains. Envoy refuses two chains with one match, so what an earlier
// listenerDemand matches already is taken out of later ones.
func joinChains(claims []*listenerDemand) (chains []ir.FilterChain, fallback *ir.FilterChain) {
	seen := map[singleMatch]bool{}
	for _, c := range claims {
		for _, chain := range c.chains {
			if len(chain.Match.ServerNames)+len(chain.Match.Destinations) == 0 {
				if fallback == nil {
					fallback = &chain
				}
				continue
			}
			for _, m := range unseen(chain.Match, seen) {
				part := chain
				part.Match = m
				chains = append(chains, part)
			}
		}
	}
	return chains, fallback
}

// singleMatch is one address range with one server name: what Envoy compares.
type singleMatch struct {
	to   netip.Prefix
	name string
}

// unseen is what of a match has not been seen: matches that together hold where m does and
// none before did. Destinations that have the same names left stay together.
func unseen(m ir.ChainMatch, seen map[singleMatch]bool) []ir.ChainMatch {
	destinations := m.Destinations
	if len(destinations) == 0 {
		destinations = []netip.Prefix{{}}
	}
	var out []ir.ChainMatch
	for _, d := range destinations {
		names, ok := unseenNames(d, m.ServerNames, seen)
		if !ok {
			continue
		}
		if n := len(out); n > 0 && slices.Equal(out[n-1].ServerNames, names) {
			out[n-1].Destinations = append(out[n-1].Destinations, d)
			continue
		}
		part := m
		part.ServerNames, part.Destinations = names, nil
		if d.IsValid() {
			part.Destinations = []netip.Prefix{d}
		}
		out = append(out, part)
	}
	return out
}

// unseenNames are the server names that nobody has had for a destination, which it marks as
// seen; not ok where none is left.
func unseenNames(d netip.Prefix, names []string, seen map[singleMatch]bool) (left []string, ok bool) {
	if len(names) == 0 {
		k := singleMatch{to: d.Masked()}
		ok, seen[k] = !seen[k], true
		return nil, ok
	}
	for _, n := range names {
		if k := (singleMatch{d.Masked(), n}); !seen[k] {
			seen[k] = true
			left = append(left, n)
		}
	}
	return left, len(left) > 0
}

// addHTTP adds the connection manager: for everything where nothing else can want the
// listener's connections, else for those whose first bytes look like HTTP. Connections to
// any address of the port come to a listener that is not bound: what is not HTTP there
// belongs to destinations that nobody knows.
func (s *proxyGroup) addHTTP(l *ir.Listener, routeConfig string, claims *listenerClaims) {
	http := ir.FilterChain{HTTP: &ir.HTTPChain{
		StatPrefix:   "outbound_" + l.Name,
		RouteConfig:  routeConfig,
		ShardBits:    s.split.bits(routeConfig),
		GRPCWeb:      claims.grpcWeb > 0,
		ForwardProxy: claims.dynamic > 0,
	}}
	catchesAll := l.Address == s.Any() && !l.BindToPort
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
func (s *proxyGroup) passthroughChain(mesh *model.Mesh) *ir.FilterChain {
	cluster := s.UnknownCluster(mesh)
	return &ir.FilterChain{
		Made: s.UnknownMade(),
		Name: cluster,
		TCP: &ir.TCPChain{
			StatPrefix: cluster,
			Backends:   []ir.Backend{{Cluster: cluster, Weight: 1}},
		},
	}
}
