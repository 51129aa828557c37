package explain

import (
	"net/netip"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// elsewhere is the address of all names that the mesh does not know (TEST-NET-2).
const elsewhere = "198.51.100.7"

// resolve resolves a name as an application in p's Pod would. host is the full name. known is set if it is
// a service of the mesh.
func (x *Explainer) resolve(snap *store.Snapshot, p *model.Proxy, name string) (address string, host model.Host, known bool) {
	if _, err := netip.ParseAddr(name); err == nil {
		return name, model.Host(name), false
	}
	domain := p.ClusterDomain()
	for _, search := range []string{p.Namespace + ".svc." + domain, "svc." + domain, domain, ""} {
		full := model.Host(strings.ToLower(strings.TrimSuffix(name+"."+search, ".")))
		if a, ok := x.addressOf(snap, p, full); ok {
			return a, full, true
		}
	}
	return elsewhere, model.Host(name), false
}

// addressOf returns the address of a service's host, from DNS or from the DNS proxy of p.
func (x *Explainer) addressOf(snap *store.Snapshot, p *model.Proxy, host model.Host) (string, bool) {
	s := serviceOf(snap, host)
	switch {
	case s == nil:
		return "", false
	case len(s.Addresses) > 0:
		return s.Addresses[0].Addr().String(), true
	case s.Kind == model.KindServiceEntry && x.base().AutoAddresses.UsedBy(p):
		all, _ := index.AutoAddresses(x.base(), snap)
		if given := p.Families().Of(all[s.Key][host]); len(given) > 0 {
			return given[0].String(), true
		}
	}
	for o := range snap.All(model.KindEndpointSlice) { // a headless service resolves to its endpoints
		e, ok := o.(*model.EndpointSlice)
		if ok && e.Namespace == s.Namespace && e.Service == s.Name && s.IsKubernetes() && len(e.Members) > 0 && len(e.Members[0].Addresses) > 0 {
			return e.Members[0].Addresses[0], true
		}
	}
	return elsewhere, true
}

// serviceOf returns the service of a host; nil: there is none.
func serviceOf(snap *store.Snapshot, host model.Host) *model.Service {
	for o := range snap.All(model.KindService) {
		if s, ok := o.(*model.Service); ok && s.Hostname == host {
			return s
		}
	}
	for o := range snap.All(model.KindServiceEntry) {
		e, ok := o.(*model.ServiceEntry)
		if !ok {
			continue
		}
		for _, s := range e.Services() {
			if s.Hostname == host {
				return s
			}
		}
	}
	return nil
}

// base returns the mesh's configuration from the start of the control plane.
func (x *Explainer) base() *model.Mesh {
	if x.Mesh == nil {
		return model.DefaultMesh()
	}
	return x.Mesh
}
