package derive

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// SplitSet is a set of route configurations that can be part of a key: their names in order,
// separated by spaces, which are in none.
type SplitSet string

// SplitSetOf is the set of some names.
func SplitSetOf(names ...string) SplitSet {
	slices.Sort(names)
	return SplitSet(strings.Join(slices.Compact(names), " "))
}

func (s SplitSet) list() []string { return strings.Fields(string(s)) }

// Has tells whether a route configuration is in the set.
func (s SplitSet) Has(name string) bool { return s != "" && slices.Contains(s.list(), name) }

// Union is what is in either set.
func (s SplitSet) Union(o SplitSet) SplitSet {
	if s == o || o == "" {
		return s
	}
	return SplitSetOf(append(s.list(), o.list()...)...)
}

// Asking is the set with the listener that asks for scopes, which is there where anything is in buckets.
func (s SplitSet) Asking() SplitSet { return s.Union(routeshard.Listener) }

// Covers tells whether all of another set is in the set.
func (s SplitSet) Covers(o SplitSet) bool {
	return s == o || !slices.ContainsFunc(o.list(), func(name string) bool { return !s.Has(name) })
}
