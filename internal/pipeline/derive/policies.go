package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// policyKey is where a Selecting object is found: under the first of the labels of a selector
// of it, so that a change concerns the workloads that have this one.
type policyKey struct {
	kind      model.Kind
	namespace string
	pair      string // "key=value"; empty: all workloads of the namespace
}

// keysOfPolicy are where an object is found: one for each of its selectors. They have no namespace for
// Gateways, which may select routers of all.
func keysOfPolicy(o model.Selecting) []policyKey {
	m, out := o.Metadata(), []policyKey(nil)
	ns := m.Namespace
	if m.Kind == model.KindGateway || m.Kind == model.KindKubernetesGateway {
		ns = ""
	}
	for _, labels := range model.Selectors(o) {
		k := policyKey{kind: m.Kind, namespace: ns}
		if len(labels) > 0 {
			first := slices.Min(slices.Collect(maps.Keys(labels)))
			k.pair = first + "=" + labels[first]
		}
		out = append(out, k)
	}
	return out
}

// policyFact is named "Kind/namespace/pair".
func policyFact(k policyKey) fact {
	return fact{string(k.kind) + "/" + k.namespace + "/" + k.pair, factPolicy}
}

// replacePolicy takes any object that selects workloads.
func (x *Index) replacePolicy(old, now model.Object, touched *touched) {
	was, _ := old.(model.Selecting)
	is, _ := now.(model.Selecting)
	if was != nil {
		for _, k := range keysOfPolicy(was) {
			unlist(x.policies, k, was)
			touched.facts.add(policyFact(k))
		}
	}
	if is != nil {
		for _, k := range keysOfPolicy(is) {
			enlist(x.policies, k, is)
			touched.facts.add(policyFact(k))
		}
		touched.labels = x.countPolicy(is, 1) || touched.labels
	}
	if was != nil { // after the new one, so that what both ask for does not count as news
		touched.labels = x.countPolicy(was, -1) || touched.labels
	}
}

// countPolicy tells whether the set of labels that tell outbound scopes apart has changed.
func (x *Index) countPolicy(o model.Selecting, by int) bool {
	changed := false
	for _, labels := range model.Selectors(o) {
		changed = o.ShapesOutbound() && x.labels.add(labels, by) || changed
	}
	return changed
}

// policies lists the objects of a kind that select workloads of ns with these labels: those
// of the root namespace before those of ns, the oldest first in each. What is for Gateways is for those of its
// own namespace.
func policies[T model.Selecting](r *reader, kind model.Kind, ns string, labels map[string]string) []T {
	root := r.mesh().RootNamespace
	all := appendPolicies[T](nil, r, kind, root, labels)
	if ns != root {
		all = appendPolicies(all, r, kind, ns, labels)
	}
	var out []T
	for _, o := range all {
		if model.IsFor(o, ns, labels, root) {
			out = append(out, o)
		}
	}
	model.SortPolicies(out, root)
	return out
}

// appendPolicies appends those of one namespace.
func appendPolicies[T model.Selecting](out []T, r *reader, kind model.Kind, ns string, labels map[string]string) []T {
	from := len(out)
	take := func(pair string) {
		k := policyKey{kind, ns, pair}
		r.facts.add(policyFact(k))
		for _, o := range r.index.policies[k] {
			if model.Selects(o, labels) {
				out = append(out, o.(T))
			}
		}
	}
	take("")
	for k, v := range labels {
		take(k + "=" + v)
	}
	slices.SortFunc(out[from:], func(a, b T) int { return model.CompareAge(a, b) })
	return out
}
