package outbound

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Demand is what one host wants of a listener.
type Demand struct {
	From *model.Origins // for which the host wants it

	owner      model.Object      // if two hosts want the same, the older owner wins
	bound      bool              // applications connect to the listener itself
	routesOnly bool              // the host has routes where others make Envoy listen
	routes     ir.RouteConfigKey // without a name: no HTTP
	grpcWeb    bool              // some port speaks it
	dynamic    bool              // routes may lead to a host that Envoy resolves for each request
	sniffed    bool              // Envoy detects the protocol: chains are for what is not HTTP
	chains     []ir.FilterChain
}

// Same reports whether a demand gives the same listener as o, which may be nil.
func (d *Demand) Same(o *Demand) bool {
	return o != nil && d.bound == o.bound && d.routesOnly == o.routesOnly && d.routes == o.routes && d.grpcWeb == o.grpcWeb && d.dynamic == o.dynamic && d.sniffed == o.sniffed &&
		model.CompareAge(d.owner, o.owner) == 0 && d.From == o.From && reflect.DeepEqual(d.chains, o.chains)
}

// Demands are those of all hosts on one listener. Most hosts want only the route configuration that they all share. These
// are counted, so that the cost of a listener does not depend on their number. Most listeners, however, have a single
// demand: the maps are made when they are needed.
type Demands struct {
	plain      map[model.Host]*Demand // without chains
	withChains map[model.Host]*Demand
	joining    map[model.Host]*Demand // only their routes count
	routes     []routeCount           // demands by route configuration; those without are not counted
	bound      int
	grpcWeb    int
	dynamic    int
}

type routeCount struct {
	routes  ir.RouteConfigKey
	demands int
}

// Add adds the demand of a host.
func (d *Demands) Add(h model.Host, own *Demand) {
	m := &d.plain
	switch {
	case own.routesOnly:
		m = &d.joining
	case len(own.chains) > 0:
		m = &d.withChains
	}
	if *m == nil {
		*m = map[model.Host]*Demand{}
	}
	(*m)[h] = own
	d.count(own, 1)
}

// Remove removes the demand of a host.
func (d *Demands) Remove(h model.Host, own *Demand) {
	d.count(own, -1)
	delete(d.plain, h)
	delete(d.withChains, h)
	delete(d.joining, h)
}

// IsEmpty reports whether nothing is demanded; nil is empty.
func (d *Demands) IsEmpty() bool { return d == nil || !d.Listens() && len(d.joining) == 0 }

// Listens reports whether some host wants the listener to exist.
func (d *Demands) Listens() bool { return len(d.plain)+len(d.withChains) > 0 }

func (d *Demands) count(own *Demand, by int) {
	countIf(own.dynamic, &d.dynamic, by)
	if own.routesOnly {
		return
	}
	countIf(own.bound, &d.bound, by)
	countIf(own.grpcWeb, &d.grpcWeb, by)
	if own.routes.Name == "" {
		return
	}
	i := slices.IndexFunc(d.routes, func(r routeCount) bool { return r.routes.Name == own.routes.Name })
	if i < 0 {
		d.routes = append(d.routes, routeCount{own.routes, by})
		return
	}
	if d.routes[i].demands += by; d.routes[i].demands == 0 {
		d.routes = slices.Delete(d.routes, i, i+1)
	}
}

func countIf(yes bool, n *int, by int) {
	if yes {
		*n += by
	}
}

// routeConfig is the one that all agree on. If two services want one address, it is that of the first in order.
func (d *Demands) routeConfig() ir.RouteConfigKey {
	switch len(d.routes) {
	case 0:
		return ir.RouteConfigKey{}
	case 1:
		return d.routes[0].routes
	}
	return d.first().routes
}

// first is the first demand with a route configuration.
func (d *Demands) first() *Demand {
	all := maps.Clone(d.withChains)
	if all == nil {
		all = map[model.Host]*Demand{}
	}
	maps.Copy(all, d.plain)
	for _, own := range inOrder(all) {
		if own.routes.Name != "" {
			return own
		}
	}
	return &Demand{}
}

// used returns the demands with chains, in order. As in Istio, the first service that reads requests decides what becomes
// of other bytes: chains of a later one count only if its protocol is declared. made are the objects for which chains do
// not count.
func (d *Demands) used() (list []*Demand, made *model.Origins) {
	list = inOrder(d.withChains)
	if d.bound > 0 || !slices.ContainsFunc(list, func(o *Demand) bool { return o.sniffed }) {
		return list, nil
	}
	first := d.first()
	return slices.DeleteFunc(list, func(o *Demand) bool {
		hidden := o.sniffed && o != first
		if hidden {
			made = first.From
		}
		return hidden
	}), made
}

// requests are the objects without which no requests would be read; nil if several objects ask for that.
func (d *Demands) requests() *model.Origins {
	out := d.sole(func(o *Demand) bool { return !o.routesOnly && o.routes.Name != "" })
	if len(d.routes) > 1 {
		out = out.Union(d.first().From)
	}
	return out
}

// origins adds those of the demands that make a difference to the listener, beside the origins of its chains.
func (d *Demands) origins(out *model.OriginList) {
	out.AddAll(d.requests())
	if d.bound > 0 {
		out.AddAll(d.sole(func(o *Demand) bool { return !o.routesOnly && o.bound }))
	}
	if d.grpcWeb > 0 {
		out.AddAll(d.sole(func(o *Demand) bool { return o.grpcWeb }))
	}
	if d.dynamic > 0 {
		out.AddAll(d.sole(func(o *Demand) bool { return o.dynamic }))
	}
}

// sole are the objects that all demands with some property are made from. If several objects ask for a listener, it does
// not depend on any one of them.
func (d *Demands) sole(has func(*Demand) bool) *model.Origins {
	var common *model.Origins
	first := true
	for _, demands := range []map[model.Host]*Demand{d.withChains, d.plain, d.joining} {
		for _, o := range demands {
			switch {
			case !has(o):
				continue
			case first:
				common, first = o.From, false
			default:
				common = common.Intersect(o.From)
			}
			if common == nil {
				return nil
			}
		}
	}
	return common
}

// inOrder sorts demands by the owners' age, then their key, then the host.
func inOrder(demands map[model.Host]*Demand) []*Demand {
	hosts := slices.SortedFunc(maps.Keys(demands), func(a, b model.Host) int {
		return cmp.Or(model.CompareAge(demands[a].owner, demands[b].owner), strings.Compare(string(a), string(b)))
	})
	out := make([]*Demand, len(hosts))
	for i, h := range hosts {
		out[i] = demands[h]
	}
	return out
}
