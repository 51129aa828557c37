package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// ruleIn finds what the destination rules of one namespace, of those that count, say of host h:
// those that select clients go before the others, and several for the same clients are one.
func (r *reader) ruleIn(ns string, h model.Host, counts func(*model.DestinationRule) bool) *model.DestinationRule {
	var chosen []*model.DestinationRule // oldest first
	for _, d := range r.index.rules[h] {
		if d.Namespace != ns || !d.Visibility.Sees(r.scope.Key.Namespace) || !counts(d) {
			continue
		}
		switch {
		case len(chosen) == 0, len(d.WorkloadSelector) > 0 && len(chosen[0].WorkloadSelector) == 0:
			chosen = []*model.DestinationRule{d}
		case maps.Equal(d.WorkloadSelector, chosen[0].WorkloadSelector):
			chosen = append(chosen, d)
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	return mergeRules(chosen)
}

// mergeRules joins destination rules for the same host and clients, as Istio does: the
// subsets of all, the older one's where two have one name; the first traffic policy.
func mergeRules(rules []*model.DestinationRule) *model.DestinationRule {
	if len(rules) == 1 {
		return rules[0]
	}
	out := *rules[0]
	out.Subsets = slices.Clone(out.Subsets)
	for _, d := range rules[1:] {
		if out.Policy == (model.TrafficPolicy{}) && len(out.Ports) == 0 {
			out.Policy, out.Ports = d.Policy, d.Ports
		}
		for _, sub := range d.Subsets {
			if !slices.ContainsFunc(out.Subsets, func(s model.Subset) bool { return s.Name == sub.Name }) {
				out.Subsets = append(out.Subsets, sub)
			}
		}
	}
	return &out
}
