package index

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Services also have workloads by address: those of hand-written EndpointSlices, of a ServiceEntry's endpoints, and of
// WorkloadEntries that a service selects. As in Istio they count only in the service's namespace: otherwise an author could open
// ports of workloads in other namespaces.

// addressIndex finds the services that have an endpoint at an address. Slices of services with a selector, which list Pods, do
// not count.
type addressIndex struct {
	services map[name]map[serviceKey]*model.Service // by namespace and address
	indexed  map[serviceKey][]string                // the addresses under which a service is indexed; sorted
}

func newAddressIndex() addressIndex {
	return addressIndex{services: map[name]map[serviceKey]*model.Service{}, indexed: map[serviceKey][]string{}}
}

// indexAddresses indexes a service by the addresses of its endpoints. now is nil for a service that is gone.
func (x *endpointIndex) indexAddresses(key serviceKey, now *model.Service, touched *Touched) {
	var addresses []string
	switch {
	case now == nil || now.ExternalName != "":
	case len(now.Selector) == 0:
		addresses = x.addresses(now)
	default:
		addresses = x.entryAddresses(now)
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

// entryAddresses are those of the WorkloadEntries that a service selects.
func (x *endpointIndex) entryAddresses(s *model.Service) []string {
	if x.entries[s.Namespace] == 0 {
		return nil
	}
	var out []string
	for w := range x.selected(s.Namespace, s.Selector) {
		if w.Kind == model.KindWorkloadEntry && model.IsIP(w.Address()) {
			out = append(out, w.Address())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// entryAt is the WorkloadEntry at an address that a service selects; nil: none.
func (x *endpointIndex) entryAt(s *model.Service, address string) *model.Workload {
	if len(s.Selector) == 0 {
		return nil
	}
	return x.workloadAt(model.KindWorkloadEntry, s.Namespace, address, func(w *model.Workload) bool {
		return model.SelectorMatches(s.Selector, w.Labels)
	})
}

// workloadAt is the workload of a kind and namespace at an address for which f is true, the first by key; nil: none.
func (x *endpointIndex) workloadAt(kind model.Kind, ns, address string, f func(*model.Workload) bool) *model.Workload {
	var first *model.Workload
	for k, o := range x.draining.listed[address] {
		w, ok := o.(*model.Workload)
		if ok && k.Kind == kind && k.Namespace == ns && f(w) && (first == nil || k.Compare(first.Key) < 0) {
			first = w
		}
	}
	return first
}

// adds reports whether a service with an endpoint at an address reaches other ports of the workload there than it does by the
// workload's own labels and named ports.
func (x *endpointIndex) adds(s *model.Service, address string, own map[string]string, named map[string]uint32) bool {
	w := x.entryAt(s, address)
	if w == nil || !model.SelectorMatches(s.Selector, own) {
		return true
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		n, ok := entryPort(s, w, p, own, named)
		if m, is := portOn(*p, named, !s.IsKubernetes()); n != m || ok != is {
			return true
		}
	}
	return false
}

// addsAt reports whether the services with an endpoint at a proxy's address reach other ports of it than those that its own
// labels give.
func (x *endpointIndex) addsAt(at name, own map[string]string, named map[string]uint32) bool {
	for _, s := range x.at.services[at] {
		if x.adds(s, at.name, own, named) {
			return true
		}
	}
	return false
}

// entryPort is the number of a service's port on the workload at the address of a WorkloadEntry. If the entry gives none, the
// labels and ports of the workload itself count: it may be a Pod.
func entryPort(s *model.Service, w *model.Workload, p *model.ServicePort, own map[string]string, named map[string]uint32) (uint32, bool) {
	if n, ok := portOn(*p, w.NamedPorts, true); ok || !model.SelectorMatches(s.Selector, own) {
		return n, ok
	}
	return portOn(*p, named, !s.IsKubernetes())
}

// touchEntry records that the WorkloadEntries at an address differ in what decides ports. Their health does not.
func (x *endpointIndex) touchEntry(old, now *model.Workload, touched *Touched) {
	if old != nil && now != nil && slices.Equal(old.Addresses, now.Addresses) && maps.Equal(old.Labels, now.Labels) &&
		maps.Equal(old.NamedPorts, now.NamedPorts) {
		return
	}
	for _, w := range []*model.Workload{old, now} {
		if w != nil && w.Kind == model.KindWorkloadEntry && model.IsIP(w.Address()) && len(x.selectors(w.Namespace, w.Labels)) > 0 {
			touched.address(w.Namespace, w.Address())
		}
	}
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
		if model.IsIP(w.Address()) && (w.Kind != model.KindPod || pods && !w.Ended()) {
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
