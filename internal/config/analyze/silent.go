package analyze

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// virtualService reports routes that seem to do something else than they do.
func (c silentChecks) virtualService(v *model.VirtualService) {
	c.visibility(v, v.Visibility)
	for i := range v.HTTP {
		r, field := &v.HTTP[i], fmt.Sprintf("spec.http[%d]", i)
		if r.Timeout != nil && *r.Timeout > 0 && r.Retry != nil && r.Retry.PerTryTimeout > *r.Timeout {
			c.warnf(code.TryLongerThanTimeout, v, field+".retries.perTryTimeout", "%s is longer than the timeout of the route, %s, so no try can use it; shorten it", r.Retry.PerTryTimeout, r.Timeout)
		}
		for j := range r.Matches {
			at := fmt.Sprintf("%s.match[%d]", field, j)
			c.match(v, at, &r.Matches[j])
			c.literals(v, at, &r.Matches[j])
		}
		c.shadowed(v, i)
		c.paths(v, field, r)
		c.redirectLoop(v, i)
		c.origins(v, field, r)
	}
	c.httpOnTCP(v)
}

// match reports conditions that no request fulfils.
func (c silentChecks) match(v *model.VirtualService, field string, m *model.HTTPMatch) {
	if u := m.URI; u != nil && (u.Kind == model.MatchPrefix || u.Kind == model.MatchExact) && u.Value != "" && !strings.HasPrefix(u.Value, "/") && !strings.HasPrefix(u.Value, "*") {
		c.warnf(code.PathWithoutSlash, v, field+".uri."+matchField(u), "%q never matches: paths begin with a slash; write %q", u.Value, "/"+u.Value).Set("/" + u.Value)
	}
	if labels := model.WithoutTopology(m.SourceLabels); len(labels) > 0 && len(c.workloads) > 0 && !c.anyWorkload(v, labels) {
		if c.onlyFiles { // clients may be of other files
			c.infof(code.SelectorMatchesNothing, v, field+".sourceLabels", "no workload among the objects has %s, so this may never match; check the labels", labelText(m.SourceLabels))
		} else {
			c.warnf(code.SelectorMatchesNothing, v, field+".sourceLabels", "no workload has %s, so this never matches; correct the labels", labelText(m.SourceLabels))
		}
	}
	if i := slices.IndexFunc(m.Headers, func(h model.HeaderMatch) bool { return model.IsClaim(h.Name) }); i >= 0 && len(c.security.tokens) == 0 {
		if c.onlyFiles {
			c.infof(code.TokensNotChecked, v, field+".headers", "compares %s, but no RequestAuthentication is among the objects, so this may never match; write one, or pass the files that define it", m.Headers[i].Name)
		} else {
			c.warnf(code.TokensNotChecked, v, field+".headers", "compares %s, but no RequestAuthentication exists, so this never matches; write one", m.Headers[i].Name)
		}
	}
}

// anyWorkload reports whether a workload has labels, in a namespace whose clients the routes are for.
func (c silentChecks) anyWorkload(v *model.VirtualService, labels map[string]string) bool {
	for ns, list := range c.workloads {
		if v.Visibility.Sees(ns) && slices.ContainsFunc(list, func(w *model.Workload) bool { return model.SelectorMatches(labels, w.Labels) }) {
			return true
		}
	}
	return false
}

// shadowed reports matches of rule i whose requests a shorter prefix before them takes.
func (c silentChecks) shadowed(v *model.VirtualService, i int) {
	for j := range v.HTTP[i].Matches {
		u := v.HTTP[i].Matches[j].URI
		if u == nil || u.Kind != model.MatchPrefix && u.Kind != model.MatchExact {
			continue
		}
		for k := range v.HTTP[:i] {
			if slices.ContainsFunc(v.HTTP[k].Matches, func(m model.HTTPMatch) bool { return v.HTTP[k].Delegate == nil && takesPaths(&m, u.Value) }) {
				c.warnf(code.RuleNeverUsed, v, fmt.Sprintf("spec.http[%d].match[%d]", i, j), "is never used: %s takes all paths that begin with it; move this rule before that", ruleName(v, k))
				break
			}
		}
	}
}

// takesPaths reports whether a match has no condition but a prefix that the path begins with. The prefix "/" is a case of
// takesAll.
func takesPaths(m *model.HTTPMatch, path string) bool {
	u := m.URI
	return onlyPath(m) && u.Kind == model.MatchPrefix && len(u.Value) > 1 && u.Value != path && strings.HasPrefix(path, u.Value) && !m.IgnoreURICase
}

// onlyPath reports whether a match has a condition for the path, and no other one.
func onlyPath(m *model.HTTPMatch) bool {
	return m.URI != nil && m.Scheme == nil && m.Method == nil && m.Authority == nil && m.Port == 0 && m.SourceNamespace == "" &&
		len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams)+len(m.SourceLabels)+len(m.Gateways) == 0
}

