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

// peerPolicies are the PeerAuthentications, the oldest first, and the root namespace.
type peerPolicies struct {
	root string
	list []*model.PeerAuthentication
}

func (p *peerPolicies) finish() {
	slices.SortFunc(p.list, func(a, b *model.PeerAuthentication) int { return model.CompareAge(a, b) })
}

// of is what a workload accepts.
func (p *peerPolicies) of(ns string, labels map[string]string) *model.PeerTLS {
	var selecting []*model.PeerAuthentication
	for _, a := range p.list {
		if model.IsFor(a, ns, labels, p.root) {
			selecting = append(selecting, a)
		}
	}
	return model.EffectivePeerTLS(p.root, selecting)
}

func (c securityChecks) peerAuthentication(p *model.PeerAuthentication) {
	switch {
	case len(p.Selector) > 0 && p.Namespace == c.peers.root:
		c.warnf(code.RootNamespaceSelector, p, "spec.selector", "has no effect in the root namespace: policies for workloads belong into the workloads' namespace")
		return
	case len(p.Selector) > 0 && !ruleChecks(c).selectsAny(p.Namespace, p.Selector):
		c.warnf(code.SelectorMatchesNothing, p, "spec.selector", "no workload of namespace %s has %s, so the policy has no effect; correct the labels", p.Namespace, labelText(p.Selector))
		return
	}
	for _, number := range slices.Sorted(maps.Keys(p.Ports)) {
		if name, target := silentChecks(c).servicePort(p, number); target != 0 {
			c.warnf(code.PortOfServiceInPolicy, p, string(problem.Path("spec.portLevelMtls").Key(fmt.Sprint(number))), "is the port of Service %s, and the modes are for ports of workloads, so it has no effect; write %d", name, target)
		}
	}
	for _, other := range c.peers.list {
		if other == p {
			return
		}
		if other.Namespace == p.Namespace && maps.Equal(other.Selector, p.Selector) {
			c.warnf(code.TargetTwice, p, "spec", "has no effect: %s is older and for the same workloads; merge the two", other.Key)
			return
		}
	}
}

// clientTLS reports rules by which callers speak what workloads do not take.
func (c securityChecks) clientTLS(r *model.DestinationRule) {
	for _, s := range c.services {
		if !r.Host.Matches(s.Hostname) || s.External {
			continue
		}
		for i := range s.Ports {
			c.portTLS(r, s, &s.Ports[i])
		}
	}
}

func (c securityChecks) portTLS(r *model.DestinationRule, s *model.Service, p *model.ServicePort) {
	t, field := r.Policy.TLS, "spec.trafficPolicy.tls.mode"
	if own, ok := r.Ports[p.Number]; ok {
		t, field = own.TLS, "spec.trafficPolicy.portLevelSettings"
	}
	c.modeOfPort(r, field, t, s, p, nil)
	for i := range r.Subsets {
		sub := &r.Subsets[i]
		if own, ok := sub.Ports[p.Number]; ok {
			c.modeOfPort(r, fmt.Sprintf("spec.subsets[%d].trafficPolicy.portLevelSettings", i), own.TLS, s, p, sub.Labels)
		} else if sub.Policy.TLS != nil {
			c.modeOfPort(r, fmt.Sprintf("spec.subsets[%d].trafficPolicy.tls.mode", i), sub.Policy.TLS, s, p, sub.Labels)
		}
	}
}

