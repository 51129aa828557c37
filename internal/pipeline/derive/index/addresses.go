package index

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Services without a selector also have workloads: those at the addresses of hand-written EndpointSlices and of a
// ServiceEntry's endpoints. As in Istio they count only in the service's namespace: otherwise an author could open ports
// of workloads in other namespaces.

// addressIndex finds the services without a selector that have an endpoint at an address.
type addressIndex struct {
	services map[name]map[serviceKey]*model.Service // by namespace and address
	indexed  map[serviceKey][]string                // the addresses under which a service is indexed; sorted
}

func newAddressIndex() addressIndex {
	return addressIndex{services: map[name]map[serviceKey]*model.Service{}, indexed: map[serviceKey][]string{}}
}

// indexAddresses indexes a service without a selector by the addresses of its endpoints. now is nil for a service that is
// gone.
func (x *endpointIndex) indexAddresses(key serviceKey, now *model.Service, touched *Touched) {
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

// address records that the services with an endpoint at an address differ.
func (t *Touched) address(ns, a string) {
	t.Facts.add(addressFact(ns, a))
	t.addresses[name{ns, a}] = true
}

// addresses are those of a service's endpoints, ready or not: a workload's ports do not depend on its health.
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

// places computes Reader.Places.
func (x *endpointIndex) places(s *model.Service) []string {
	var out []string
	for _, p := range s.Parts {
		out = append(out, x.places(p)...)
	}
	if s.Parts != nil {
		slices.Sort(out)
		return slices.Compact(out)
	}
	out = x.addresses(s)
	pods := !s.IsKubernetes() || len(x.slices[nameOf(s)]) == 0
	for w := range x.selected(s.Namespace, s.Selector) {
		if model.IsIP(w.Address()) && (w.Kind != model.KindPod || pods && !hasEnded(w)) {
			out = append(out, w.Address())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// slicePort is the number of a port at an address, by the first slice that has both.
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
