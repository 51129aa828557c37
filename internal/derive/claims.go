package derive

import (
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// claim is what one host wants of a listener.
type claim struct {
	owner       model.Object // older owners win where two want the same
	bound       bool         // applications connect to the listener itself
	routeConfig string       // empty: no HTTP
	grpcWeb     bool         // some port speaks it
	dynamic     bool         // routes may lead to a host that Envoy resolves by the request
	chains      []view.FilterChain
}

// listenerClaims are all claims on one listener. Most hosts want no more of a listener than
// the route configuration that they all share: these are counted, so that a listener costs
// the same however many they are.
type listenerClaims struct {
	all        map[model.Host]*claim
	withChains map[model.Host]*claim
	routes     map[string]int // claims by route configuration; those without are not counted
	bound      int
	grpcWeb    int
	dynamic    int
}

func newListenerClaims() *listenerClaims {
	return &listenerClaims{
		all: map[model.Host]*claim{}, withChains: map[model.Host]*claim{}, routes: map[string]int{},
	}
}

func (c *listenerClaims) add(h model.Host, own *claim) {
	c.all[h] = own
	c.count(own, 1)
	if len(own.chains) > 0 {
		c.withChains[h] = own
	}
}

func (c *listenerClaims) remove(h model.Host) {
	c.count(c.all[h], -1)
	delete(c.all, h)
	delete(c.withChains, h)
}

func (c *listenerClaims) count(own *claim, by int) {
	countIf(own.bound, &c.bound, by)
	countIf(own.grpcWeb, &c.grpcWeb, by)
	countIf(own.dynamic, &c.dynamic, by)
	if own.routeConfig == "" {
		return
	}
	c.routes[own.routeConfig] += by
	if c.routes[own.routeConfig] == 0 {
		delete(c.routes, own.routeConfig)
	}
}

func countIf(yes bool, n *int, by int) {
	if yes {
		*n += by
	}
}

// routeConfig is the one that all agree on or, where two services claim one address, that
// of the one which goes first.
func (c *listenerClaims) routeConfig() string {
	if len(c.routes) > 1 {
		for _, own := range sortClaims(c.all) {
			if own.routeConfig != "" {
				return own.routeConfig
			}
		}
	}
	for name := range c.routes {
		return name
	}
	return ""
}

// sortClaims puts claims in the order of precedence: the owners' age, then their key, then
// the host.
func sortClaims(claims map[model.Host]*claim) []*claim {
	hosts := slices.SortedFunc(maps.Keys(claims), func(a, b model.Host) int {
		ca, cb := claims[a], claims[b]
		switch {
		case model.Older(ca.owner, cb.owner):
			return -1
		case model.Older(cb.owner, ca.owner):
			return 1
		}
		return strings.Compare(string(a), string(b))
	})
	out := make([]*claim, len(hosts))
	for i, h := range hosts {
		out[i] = claims[h]
	}
	return out
}
