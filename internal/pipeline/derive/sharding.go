package derive

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// Sharding selects the route configurations that are split: those with From virtual hosts or more, without the one for unknown
// hosts. They are split into 2^Bits shards for names and as many for addresses. When a route configuration crosses From,
// the listeners that use it are replaced.
//
// Each shard must have the virtual hosts of all wildcards. If these copies would be more than Copies times all virtual
// hosts, nothing is split; 0: their number does not matter.
type Sharding struct{ From, Bits, Copies int }

// onDemand returns the sharding for proxies that ask for shards. Shards that a proxy does not have cost it nothing but the
// scope, so there are more, of fewer virtual hosts.
func (s Sharding) onDemand() Sharding {
	return Sharding{From: max(1, s.From/4), Bits: min(s.Bits+1, routeshard.MaxBits), Copies: 4 * s.Copies}
}

// The defaults. With VHDS a change is ACKed within 5 ms below 500 virtual hosts. Shards cost a proxy more when it connects,
// and for each request. They are therefore the default only where a change takes Envoy tens of milliseconds.
var (
	AutoSharding   = Sharding{From: 2048, Bits: routeshard.Bits, Copies: 2}
	ScopedSharding = Sharding{From: 256, Bits: routeshard.Bits} // on request
)

// sharder splits a group's large route configurations into shards, when a delta leaves derive. Nothing before depends on
// shards except listeners, which must ask for them.
//
// Each route configuration also exists as a whole. Its shards exist from the time listeners use them until the route
// configuration goes, because listeners that drain may still use them. A change of the form therefore removes nothing,
// and what comes back is split as before.
//
// routeshard.Listener exists from the first shard on, for ever: Envoys that have it keep it. It counts as a route
// configuration, by its name, because a proxy may have only that listener, and is to keep it.
//
// A group with clusters on demand splits route configurations into shards on demand, which Envoy asks for. The form of the
// shards of a route configuration never changes: listeners that drain use the form that they began with.
type sharder struct {
	full, asked Sharding      // of the two forms
	onDemand    bool          // the form of what the group splits by itself
	known       ShardedRoutes // by the key: these forms are split whatever their size
	disabled    bool          // by the key: no others are, and listeners use only whole ones
	whole       bool          // listeners use only whole ones
	routes      map[string]*shardedRoutes
	split       map[string]string // the forms of route configurations to serve in shards, too, whenever they exist; never shrinks
}

// shardedRoutes is one route configuration.
type shardedRoutes struct {
	served bool                      // the last output is also in shards
	hosts  map[string]routeshard.Set // the shards of each virtual host that is out, by the name of the whole one
	count  int                       // virtual hosts of services, as of now
	wild   int                       // those of them with wildcards
	there  bool                      // the route configuration is out, not only its virtual hosts
	rest   *ir.VirtualHost           // the one for unknown hosts, which is in every shard
	from   *model.Origins            // of the route configuration that is out
	of     ir.RouteConfigKey
}

// newSharder is the sharder of a group; nil: nothing is, or will be, in shards.
func newSharder(by Sharding, k *GroupKey) *sharder {
	if !k.ScopedRoutes && k.Sharded == "" {
		return nil
	}
	p := &sharder{
		full: by, asked: by.onDemand(), onDemand: k.OnDemand(), known: k.Sharded, disabled: !k.ScopedRoutes,
		routes: map[string]*shardedRoutes{}, split: map[string]string{},
	}
	for _, form := range k.Sharded.List() {
		p.add(form)
	}
	return p
}

// add serves a route configuration in a form of shards from now on. The first form that was added stays.
func (p *sharder) add(form string) {
	p.split[routeshard.Listener] = routeshard.Listener
	if rc := routeshard.Whole(form); p.split[rc] == "" {
		p.split[rc] = form
	}
}

// form returns the form of a route configuration that is split by the group itself.
func (p *sharder) form(routeConfig string) string {
	if p.onDemand {
		return routeshard.OnDemandForm(routeConfig)
	}
	return routeConfig
}

// shardingOf returns the sharding of a form.
func (p *sharder) shardingOf(form string) Sharding {
	if routeshard.Whole(form) != form {
		return p.asked
	}
	return p.full
}

