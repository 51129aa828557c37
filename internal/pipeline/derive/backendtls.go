package derive

import "github.com/moonsail/moonsail/internal/model"

// BackendTLSPolicies are found by the host of the Service that they name, as DestinationRules are, and are a part
// of the same fact: who asks for the rule of a host asks for them, too.

func (x *Index) replaceBackendTLS(old, now *model.BackendTLSPolicy, touched *touched) {
	if old != nil {
		for _, h := range targetHosts(old) {
			unlist(x.backendTLS, h, old)
			touched.facts.add(destinationRuleFact(h))
		}
	}
	if now != nil {
		for _, h := range targetHosts(now) {
			enlist(x.backendTLS, h, now)
			touched.facts.add(destinationRuleFact(h))
		}
	}
}

// targetHosts are those of a policy's targets, each once: several may be ports of one Service.
func targetHosts(p *model.BackendTLSPolicy) []model.Host {
	seen, out := map[model.Host]bool{}, []model.Host(nil)
	for _, t := range p.Targets {
		if !seen[t.Host] {
			seen[t.Host] = true
			out = append(out, t.Host)
		}
	}
	return out
}

// withBackendTLS is what rule says of a port, with the BackendTLSPolicy that counts for it; nil: none does. What a rule
// for the Service's own host says of TLS goes before; one for a wildcard knows less of it than the policy does.
// Applications that speak TLS to a port themselves, by the protocol that it says, do so through sidecars, too.
func (s *proxyGroup) withBackendTLS(r *reader, policy model.TrafficPolicy, rule *model.DestinationRule, svc *model.Service, port *model.ServicePort) (model.TrafficPolicy, *model.BackendTLSPolicy) {
	r.facts.add(destinationRuleFact(svc.Hostname))
	list := r.index.backendTLS[svc.Hostname]
	switch {
	case len(list) == 0 || !svc.IsKubernetes():
		return policy, nil
	case policy.TLS != nil && rule != nil && rule.Host == svc.Hostname:
		return policy, nil
	case s.router == nil && port.Protocol.IsTLS():
		return policy, nil
	}
	p := model.BackendTLSFor(list, svc, port.Name)
	if p != nil {
		policy.TLS = p.ClientTLS(func(k model.Key) bool {
			mark := r.mark()
			secret := r.secret(k)
			if secret == nil || secret.CAProblem != "" {
				r.unread(mark)
				return false
			}
			return true
		})
		r.use(p)
	}
	return policy, p
}
