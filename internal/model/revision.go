package model

// LabelRevision names the control plane that an object of Istio's kinds, or of the Gateway API's, is for, and the one that
// injects the Pods of a namespace. An object without it is for all.
const LabelRevision = "istio.io/rev"

// DefaultRevision is that of a control plane which nobody gave another, as istiod's.
const DefaultRevision = "default"
