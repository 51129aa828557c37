package analyze

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

func (c serviceChecks) service(s *model.Service) {
	for i, p := range s.Ports {
		if p.Protocol == model.ProtocolAuto {
			c.infof(code.PortWithoutProtocol, s, fmt.Sprintf("spec.ports[%d].name", i),
				"port %d has no protocol, so Envoy detects it from the first bytes; name it http-..., grpc-..., tcp-..., or set appProtocol", p.Number)
		}
	}
	if len(s.Selector) == 0 {
		return
	}
	if !ruleChecks(c).selectsAny(s.Namespace, s.Selector) {
		c.infof(code.SelectorMatchesNothing, s, "spec.selector", "no workload of namespace %s has %s, so the service has no endpoints", s.Namespace, labelText(s.Selector))
		return
	}
	securityChecks(c).serverFirst(s)
	for i, p := range s.Ports {
		if p.TargetName != "" && !c.hasNamedPort(s, p.TargetName) {
			c.warnf(code.TargetPortNotFound, s, fmt.Sprintf("spec.ports[%d].targetPort", i), "none of its workloads has a container port named %q; name it there, or use a number", p.TargetName)
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
	for i := range e.Hosts {
		c.sharedHost(e, i)
	}
	c.ownHost(e)
	if sel := e.Template.Selector; len(sel) > 0 && !ruleChecks(c).selectsAny(e.Namespace, sel) {
		c.infof(code.SelectorMatchesNothing, e, "spec.workloadSelector", "no workload of namespace %s has %s, so the service has no endpoints", e.Namespace, labelText(sel))
	}
	c.socketsOf(e)
}

// socketsOf reports selected workloads that clients cannot call because Envoy resolves the names of endpoints.
func (c serviceChecks) socketsOf(e *model.ServiceEntry) {
	if t := &e.Template; len(t.Selector) > 0 && t.IsResolved() {
		for _, w := range c.workloads[e.Namespace] {
			if model.IsSocket(w.Address()) && model.SelectorMatches(t.Selector, w.Labels) {
				c.warnf(code.NotAllowedHere, e, "spec.workloadSelector", "selects %s, whose address is a Unix socket, so it is not called: use resolution STATIC, or other labels", w.Key)
			}
		}
	}
}

// sharedHost reports what a ServiceEntry loses because another object has its host, unless that is hidden from its
// namespace. ServiceEntries of one namespace are merged.
func (c serviceChecks) sharedHost(e *model.ServiceEntry, i int) {
	own, h, field := e.Services()[i], e.Hosts[i], fmt.Sprintf("spec.hosts[%d]", i)
	var first *model.Service
	for _, s := range c.byHost[h] {
		switch {
		case s.IsKubernetes() && s.Namespace == e.Namespace:
			c.warnf(code.HostTaken, e, field, "%s is already the host of %s, to which this ServiceEntry only adds endpoints; choose another host", h, s.Key)
			return
		case s.IsKubernetes() && s.Visibility.Sees(e.Namespace):
			c.warnf(code.HostTaken, e, field, "%s is already the host of %s, which others than sidecars of namespace %s call; choose another host", h, s.Key, e.Namespace)
			return
		case s.Namespace == e.Namespace && (first == nil || model.Older(s, first)):
			first = s
		}
	}
	if first == nil || first.Key == e.Key {
		c.sharedElsewhere(e, own, h)
		return
	}
	if differs := first.CannotTakeIn(own); differs != "" {
		c.warnf(code.HostTaken, e, field, "%s is already the host of %s, whose %s differs, so ports that only this one has cannot be called; make the two alike, or choose another host",
			h, first.Key, differs)
		return
	}
	for j := range own.Ports {
		p, is := &own.Ports[j], first.Port(own.Ports[j].Number)
		if is != nil && !sameProtocol(is.Protocol, p.Protocol) {
			c.warnf(code.HostTaken, e, fmt.Sprintf("spec.ports[%d].protocol", j), "%s gives port %d of %s the protocol %s, which is used; make the two alike", first.Key, p.Number, h, is.Protocol)
		}
		if is != nil && is.Name != p.Name && !first.IsResolved() {
			c.warnf(code.HostTaken, e, fmt.Sprintf("spec.ports[%d].name", j), "%s calls port %d of %s %q, so this endpoint list does not count for the port; use that name",
				first.Key, p.Number, h, is.Name)
		}
	}
}

// sharedElsewhere reports ports to which an older ServiceEntry of another namespace gives another protocol.
func (c serviceChecks) sharedElsewhere(e *model.ServiceEntry, own *model.Service, h model.Host) {
	if own.Visibility.Private {
		return
	}
	for _, s := range c.byHost[h] {
		if s.Visibility.Private || s.Namespace == e.Namespace || !model.Older(s, own) {
			continue
		}
		for i := range own.Ports {
			p, is := &own.Ports[i], s.Port(own.Ports[i].Number)
			if is != nil && !sameProtocol(is.Protocol, p.Protocol) {
				c.warnf(code.HostTaken, e, fmt.Sprintf("spec.ports[%d].protocol", i), "%s gives port %d of %s the protocol %s, which others than clients of namespace %s use; make the two alike, or set exportTo",
					s.Key, p.Number, h, is.Protocol, e.Namespace)
				return
			}
		}
	}
}

// sameProtocol reports whether proxies treat two protocols alike.
func sameProtocol(a, b model.Protocol) bool { return a == b || a.IsTLS() && b.IsTLS() }

// ownHost reports endpoints on the host of the proxy that calls them, which only proxies of the entry's namespace use.
func (c serviceChecks) ownHost(e *model.ServiceEntry) {
	v := e.Template.Visibility
	if e.Namespace == c.security.root || v.Private && (len(v.Namespaces) == 0 || slices.Equal(v.Namespaces, []string{e.Namespace})) {
		return
	}
	for i := range e.Template.Inline {
		if a := e.Template.Inline[i].Address; model.IsOwnHost(a) {
			c.warnf(code.EndpointOnOwnHost, e, fmt.Sprintf("spec.endpoints[%d].address", i),
				"%s is on the host of the proxy that calls it, so only proxies of namespace %s use it; set exportTo: [\".\"], or an address that others reach",
				a, e.Namespace)
		}
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
		c.warnf(code.EndpointsWithoutService, s, "metadata.labels", "Service %s: not found in namespace %s, so the endpoints are not used: correct the label kubernetes.io/service-name",
			s.Service, s.Namespace)
	}
}

// proxyConfig reports a ProxyConfig without effect: one that selects no workload, or that stands beside an older one.
func (c serviceChecks) proxyConfig(p *model.ProxyConfig) {
	if len(p.Selector) > 0 && !ruleChecks(c).selectsAny(p.Namespace, p.Selector) {
		c.warnf(code.SelectorMatchesNothing, p, "spec.selector", "no workload of namespace %s has %s, so the ProxyConfig has no effect; correct the labels",
			p.Namespace, labelText(p.Selector))
	}
	if len(p.Selector) > 0 {
		return
	}
	for _, other := range c.proxies.List {
		if other.Namespace == p.Namespace && len(other.Selector) == 0 && model.Older(other, p) {
			c.warnf(code.TargetTwice, p, "spec", "%s is for all of namespace %s, too, and is older, so this one has no effect; merge the two", other.Name, p.Namespace)
			return
		}
	}
}
