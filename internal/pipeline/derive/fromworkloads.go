package derive

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// fromWorkloads makes endpoints of the workloads that s selects: WorkloadEntries, and
// Pods where nobody makes EndpointSlices of them.
func (x *endpointIndex) fromWorkloads(s *model.Service, pods bool) []model.Endpoint {
	if !pods && x.entries[s.Namespace] == 0 {
		return nil
	}
	var list []*model.Workload
	for w := range x.selected(s.Namespace, s.Selector) {
		if w.Address() != "" && (pods || w.Kind != model.KindPod) {
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
		e.Health = x.leaving.health(health, e.Address, w.Namespace, pod)
		out = append(out, e)
	}
	return out
}

// workloadHealth tells whether a workload is an endpoint, and in which state. A
// WorkloadEntry is one for as long as it is there.
func workloadHealth(w *model.Workload, publishNotReady bool) (model.Health, bool) {
	switch {
	case w.Kind != model.KindPod || publishNotReady:
		return model.Healthy, true
	case w.Terminating && w.Ready:
		return model.Draining, true
	case !w.Ready:
		return model.Unhealthy, false
	}
	return model.Healthy, true
}

// portsOf resolves a service's ports on one workload, by service port name. What a
// WorkloadEntry says of a service's port goes before the service's target port, as do the
// named ports of a Pod for a ServiceEntry.
func portsOf(s *model.Service, w *model.Workload) map[string]uint32 {
	out := make(map[string]uint32, len(s.Ports))
	for _, p := range s.Ports {
		n, ok := w.NamedPorts[p.Name]
		byName := p.TargetName == "" && (w.Kind == model.KindWorkloadEntry || !s.IsKubernetes())
		if !ok || !byName {
			n, ok = targetPort(p, w.NamedPorts)
		}
		if ok {
			out[p.Name] = n
		}
	}
	return out
}

// targetPort is the port that a workload listens on for a service port. A WorkloadEntry's
// ports map names service ports; a Pod's named ports are container ports.
func targetPort(p model.ServicePort, named map[string]uint32) (uint32, bool) {
	if p.TargetName != "" {
		n, ok := named[p.TargetName]
		return n, ok
	}
	if n, ok := named[p.Name]; ok && p.TargetPort == 0 {
		return n, true
	}
	if p.TargetPort != 0 {
		return p.TargetPort, true
	}
	return p.Number, true
}

// endpointOf takes over what a workload says of itself, and its node of where it is.
func (x *endpointIndex) endpointOf(w *model.Workload) model.Endpoint {
	return model.Endpoint{
		Labels: w.Labels, Locality: x.where(w), Node: w.Node, Network: w.Network,
		Workload: cmp.Or(w.Owner, w.Name), Namespace: w.Namespace, ServiceAccount: w.ServiceAccount,
	}
}

// sameButPorts compares what endpointOf makes.
func sameButPorts(a, b model.Endpoint) bool {
	labels := maps.Equal(a.Labels, b.Labels)
	a.Labels, b.Labels, a.Ports, b.Ports = nil, nil, nil, nil
	return labels && reflect.DeepEqual(a, b)
}
