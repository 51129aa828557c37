package derive

import (
	"math"
	"reflect"
	"strings"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// SplitFrom is the number of virtual hosts from which on a route configuration is split.
const SplitFrom = 256

// sizes are the forms of a route configuration: the whole, and those in 2^bits buckets. Listeners
// look for the last one whose number of virtual hosts it has: from times SplitFrom, without the one
// for unknown hosts. The fewer buckets, the less Envoy holds twice; the more, the less it rebuilds
// for a change.
var sizes = [...]struct{ bits, from int }{{0, 0}, {bucket.FewBits, 1}, {bucket.ManyBits, 8}}

// SplitBits is into how many buckets, 2^bits of names and as many of addresses, a route configuration
// of so many virtual hosts is split, without the one for unknown hosts; 0: it stays whole.
func SplitBits(virtualHosts int) int { return splitBits(virtualHosts, SplitFrom) }

// splitBits is into how many buckets listeners look for a route configuration: a pure function
// of how many virtual hosts it has. Where the number crosses a bound, the listeners that use the
// route configuration are replaced.
func splitBits(virtualHosts, from int) (bits int) {
	for _, s := range sizes {
		if virtualHosts >= s.from*from {
			bits = s.bits
		}
	}
	return bits
}

// forms are those in which a route configuration is served.
type forms [len(sizes)]bool

// formsAt are the form that listeners use and, around each bound of splitBits, the one that
// they used on its other side: those that have been replaced go on with it while they drain. It
// is again a pure function of the number, so that the table says nothing of the past.
//
// Whole ones go to proxies that ask for them, and are there up to twice the bound. Of scopes
// Envoy takes all that there are, and rebuilds each form for a change: they are there
// from a quarter below the bound to a quarter above.
func formsAt(virtualHosts, from int) (out forms) {
	for i, s := range sizes {
		begin, end := s.from*from, math.MaxInt
		begin -= begin / 4
		if i+1 < len(sizes) {
			end = sizes[i+1].from * from
			end += end / 4
		}
		if i == 0 {
			end = 2 * from
		}
		out[i] = begin <= virtualHosts && virtualHosts < end
	}
	return out
}

// splitter cuts a scope's large route configurations into buckets, as its delta leaves
// derive: nothing before knows of buckets but listeners, which must say what they look for.
type splitter struct {
	from   int // virtual hosts from which on
	routes map[string]*splitRoutes
}

// splitRoutes is one route configuration.
type splitRoutes struct {
	bits   int                    // as listeners are to look for it; 0: whole
	forms  forms                  // in which it is to be served
	served forms                  // of what was put out last
	hosts  map[string]hostBuckets // what was put out, by the resource names of whole virtual hosts
	count  int                    // virtual hosts that a service has, as of now
	there  bool                   // the route configuration is put out, not only virtual hosts of it
	rest   *view.VirtualHost      // the one for unknown hosts, which is in every bucket
}

// hostBuckets are the buckets that a virtual host is in, for each form that is split.
type hostBuckets [len(sizes)]bucket.Set

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
		r = &splitRoutes{forms: formsAt(0, p.from), hosts: map[string]hostBuckets{}}
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
// that are to be served otherwise than before: whether in other forms, or only looked for in another.
func (p *splitter) recount(out map[string]*view.VirtualHost) (otherwise map[string]bool) {
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
	otherwise = map[string]bool{}
	for rc := range touched {
		r := p.routes[rc]
		bits, forms := splitBits(r.count, p.from), formsAt(r.count, p.from)
		if bits != r.bits || forms != r.forms {
			otherwise[rc] = forms != r.forms
		}
		r.bits, r.forms = bits, forms
	}
	return otherwise
}

// resplit puts out all of the route configurations that are to be served in other forms, and
// the listeners again of those that are to be served otherwise. Views are not kept: the hosts
// are derived once more.
func (s *scope) resplit(x *Index) {
	for rc, reformed := range s.split.recount(s.out.VirtualHosts) {
		again := map[model.Host]bool{}
		for name := range s.split.routes[rc].hosts {
			if _, host := cutName(name); reformed && isServiceHost(host) {
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

// cutRouteConfig puts a route configuration out in its forms, and takes those back that it
// was served in before; nil takes it back. Only patches change the parts, while listeners come
// to it again and again: else they are put out once.
func (p *splitter) cutRouteConfig(d *Delta, name string, v *view.RouteConfig, patched bool) {
	r := p.of(name)
	if r.there && v != nil && r.served == r.forms && !patched {
		return
	}
	before := r.there && !patched
	r.there = v != nil
	for f, size := range sizes {
		switch there := v != nil && r.forms[f]; {
		case there && before && r.served[f]:
		case f == 0 && there:
			d.RouteConfigs[name] = v
		case f == 0:
			d.RouteConfigs[name] = nil
		case there || r.served[f]:
			putParts(d, name, size.bits, there)
		}
	}
}

// putParts puts out a route configuration's parts of one form and the scopes that lead there,
// or takes them back.
func putParts(d *Delta, name string, bits int, there bool) {
	for k := range bucket.Count(bits) {
		part := bucket.Name(name, bits, k)
		d.RouteConfigs[part], d.Scopes[part] = nil, nil
		if there {
			d.RouteConfigs[part] = &view.RouteConfig{Name: part, Bucket: true}
			d.Scopes[part] = &view.Scope{Name: part}
		}
	}
}

// cutHost puts a virtual host out in the forms of its route configuration: whole, and in the
// buckets of its domains, in each with those alone that are looked for there.
func (p *splitter) cutHost(d *Delta, name string, v *view.VirtualHost) {
	rc, host := cutName(name)
	r := p.of(rc)
	had, there := r.hosts[name]
	if isFallback(host) && v != nil {
		if there && r.served == r.forms && d.Patches == nil && reflect.DeepEqual(v, r.rest) {
			return
		}
		r.rest = v
	}
	if r.served[0] {
		d.VirtualHosts[name] = nil
	}
	for f, size := range sizes {
		if !there || !r.served[f] {
			continue
		}
		for k := range had[f].In(size.bits) {
			d.VirtualHosts[bucket.Name(rc, size.bits, k)+"/"+host] = nil
		}
	}
	if v == nil {
		delete(r.hosts, name)
		return
	}
	r.hosts[name] = r.putHost(d, v)
}

func (r *splitRoutes) putHost(d *Delta, v *view.VirtualHost) (in hostBuckets) {
	for f, size := range sizes {
		switch {
		case r.forms[f] && f == 0:
			d.VirtualHosts[v.ResourceName()] = v
		case r.forms[f]:
			in[f] = cutDomains(d, v, size.bits)
		}
	}
	return in
}

func cutDomains(d *Delta, v *view.VirtualHost, bits int) (in bucket.Set) {
	for _, domain := range v.Domains {
		in.Add(domain, bits)
	}
	for k := range in.In(bits) {
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
	if r.served = r.forms; len(r.hosts) == 0 {
		delete(p.routes, rc)
	}
}
