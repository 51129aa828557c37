package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Services without a selector have workloads, too: those at the addresses of hand-written
// EndpointSlices and of a ServiceEntry's endpoints. As in Istio they count within the
// service's namespace only, so that nobody opens ports of others' workloads.

// atAddress finds what services without a selector have an endpoint at an address.
type atAddress struct {
	services map[name]map[serviceKey]*model.Service // by namespace and address
	indexed  map[serviceKey][]string                // addresses under which a service stands
}

func newAtAddress() atAddress {
	return atAddress{services: map[name]map[serviceKey]*model.Service{}, indexed: map[serviceKey][]string{}}
}

// indexAddresses puts a service under its endpoints' addresses, where it has no selector.
// now is nil for a service that is gone.
func (x *endpointIndex) indexAddresses(key serviceKey, now *model.Service, touched *touched) {
	var addresses []string
	if now != nil && len(now.Selector) == 0 && now.ExternalName == "" {
		addresses = x.addresses(now)
	}
	ns := key.key.Namespace
	for _, a := range x.at.indexed[key] {
		if _, still := slices.BinarySearch(addresses, a); !still {
			take(x.at.services, name{ns, a}, key)
			touched.address(ns, a)
		}
	}
	for _, a := range addresses {
		if x.at.services[name{ns, a}][key] != now {
			insert(x.at.services, name{ns, a}, key, now)
			touched.address(ns, a)
		}
	}
	if x.at.indexed[key] = addresses; len(addresses) == 0 {
		delete(x.at.indexed, key)
	}
}

// addresses are those of a service's endpoints, ready or not: a workload's ports do not
// come and go with its health.
func (x *endpointIndex) addresses(s *model.Service) []string {
	var out []string
	add := func(a string) {
		if model.IsIP(a) {
			out = append(out, a)
		}
	}
	for i := range s.Inline {
		add(s.Inline[i].Address)
	}
	if s.IsKubernetes() {
		for _, slice := range x.slices[name{s.Namespace, s.Name}] {
			for i := range slice.Members {
				for _, a := range slice.Members[i].Addresses[:min(1, len(slice.Members[i].Addresses))] {
					add(a)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// places are the addresses of all that a service has, ready or not: its endpoints, and the workloads that it
// selects where nobody makes endpoints of them. Sorted, each once; nobody changes them.
func (r *reader) places(s *model.Service) []string {
	set := r.endpoints(s)
	set.placing.Do(func() { set.places = r.index.endpoints.places(set.service) })
	return set.places
}

func (x *endpointIndex) places(s *model.Service) []string {
	out := x.addresses(s)
	pods := !s.IsKubernetes() || len(x.slices[nameOf(s)]) == 0
	for w := range x.selected(s.Namespace, s.Selector) {
		if model.IsIP(w.Address()) && (w.Kind != model.KindPod || pods && !hasEnded(w)) {
			out = append(out, w.Address())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// address notes that other services than before have an endpoint there.
func (t *touched) address(ns, a string) {
	t.facts.add(addressFact(ns, a))
	t.addresses[name{ns, a}] = true
}

// at lists the services without a selector that have an endpoint at an address of ns,
// oldest first.
func (r *reader) at(ns, address string) []*model.Service {
	if address == "" {
		return nil
	}
	r.facts.add(addressFact(ns, address))
	var out []*model.Service
	for _, s := range r.index.endpoints.at.services[name{ns, address}] {
		out = append(out, s)
	}
	slices.SortFunc(out, compareServices)
	return out
}

// originsAt are a service without a selector, and its slices that list an address.
func (r *reader) originsAt(svc *model.Service, address string) *model.Origins {
	r.facts.add(endpointsFact(svc.Hostname))
	var out model.OriginList
	out.Add(svc.Key)
	if svc.IsKubernetes() {
		for k, slice := range r.index.endpoints.slices[nameOf(svc)] {
			if slices.Contains(addressesOfSlice(slice), address) {
				out.Add(k)
			}
		}
	}
	return out.Since(0)
}

// portAt is the number under which a workload at an address serves a port of svc.
func (r *reader) portAt(svc *model.Service, address string, p *model.ServicePort) (uint32, bool) {
	r.facts.add(endpointsFact(svc.Hostname))
	for i := range svc.Inline {
		if svc.Inline[i].Address == address {
			return endpointPort(svc, &svc.Inline[i], p)
		}
	}
	return r.index.endpoints.slicePort(svc, address, p)
}

// slicePort is what the first slice that has both says of an address's port.
func (x *endpointIndex) slicePort(svc *model.Service, address string, p *model.ServicePort) (uint32, bool) {
	if !svc.IsKubernetes() {
		return 0, false
	}
	parts := x.slices[name{svc.Namespace, svc.Name}]
	for _, k := range sortedKeys(parts) {
		here := func(m model.SliceEndpoint) bool { return len(m.Addresses) > 0 && m.Addresses[0] == address }
		if !slices.ContainsFunc(parts[k].Members, here) {
			continue
		}
		for _, sp := range parts[k].Ports {
			if sp.Name == p.Name {
				return sp.Number, true
			}
		}
	}
	return 0, false
}
