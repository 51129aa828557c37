package derive

import (
	"iter"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// touchWorkload touches the services that w belongs to.
func (x *endpointIndex) touchWorkload(w *model.Workload, touched *touched) {
	for _, s := range x.servicesWith(w) {
		x.touch(s, touched)
	}
}

// servicesWith are those that w belongs to, in no order.
func (x *endpointIndex) servicesWith(w *model.Workload) []*model.Service {
	out := x.selectors(w.Namespace, w.Labels)
	if w.Kind == model.KindPod {
		for n := range x.podSlices[nameOf(w)] {
			if s := x.kube[n]; s != nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// selectors lists the services of ns that select labels, in no order.
func (x *endpointIndex) selectors(ns string, labels map[string]string) []*model.Service {
	var out []*model.Service
	for k, v := range labels {
		for _, s := range x.selecting[pairKey{ns, k + "=" + v}] {
			if model.SelectorMatches(s.Selector, labels) {
				out = append(out, s)
			}
		}
	}
	return out
}

// selected are the workloads of ns that a selector selects, in no order.
func (x *endpointIndex) selected(ns string, selector map[string]string) iter.Seq[*model.Workload] {
	return func(yield func(*model.Workload) bool) {
		pair, ok := selectorPair(selector)
		if !ok {
			return
		}
		for _, w := range x.byPair[pairKey{ns, pair}] {
			if (len(selector) == 1 || model.SelectorMatches(selector, w.Labels)) && !yield(w) {
				return
			}
		}
	}
}

// selectorPair is the pair under which a selector is indexed: that of its smallest key.
func selectorPair(selector map[string]string) (string, bool) {
	if len(selector) == 0 {
		return "", false
	}
	k := slices.Min(slices.Collect(maps.Keys(selector)))
	return k + "=" + selector[k], true
}