// asks reports whether a listener makes Envoy ask for scopes.
func (p *sharder) asks() bool { return p != nil && len(p.split) > 0 }

// uses is how listeners use a route configuration; 0: as a whole.
func (p *sharder) uses(routeConfig string) (bits int, onDemand bool) {
	if p == nil || p.whole || p.split[routeConfig] == "" {
		return 0, false
	}
	form := p.split[routeConfig]
	return p.shardingOf(form).Bits, form != routeConfig
}

// forms are those of the route configurations in shards, and of those that would be if they came back, and
// routeshard.Listener.
func (p *sharder) forms() ShardedRoutes {
	return index.ShardedRoutesOf(slices.Collect(maps.Values(p.split))...)
}

// keeps reports whether something is in shards that would not be in a new group.
func (p *sharder) keeps() bool {
	for name := range p.split {
		if r := p.routes[name]; r != nil && !p.splits(name, r) {
			return true
		}
	}
	return false
}

// splits reports whether a route configuration is to be split, independent of its past.
func (p *sharder) splits(name string, r *shardedRoutes) bool {
	by := p.shardingOf(p.form(name))
	return p.known.Has(name) || p.known.Has(routeshard.OnDemandForm(name)) || !p.whole && r.count >= by.From && by.pays(r)
}

// pays reports whether shards are worth the copies of wildcards.
func (s Sharding) pays(r *shardedRoutes) bool {
	return s.Copies == 0 || r.wild*routeshard.Count(s.Bits) <= s.Copies*r.count
}

// add counts virtual hosts of one name.
func (r *shardedRoutes) add(host string, n int) {
	r.count += n
	if strings.HasPrefix(host, "*") {
		r.wild += n
	}
}

func (p *sharder) state(routeConfig string) *shardedRoutes {
	r := p.routes[routeConfig]
	if r == nil {
		r = &shardedRoutes{hosts: map[string]routeshard.Set{}}
		p.routes[routeConfig] = r
	}
	return r
}

// recount counts the virtual hosts of a delta, and returns the route configurations that listeners use otherwise than
// before. The value is whether they are also served otherwise.
func (p *sharder) recount(out map[string]*ir.VirtualHost, whole bool) (otherwise map[string]bool) {
	whole = whole || p.disabled
	touched, turned := map[string]bool{}, whole != p.whole
	if p.whole = whole; turned {
		for rc := range p.routes {
			touched[rc] = true
		}
	}
	for name, v := range out {
		rc, host := resourcename.CutVirtualHost(name)
		if !isServiceHost(host) {
			continue
		}
		r := p.state(rc)
		_, had := r.hosts[name]
		switch {
		case v != nil && !had:
			r.add(host, 1)
		case v == nil && had:
			r.add(host, -1)
		}
		touched[rc] = true
	}
	otherwise = map[string]bool{}
	for rc := range touched {
		r := p.routes[rc]
		was := p.split[rc] != ""
		split := was || p.splits(rc, r)
		if split != was || split && turned {
			otherwise[rc] = split != was
		}
		if split {
			p.add(p.form(rc))
		}
	}
	return otherwise
}

// reshard puts out all of the route configurations that are to be served otherwise, and again the listeners that are to use
// them otherwise. Groups keep no virtual hosts: the hosts are derived once more.
func (g *proxyGroup) reshard(x *index.Index) {
	asked := g.shards.asks()
	otherwise := g.shards.recount(g.out.VirtualHosts, policy.MayChangeHost(g.filters.Plugins, g.patches.now))
	if !asked && g.shards.asks() {
		g.out.Listeners[routeshard.Listener] = outbound.ScopesListener()
	}
	for rc, reformed := range otherwise {
		again := map[model.Host]bool{}
		for name := range g.shards.routes[rc].hosts {
			if _, host := resourcename.CutVirtualHost(name); reformed && isServiceHost(host) {
				h, _, _ := resourcename.CutHostPort(host)
				again[h] = true
			}
		}
		for h := range again {
			g.resettle(x.NewReader(g.Client), h)
		}
		for k, use := range g.routes.byListener {
			if use.Routes.Name == rc {
				g.mark(listenerUnit(k))
			}
		}
	}
}

