package analyze

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

func (c serviceChecks) service(s *model.Service) {
	for i, p := range s.Ports {
		if p.Protocol == model.ProtocolAuto {
			c.infof(s, fmt.Sprintf("spec.ports[%d].name", i),
				"port %d has no protocol, so Envoy detects it from the first bytes; name it http-..., grpc-..., tcp-..., or set appProtocol", p.Number)
		}
	}
	if len(s.Selector) == 0 {
		return
	}
	if !ruleChecks(c).selectsAny(s.Namespace, s.Selector) {
		c.infof(s, "spec.selector", "no workload of namespace %s has %s, so the service has no endpoints", s.Namespace, labelText(s.Selector))
		return
	}
	for i, p := range s.Ports {
		if p.TargetName != "" && !c.hasNamedPort(s, p.TargetName) {
			c.warnf(s, fmt.Sprintf("spec.ports[%d].targetPort", i), "none of its workloads has a container port named %q; name it there, or use a number", p.TargetName)
		}
	}
}

// hasNamedPort reports whether a workload of the service has the port, or none is known.
func (c serviceChecks) hasNamedPort(s *model.Service, name string) bool {
	known := false
	for _, w := range c.workloads[s.Namespace] {
		if w.Kind == model.KindWorkloadEntry || !model.SelectorMatches(s.Selector, w.Labels) {
			continue
		}
		if known = true; w.NamedPorts[name] != 0 {
			return true
		}
	}
	return !known
}

func (c serviceChecks) serviceEntry(e *model.ServiceEntry) {
	for i, h := range e.Hosts {
		for _, s := range c.byHost[h] {
			if s.IsKubernetes() {
				c.warnf(e, fmt.Sprintf("spec.hosts[%d]", i), "%s is already the host of %s; choose another host", h, s.Key)
			}
		}
	}
	if sel := e.Template.Selector; len(sel) > 0 && !ruleChecks(c).selectsAny(e.Namespace, sel) {
		c.infof(e, "spec.workloadSelector", "no workload of namespace %s has %s, so the service has no endpoints", e.Namespace, labelText(sel))
	}
}

func (c serviceChecks) endpointSlice(s *model.EndpointSlice) {
	found := slices.ContainsFunc(c.services, func(svc *model.Service) bool {
		return svc.IsKubernetes() && svc.Namespace == s.Namespace && svc.Name == s.Service
	})
	if host := model.ResolveHost(s.Service, s.Namespace, c.domain); !found && c.serviceElsewhere(host) {
		c.hostElsewhere(s.Key, "metadata.labels", host)
		return
	}
	if !found {
		c.warnf(s, "metadata.labels", "there is no Service %s in namespace %s, so the endpoints are not used; correct the label kubernetes.io/service-name",
			s.Service, s.Namespace)
	}
}

// proxyConfig reports a ProxyConfig without effect: one that selects no workload, or that stands beside an older one.
func (c serviceChecks) proxyConfig(p *model.ProxyConfig) {
	if len(p.Selector) > 0 && !ruleChecks(c).selectsAny(p.Namespace, p.Selector) {
		c.warnf(p, "spec.selector", "no workload of namespace %s has %s, so the ProxyConfig has no effect; correct the labels",
			p.Namespace, labelText(p.Selector))
	}
	if len(p.Selector) > 0 {
		return
	}
	for _, other := range c.proxies.List {
		if other.Namespace == p.Namespace && len(other.Selector) == 0 && model.Older(other, p) {
			c.warnf(p, "spec", "%s is for all of namespace %s, too, and is older, so this one has no effect; merge the two", other.Name, p.Namespace)
			return
		}
	}
}
