package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// drainingWorkloads knows the workloads that are about to end, and what lists an address: a departure
// costs no look through the mesh.
type drainingWorkloads struct {
	departures map[string]map[model.Key]*model.DrainNotice // by address
	listed     map[string]map[model.Key]model.Object       // slices and workloads by address
	inline     map[string]map[serviceKey]*model.Service    // services with endpoints of their own, likewise
}

func newDrainingWorkloads() drainingWorkloads {
	return drainingWorkloads{
		departures: map[string]map[model.Key]*model.DrainNotice{},
		listed:     map[string]map[model.Key]model.Object{},
		inline:     map[string]map[serviceKey]*model.Service{},
	}
}

// health is that of an endpoint, but Draining where its workload leaves: then it gets no
// calls as long as there are others. pod is the Pod behind it; empty: none is known.
func (l *drainingWorkloads) health(of model.Health, address, ns, pod string) model.Health {
	if of != model.Healthy {
		return of
	}
	for _, d := range l.departures[address] {
		if d.Concerns(ns, pod) {
			return model.Draining
		}
	}
	return of
}

// inlineHealths are endpoints that a service lists itself, as they are now.
func (l *drainingWorkloads) inlineHealths(list []model.Endpoint) []model.Endpoint {
	leaves := func(e model.Endpoint) bool { return l.health(e.Health, e.Address, "", "") != e.Health }
	if len(l.departures) == 0 || !slices.ContainsFunc(list, leaves) {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		out[i].Health = l.health(out[i].Health, out[i].Address, "", "")
	}
	return out
}

func (l *drainingWorkloads) list(k model.Key, addresses []string, o model.Object) {
	for _, a := range addresses {
		insert(l.listed, a, k, o)
	}
}

func (l *drainingWorkloads) unlist(k model.Key, addresses []string) {
	for _, a := range addresses {
		take(l.listed, a, k)
	}
}

func (l *drainingWorkloads) listInline(s *model.Service) {
	for i := range s.Inline {
		insert(l.inline, s.Inline[i].Address, keyOf(s), s)
	}
}

func (l *drainingWorkloads) unlistInline(s *model.Service) {
	for i := range s.Inline {
		take(l.inline, s.Inline[i].Address, keyOf(s))
	}
}

// addressesOfSlice are those that count: the first ones.
func addressesOfSlice(s *model.EndpointSlice) []string {
	out := make([]string, 0, len(s.Members))
	for i := range s.Members {
		if a := s.Members[i].Addresses; len(a) > 0 {
			out = append(out, a[0])
		}
	}
	return out
}

func (x *endpointIndex) replaceDeparture(old, now *model.DrainNotice, touched *touched) {
	if old != nil {
		for _, a := range old.Addresses {
			take(x.leaving.departures, a, old.Key)
			x.touchAddress(a, touched)
		}
	}
	if now != nil {
		for _, a := range now.Addresses {
			insert(x.leaving.departures, a, now.Key, now)
			x.touchAddress(a, touched)
		}
	}
}

// touchAddress touches the services that may have an endpoint at an address.
func (x *endpointIndex) touchAddress(address string, touched *touched) {
	for _, s := range x.servicesAt(address) {
		x.touch(s, touched)
	}
}

// servicesAt may have an endpoint at an address; in no order, some more than once.
func (x *endpointIndex) servicesAt(address string) []*model.Service {
	var out []*model.Service
	for _, o := range x.leaving.listed[address] {
		switch o := o.(type) {
		case *model.EndpointSlice:
			if s := x.kube[name{o.Namespace, o.Service}]; s != nil {
				out = append(out, s)
			}
		case *model.Workload:
			out = append(out, x.servicesWith(o)...)
		}
	}
	for _, s := range x.leaving.inline[address] {
		out = append(out, s)
	}
	return out
}

// Lists tells whether anything has an address that is an endpoint, or may come to be one.
func (x *Index) Lists(address string) bool {
	l := &x.endpoints.leaving
	return len(l.listed[address])+len(l.inline[address]) > 0
}

// HostsAt are the hosts of services that may have an endpoint at an address.
func (x *Index) HostsAt(address string) []model.Host {
	var out []model.Host
	for _, s := range x.endpoints.servicesAt(address) {
		out = append(out, s.Hostname)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
