package derive

import (
	"bytes"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Envoy asks for a cluster in two cases: a route chooses it for a request, or it is the only backend of a TCP proxy. Envoy
// does not ask for a cluster with other references: it drops mirrored requests, and closes connections of other TCP proxies.
// So a cluster with such a reference is not on demand. It stays so when the reference goes, because a proxy that has the
// cluster must not lose it.

// precedes has the clusters of a group that are not on demand, because something refers to them that is neither a route nor a
// TCP proxy that asks. It keeps the last maxGone that do not exist: as many as the removals that a table keeps at least. A
// proxy that missed more connects again, and lists the clusters that it has.
type precedes struct {
	names map[string]bool
	gone  []string // the oldest first
}

const maxGone = 1024

// note records which clusters of a delta exist.
func (p *precedes) note(clusters map[string]*ir.Cluster) {
	for name, c := range clusters {
		switch {
		case !p.names[name]:
		case c == nil:
			p.lose(name)
		default:
			p.gone = slices.DeleteFunc(p.gone, func(n string) bool { return n == name })
		}
	}
}

// lose records that a cluster does not exist.
func (p *precedes) lose(name string) {
	if slices.Contains(p.gone, name) {
		return
	}
	if p.gone = append(p.gone, name); len(p.gone) > maxGone {
		delete(p.names, p.gone[0])
		p.gone = slices.Delete(p.gone, 0, 1)
	}
}

// decideOnDemand decides which clusters of the delta are on demand.
func (g *proxyGroup) decideOnDemand(x *index.Index) {
	if !g.Key.OnDemand() {
		return
	}
	for name := range g.referred() {
		if g.precedes.names[name] {
			continue
		}
		g.precedes.names[name] = true
		if g.out.Clusters[name] == nil {
			g.restoreCluster(x, name)
		}
		if g.out.Clusters[name] == nil {
			g.precedes.lose(name)
		}
	}
	g.precedes.note(g.out.Clusters)
	providers := providersOf(x.Mesh())
	for name, c := range g.out.Clusters {
		if c != nil {
			c.OnDemand = c.Added == nil && !c.Inbound && c.Discovery == ir.DiscoverEDS && !g.precedes.names[name] && !providers[c.Of.Host]
		}
	}
}

// providersOf returns the services that a mesh's listeners may call: inbound listeners too, which other groups have.
func providersOf(mesh *model.Mesh) map[model.Host]bool {
	out := map[model.Host]bool{}
	for _, p := range mesh.Telemetry.Providers {
		out[p.Host] = true
	}
	if c := mesh.Telemetry.Collector; c != nil {
		out[c.Host] = true
	}
	for _, a := range mesh.Authorizers {
		out[a.Host] = true
	}
	return out
}

// referred returns the clusters that the delta refers to other than by routes and TCP proxies that ask.
func (g *proxyGroup) referred() map[string]bool {
	out := map[string]bool{}
	for _, v := range g.out.VirtualHosts {
		if v != nil {
			addMirrors(v, out)
		}
	}
	for _, l := range g.out.Listeners {
		if l != nil {
			l.EachChain(func(c *ir.FilterChain) { addChain(c, out) })
		}
	}
	for name := range g.out.Clusters {
		if g.patchesName(name) {
			out[name] = true
		}
	}
	return out
}

func addMirrors(v *ir.VirtualHost, to map[string]bool) {
	for i := range v.Routes {
		for _, m := range v.Routes[i].Mirrors {
			to[m.Cluster] = true
		}
	}
}

func addChain(c *ir.FilterChain, to map[string]bool) {
	if c.TCP != nil && !c.TCP.OnDemand {
		for _, b := range c.TCP.Backends {
			to[b.Cluster] = true
		}
	}
	if c.HTTP != nil && c.HTTP.Inline != nil {
		for i := range c.HTTP.Inline.VirtualHosts {
			addMirrors(&c.HTTP.Inline.VirtualHosts[i], to)
		}
	}
}

// restoreCluster puts a cluster into the delta that is part of the group already: groups do not keep clusters.
func (g *proxyGroup) restoreCluster(x *index.Index, name string) {
	of, ok := resourcename.ParseCluster(name)
	if !ok || g.hosts[of.Host] == nil {
		return
	}
	if _, gone := g.out.Clusters[name]; gone {
		return
	}
	for _, c := range outbound.Host(x.NewReader(g.Client), of.Host, g.refs[of.Host]).Clusters {
		if c.Name == name {
			g.out.Clusters[name] = c
		}
	}
}

// noteTexts takes the patches of EnvoyFilters and the configurations of plugins that name clusters. Their forms are those of
// Envoy and of modules, which this package does not know: a text refers to a cluster if it contains the name. Hosts with
// such clusters are derived again.
func (g *proxyGroup) noteTexts(naming [][]byte) {
	if !g.Key.OnDemand() || len(naming)+len(g.patches.naming) == 0 {
		return
	}
	g.patches.naming = naming
	for h, state := range g.hosts {
		if slices.ContainsFunc(state.ClusterNames, func(name string) bool { return !g.precedes.names[name] && g.patchesName(name) }) {
			g.mark(hostUnit(h))
		}
	}
}

func (g *proxyGroup) patchesName(cluster string) bool {
	return slices.ContainsFunc(g.patches.naming, func(text []byte) bool { return bytes.Contains(text, []byte(cluster)) })
}
