package derive

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// listenerDemand is what one host wants of a listener.
type listenerDemand struct {
	owner   model.Object      // older owners win where two want the same
	bound   bool              // applications connect to the listener itself
	routes  ir.RouteConfigKey // without a name: no HTTP
	grpcWeb bool              // some port speaks it
	dynamic bool              // routes may lead to a host that Envoy resolves by the request
	chains  []ir.FilterChain
	from    *model.Origins // that the host makes the claim for
}

// same tells whether a claim gives the same listener in the place of o, which may be nil.
func (c *listenerDemand) same(o *listenerDemand) bool {
	return o != nil && c.bound == o.bound && c.routes == o.routes && c.grpcWeb == o.grpcWeb && c.dynamic == o.dynamic &&
		model.CompareAge(c.owner, o.owner) == 0 && c.from == o.from && reflect.DeepEqual(c.chains, o.chains)
}

// listenerClaims are all claims on one listener. Most hosts want no more of a listener than
// the route configuration that they all share: these are counted, so that a listener costs
// the same however many they are. Most listeners, however, have a single claim: the maps are
// made when they are needed.
type listenerClaims struct {
	plain      map[model.Host]*listenerDemand // without chains
	withChains map[model.Host]*listenerDemand
	routes     []routeCount // claims by route configuration; those without are not counted
	bound      int
	grpcWeb    int
	dynamic    int
}

type routeCount struct {
	routes ir.RouteConfigKey
	claims int
}

func (c *listenerClaims) add(h model.Host, own *listenerDemand) {
	m := &c.plain
	if len(own.chains) > 0 {
		m = &c.withChains
	}
	if *m == nil {
		*m = map[model.Host]*listenerDemand{}
	}
	(*m)[h] = own
	c.count(own, 1)
}

func (c *listenerClaims) remove(h model.Host, own *listenerDemand) {
	c.count(own, -1)
	delete(c.plain, h)
	delete(c.withChains, h)
}

func (c *listenerClaims) empty() bool { return len(c.plain)+len(c.withChains) == 0 }

func (c *listenerClaims) count(own *listenerDemand, by int) {
	countIf(own.bound, &c.bound, by)
	countIf(own.grpcWeb, &c.grpcWeb, by)
	countIf(own.dynamic, &c.dynamic, by)
	if own.routes.Name == "" {
		return
	}
	i := slices.IndexFunc(c.routes, func(r routeCount) bool { return r.routes.Name == own.routes.Name })
	if i < 0 {
		c.routes = append(c.routes, routeCount{own.routes, by})
		return
	}
	if c.routes[i].claims += by; c.routes[i].claims == 0 {
		c.routes = slices.Delete(c.routes, i, i+1)
	}
}

func countIf(yes bool, n *int, by int) {
	if yes {
		*n += by
	}
}

// routeConfig is the one that all agree on or, where two services claim one address, that
// of the one which goes first.
func (c *listenerClaims) routeConfig() ir.RouteConfigKey {
	switch len(c.routes) {
	case 0:
		return ir.RouteConfigKey{}
	case 1:
		return c.routes[0].routes
	}
	return c.first().routes
}

// first is the claim with a route configuration that goes first.
func (c *listenerClaims) first() *listenerDemand {
	all := maps.Clone(c.withChains)
	if all == nil {
		all = map[model.Host]*listenerDemand{}
	}
	maps.Copy(all, c.plain)
	for _, own := range sortClaims(all) {
		if own.routes.Name != "" {
			return own
		}
	}
	return &listenerDemand{}
}

// requests are the objects without which no requests would be read; none where several objects ask
// for that.
func (c *listenerClaims) requests() *model.Origins {
	out := c.sole(func(d *listenerDemand) bool { return d.routes.Name != "" })
	if len(c.routes) > 1 {
		out = out.Union(c.first().from)
	}
	return out
}

// origins are those of the claims that make a difference to the listener, beside its chains'.
func (c *listenerClaims) origins(out *model.OriginList) {
	out.AddAll(c.requests())
	if c.bound > 0 {
		out.AddAll(c.sole(func(d *listenerDemand) bool { return d.bound }))
	}
	if c.grpcWeb > 0 {
		out.AddAll(c.sole(func(d *listenerDemand) bool { return d.grpcWeb }))
	}
	if c.dynamic > 0 {
		out.AddAll(c.sole(func(d *listenerDemand) bool { return d.dynamic }))
	}
}

// sole are the objects that all claims are made from for which something holds. A listener that many
// objects ask for is there without any one of them.
func (c *listenerClaims) sole(holds func(*listenerDemand) bool) *model.Origins {
	var common *model.Origins
	first := true
	for _, claims := range []map[model.Host]*listenerDemand{c.withChains, c.plain} {
		for _, d := range claims {
			switch {
			case !holds(d):
				continue
			case first:
				common, first = d.from, false
			default:
				common = common.Intersect(d.from)
			}
			if common == nil {
				return nil
			}
		}
	}
	return common
}

// sortClaims puts claims in the order of precedence: the owners' age, then their key, then
// the host.
func sortClaims(claims map[model.Host]*listenerDemand) []*listenerDemand {
	hosts := slices.SortedFunc(maps.Keys(claims), func(a, b model.Host) int {
		return cmp.Or(model.CompareAge(claims[a].owner, claims[b].owner), strings.Compare(string(a), string(b)))
	})
	out := make([]*listenerDemand, len(hosts))
	for i, h := range hosts {
		out[i] = claims[h]
	}
	return out
}
