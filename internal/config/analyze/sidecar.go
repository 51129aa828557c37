package analyze

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

func (c ruleChecks) sidecar(s *model.Sidecar) {
	if len(s.Selector) > 0 && !c.selectsAny(s.Namespace, s.Selector) {
		c.warnf(code.SelectorMatchesNothing, s, "spec.workloadSelector", "no workload of namespace %s has %s, so the Sidecar has no effect; correct the labels",
			s.Namespace, labelText(s.Selector))
	}
	for i, e := range s.Egress {
		for j, h := range e.Hosts {
			if h.Namespace == "~" || h.Exclude || c.selectsService(s, e, h) {
				continue
			}
			if field := fmt.Sprintf("spec.egress[%d].hosts[%d]", i, j); c.selectionElsewhere(s, h) {
				if h.Host == "*" { // whatever a namespace has
					c.wildcardNamespace(s, field, h)
					continue
				}
				c.elsewhere(s.Key, field, h.Namespace+"/"+string(h.Host), "services of its namespace")
			} else {
				c.warnf(code.EgressSelectsNothing, s, field, "%s", c.noSelection(s, e, h))
			}
		}
	}
	if d := s.EgressProxy; d != nil {
		destinationChecks(c).destination(s, "spec.outboundTrafficPolicy.egressProxy", *d)
	}
	gatewayChecks(c).ingress(s)
}

// selectsAny reports whether a workload has the labels, or whether none is known at all.
func (c ruleChecks) selectsAny(ns string, selector map[string]string) bool {
	return !c.workloadsKnown(ns) || len(c.selected(ns, selector)) > 0
}

// selectionElsewhere reports whether the services that an entry selects may be in other files.
func (c ruleChecks) selectionElsewhere(s *model.Sidecar, h model.HostSelector) bool {
	if !c.onlyFiles || len(c.byHost[h.Host]) > 0 {
		return false
	}
	return !slices.ContainsFunc(c.services, func(svc *model.Service) bool { return c.takesFrom(s, h, svc.Namespace) && !c.isGatewayService(svc) })
}

func (c ruleChecks) selectsService(s *model.Sidecar, e model.EgressListener, h model.HostSelector) bool {
	return slices.ContainsFunc(c.services, func(svc *model.Service) bool {
		return c.takesFrom(s, h, svc.Namespace) && h.Host.Overlaps(svc.Hostname) && c.seenBy(s, svc) &&
			(e.Port == nil || e.Port.Number == 0 || svc.Port(e.Port.Number) != nil)
	})
}

// forAll reports whether a Sidecar is for workloads of all namespaces.
func (c ruleChecks) forAll(s *model.Sidecar) bool {
	return len(s.Selector) == 0 && s.Namespace == c.security.root
}

// takesFrom reports whether an entry means services of a namespace, for some workload.
func (c ruleChecks) takesFrom(s *model.Sidecar, h model.HostSelector, namespace string) bool {
	if h.Namespace == model.HostsHere {
		return namespace == s.Namespace || c.forAll(s)
	}
	return h.Namespace == "*" || h.Namespace == namespace
}

// seenBy reports whether a service is exported to a workload that a Sidecar is for.
func (c ruleChecks) seenBy(s *model.Sidecar, svc *model.Service) bool {
	return svc.Visibility.Sees(s.Namespace) || c.forAll(s)
}

func (c ruleChecks) noSelection(s *model.Sidecar, e model.EgressListener, h model.HostSelector) string {
	for _, svc := range c.byHost[h.Host] {
		if !c.takesFrom(s, h, svc.Namespace) {
			return fmt.Sprintf("%s/%s selects nothing: the service is of namespace %s; write %s/%s",
				h.Namespace, h.Host, svc.Namespace, svc.Namespace, h.Host)
		}
		if !c.seenBy(s, svc) {
			return fmt.Sprintf("%s/%s selects nothing: the service is not exported to namespace %s", h.Namespace, h.Host, s.Namespace)
		}
	}
	if e.Port != nil && e.Port.Number != 0 {
		return fmt.Sprintf("%s/%s selects no service that has port %d; correct it, or write the service", h.Namespace, h.Host, e.Port.Number)
	}
	return fmt.Sprintf("%s/%s selects no service; correct it, or write the service", h.Namespace, h.Host)
}