// httpOnTCP reports http routes for a host all of whose ports carry bytes: sidecars do not read requests there.
func (c silentChecks) httpOnTCP(v *model.VirtualService) {
	if len(v.HTTP) == 0 || !v.InMesh() {
		return
	}
	for i, h := range v.Hosts {
		for _, s := range c.byHost[h] {
			if len(s.Ports) == 0 || slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool {
				return p.Protocol.IsHTTP() || p.Protocol == model.ProtocolAuto
			}) {
				continue
			}
			c.warnf(code.HTTPRoutesOnTCP, v, fmt.Sprintf("spec.hosts[%d]", i), "the http routes have no effect: no port of %s is HTTP (port %s has protocol %s); rename the port to http-..., or write tcp routes", h, ports(s), s.Ports[0].Protocol)
		}
	}
}

// visibility reports namespaces of exportTo that nothing else mentions.
func (c silentChecks) visibility(o model.Object, v model.Visibility) {
	if !v.Private {
		return
	}
	for _, ns := range v.Namespaces {
		if c.noNamespace(ns) {
			c.warnf(code.NamespaceNotFound, o, "spec.exportTo", "namespace %s: not found, so nothing is exported there: %s", ns, c.namespaceHint(ns))
		}
	}
}

// serviceEntry reports a ServiceEntry without ports or endpoints.
func (c silentChecks) serviceEntry(e *model.ServiceEntry) {
	c.visibility(e, e.Template.Visibility)
	t := &e.Template
	if len(t.Ports) == 0 {
		c.warnf(code.ServiceEntryWithoutPort, e, "spec.ports", "are missing, so nothing can be called; add the ports of the service")
	}
	c.plaintextHTTPS(e)
	if t.Resolution == model.ResolutionStatic && len(t.Inline) == 0 && len(t.Selector) == 0 {
		c.warnf(code.StaticWithoutEndpoints, e, "spec.resolution", "STATIC needs endpoints or a workloadSelector, so calls fail: add endpoints, or use DNS")
	}
}

// authorizationPolicy reports rules for ports of Services instead of workloads.
func (c silentChecks) authorizationPolicy(p *model.AuthorizationPolicy) {
	for i := range p.Rules {
		r, field := &p.Rules[i], fmt.Sprintf("spec.rules[%d]", i)
		for _, to := range r.To {
			for j := range to {
				c.servicePorts(p, field, &to[j])
			}
		}
	}
}

// servicePorts reports ports that only Services of the selected workloads have.
func (c silentChecks) servicePorts(p *model.AuthorizationPolicy, field string, cond *model.AuthorizationCondition) {
	if cond.Attribute != model.AttributeDestinationPort {
		return
	}
	for _, value := range cond.Values {
		number, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			continue
		}
		if name, target := c.servicePort(p, uint32(number)); target != 0 {
			c.warnf(code.PortOfServiceInPolicy, p, field+".to", "port %d is the port of Service %s, and policies are about the port of the workload, so the rule never matches; write %d", number, name, target)
		}
	}
}

// servicePort returns the Service with a port number that leads to another number at workloads of the policy, unless a
// Service leads to the number itself. target is 0 if there is none.
func (c silentChecks) servicePort(p model.Selecting, number uint32) (name string, target uint32) {
	for _, s := range securityChecks(c).servicesFor(p) {
		if !securityChecks(c).selects(p, s) {
			continue
		}
		for i := range s.Ports {
			port := &s.Ports[i]
			to := c.targetPort(s, port)
			if to == number {
				return "", 0
			}
			if port.Number == number && to != 0 {
				name, target = s.Name, to
			}
		}
	}
	return name, target
}

// targetPort is the port of workloads; 0: it is not known.
func (c silentChecks) targetPort(s *model.Service, p *model.ServicePort) uint32 {
	if p.TargetName == "" {
		return workloadPort(p)
	}
	for _, w := range c.workloads[s.Namespace] {
		if n := w.NamedPorts[p.TargetName]; n != 0 && model.SelectorMatches(s.Selector, w.Labels) {
			return n
		}
	}
	return 0
}

// plaintextHTTPS reports HTTP at port 443, unless a DestinationRule has a mode of TLS for the host.
func (c silentChecks) plaintextHTTPS(e *model.ServiceEntry) {
	for i := range e.Template.Ports {
		p := &e.Template.Ports[i]
		if p.Number != 443 || workloadPort(p) != 443 || p.Protocol != model.ProtocolHTTP {
			continue
		}
		for _, h := range e.Hosts {
			if !slices.ContainsFunc(c.rulesFor(h, e.Namespace), func(r *model.DestinationRule) bool {
				own, ok := r.Ports[p.Number]
				return r.Policy.TLS != nil || ok && own.TLS != nil
			}) {
				c.infof(code.PlaintextHTTPS, e, fmt.Sprintf("spec.ports[%d].protocol", i), "requests to %s go to port 443 in plain text; use HTTPS if applications speak TLS, or a DestinationRule with tls mode SIMPLE", h)
				break
			}
		}
	}
}

// matchField is the field of a comparison with a text.
func matchField(m *model.StringMatch) string {
	if m.Kind == model.MatchPrefix {
		return "prefix"
	}
	return "exact"
}
