package derive

import (
	"iter"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// labelUse counts who asks for which label of a client. Only these labels tell scopes
// apart: proxies that differ in others share everything.
type labelUse map[string]int

// count adds the labels of a virtual service's sourceLabels; it tells whether the set of
// keys has changed.
func (u labelUse) count(v *model.VirtualService, by int) bool {
	changed := false
	for i := range v.HTTP {
		for j := range v.HTTP[i].Matches {
			changed = u.add(v.HTTP[i].Matches[j].SourceLabels, by) || changed
		}
	}
	for i := range v.TCP {
		changed = u.addL4(v.TCP[i].Matches, by) || changed
	}
	for i := range v.TLS {
		changed = u.addL4(v.TLS[i].Matches, by) || changed
	}
	return changed
}

func (u labelUse) addL4(matches []model.L4Match, by int) bool {
	changed := false
	for i := range matches {
		changed = u.add(matches[i].SourceLabels, by) || changed
	}
	return changed
}

func (u labelUse) countRule(r *model.DestinationRule, by int) bool {
	changed := u.add(r.WorkloadSelector, by)
	for p := range policiesOf(r) {
		if p.LoadBalancer != nil {
			changed = u.countPriority(p.LoadBalancer.Locality, by) || changed
		}
	}
	return changed
}

// countPriority counts the labels of failoverPriority, which compares client and endpoint.
func (u labelUse) countPriority(set *model.LocalityLB, by int) bool {
	if set == nil {
		return false
	}
	changed := false
	for _, p := range set.FailoverPriority {
		key, _, _ := strings.Cut(p, "=")
		changed = u.add(map[string]string{key: ""}, by) || changed
	}
	return changed
}

func (u labelUse) add(labels map[string]string, by int) bool {
	changed := false
	for k := range labels {
		before := u[k]
		u[k] += by
		if u[k] == 0 {
			delete(u, k)
		}
		changed = changed || before == 0 || before+by == 0
	}
	return changed
}

// relevant is the part of labels that anybody asks for, as canonical text.
func (u labelUse) relevant(labels map[string]string) string {
	if len(u) == 0 {
		return ""
	}
	out := make(map[string]string, len(u))
	for k := range u {
		if v, ok := labels[k]; ok {
			out[k] = v
		}
	}
	return canonicalLabels(out)
}

// canonicalLabels writes labels as "k=v,k=v", sorted.
func canonicalLabels(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	pairs := make([]string, 0, len(labels))
	for k, v := range labels {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// parseLabels reads canonicalLabels' text.
func parseLabels(s string) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			out[k] = v
		}
	}
	return out
}

// usesLocality tells whether the endpoints that a rule's clients see depend on where they are, and on which node.
func usesLocality(r *model.DestinationRule) (locality, node bool) {
	for p := range policiesOf(r) {
		lb := p.LoadBalancer
		set := lb != nil && lb.Locality != nil
		locality = locality || p.OutlierDetection != nil || set
		node = node || set && slices.Contains(lb.Locality.FailoverPriority, model.LabelNode)
	}
	return locality, node
}

// policiesOf yields all policies of a rule: its own, its ports', its subsets' and their ports'.
func policiesOf(r *model.DestinationRule) iter.Seq[model.TrafficPolicy] {
	return func(yield func(model.TrafficPolicy) bool) {
		if !yield(r.Policy) || !each(r.Ports, yield) {
			return
		}
		for _, s := range r.Subsets {
			if !yield(s.Policy) || !each(s.Ports, yield) {
				return
			}
		}
	}
}

func each(ports map[uint32]model.TrafficPolicy, yield func(model.TrafficPolicy) bool) bool {
	for _, p := range ports {
		if !yield(p) {
			return false
		}
	}
	return true
}
