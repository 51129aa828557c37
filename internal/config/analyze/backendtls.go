package analyze

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// backendTLS reports targets that a BackendTLSPolicy has no effect on, and ConfigMaps without CAs.
func (c gatewayChecks) backendTLS(p *model.BackendTLSPolicy) {
	const field = "spec.targetRefs"
	for _, t := range p.Targets {
		svc, kind := c.kubernetesService(t.Host), "Service"
		if t.Entry != "" {
			svc, kind = c.entryService(model.Key{Kind: model.KindServiceEntry, Namespace: p.Namespace, Name: t.Entry}), "ServiceEntry"
		}
		switch {
		case svc == nil && t.Entry != "":
			c.warnf(code.BackendNotFound, p, field, "ServiceEntry %s: not found in namespace %s, so the policy does not apply to it: create it, or correct the name", t.Entry, p.Namespace)
		case svc == nil:
			c.warnf(code.BackendNotFound, p, field, "service %s: not found, so the policy does not apply to it: create the Service, or correct the name", t.Host)
		case t.Port != "" && !slices.ContainsFunc(svc.Ports, func(port model.ServicePort) bool { return port.Name == t.Port }):
			c.warnf(code.PortNotFound, p, field, "%s %s: no port %s, so the policy does not apply to it: correct sectionName, or name the port", kind, cmp.Or(t.Entry, svc.Name), t.Port)
		}
		for _, o := range c.backendPolicies {
			if o.Key != p.Key && o.Namespace == p.Namespace && slices.Contains(o.Targets, t) && model.Older(o, p) {
				c.warnf(code.TargetTwice, p, field, "has no effect on %s, which the older %s is for, too", cmp.Or(string(t.Host), t.Entry), o.Key)
				break
			}
		}
	}
	if len(c.secrets) == 0 {
		return
	}
	for _, k := range p.CAs {
		secret := c.secrets[k]
		if secret == nil && !c.whole {
			continue // it is read once an object names it
		}
		c.defective(p, "spec.validation.caCertificateRefs", c.unusable(k, secret, false))
	}
}

// entryService is a service of a ServiceEntry; nil: there is none.
func (c gatewayChecks) entryService(k model.Key) *model.Service {
	for _, list := range c.byHost {
		for _, s := range list {
			if s.Key == k {
				return s
			}
		}
	}
	return nil
}

// kubernetesService is the Service of a host; nil: there is none.
func (c gatewayChecks) kubernetesService(h model.Host) *model.Service {
	for _, s := range c.byHost[h] {
		if s.IsKubernetes() {
			return s
		}
	}
	return nil
}
