package outbound

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// RouteUse is a listener's use of a route configuration.
type RouteUse struct {
	Routes ir.RouteConfigKey // without a name: the listener uses none
	Bound  bool              // applications connect to the listener itself
	From   *model.Origins    // without which the listener would not use it
}

// Listener joins all demands on one address into a listener. shards is how listeners use a route configuration, by its
// name; 0: as a whole.
func Listener(c *index.Client, mesh *model.Mesh, k ir.ListenerKey, demands *Demands, shards func(string) (bits int, onDemand bool), filters *policy.Filters) (*ir.Listener, RouteUse) {
	routes := demands.routeConfig()
	l := &ir.Listener{Name: k.Name(), Address: k.Address, Port: k.Port, BindToPort: demands.bound > 0}
	used, hiding := demands.used()
	l.Chains, l.Default = join(used)
	if routes.Name != "" {
		bits, onDemand := shards(routes.Name)
		addHTTP(c, l, &ir.HTTPChain{
			StatPrefix:     "outbound_" + l.Name,
			RouteConfig:    routes.Name,
			ShardBits:      bits,
			ShardsOnDemand: onDemand,
			GRPCWeb:        demands.grpcWeb > 0,
			ForwardProxy:   demands.dynamic > 0,
			Families:       c.Key.Families,
			OnDemand:       c.Key.Asking != index.AsksNothing || onDemand,
		})
	}
	l.InspectTLS = slices.ContainsFunc(l.Chains, func(c ir.FilterChain) bool {
		return len(c.Match.ServerNames) > 0 || c.Match.TransportProtocol == "tls"
	}) || l.InspectHTTP
	if l.InspectTLS || l.InspectHTTP {
		l.InspectTimeout, l.ContinueOnTimeout = policy.InspectTimeout, true
	}
	if l.Default == nil && (!l.BindToPort || c.EgressProxy() != nil) {
		l.Default = passthroughChain(c, mesh)
	}
	for i := range l.Chains {
		l.Chains[i].Name = fmt.Sprintf("%s#%d", l.Name, i)
	}
	policy.Finish(c, mesh, l)
	var from model.OriginList
	demands.origins(&from)
	from.AddAll(hiding)
	filters.AddTo(c, l, &from)
	l.Origins = from.Since(0)
	return l, RouteUse{routes, l.BindToPort, demands.requests()}
}

func join(demands []*Demand) (chains []ir.FilterChain, fallback *ir.FilterChain) {
	lists := make([][]ir.FilterChain, len(demands))
	for i, d := range demands {
		lists[i] = d.chains
	}
	return JoinChains(lists...)
}

// JoinChains joins lists of chains. Envoy refuses two chains with one match: what an earlier chain matches is removed from
// the matches of later ones. The first chain without a match is the fallback.
func JoinChains(lists ...[]ir.FilterChain) (chains []ir.FilterChain, fallback *ir.FilterChain) {
	seen := map[singleMatch]bool{}
	for _, list := range lists {
		for _, chain := range list {
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

// singleMatch is one address range with one server name, which is what Envoy compares.
type singleMatch struct {
	to   netip.Prefix
	name string
}

// unseen returns the part of a match that no earlier match covers, as several matches. Destinations with the same remaining
// names stay together.
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

// unseenNames returns the server names that are new for a destination, and marks them as seen. ok is false if there are
// none.
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

// addHTTP adds the connection manager. It takes everything if nothing else can want the listener's connections, else
// connections whose first bytes look like HTTP. A listener that is not bound receives connections to any address of the
// port: what is not HTTP there belongs to unknown destinations.
func addHTTP(c *index.Client, l *ir.Listener, manager *ir.HTTPChain) {
	http := ir.FilterChain{HTTP: manager}
	catchesAll := l.Address == c.Any() && !l.BindToPort
	if len(l.Chains) == 0 && l.Default == nil && !catchesAll {
		l.Default = &http
		return
	}
	l.InspectHTTP = true
	http.Match.ALPN = policy.PlainHTTP
	http.Match.TransportProtocol = "raw_buffer"
	l.Chains = append(l.Chains, http)
}

// passthroughChain takes connections that no service on the listener's port wants.
func passthroughChain(c *index.Client, mesh *model.Mesh) *ir.FilterChain {
	cluster := c.UnknownCluster(mesh)
	to := cluster
	if p := c.EgressProxy(); p != nil && cluster == ir.PassthroughCluster {
		to = ir.OutboundCluster(p.Port, p.Subset, p.Host)
	}
	return &ir.FilterChain{
		Made: c.UnknownMade(),
		Name: cluster,
		TCP: &ir.TCPChain{
			StatPrefix: cluster,
			Backends:   []ir.Backend{{Cluster: to, Weight: 1}},
		},
	}
}
