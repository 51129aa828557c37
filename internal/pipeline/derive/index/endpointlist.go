package index

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// fromSlices merges a service's slices. An address in two members counts once, as the better one: a healthy one, then one that does not
// terminate. A new Pod may have the address of one that terminates. counted are Pods that count with their address of the service's
// first family only.
func (x *endpointIndex) fromSlices(s *model.Service, parts map[model.Key]*model.EndpointSlice, counted map[string]bool) []model.Endpoint {
	size := membersOf(parts)
	type listed struct{ at, rank int }
	seen := make(map[string]listed, size)
	out := make([]model.Endpoint, 0, size)
	for _, k := range sortedKeys(parts) {
		slice := parts[k]
		ports := slicePorts(slice)
		second := counted != nil && isIPv6(slice) != s.IPv6First
		for i := range slice.Members {
			if second && counted[x.podName(slice, &slice.Members[i])] {
				continue
			}
			e, ok := x.fromMember(s, slice, &slice.Members[i])
			if !ok {
				continue
			}
			e.Ports = ports
			rank := 2*one(e.Health == model.Healthy) + one(!slice.Members[i].Terminating)
			switch first, twice := seen[e.Address]; {
			case !twice:
				seen[e.Address] = listed{len(out), rank}
				out = append(out, e)
			case rank > first.rank:
				seen[e.Address] = listed{first.at, rank}
				e.Ports = mergePorts(e.Ports, out[first.at].Ports)
				out[first.at] = e
			default:
				out[first.at].Ports = mergePorts(out[first.at].Ports, e.Ports)
			}
		}
	}
	return out
}

// firstFamily returns the Pods in slices of the service's first address family; nil if no slice has the other family.
func (x *endpointIndex) firstFamily(s *model.Service, parts map[model.Key]*model.EndpointSlice) map[string]bool {
	var first []*model.EndpointSlice
	second := false
	for _, slice := range parts {
		switch {
		case len(slice.Members) == 0:
		case isIPv6(slice) == s.IPv6First:
			first = append(first, slice)
		default:
			second = true
		}
	}
	if !second || len(first) == 0 {
		return nil
	}
	pods := map[string]bool{}
	for _, slice := range first {
		for i := range slice.Members {
			if pod := x.podName(slice, &slice.Members[i]); pod != "" {
				pods[pod] = true
			}
		}
	}
	return pods
}

// isIPv6 reports the family of a slice, which all its addresses share.
func isIPv6(s *model.EndpointSlice) bool {
	return len(s.Members) > 0 && len(s.Members[0].Addresses) > 0 && strings.Contains(s.Members[0].Addresses[0], ":")
}

func sortedKeys(parts map[model.Key]*model.EndpointSlice) []model.Key {
	return slices.SortedFunc(maps.Keys(parts), model.Key.Compare)
}

func mergePorts(a, b map[string]uint32) map[string]uint32 {
	out := maps.Clone(b)
	maps.Copy(out, a)
	return out
}

// fromMember makes an endpoint without ports.
func (x *endpointIndex) fromMember(s *model.Service, slice *model.EndpointSlice, m *model.SliceEndpoint) (model.Endpoint, bool) {
	health := model.Healthy
	switch {
	case len(m.Addresses) == 0:
		return model.Endpoint{}, false
	case s.PublishNotReady || m.Ready:
	case m.Terminating && m.Serving:
		health = model.Draining
	default:
		return model.Endpoint{}, false
	}
	e, pod, known := x.behind(slice, m)
	if !known {
		return model.Endpoint{}, false
	}
	if e.Locality.Zone == "" {
		e.Locality.Zone = m.Zone
	}
	e.Address = m.Addresses[0]
	e.Health = x.draining.health(health, e.Address, slice.Namespace, pod, accountBehind(&e, pod))
	return e, true
}

// accountBehind returns the service account of a Pod's endpoint. It returns nothing for endpoints without a Pod.
func accountBehind(e *model.Endpoint, pod string) string {
	if pod == "" {
		return ""
	}
	return cmp.Or(e.ServiceAccount, "default")
}

// behind returns the workload of a slice's member, as an endpoint, with the name of its Pod. It returns false if the Pod has
// not arrived yet, or is gone: callers would speak plain text to such an endpoint, and would not find it in any subset.
func (x *endpointIndex) behind(slice *model.EndpointSlice, m *model.SliceEndpoint) (e model.Endpoint, pod string, known bool) {
	if w := x.podOfMember(slice, m); w != nil {
		return x.endpointOf(w), w.Name, true
	}
	e.Namespace = slice.Namespace
	if m.Pod == "" {
		e.Locality, e.Node = x.nodes.locality(m.Node), m.Node
		return e, "", true
	}
	return e, m.Pod, !slice.PodsListed
}

// podOfMember is the Pod that a slice's member names or, if it names none, the Pod at its address; nil: unknown or none.
func (x *endpointIndex) podOfMember(slice *model.EndpointSlice, m *model.SliceEndpoint) *model.Workload {
	if m.Pod != "" {
		return x.workloads[model.Key{Kind: model.KindPod, Namespace: slice.Namespace, Name: m.Pod}]
	}
	if len(m.Addresses) == 0 {
		return nil
	}
	return x.podAt(slice.Namespace, m.Addresses[0])
}

