// Package caller has what a simulated call needs to know of its caller: how its names resolve, its address, and the name
// in its certificate. Packages explain and preview share it.
package caller

import (
	"cmp"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Elsewhere is the address of all names that the mesh does not know (TEST-NET-2).
const Elsewhere = "198.51.100.7"

// FirstIP returns the address that a proxy's workload calls from; Elsewhere if it has none.
func FirstIP(p *model.Proxy) string {
	if len(p.IPs) == 0 {
		return Elsewhere
	}
	return p.IPs[0]
}

// Principal returns the URI name in a proxy's certificate; empty: it has none. mesh has the settings of MeshConfig.
func Principal(mesh *model.Mesh, p *model.Proxy) string {
	if !p.Identity {
		return ""
	}
	return model.Identity{TrustDomain: mesh.TrustDomain, Namespace: p.Namespace, ServiceAccount: cmp.Or(p.ServiceAccount, "default")}.String()
}

// Binds reports whether a proxy is called at addresses that it binds: no rules intercept the connections.
func Binds(p *model.Proxy) bool {
	return p.Type == model.ProxyRouter || p.Interception == model.InterceptNone
}

// Arrival returns a call that leaves one proxy as another one gets it. Package simulate knows the resources of one Envoy only,
// not how the workload at the other end is reached.
func Arrival(mesh *model.Mesh, call *simulate.Call, r *simulate.Result, u *simulate.Upstream, e *simulate.Endpoint, from, to *model.Proxy) simulate.Call {
	c := call.Arrival(r, u, e, Principal(mesh, from))
	c.Direct = Binds(to)
	c.Inbound = !c.Direct
	c.From = net.JoinHostPort(FirstIP(from), "40000")
	return c
}

// Resolver resolves names of a snapshot as applications would. It reads the snapshot when it is first used.
type Resolver struct {
	base *model.Mesh
	snap *store.Snapshot

	services func() map[model.Host]*model.Service
	first    func() map[model.Key]string // the first endpoint of Kubernetes' Services
	given    func() map[model.Key]map[model.Host][]netip.Addr
}

// NewResolver returns a Resolver. base is the mesh's configuration from the start of the control plane; nil: the default.
func NewResolver(base *model.Mesh, snap *store.Snapshot) *Resolver {
	if base == nil {
		base = model.DefaultMesh()
	}
	r := &Resolver{base: base, snap: snap}
	r.services, r.first = sync.OnceValue(r.readServices), sync.OnceValue(r.readEndpoints)
	r.given = sync.OnceValue(func() map[model.Key]map[model.Host][]netip.Addr {
		all, _ := index.AutoAddresses(base, snap)
		return all
	})
	return r
}

// Resolve resolves a name as an application in p's Pod would. host is the full name. known is set if it is
// a service of the mesh, or a Pod of a headless service.
func (r *Resolver) Resolve(p *model.Proxy, name string) (address string, host model.Host, known bool) {
	if _, err := netip.ParseAddr(name); err == nil {
		return name, model.Host(name), false
	}
	domain := p.ClusterDomain()
	for _, search := range []string{p.Namespace + ".svc." + domain, "svc." + domain, domain, ""} {
		full := model.Host(strings.ToLower(strings.TrimSuffix(name+"."+search, ".")))
		if a, ok := r.Address(p, full); ok {
			return a, full, true
		}
		if a, ok := r.podAddress(full); ok {
			return a, full, true
		}
	}
	return Elsewhere, model.Host(name), false
}

// Address returns the address of a service's host, from DNS or from the DNS proxy of p; false: no service has the host.
func (r *Resolver) Address(p *model.Proxy, host model.Host) (string, bool) {
	s := r.services()[host]
	switch {
	case s == nil:
		return "", false
	case len(s.Addresses) > 0:
		return s.Addresses[0].Addr().String(), true
	case s.Kind == model.KindServiceEntry && r.base.AutoAddresses.UsedBy(p):
		if given := p.Families().Of(r.given()[s.Key][host]); len(given) > 0 {
			return given[0].String(), true
		}
	case s.IsKubernetes() && r.first()[s.Key] != "": // a headless service resolves to its endpoints
		return r.first()[s.Key], true
	}
	return Elsewhere, true
}

// podAddress returns the address of POD.SERVICE, for a Pod of a headless service; false: there is none. Such Pods are those of
// StatefulSets, whose names are their host names.
func (r *Resolver) podAddress(name model.Host) (string, bool) {
	pod, host, _ := strings.Cut(string(name), ".")
	s := r.services()[model.Host(host)]
	if s == nil || !s.IsKubernetes() || !s.Headless {
		return "", false
	}
	for o := range r.snap.All(model.KindEndpointSlice) {
		e, ok := o.(*model.EndpointSlice)
		if !ok || e.Service != s.Name || e.Namespace != s.Namespace {
			continue
		}
		for _, m := range e.Members {
			if m.Pod == pod && len(m.Addresses) > 0 && (m.Ready || s.PublishNotReady) {
				return m.Addresses[0], true
			}
		}
	}
	return "", false
}

// readServices returns the services by host. Kubernetes' come first, then the first in the order of keys.
func (r *Resolver) readServices() map[model.Host]*model.Service {
	out := map[model.Host]*model.Service{}
	add := func(s *model.Service) {
		if out[s.Hostname] == nil {
			out[s.Hostname] = s
		}
	}
	for o := range r.snap.All(model.KindService) {
		if s, ok := o.(*model.Service); ok {
			add(s)
		}
	}
	for o := range r.snap.All(model.KindServiceEntry) {
		if e, ok := o.(*model.ServiceEntry); ok {
			for _, s := range e.Services() {
				add(s)
			}
		}
	}
	return out
}

func (r *Resolver) readEndpoints() map[model.Key]string {
	out := map[model.Key]string{}
	for o := range r.snap.All(model.KindEndpointSlice) {
		e, ok := o.(*model.EndpointSlice)
		if !ok || len(e.Members) == 0 || len(e.Members[0].Addresses) == 0 {
			continue
		}
		service := model.Key{Kind: model.KindService, Namespace: e.Namespace, Name: e.Service}
		if out[service] == "" {
			out[service] = e.Members[0].Addresses[0]
		}
	}
	return out
}
