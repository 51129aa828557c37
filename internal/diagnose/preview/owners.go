package preview

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/model"
)

// owns reports whether a template has made a Pod. The labels decide about Pods whose owner is unknown.
func owns(t, pod *model.Workload) bool {
	switch {
	case pod.Kind != model.KindPod || pod.Namespace != t.Namespace:
		return false
	case pod.Owner != "":
		return pod.Owner == t.Name
	}
	own := maps.Clone(t.Labels)
	delete(own, model.LabelTLSMode)
	return len(own) > 0 && model.SelectorMatches(own, pod.Labels)
}

// rollOut gives the Pods that a template has made what the template has, as its owner would with the next rollout. It returns
// false if there are none. Their number, addresses and readiness stay.
func (s *Side) rollOut(t *model.Workload) bool {
	found, differ := false, false
	for i, o := range s.Objects {
		pod, ok := o.(*model.Workload)
		if !ok || !owns(t, pod) {
			continue
		}
		found = true
		next := *pod
		next.Labels, next.Annotations = relabelled(pod, t), t.Annotations
		next.ServiceAccount, next.Interception, next.HostNetwork = t.ServiceAccount, t.Interception, t.HostNetwork
		if len(t.NamedPorts) > 0 {
			next.NamedPorts = t.NamedPorts
		}
		if maps.Equal(next.Labels, pod.Labels) && next.ServiceAccount == pod.ServiceAccount && next.Interception == pod.Interception &&
			next.HostNetwork == pod.HostNetwork {
			continue
		}
		differ, s.Objects[i] = true, &next
		s.reselect(pod, &next)
	}
	if found {
		s.rolled[t.Key] = differ
	}
	return found
}

// relabelled returns the labels of a Pod after a rollout of its template: the template's, those that its owner sets, and that of a
// sidecar.
func relabelled(pod, t *model.Workload) map[string]string {
	out := maps.Clone(t.Labels)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range pod.Labels {
		if _, set := out[k]; !set && (slices.Contains(ownersLabels, k) || pod.Owner == "") {
			out[k] = v
		}
	}
	delete(out, model.LabelTLSMode)
	if !kube.DeclinesSidecar(t.Labels, t.Annotations) && !t.HostNetwork && (pod.SpeaksMTLS() || kube.DeclinesSidecar(pod.Labels, pod.Annotations)) {
		out[model.LabelTLSMode] = model.TLSModeLabelIstio
	}
	return out
}

// ownersLabels are set by controllers and injectors.
var ownersLabels = append([]string{
	"service.istio.io/canonical-name", "service.istio.io/canonical-revision", "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
	"topology.istio.io/subzone", model.LabelNetwork,
}, model.PodLabels...)

// reselect updates the endpoints of Services that selected a Pod before, or select it now.
func (s *Side) reselect(was, is *model.Workload) {
	for _, o := range s.Objects {
		svc, ok := o.(*model.Service)
		if !ok || len(svc.Selector) == 0 || svc.Namespace != is.Namespace {
			continue
		}
		before, after := model.SelectorMatches(svc.Selector, was.Labels), model.SelectorMatches(svc.Selector, is.Labels)
		switch {
		case before && !after:
			s.removeEndpoint(svc.Name, is)
		case after && !before:
			s.made = append(s.made, sliceOf(svc, is))
		}
	}
}

// removeEndpoint removes a Pod from the endpoints of a Service; an empty name: of all Services.
func (s *Side) removeEndpoint(service string, pod *model.Workload) {
	for i, o := range s.Objects {
		slice, ok := o.(*model.EndpointSlice)
		if !ok || slice.Namespace != pod.Namespace || service != "" && slice.Service != service {
			continue
		}
		next := *slice
		next.Members = slices.DeleteFunc(slices.Clone(slice.Members), func(m model.SliceEndpoint) bool {
			return m.Pod == pod.Name || len(m.Addresses) > 0 && slices.Contains(pod.Addresses, m.Addresses[0])
		})
		if len(next.Members) < len(slice.Members) {
			s.Objects[i] = &next
		}
	}
}

// RemovePods removes the Pods that a template has made, with their endpoints.
func (s *Side) RemovePods(t *model.Workload) {
	var gone []*model.Workload
	s.Objects = slices.DeleteFunc(slices.Clone(s.Objects), func(o model.Object) bool {
		pod, ok := o.(*model.Workload)
		if ok = ok && owns(t, pod); ok {
			gone = append(gone, pod)
		}
		return ok
	})
	for _, pod := range gone {
		s.removeEndpoint("", pod)
	}
}
