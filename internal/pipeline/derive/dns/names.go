// Package dns finds what the DNS proxy of a sidecar answers for a host. It is pure.
package dns

import (
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Names are a service's own addresses or, of a headless service, those of its Pods. Address ranges are not answers. nil:
// the proxy forwards the question.
func Names(r *index.Reader, svc *model.Service) *ir.Names {
	out := &ir.Names{Host: svc.Hostname}
	if svc.IsKubernetes() {
		out.Service, out.Namespace = svc.Name, svc.Namespace
	}
	for _, a := range addresses(r, svc) {
		if a.IsSingleIP() {
			out.Addresses = append(out.Addresses, a.Addr().String())
		}
	}
	if svc.Headless && svc.ExternalName == "" {
		out.Addresses = podAddresses(r.InBothFamilies(svc), svc.PublishNotReady)
	}
	if len(out.Addresses) == 0 {
		return nil
	}
	out.Made = r.MadeSince(0)
	return out
}

// addresses are those of a Service alone, although ServiceEntries may have the same host.
func addresses(r *index.Reader, svc *model.Service) []netip.Prefix {
	if svc.IsKubernetes() {
		return svc.Addresses
	}
	for _, p := range r.PartsOf(svc) {
		r.Use(p)
	}
	return r.Addresses(svc)
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
