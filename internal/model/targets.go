package model

import "slices"

// LabelGatewayName is what routers of a Gateway of the Gateway API have, with its name.
const LabelGatewayName = "gateway.networking.k8s.io/gateway-name"

// Targets are what a policy is for that names objects (targetRefs) in place of a selector: routers
// of Gateways of the Gateway API in its own namespace, also where that is the root namespace.
type Targets struct {
	Targeted bool
	Gateways []string // names; empty for a policy that names only what there is not, so that it has no effect
}

// TargetGateways implements Targeting.
func (t *Targets) TargetGateways() (names []string, targeted bool) { return t.Gateways, t.Targeted }

// Targeting is an object that may name Gateways.
type Targeting interface {
	TargetGateways() (names []string, targeted bool)
}

// IsTargeted tells whether an object names what it is for.
func IsTargeted(o Selecting) bool {
	t, ok := o.(Targeting)
	if !ok {
		return false
	}
	_, targeted := t.TargetGateways()
	return targeted
}

// Selectors are the sets of labels of which a workload must have one; an empty set is everybody's.
func Selectors(o Selecting) []map[string]string {
	if !IsTargeted(o) {
		return []map[string]string{o.SelectorLabels()}
	}
	names, _ := o.(Targeting).TargetGateways()
	out := make([]map[string]string, 0, len(names))
	for _, name := range names {
		out = append(out, map[string]string{LabelGatewayName: name})
	}
	return out
}

// Selects tells whether an object is for workloads with these labels, whatever their namespace.
func Selects(o Selecting, labels map[string]string) bool {
	if !IsTargeted(o) {
		return SelectorMatches(o.SelectorLabels(), labels)
	}
	name, ok := labels[LabelGatewayName]
	names, _ := o.(Targeting).TargetGateways()
	return ok && slices.Contains(names, name)
}
