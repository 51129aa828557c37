package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// namesKeys are the scopes of a sidecar's DNS proxy: one that has names and nothing else, for
// all who see the same hosts, and an empty one.
func (x *Index) namesKeys(p *model.Proxy) (names, none GroupKey) {
	names = GroupKey{Type: p.Type, Names: true, Namespace: p.Namespace, Domain: p.ClusterDomain()}
	if s := x.sidecarFor(p); s != nil {
		names.Sidecar = s.Key
	}
	if x.auto.usedBy(p) {
		names.AutoAddress, names.Families = true, p.Families()
	}
	return names, GroupKey{Names: true, Inbound: true}
}

// deriveNames gives a host's addresses; none where applications have to ask others.
func (s *proxyGroup) deriveNames(r *reader, h model.Host) {
	svc := r.service(h)
	var v *ir.Names
	if svc != nil && s.sees(svc) {
		v = s.namesOf(r, svc)
	}
	if v == nil && s.named[h] {
		s.out.Names[string(h)] = nil
		delete(s.named, h)
	}
	if v != nil {
		s.out.Names[string(h)] = v
		s.named[h] = true
	}
	if svc == nil || !s.sees(svc) {
		r.facts = nil // touch finds it should it come into sight
	}
}

// namesOf are a service's own addresses or, of a headless one, its Pods'. Networks are no
// answer to a question.
func (s *proxyGroup) namesOf(r *reader, svc *model.Service) *ir.Names {
	out := &ir.Names{Host: svc.Hostname}
	if svc.IsKubernetes() {
		out.Service, out.Namespace = svc.Name, svc.Namespace
	}
	for _, a := range s.addresses(svc) {
		if a.IsSingleIP() {
			out.Addresses = append(out.Addresses, a.Addr().String())
		}
	}
	if svc.Headless && svc.ExternalName == "" {
		out.Addresses = podAddresses(r.endpointsOf(svc), svc.PublishNotReady)
	}
	if len(out.Addresses) == 0 {
		return nil
	}
	out.Made = r.madeSince(0)
	return out
}

func podAddresses(list []*model.Endpoint, all bool) []string {
	var out []string
	for _, e := range list {
		if model.IsIP(e.Address) && (all || e.Health == model.Healthy) && !slices.Contains(out, e.Address) {
			out = append(out, e.Address)
		}
	}
	return out
}
