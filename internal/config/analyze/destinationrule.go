package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

func (c ruleChecks) destinationRule(r *model.DestinationRule) {
	if !routeChecks(c).matchesAny(r.Host) {
		_, hidden := c.find(r.Host, r.Namespace)
		destinationChecks(c).missing(problem.SeverityWarning, r, "spec.host", r.Host, hidden, "the rule has no effect: ")
		return
	}
	for i, s := range r.Subsets {
		c.subset(r, fmt.Sprintf("spec.subsets[%d].labels", i), s)
	}
	c.outOfReach(r)
	c.portPolicies(r)
	securityChecks(c).clientTLS(r)
	secretChecks(c).credentials(r)
}

// outOfReach reports a rule that no client follows: clients search their namespace, the service's and the root namespace.
func (c ruleChecks) outOfReach(r *model.DestinationRule) {
	ofService := func(s *model.Service) bool { return s.Namespace == r.Namespace && r.Host.Overlaps(s.Hostname) }
	if r.Namespace == c.security.root || len(c.workloads) == 0 || len(c.workloads[r.Namespace]) > 0 || slices.ContainsFunc(c.services, ofService) {
		return
	}
	const format = "no client follows the rule: namespace %s has neither the service %s nor workloads that call it: move it to the namespace of the service, to that of its clients, or to %s for all clients"
	if c.whole && !c.onlyFiles {
		c.warnf(code.RuleOutOfReach, r, "metadata.namespace", format, r.Namespace, r.Host, c.security.root)
	} else { // workloads may come later, or be in other files
		c.infof(code.RuleOutOfReach, r, "metadata.namespace", format, r.Namespace, r.Host, c.security.root)
	}
}

// subset reports one that no workload of the rule's services belongs to.
func (c ruleChecks) subset(r *model.DestinationRule, field string, s model.Subset) {
	total, known, labels := 0, false, model.WithoutTopology(s.Labels)
	for _, svc := range c.services {
		if !r.Host.Matches(svc.Hostname) {
			continue
		}
		members, k := c.members(svc)
		known = known || k
		total += len(members)
		if slices.ContainsFunc(members, func(m member) bool { return model.SelectorMatches(labels, m.labels) }) {
			return
		}
	}
	if known && total > 0 {
		c.warnf(code.SubsetWithoutWorkloads, r, field, "none of the %d workloads of %s has %s, so requests to subset %q fail; correct the labels",
			total, r.Host, labelText(labels), s.Name)
	}
}

func labelText(labels map[string]string) string {
	out := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}

// portPolicies reports settings of ports that no service of the rule's host has.
func (c ruleChecks) portPolicies(r *model.DestinationRule) {
	services := c.byHost[r.Host]
	for _, number := range slices.Sorted(maps.Keys(r.Ports)) {
		if len(services) > 0 && !slices.ContainsFunc(services, func(s *model.Service) bool { return s.Port(number) != nil }) {
			c.warnf(code.PortNotFound, r, "spec.trafficPolicy.portLevelSettings", "%s has no port %d; it has %s", r.Host, number, ports(services[0]))
		}
	}
}
