package derive

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// ShardedRoutes is a set of route configurations that can be part of a key: their names in order,
// separated by spaces, which are in none.
type ShardedRoutes string

// ShardedRoutesOf is the set of some names.
func ShardedRoutesOf(names ...string) ShardedRoutes {
	slices.Sort(names)
	return ShardedRoutes(strings.Join(slices.Compact(names), " "))
}

func (s ShardedRoutes) list() []string { return strings.Fields(string(s)) }

// Has tells whether a route configuration is in the set.
func (s ShardedRoutes) Has(name string) bool { return s != "" && slices.Contains(s.list(), name) }

// Union is what is in either set.
func (s ShardedRoutes) Union(o ShardedRoutes) ShardedRoutes {
	if s == o || o == "" {
		return s
	}
	return ShardedRoutesOf(append(s.list(), o.list()...)...)
}

// Asking is the set with the listener that asks for scopes, which is there where anything is in buckets.
func (s ShardedRoutes) Asking() ShardedRoutes { return s.Union(routeshard.Listener) }

// Covers tells whether all of another set is in the set.
func (s ShardedRoutes) Covers(o ShardedRoutes) bool {
	return s == o || !slices.ContainsFunc(o.list(), func(name string) bool { return !s.Has(name) })
}
