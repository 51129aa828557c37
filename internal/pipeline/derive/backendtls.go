package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
)

// withBackendTLS is what rule says of a port, with the BackendTLSPolicy that counts for it; nil: none does. What a rule
// for the Service's own host says of TLS goes before; one for a wildcard knows less of it than the policy does.
// Applications that speak TLS to a port themselves, by the protocol that it says, do so through sidecars, too.
func (s *proxyGroup) withBackendTLS(r *index.Reader, policy model.TrafficPolicy, rule *model.DestinationRule, svc *model.Service, port *model.ServicePort) (model.TrafficPolicy, *model.BackendTLSPolicy) {
	list := r.BackendTLSPolicies(svc.Hostname)
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
			mark := r.Mark()
			secret := r.Secret(k)
			if secret == nil || secret.CAProblem != "" {
				r.Unread(mark)
				return false
			}
			return true
		})
		r.Use(p)
	}
	return policy, p
}
