package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// deriveNames gives a host's addresses; none where applications have to ask others.
func (s *proxyGroup) deriveNames(r *index.Reader, h model.Host) {
	svc := r.Service(h)
	var v *ir.Names
	if svc != nil && s.Sees(svc) {
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
	if svc == nil || !s.Sees(svc) {
		r.ForgetFacts() // touch finds it should it come into sight
	}
}

// namesOf are a service's own addresses or, of a headless one, its Pods'. Networks are no
// answer to a question.
func (s *proxyGroup) namesOf(r *index.Reader, svc *model.Service) *ir.Names {
	out := &ir.Names{Host: svc.Hostname}
	if svc.IsKubernetes() {
		out.Service, out.Namespace = svc.Name, svc.Namespace
	}
	for _, a := range s.Addresses(svc) {
		if a.IsSingleIP() {
			out.Addresses = append(out.Addresses, a.Addr().String())
		}
	}
	if svc.Headless && svc.ExternalName == "" {
		out.Addresses = podAddresses(r.EndpointsOf(svc), svc.PublishNotReady)
	}
	if len(out.Addresses) == 0 {
		return nil
	}
	out.Made = r.MadeSince(0)
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
