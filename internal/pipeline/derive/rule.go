package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// rulePlace is where destination rules are looked for.
type rulePlace struct {
	namespace string
	own       bool // only those that are for the namespace's own clients
}

// has tells whether a rule is there.
func (p rulePlace) has(d *model.DestinationRule) bool {
	return d.Namespace == p.namespace && (!p.own || len(d.WorkloadSelector) > 0 || isOwn(d.Visibility, d.Namespace))
}

// isOwn tells whether nobody but a namespace, the object's, sees it.
func isOwn(v model.Visibility, ns string) bool {
	return v.Private && len(v.Namespaces) == 1 && v.Namespaces[0] == ns
}

// ruleIn finds what the destination rules of one place, of those that count, say of host h:
// those that select clients go before the others, and several for the same clients are one.
func (r *reader) ruleIn(p rulePlace, h model.Host, counts func(*model.DestinationRule) bool) *model.DestinationRule {
	var chosen []*model.DestinationRule // oldest first
	for _, d := range r.index.rules[h] {
		if !p.has(d) || !d.Visibility.Sees(r.scope.Key.Namespace) || !counts(d) {
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
	for _, d := range chosen {
		r.used.Add(d.Key)
	}
	return mergeRules(chosen)
}

// noRuleSets reports whether no rule that covers a host has a policy with some setting. Then the rule
// that counts leaves that setting as it would be without it.
func (r *reader) noRuleSets(h model.Host, sets func(*model.TrafficPolicy) bool) bool {
	for _, c := range h.Covering() {
		for _, d := range r.index.rules[c] {
			for p := range policiesOf(d) {
				if sets(&p) {
					return false
				}
			}
		}
	}
	return true
}

// The settings of a policy that go into routes, and into listeners.
func setsHash(p *model.TrafficPolicy) bool {
	return p.LoadBalancer != nil && p.LoadBalancer.Hash != nil
}
func setsPool(p *model.TrafficPolicy) bool { return p.ConnectionPool != nil || p.Tunnel != nil }
func setsTLS(p *model.TrafficPolicy) bool  { return p.TLS != nil }

// ruleFor is rule for what only some setting of it goes into: where no rule has it, none is an origin.
func (r *reader) ruleFor(h model.Host, serviceNS string, sets func(*model.TrafficPolicy) bool) *model.DestinationRule {
	mark := r.mark()
	rule := r.rule(h, serviceNS)
	if rule != nil && r.noRuleSets(h, sets) {
		r.unread(mark)
	}
	return rule
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
