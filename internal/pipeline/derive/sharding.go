package derive

import (
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// Sharding says which route configurations are split: those of From virtual hosts or more, without
// the one for unknown hosts, into 2^Bits buckets of names and as many of addresses. Around From
// virtual hosts, listeners that use the route configuration are replaced.
//
// Each bucket must have the virtual hosts of all wildcards. Where these copies would be more than Copies
// times all virtual hosts, nothing is split; 0: however many they are.
type Sharding struct{ From, Bits, Copies int }

// What is split unless something else is said. VHDS passes 5 ms from a change to its ACK below 500
// virtual hosts; what buckets cost a proxy when it connects, and a request, is more than most meshes
// would give for it, so that they come by themselves where a change takes Envoy tens of milliseconds.
var (
	AutoSharding   = Sharding{From: 2048, Bits: routeshard.Bits, Copies: 2}
	ScopedSharding = Sharding{From: 256, Bits: routeshard.Bits} // where buckets are asked for
)

// sharder cuts a scope's large route configurations into buckets, as its delta leaves
// derive: nothing before knows of buckets but listeners, which must say what they look for.
//
// Each route configuration is there as a whole, for whoever asks for it. Its buckets are there,
// too, from when listeners look for them until the route configuration goes: listeners that drain
// may do so still. So the change of a form takes nothing away, and what comes back is split as it was.
//
// routeshard.Listener is there from the first of them on, for ever: Envoys that have it keep it. It counts as
// one of them, by its name: what a proxy has, and is to keep, may be that listener alone.
type sharder struct {
	Sharding
	told   ShardedRoutes // by the key: these are split however few virtual hosts they have
	never  bool          // by the key: no others are, and listeners look for nothing but whole ones
	whole  bool          // listeners look for nothing but whole ones
	routes map[string]*shardedRoutes
	split  map[string]bool // route configurations that are to be there in buckets, too, whenever they are; grows only
}

// shardedRoutes is one route configuration.
type shardedRoutes struct {
	served bool                      // what was put out last is there in buckets, too
	hosts  map[string]routeshard.Set // what was put out, by the resource names of whole virtual hosts
	count  int                       // virtual hosts that a service has, as of now
	wild   int                       // those of them that are of wildcards
	there  bool                      // the route configuration is put out, not only virtual hosts of it
	rest   *ir.VirtualHost           // the one for unknown hosts, which is in every bucket
	from   *model.Origins            // of the route configuration that was put out last
	of     ir.RouteConfigKey
}

// newSharder is that of a key; nil: nothing is, or will be, in buckets.
func newSharder(by Sharding, k *GroupKey) *sharder {
	if !k.ScopedRoutes && k.Sharded == "" {
		return nil
	}
	p := &sharder{Sharding: by, told: k.Sharded, never: !k.ScopedRoutes, routes: map[string]*shardedRoutes{}, split: map[string]bool{}}
	for _, name := range k.Sharded.List() {
		p.add(name)
	}
	return p
}

// add has a route configuration be there in buckets.
func (p *sharder) add(routeConfig string) {
	p.split[routeConfig], p.split[routeshard.Listener] = true, true
}

// asks tells whether listeners have Envoy ask for scopes.
func (p *sharder) asks() bool { return p != nil && len(p.split) > 0 }

// bits is how listeners are to use a route configuration; 0: as a whole.
func (p *sharder) bits(routeConfig string) int {
	if p == nil || p.whole || !p.split[routeConfig] {
		return 0
	}
	return p.Bits
}

// names are the route configurations that are there in buckets, and those that would be if they
// came back, and routeshard.Listener.
func (p *sharder) names() ShardedRoutes {
	return index.ShardedRoutesOf(slices.Collect(maps.Keys(p.split))...)
}

// keeps tells whether something is there in buckets that would not be if the scope were new.
func (p *sharder) keeps() bool {
	for name := range p.split {
		if r := p.routes[name]; r != nil && !p.splits(name, r) {
			return true
		}
	}
	return false
}

// splits tells whether a route configuration is to be split whatever was before.
func (p *sharder) splits(name string, r *shardedRoutes) bool {
	return p.told.Has(name) || !p.whole && r.count >= p.From && p.pays(r)
}

// pays tells whether buckets are worth the copies of wildcards.
func (p *sharder) pays(r *shardedRoutes) bool {
	return p.Copies == 0 || r.wild*routeshard.Count(p.Bits) <= p.Copies*r.count
}

// add counts virtual hosts of one name.
func (r *shardedRoutes) add(host string, n int) {
	r.count += n
	if strings.HasPrefix(host, "*") {
		r.wild += n
	}
}

func (p *sharder) of(routeConfig string) *shardedRoutes {
	r := p.routes[routeConfig]
	if r == nil {
		r = &shardedRoutes{hosts: map[string]routeshard.Set{}}
		p.routes[routeConfig] = r
	}
	return r
}

// cutName cuts a virtual host's resource name.
func cutName(name string) (routeConfig, host string) {
	i := strings.LastIndexByte(name, '/')
	return name[:i], name[i+1:]
}

func isFallback(host string) bool { return host == allowAny || host == blockAll }

// recount counts the virtual hosts that are put out, and gives the route configurations that are
// to be looked for otherwise than before: whether they are to be served otherwise, too.
func (p *sharder) recount(out map[string]*ir.VirtualHost, whole bool) (otherwise map[string]bool) {
	whole = whole || p.never
	touched, turned := map[string]bool{}, whole != p.whole
	if p.whole = whole; turned {
		for rc := range p.routes {
			touched[rc] = true
		}
	}
	for name, v := range out {
		rc, host := cutName(name)
		if !isServiceHost(host) {
			continue
		}
		r := p.of(rc)
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
		was := p.split[rc]
		split := was || p.splits(rc, r)
		if split != was || split && turned {
			otherwise[rc] = split != was
		}
		if split {
			p.add(rc)
		}
	}
	return otherwise
}

// resplit puts out all of the route configurations that are to be served otherwise, and the
// listeners again of those that are to be looked for otherwise. Views are not kept: the hosts
// are derived once more.
func (s *proxyGroup) resplit(x *index.Index) {
	asked := s.split.asks()
	otherwise := s.split.recount(s.out.VirtualHosts, s.mayChangeHost())
	if !asked && s.split.asks() {
		s.out.Listeners[routeshard.Listener] = scopesListener()
	}
	for rc, reformed := range otherwise {
		again := map[model.Host]bool{}
		for name := range s.split.routes[rc].hosts {
			if _, host := cutName(name); reformed && isServiceHost(host) {
				again[model.Host(host[:strings.LastIndexByte(host, ':')])] = true
			}
		}
		for h := range again {
			s.resettle(x.NewReader(s.Client), h)
		}
		for k, use := range s.routeUses {
			if use.routes.Name == rc {
				s.mark(listenerUnit(k))
			}
		}
	}
}