// podName is the name of a member's Pod; empty: it has none.
func (x *endpointIndex) podName(slice *model.EndpointSlice, m *model.SliceEndpoint) string {
	if m.Pod != "" {
		return m.Pod
	}
	if w := x.podOfMember(slice, m); w != nil {
		return w.Name
	}
	return ""
}

// podAt is the Pod of a namespace at an address; nil: none. As in Istio, Pods of other namespaces do not count: the author of
// a slice has no right to their identities.
func (x *endpointIndex) podAt(ns, address string) *model.Workload {
	return x.workloadAt(model.KindPod, ns, address, (*model.Workload).OwnsAddress)
}

// slicePorts are the ports of all endpoints of a slice. The endpoints share the map, which must not change.
func slicePorts(slice *model.EndpointSlice) map[string]uint32 {
	out := make(map[string]uint32, len(slice.Ports))
	for _, p := range slice.Ports {
		out[p.Name] = p.Number
	}
	return out
}

func membersOf(parts map[model.Key]*model.EndpointSlice) int {
	n := 0
	for _, slice := range parts {
		n += len(slice.Members)
	}
	return n
}

// fromWorkloads makes endpoints of the workloads that s selects: of WorkloadEntries, and of Pods that no EndpointSlice
// lists.
func (x *endpointIndex) fromWorkloads(s *model.Service, pods bool) []model.Endpoint {
	if !pods && x.entries[s.Namespace] == 0 {
		return nil
	}
	var list []*model.Workload
	for w := range x.selected(s.Namespace, s.Selector) {
		if w.Address() != "" && (pods || w.Kind != model.KindPod) && !(s.IsResolved() && model.IsSocket(w.Address())) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b *model.Workload) int { return a.Key.Compare(b.Key) })
	var out []model.Endpoint
	for _, w := range list {
		health, ok := workloadHealth(w, s.PublishNotReady)
		if !ok {
			continue
		}
		pod := ""
		if w.Kind == model.KindPod {
			pod = w.Name
		}
		e := x.endpointOf(w)
		e.Address, e.Weight, e.Ports = w.Address(), w.Weight, portsOf(s, w)
		e.Health = x.draining.health(health, e.Address, w.Namespace, pod, w.Account())
		out = append(out, e)
	}
	return out
}

// workloadHealth is the state of a workload, and whether it is an endpoint. As in Istio, publishNotReady does not count for a
// WorkloadEntry.
func workloadHealth(w *model.Workload, publishNotReady bool) (model.Health, bool) {
	switch {
	case w.Kind != model.KindPod:
		return model.Healthy, w.Ready
	case publishNotReady:
		return model.Healthy, true
	case w.Terminating && w.Ready:
		return model.Draining, true
	case !w.Ready:
		return model.Unhealthy, false
	}
	return model.Healthy, true
}

// portsOf resolves a service's ports on one workload, by the names of service ports. The ports of a WorkloadEntry precede
// the service's target ports. For a ServiceEntry the named ports of a Pod do, too.
func portsOf(s *model.Service, w *model.Workload) map[string]uint32 {
	out := make(map[string]uint32, len(s.Ports))
	for _, p := range s.Ports {
		if n, ok := portOn(p, w.NamedPorts, w.Kind == model.KindWorkloadEntry || !s.IsKubernetes()); ok {
			out[p.Name] = n
		}
	}
	return out
}

// portOn is the port that a workload listens on for a service port. The ports map of a WorkloadEntry names service ports; a
// Pod's named ports are container ports. byName: a port of the workload with the service port's name precedes the number of the
// target port.
func portOn(p model.ServicePort, named map[string]uint32, byName bool) (uint32, bool) {
	if p.TargetName != "" {
		n, ok := named[p.TargetName]
		return n, ok
	}
	if n, ok := named[p.Name]; ok && (byName || p.TargetPort == 0) {
		return n, true
	}
	if p.TargetPort != 0 {
		return p.TargetPort, true
	}
	return p.Number, true
}

// EndpointPort is the number under which an endpoint serves a port. A slice or workload that does not name the port does
// not serve it: a slice may list Pods without the service's target port, with no ports.
func EndpointPort(svc *model.Service, e *model.Endpoint, p *model.ServicePort) (uint32, bool) {
	if n, ok := e.Ports[p.Name]; ok {
		return n, true
	}
	if svc.Inline == nil && svc.ExternalName == "" && e.Ports != nil {
		return 0, false
	}
	if p.TargetPort != 0 {
		return p.TargetPort, true
	}
	return p.Number, true
}

// endpointOf takes over a workload's properties, and the locality of its node.
func (x *endpointIndex) endpointOf(w *model.Workload) model.Endpoint {
	return model.Endpoint{
		Labels: w.Labels, Locality: x.where(w), Node: w.Node, Network: w.Network,
		Workload: cmp.Or(w.Owner, w.Name), Namespace: w.Namespace, ServiceAccount: w.ServiceAccount,
		Sidecar: w.SpeaksMTLS(),
	}
}

// sameButPorts compares results of endpointOf.
func sameButPorts(a, b model.Endpoint) bool {
	labels := maps.Equal(a.Labels, b.Labels)
	a.Labels, b.Labels, a.Ports, b.Ports = nil, nil, nil, nil
	return labels && reflect.DeepEqual(a, b)
}
