package index

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// drainIndex knows which workloads are about to end, and what lists an address. A drain notice therefore needs no search
// through the mesh.
type drainIndex struct {
	notices map[string]map[model.Key]*model.DrainNotice // by address
	listed  map[string]map[model.Key]model.Object       // slices and workloads by address
	inline  map[string]map[serviceKey]*model.Service    // services with inline endpoints by address
}

func newDrainIndex() drainIndex {
	return drainIndex{
		notices: map[string]map[model.Key]*model.DrainNotice{},
		listed:  map[string]map[model.Key]model.Object{},
		inline:  map[string]map[serviceKey]*model.Service{},
	}
}

// health is that of an endpoint, and Draining if a notice names its workload: then it is called only if there are no
// others. ns is the namespace of the object that lists the endpoint; pod and account are those of DrainNotice.Concerns.
func (d *drainIndex) health(of model.Health, address, ns, pod, account string) model.Health {
	if of != model.Healthy {
		return of
	}
	for _, n := range d.notices[address] {
		if n.Concerns(ns, pod, account) {
			return model.Draining
		}
	}
	return of
}

// inlineHealths are the endpoints that a service lists itself, in their current health.
func (d *drainIndex) inlineHealths(s *model.Service) []model.Endpoint {
	list := s.Inline
	health := func(e *model.Endpoint) model.Health {
		return d.health(e.Health, e.Address, s.Namespace, "", e.ServiceAccount)
	}
	drains := func(e model.Endpoint) bool { return health(&e) != e.Health }
	if len(d.notices) == 0 || !slices.ContainsFunc(list, drains) {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		out[i].Health = health(&out[i])
	}
	return out
}

func (d *drainIndex) list(k model.Key, addresses []string, o model.Object) {
	for _, a := range addresses {
		insert(d.listed, a, k, o)
	}
}

func (d *drainIndex) unlist(k model.Key, addresses []string) {
	for _, a := range addresses {
		take(d.listed, a, k)
	}
}

func (d *drainIndex) listInline(s *model.Service) {
	for i := range s.Inline {
		insert(d.inline, s.Inline[i].Address, keyOf(s), s)
	}
}

func (d *drainIndex) unlistInline(s *model.Service) {
	for i := range s.Inline {
		take(d.inline, s.Inline[i].Address, keyOf(s))
	}
}

// addressesOfSlice are the first address of each member: others do not count.
func addressesOfSlice(s *model.EndpointSlice) []string {
	out := make([]string, 0, len(s.Members))
	for i := range s.Members {
		if a := s.Members[i].Addresses; len(a) > 0 {
			out = append(out, a[0])
		}
	}
	return out
}

func (x *endpointIndex) replaceDrainNotice(old, now *model.DrainNotice, touched *Touched) {
	if old != nil {
		for _, a := range old.Addresses {
			take(x.draining.notices, a, old.Key)
			x.touchAddress(a, old.Namespace, touched)
		}
	}
	if now != nil {
		for _, a := range now.Addresses {
			insert(x.draining.notices, a, now.Key, now)
			x.touchAddress(a, now.Namespace, touched)
		}
	}
}

// touchAddress touches the services of a namespace that may have an endpoint at an address.
func (x *endpointIndex) touchAddress(address, ns string, touched *Touched) {
	for _, s := range x.servicesAt(address, ns) {
		x.touch(s, touched)
	}
}

// servicesAt lists services of a namespace that may have an endpoint at an address, in no order, some more than once.
func (x *endpointIndex) servicesAt(address, ns string) []*model.Service {
	var out []*model.Service
	for _, o := range x.draining.listed[address] {
		switch o := o.(type) {
		case *model.EndpointSlice:
			if s := x.kube[name{o.Namespace, o.Service}]; s != nil {
				out = append(out, s)
			}
		case *model.Workload:
			out = append(out, x.servicesWith(o)...)
		}
	}
	for _, s := range x.draining.inline[address] {
		out = append(out, s)
	}
	return slices.DeleteFunc(out, func(s *model.Service) bool { return s.Namespace != ns })
}

// Lists reports whether some object has an address that is an endpoint, or may become one.
func (x *Index) Lists(address string) bool {
	d := &x.endpoints.draining
	return len(d.listed[address])+len(d.inline[address]) > 0
}

// HostsAt lists the hosts of a namespace's services that may have an endpoint at an address.
func (x *Index) HostsAt(address, ns string) []model.Host {
	var out []model.Host
	for _, s := range x.endpoints.servicesAt(address, ns) {
		out = append(out, s.Hostname)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
