package model

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