// modeOfPort compares a client's mode with what the service's workloads accept.
func (c securityChecks) modeOfPort(r *model.DestinationRule, field string, t *model.ClientTLS, s *model.Service, p *model.ServicePort, subset map[string]string) {
	if t == nil {
		return
	}
	members, _ := c.members(s)
	subset = model.WithoutTopology(subset)
	for _, m := range members {
		if !model.SelectorMatches(subset, m.labels) {
			continue
		}
		if router, servers := gatewayChecks(c).serversOf(m, p); router {
			if t.Mode == model.TLSIstioMutual && len(servers) > 0 && !slices.ContainsFunc(servers, (*model.GatewayServer).TakesTLS) {
				c.errorf(code.ConflictingMutualTLS, r, field, "ISTIO_MUTUAL, but the servers of Gateways at port %d of %s are without TLS, so calls fail; write tls: {mode: ISTIO_MUTUAL} there, or leave the mode out here", p.Number, s.Hostname)
				return
			}
			continue
		}
		accepted, mutual := c.peers.of(s.Namespace, m.labels).Of(workloadPort(p)), t.Mode == model.TLSIstioMutual
		switch {
		case mutual && !m.sidecar:
			c.errorf(code.ConflictingMutualTLS, r, field, "ISTIO_MUTUAL, but port %d of %s has workloads without a sidecar that speaks it, and calls of them fail; leave the mode out", p.Number, s.Hostname)
			return
		case mutual && accepted == model.MTLSDisable:
			c.errorf(code.ConflictingMutualTLS, r, field, "ISTIO_MUTUAL, but a PeerAuthentication switches it off at port %d of %s, so calls fail; leave the mode out", p.Number, s.Hostname)
			return
		case (t.Mode == model.TLSDisable || t.Mode == model.TLSSimple) && m.sidecar && accepted == model.MTLSStrict:
			c.errorf(code.ConflictingMutualTLS, r, field, "%s, but a PeerAuthentication asks for mutual TLS at port %d of %s, so calls fail; use ISTIO_MUTUAL, or leave the mode out", t.Mode, p.Number, s.Hostname)
			return
		}
	}
}

// serverFirst reports ports at which clients without a sidecar wait, because the sidecar waits for their first bytes.
func (c securityChecks) serverFirst(s *model.Service) {
	members, _ := c.members(s)
	for i := range s.Ports {
		p := &s.Ports[i]
		if !speaksFirst(p) {
			continue
		}
		if slices.ContainsFunc(members, func(m member) bool {
			return m.sidecar && c.peers.of(s.Namespace, m.labels).Of(workloadPort(p)) == model.MTLSPermissive
		}) {
			c.infof(code.ServerSpeaksFirst, s, fmt.Sprintf("spec.ports[%d]", i),
				"the server speaks first at port %d, and its mutual TLS is PERMISSIVE, so each connection of a client without a sidecar waits for the detection of TLS (5 s); set the mode STRICT or DISABLE for port %d of the workloads in a PeerAuthentication",
				p.Number, workloadPort(p))
		}
	}
}

// speaksFirst reports whether servers of a port's protocol send the first bytes, as far as the port tells.
func speaksFirst(p *model.ServicePort) bool {
	name, _, _ := strings.Cut(strings.ToLower(p.Name), "-")
	return p.Protocol == model.ProtocolMySQL || p.Protocol == model.ProtocolMongo ||
		!p.Protocol.IsHTTP() && !p.Protocol.IsTLS() && slices.Contains([]string{"mysql", "mongo", "mongodb", "smtp"}, name)
}

// serversOf reports whether a member of a service is a router, for which PeerAuthentications do not count, and returns its
// servers at a port of the service.
func (c gatewayChecks) serversOf(m member, p *model.ServicePort) (router bool, servers []*model.GatewayServer) {
	if m.pod == nil || m.sidecar {
		return false, nil
	}
	router = m.labels[model.LabelGatewayName] != ""
	for _, g := range c.gateways.all() {
		selector := model.WithoutTopology(g.Selector)
		if len(selector) == 0 || !model.SelectorMatches(selector, m.labels) || g.OwnNamespace && c.gateways.placeOf(g) != m.pod.Namespace {
			continue
		}
		router = true
		for i := range g.Servers {
			if number := g.Servers[i].Port.Number; number == p.Number || number == workloadPort(p) {
				servers = append(servers, &g.Servers[i])
			}
		}
	}
	return router, servers
}

// workloadPort is the port of the workload, where the service does not name it.
func workloadPort(p *model.ServicePort) uint32 {
	if p.TargetPort != 0 {
		return p.TargetPort
	}
	return p.Number
}
