package index

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Rule finds the destination rule for a service. It looks in the client's namespace, then the service's, then the root
// namespace, in each for the most specific host. For clients of the root namespace, mostly gateways, rules for the whole
// mesh also come last.
func (r *Reader) Rule(h model.Host, serviceNS string) *model.DestinationRule {
	return r.ruleAmong(h, serviceNS, r.selectedBy)
}

// ServedRule finds the rule that counts for the workload's own ports. Rules with a selector are for clients only.
func (r *Reader) ServedRule(h model.Host, serviceNS string) *model.DestinationRule {
	return r.ruleAmong(h, serviceNS, func(d *model.DestinationRule) bool { return len(d.WorkloadSelector) == 0 })
}

// RuleFor is Rule for a result that only one setting goes into. If no rule has the setting, none becomes an origin.
func (r *Reader) RuleFor(h model.Host, serviceNS string, sets Setting) *model.DestinationRule {
	mark := r.Mark()
	rule := r.Rule(h, serviceNS)
	if rule != nil && r.noRuleSets(h, sets) {
		r.Unread(mark)
	}
	return rule
}

// A Setting reports whether a policy has one of its settings.
type Setting func(*model.TrafficPolicy) bool

// The settings of a policy that go into routes and listeners.
var (
	SetsHash Setting = func(p *model.TrafficPolicy) bool { return p.LoadBalancer != nil && p.LoadBalancer.Hash != nil }
	SetsPool Setting = func(p *model.TrafficPolicy) bool { return p.ConnectionPool != nil || p.Tunnel != nil }
	SetsTLS  Setting = func(p *model.TrafficPolicy) bool { return p.TLS != nil }
)

// noRuleSets reports whether no rule that covers a host has a policy with some setting. The rule that counts then leaves
// the setting as it would be without it.
func (r *Reader) noRuleSets(h model.Host, sets Setting) bool {
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

func (r *Reader) ruleAmong(h model.Host, serviceNS string, counts func(*model.DestinationRule) bool) *model.DestinationRule {
	r.facts.add(destinationRuleFact(h))
	hosts := h.Covering()
	client, root := r.Key.Namespace, r.index.mesh.RootNamespace
	places := [...]rulePlace{{client, client == root}, {serviceNS, false}, {root, false}}
	for i, p := range places {
		if slices.Contains(places[:i], p) {
			continue
		}
		for _, c := range hosts {
			if d := r.ruleIn(p, c, counts); d != nil {
				return d
			}
		}
	}
	return nil
}

// selectedBy reports whether a rule is for the clients. A rule with a selector is only for workloads of its
// namespace.
func (c *Client) selectedBy(d *model.DestinationRule) bool {
	if len(d.WorkloadSelector) == 0 {
		return true
	}
	return d.Namespace == c.Key.Namespace && model.SelectorMatches(d.WorkloadSelector, c.Labels)
}

// rulePlace is a namespace in which destination rules are looked for.
type rulePlace struct {
	namespace string
	own       bool // only those for the namespace's own clients
}

// has reports whether a rule is in the place.
func (p rulePlace) has(d *model.DestinationRule) bool {
	return d.Namespace == p.namespace && (!p.own || len(d.WorkloadSelector) > 0 || isOwn(d.Visibility, d.Namespace))
}

// isOwn reports whether only the object's own namespace sees it.
func isOwn(v model.Visibility, ns string) bool {
	return v.Private && len(v.Namespaces) == 1 && v.Namespaces[0] == ns
}

// ruleIn finds the destination rule for host h in one place, among those that count. Rules that select clients precede
// others. Of rules for the same clients, the newest counts, merged with older rules that it joins.
func (r *Reader) ruleIn(p rulePlace, h model.Host, counts func(*model.DestinationRule) bool) *model.DestinationRule {
	var chosen []*model.DestinationRule // oldest first
	for _, d := range r.index.rules[h] {
		if !p.has(d) || !d.Visibility.Sees(r.Key.Namespace) || !counts(d) {
			continue
		}
		switch {
		case len(chosen) == 0, len(d.WorkloadSelector) > 0 && len(chosen[0].WorkloadSelector) == 0:
			chosen = []*model.DestinationRule{d}
		case !maps.Equal(d.WorkloadSelector, chosen[0].WorkloadSelector):
		case len(d.WorkloadSelector) > 0, joins(d, chosen[0]):
			chosen = append(chosen, d)
		default:
			chosen = []*model.DestinationRule{d}
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	for _, d := range chosen {
		r.Used.Add(d.Key)
	}
	return mergeRules(chosen)
}

// joins reports whether a rule is merged with an older one, as Istio does: exportTo of both is the same, or the rule's includes
// the older's. No exportTo is not the same as "*".
func joins(d, older *model.DestinationRule) bool {
	v, o := d.Visibility, older.Visibility
	if v.Private && o.Private {
		return !slices.ContainsFunc(o.Namespaces, func(ns string) bool { return !slices.Contains(v.Namespaces, ns) })
	}
	return v.Equal(o) && v.Public == o.Public
}

// mergeRules joins destination rules for the same host and clients, as Istio does: the subsets of all (of two with one
// name the older rule's), and the first traffic policy.
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

// BackendTLSPolicies are found by the host of the Service that they name, or by the ServiceEntry. They belong to the same
// fact as the DestinationRules of the host.

// BackendTLSPolicies lists those for a service, oldest first.
func (r *Reader) BackendTLSPolicies(svc *model.Service) []*model.BackendTLSPolicy {
	r.facts.add(destinationRuleFact(svc.Hostname))
	list := r.index.backendTLS[svc.Hostname]
	if len(r.index.entryTLS) == 0 {
		return list
	}
	entries := svc.Entries()
	if len(entries) == 0 {
		return list
	}
	list = slices.Clone(list)
	for _, k := range entries {
		list = append(list, r.index.entryTLS[k]...)
	}
	slices.SortFunc(list, func(a, b *model.BackendTLSPolicy) int { return model.CompareAge(a, b) })
	return list
}
