package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// policyKey is where a Selecting object is found: under the first of the labels that it
// asks for, so that a change concerns the workloads that have this one.
type policyKey struct {
	kind      model.Kind
	namespace string
	pair      string // "key=value"; empty: all workloads of the namespace
}

// keyOfPolicy has no namespace for Gateways, which may select routers of all.
func keyOfPolicy(o model.Selecting) policyKey {
	m, k := o.Metadata(), policyKey{}
	k.kind, k.namespace = m.Kind, m.Namespace
	if k.kind == model.KindGateway || k.kind == model.KindKubernetesGateway {
		k.namespace = ""
	}
	if labels := o.SelectorLabels(); len(labels) > 0 {
		first := slices.Min(slices.Collect(maps.Keys(labels)))
		k.pair = first + "=" + labels[first]
	}
	return k
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
		k := keyOfPolicy(was)
		x.policies[k] = remove(x.policies[k], was)
		dropEmpty(x.policies, k)
		touched.facts.add(policyFact(k))
	}
	if is != nil {
		k := keyOfPolicy(is)
		x.policies[k] = addSorted(x.policies[k], is)
		touched.facts.add(policyFact(k))
		touched.labels = x.countPolicy(is, 1) || touched.labels
	}
	if was != nil { // after the new one, so that what both ask for does not count as news
		touched.labels = x.countPolicy(was, -1) || touched.labels
	}
}

// countPolicy tells whether the set of labels that tell outbound scopes apart has changed.
func (x *Index) countPolicy(o model.Selecting, by int) bool {
	return o.ShapesOutbound() && x.labels.add(o.SelectorLabels(), by)
}

// policies lists the objects of a kind that select workloads of ns with these labels: those
// of the root namespace before those of ns, the oldest first in each.
func policies[T model.Selecting](r *reader, kind model.Kind, ns string, labels map[string]string) []T {
	out := appendPolicies[T](nil, r, kind, r.mesh().RootNamespace, labels)
	if ns == r.mesh().RootNamespace {
		return out
	}
	return appendPolicies(out, r, kind, ns, labels)
}

// appendPolicies appends those of one namespace.
func appendPolicies[T model.Selecting](out []T, r *reader, kind model.Kind, ns string, labels map[string]string) []T {
	from := len(out)
	take := func(pair string) {
		k := policyKey{kind, ns, pair}
		r.facts.add(policyFact(k))
		for _, o := range r.index.policies[k] {
			if model.SelectorMatches(o.SelectorLabels(), labels) {
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
