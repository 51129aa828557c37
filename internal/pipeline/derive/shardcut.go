package derive

import (
	"reflect"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// cut makes of a delta of whole route configurations one of their parts.
func (p *sharder) cut(d *Delta) {
	whole := d.RouteConfigs
	d.RouteConfigs = make(map[string]*ir.RouteConfig, len(whole))
	for name, v := range whole {
		p.cutRouteConfig(d, name, v, d.Patches != nil)
	}
	hosts := d.VirtualHosts
	d.VirtualHosts = make(map[string]*ir.VirtualHost, len(hosts))
	for name, v := range hosts {
		p.cutHost(d, name, v)
	}
	for name := range hosts {
		p.forget(name)
	}
}

// cutRouteConfig puts a route configuration out, with its parts where it is split, and takes parts
// back that were there before; nil takes all back. Only patches change them, while listeners come
// to it again and again: else they are put out once.
func (p *sharder) cutRouteConfig(d *Delta, name string, v *ir.RouteConfig, patched bool) {
	r := p.of(name)
	before := r.there && !patched && v != nil && v.Origins.Equal(r.from)
	r.there = v != nil
	if v != nil {
		r.from, r.of = v.Origins, v.Of
	}
	if v == nil || !before {
		d.RouteConfigs[name] = v
	}
	switch there := r.there && p.split[name]; {
	case there && before && r.served:
	case there || r.served:
		putParts(d, r.of, p.Bits, there, ir.Made{Origins: r.from})
	}
}

// putParts puts out a route configuration's parts and the scopes that lead there, or takes them
// back.
func putParts(d *Delta, of ir.RouteConfigKey, bits int, there bool, made ir.Made) {
	for k := range routeshard.Count(bits) {
		part := routeshard.Name(of.Name, bits, k)
		d.RouteConfigs[part], d.Scopes[part] = nil, nil
		if there {
			d.RouteConfigs[part] = &ir.RouteConfig{Made: made, Name: part, Of: of, Shard: true}
			d.Scopes[part] = &ir.Scope{Made: made, Name: part}
		}
	}
}

// cutHost puts a virtual host out: whole, and where its route configuration is split in the
// buckets of its domains, in each with those alone that are looked for there.
func (p *sharder) cutHost(d *Delta, name string, v *ir.VirtualHost) {
	rc, host := cutName(name)
	r := p.of(rc)
	had, there := r.hosts[name]
	if isFallback(host) && v != nil {
		if there && r.served == p.split[rc] && d.Patches == nil && reflect.DeepEqual(v, r.rest) {
			return
		}
		r.rest = v
	}
	for k := range had.In(p.Bits) {
		d.VirtualHosts[routeshard.Name(rc, p.Bits, k)+"/"+host] = nil
	}
	d.VirtualHosts[name] = v
	switch {
	case v == nil:
		delete(r.hosts, name)
	case p.split[rc]:
		r.hosts[name] = cutDomains(d, v, p.Bits)
	default:
		r.hosts[name] = routeshard.Set{}
	}
}

func cutDomains(d *Delta, v *ir.VirtualHost, bits int) (in routeshard.Set) {
	for _, domain := range v.Domains {
		in.Add(domain, bits)
	}
	for k := range in.In(bits) {
		part := *v
		part.RouteConfig, part.Domains = routeshard.Name(v.RouteConfig, bits, k), nil
		for _, domain := range v.Domains {
			if routeshard.Takes(domain, bits, k) {
				part.Domains = append(part.Domains, domain)
			}
		}
		d.VirtualHosts[part.ResourceName()] = &part
	}
	return in
}

// forget notes that all of a virtual host's route configuration is put out as it is to be,
// and forgets of it when nothing is left, but that it was in buckets.
func (p *sharder) forget(name string) {
	rc, _ := cutName(name)
	r := p.routes[rc]
	if r == nil {
		return
	}
	if r.served = p.split[rc]; len(r.hosts) == 0 {
		delete(p.routes, rc)
	}
}
