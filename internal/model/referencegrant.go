package model

// ReferenceGrant lets objects of other namespaces refer to some of its own.
type ReferenceGrant struct {
	Meta
	From []GrantFrom
	To   []GrantTo
}

// GrantFrom are the objects of a kind in a namespace.
type GrantFrom struct{ Kind, Namespace string }

// GrantTo are the objects of a kind; an empty name: all.
type GrantTo struct{ Kind, Name string }

// Allows tells whether an object of a kind and namespace may refer to one of the grant's.
func (g *ReferenceGrant) Allows(from GrantFrom, to GrantTo) bool {
	return containsGrant(g.From, from) && (containsGrant(g.To, to) || containsGrant(g.To, GrantTo{Kind: to.Kind}))
}

func containsGrant[T comparable](list []T, v T) bool {
	for _, o := range list {
		if o == v {
			return true
		}
	}
	return false
}

// SelectorLabels implements Selecting: it is about a namespace.
func (g *ReferenceGrant) SelectorLabels() map[string]string { return nil }

// ShapesOutbound implements Selecting.
func (g *ReferenceGrant) ShapesOutbound() bool { return false }