// shardDelta makes a delta with shards out of a delta of whole route configurations.
func (p *sharder) shardDelta(d *Delta) {
	whole := d.RouteConfigs
	d.RouteConfigs = make(map[string]*ir.RouteConfig, len(whole))
	for name, v := range whole {
		p.shardRouteConfig(d, name, v, d.Patches != nil)
	}
	hosts := d.VirtualHosts
	d.VirtualHosts = make(map[string]*ir.VirtualHost, len(hosts))
	for name, v := range hosts {
		p.shardHost(d, name, v)
	}
	for name := range hosts {
		p.forget(name)
	}
}

// shardRouteConfig puts a route configuration out, with its shards if it is split, and takes back shards that existed before;
// nil takes everything back. Only patches change route configurations, while listeners serve them again and again: without
// patches they are put out once.
func (p *sharder) shardRouteConfig(d *Delta, name string, v *ir.RouteConfig, patched bool) {
	r := p.state(name)
	before := r.there && !patched && v != nil && v.Origins.Equal(r.from)
	r.there = v != nil
	if v != nil {
		r.from, r.of = v.Origins, v.Of
	}
	if v == nil || !before {
		d.RouteConfigs[name] = v
	}
	form := p.split[name]
	switch there := r.there && form != ""; {
	case there && before && r.served:
	case there || r.served:
		putShards(d, r.of, form, p.shardingOf(form).Bits, there, ir.Made{Origins: r.from})
	}
}

// putShards puts out the shards of a route configuration and the scopes that lead to them, or takes them back.
func putShards(d *Delta, of ir.RouteConfigKey, form string, bits int, there bool, made ir.Made) {
	for k := range routeshard.Count(bits) {
		part := routeshard.Name(form, bits, k)
		d.RouteConfigs[part], d.Scopes[part] = nil, nil
		if there {
			d.RouteConfigs[part] = &ir.RouteConfig{Made: made, Name: part, Of: of, Shard: true}
			d.Scopes[part] = &ir.Scope{Made: made, Name: part, OnDemand: form != of.Name}
		}
	}
}

// shardHost puts a virtual host out: whole and, if its route configuration is split, in the shards of its domains. In each
// shard it has only the domains that are looked for there.
func (p *sharder) shardHost(d *Delta, name string, v *ir.VirtualHost) {
	rc, host := resourcename.CutVirtualHost(name)
	r, form := p.state(rc), p.split[rc]
	bits := p.shardingOf(form).Bits
	had, there := r.hosts[name]
	if isUnknownHosts(host) && v != nil {
		if there && r.served == (form != "") && d.Patches == nil && reflect.DeepEqual(v, r.rest) {
			return
		}
		r.rest = v
	}
	for k := range had.In(bits) {
		d.VirtualHosts[resourcename.VirtualHost(routeshard.Name(form, bits, k), host)] = nil
	}
	d.VirtualHosts[name] = v
	switch {
	case v == nil:
		delete(r.hosts, name)
	case form != "":
		r.hosts[name] = cutDomains(d, v, form, bits)
	default:
		r.hosts[name] = routeshard.Set{}
	}
}

func cutDomains(d *Delta, v *ir.VirtualHost, form string, bits int) (in routeshard.Set) {
	for _, domain := range v.Domains {
		in.Add(domain, bits)
	}
	for k := range in.In(bits) {
		part := *v
		part.RouteConfig, part.Domains = routeshard.Name(form, bits, k), nil
		for _, domain := range v.Domains {
			if routeshard.Takes(domain, bits, k) {
				part.Domains = append(part.Domains, domain)
			}
		}
		d.VirtualHosts[part.ResourceName()] = &part
	}
	return in
}

// forget records that a virtual host's route configuration is out in its new form. If nothing of it is left, it keeps only
// that the route configuration was in shards.
func (p *sharder) forget(name string) {
	rc, _ := resourcename.CutVirtualHost(name)
	r := p.routes[rc]
	if r == nil {
		return
	}
	if r.served = p.split[rc] != ""; len(r.hosts) == 0 {
		delete(p.routes, rc)
	}
}
