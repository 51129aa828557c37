package derive

import (
	"reflect"
	"strings"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// SplitFrom is the number of virtual hosts from which on a route configuration is split.
const SplitFrom = 256

// splitBits is into how many buckets a route configuration is split: a pure function of
// how many virtual hosts it has, without the one for unknown hosts. The fewer buckets, the
// less Envoy holds twice; the more, the less it rebuilds for a change. Where the number
// crosses a bound, all parts of the route configuration get other names, and the listeners
// that use it are replaced.
func splitBits(virtualHosts, from int) int {
	switch {
	case virtualHosts < from:
		return 0
	case virtualHosts < 8*from:
		return 4
	}
	return 6
}

// splitter cuts a scope's large route configurations into buckets, as its delta leaves
// derive: nothing before knows of buckets but listeners, which must say what they look for.
type splitter struct {
	from   int // virtual hosts from which on
	routes map[string]*splitRoutes
}

// splitRoutes is one route configuration.
type splitRoutes struct {
	bits   int                   // as it is to be served; 0: whole
	served int                   // the bits of what was put out last
	hosts  map[string]bucket.Set // what was put out, by the resource names of whole virtual hosts
	count  int                   // virtual hosts that a service has, as of now
	there  bool                  // the route configuration is put out, not only virtual hosts of it
	rest   *view.VirtualHost     // the one for unknown hosts, which is in every bucket
}

func newSplitter(from int) *splitter {
	return &splitter{from: from, routes: map[string]*splitRoutes{}}
}

// bits is how listeners are to use a route configuration.
func (p *splitter) bits(routeConfig string) int {
	if p == nil || p.routes[routeConfig] == nil {
		return 0
	}
	return p.routes[routeConfig].bits
}

func (p *splitter) of(routeConfig string) *splitRoutes {
	r := p.routes[routeConfig]
	if r == nil {
		r = &splitRoutes{hosts: map[string]bucket.Set{}}
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

// recount counts the virtual hosts that are put out, and gives the route configurations
// that are to be split otherwise than before.
func (p *splitter) recount(out map[string]*view.VirtualHost) (otherwise []string) {
	touched := map[string]bool{}
	for name, v := range out {
		rc, host := cutName(name)
		if !isServiceHost(host) {
			continue
		}
		r := p.of(rc)
		_, had := r.hosts[name]
		switch {
		case v != nil && !had:
			r.count++
		case v == nil && had:
			r.count--
		}
		touched[rc] = true
	}
	for rc := range touched {
		r := p.routes[rc]
		if bits := splitBits(r.count, p.from); bits != r.bits {
			r.bits = bits
			otherwise = append(otherwise, rc)
		}
	}
	return otherwise
}

// resplit puts out all of the route configurations that are to be split otherwise, and
// their listeners again. Views are not kept: the hosts are derived once more.
func (s *scope) resplit(x *Index) {
	for _, rc := range s.split.recount(s.out.VirtualHosts) {
		again := map[model.Host]bool{}
		for name := range s.split.routes[rc].hosts {
			if _, host := cutName(name); isServiceHost(host) {
				again[model.Host(host[:strings.LastIndexByte(host, ':')])] = true
			}
		}
		for h := range again {
			s.resettle(newReader(x, s), h)
		}
		for k, use := range s.routeUses {
			if use.name == rc {
				s.mark(listenerUnit(k))
			}
		}
	}
}

// cut makes of a delta of whole route configurations one of their parts.
func (p *splitter) cut(d *Delta) {
	whole := d.RouteConfigs
	d.RouteConfigs = make(map[string]*view.RouteConfig, len(whole))
	for name, v := range whole {
		p.cutRouteConfig(d, name, v, d.Patches != nil)
	}
	hosts := d.VirtualHosts
	d.VirtualHosts = make(map[string]*view.VirtualHost, len(hosts))
	for name, v := range hosts {
		p.cutHost(d, name, v)
	}
	for name := range hosts {
		p.forget(name)
	}
}

// cutRouteConfig puts a route configuration's parts out, and takes those back that it was
// split into before; nil takes it back. Only patches change the parts, while listeners come
// to it again and again: else they are put out once.
func (p *splitter) cutRouteConfig(d *Delta, name string, v *view.RouteConfig, patched bool) {
	r := p.of(name)
	if r.there && v != nil && r.served == r.bits && !patched {
		return
	}
	r.there = v != nil
	if r.served > 0 && (v == nil || r.served != r.bits) {
		for k := range bucket.Count(r.served) {
			part := bucket.Name(name, r.served, k)
			d.RouteConfigs[part], d.Scopes[part] = nil, nil
		}
	}
	if v == nil || r.bits == 0 {
		d.RouteConfigs[name] = v
		return
	}
	d.RouteConfigs[name] = nil
	for k := range bucket.Count(r.bits) {
		part := bucket.Name(name, r.bits, k)
		d.RouteConfigs[part] = &view.RouteConfig{Name: part, Bucket: true}
		d.Scopes[part] = &view.Scope{Name: part}
	}
}

// cutHost puts a virtual host into the buckets of its domains, into each with those alone
// that are looked for there.
func (p *splitter) cutHost(d *Delta, name string, v *view.VirtualHost) {
	rc, host := cutName(name)
	r := p.of(rc)
	had, there := r.hosts[name]
	if isFallback(host) && v != nil {
		if there && r.served == r.bits && d.Patches == nil && reflect.DeepEqual(v, r.rest) {
			return
		}
		r.rest = v
	}
	if there && r.served > 0 {
		for k := range bucket.Count(r.served) {
			if had.Has(k) {
				d.VirtualHosts[bucket.Name(rc, r.served, k)+"/"+host] = nil
			}
		}
	}
	if r.bits == 0 || there && r.served == 0 {
		d.VirtualHosts[name] = nil
	}
	if v == nil {
		delete(r.hosts, name)
		return
	}
	if r.bits == 0 {
		d.VirtualHosts[name] = v
		r.hosts[name] = bucket.Set{}
		return
	}
	r.hosts[name] = cutDomains(d, v, r.bits)
}

func cutDomains(d *Delta, v *view.VirtualHost, bits int) (in bucket.Set) {
	for _, domain := range v.Domains {
		in.Add(domain, bits)
	}
	for k := range bucket.Count(bits) {
		if !in.Has(k) {
			continue
		}
		part := *v
		part.RouteConfig, part.Domains = bucket.Name(v.RouteConfig, bits, k), nil
		for _, domain := range v.Domains {
			if bucket.Takes(domain, bits, k) {
				part.Domains = append(part.Domains, domain)
			}
		}
		d.VirtualHosts[part.ResourceName()] = &part
	}
	return in
}

// forget notes that all of a virtual host's route configuration is put out as it is to be,
// and forgets of it when nothing is left.
func (p *splitter) forget(name string) {
	rc, _ := cutName(name)
	r := p.routes[rc]
	if r == nil {
		return
	}
	if r.served = r.bits; len(r.hosts) == 0 {
		delete(p.routes, rc)
	}
}
