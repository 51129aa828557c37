package model

import (
	"maps"
	"slices"
)

// Selecting is an object about workloads: those of its namespace or, if it is in the root
// namespace, those of all. Which ones, Selectors tells: an object may name Gateways in place of labels.
type Selecting interface {
	Object
	// SelectorLabels are the labels that a workload must have; empty: all are meant.
	SelectorLabels() map[string]string
	// ShapesOutbound tells whether the object counts for what workloads call, too, and not
	// only for what they are called by. Then its labels tell outbound scopes apart.
	ShapesOutbound() bool
}

// IsFor reports whether an object is for workloads of a namespace with some labels. root is the namespace
// of objects that are for all namespaces. It does not hold for Gateways, which select routers of all.
func IsFor(o Selecting, namespace string, labels map[string]string, root string) bool {
	ns := o.Metadata().Namespace
	return (ns == namespace || ns == root && !IsTargeted(o)) && Selects(o, labels)
}

// SortPolicies puts objects that are for one workload into the order in which they count: those of the
// root namespace first, in each namespace the oldest first.
func SortPolicies[T Selecting](list []T, root string) {
	slices.SortFunc(list, func(a, b T) int {
		if x, y := a.Metadata().Namespace == root, b.Metadata().Namespace == root; x != y {
			if x {
				return -1
			}
			return 1
		}
		return CompareAge(a, b)
	})
}

// SameAudience tells whether two forms of an object concern the same proxies.
func SameAudience(a, b Object) bool {
	switch a := a.(type) {
	case *Sidecar:
		b, ok := b.(*Sidecar)
		return ok && maps.Equal(a.Selector, b.Selector)
	case *PeerAuthentication:
		b, ok := b.(*PeerAuthentication)
		return ok && maps.Equal(a.Selector, b.Selector) && a.Disables() == b.Disables() // callers learn of that
	case Selecting:
		b, ok := b.(Selecting)
		return ok && IsTargeted(a) == IsTargeted(b) && slices.EqualFunc(Selectors(a), Selectors(b), maps.Equal)
	}
	return true
}
