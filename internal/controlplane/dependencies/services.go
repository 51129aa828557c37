package dependencies

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Service is the called service, as people and the objects that limit a workload need it.
type Service struct {
	Kind      model.Kind        `json:"kind,omitempty"` // empty: the service does not exist any longer
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name,omitempty"`
	Pods      map[string]string `json:"pods,omitempty"`      // labels of its Pods, in its namespace; empty: others serve it
	Addresses []string          `json:"addresses,omitempty"` // of a ServiceEntry: IP addresses of its endpoints that are no Pods
	Names     []string          `json:"names,omitempty"`     // of a ServiceEntry: DNS names and sockets of its endpoints
	Ports     []Port            `json:"ports,omitempty"`
}

// Port is a port of a service.
type Port struct {
	Number   uint32         `json:"number"`
	Protocol model.Protocol `json:"protocol"`
	Target   string         `json:"target"` // number of the endpoints' port, or name of the Pods'
}

// services are those of one snapshot, by host.
type services map[model.Host][]*model.Service

// servicesOf collects the services of a snapshot.
func servicesOf(s *store.Snapshot) services {
	out := services{}
	for o := range s.All(model.KindService) {
		if svc, ok := o.(*model.Service); ok {
			out[svc.Hostname] = append(out[svc.Hostname], svc)
		}
	}
	for o := range s.All(model.KindServiceEntry) {
		entry, ok := o.(*model.ServiceEntry)
		if !ok {
			continue
		}
		for _, svc := range entry.Services() {
			out[svc.Hostname] = append(out[svc.Hostname], svc)
		}
	}
	return out
}

// of returns the service with a host for callers of a namespace, as proxies get it; nil: they see no such service.
func (all services) of(h model.Host, namespace string) *model.Service {
	var best *model.Service
	for _, s := range slices.SortedFunc(slices.Values(all[h]), func(a, b *model.Service) int { return model.CompareAge(a, b) }) {
		if s.Visibility.Sees(namespace) && (best == nil || index.Precedes(namespace, s, best)) {
			best = s
		}
	}
	return best
}

// describe returns what people need of a service, nil passes. all are the workloads that a ServiceEntry may select.
func describe(s *model.Service, all workloads) Service {
	if s == nil {
		return Service{}
	}
	out := Service{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}
	if s.IsKubernetes() {
		out.Pods = s.Selector
		for i := range s.Ports {
			p := &s.Ports[i]
			out.Ports = append(out.Ports, Port{p.Number, p.Protocol, targetOf(p)})
		}
		return out
	}
	endpoints := s.Inline
	if len(s.Selector) > 0 {
		endpoints, out.Pods = all.selected(s)
	}
	for i := range s.Ports {
		out.Ports = append(out.Ports, entryPorts(&s.Ports[i], endpoints, len(out.Pods) > 0)...)
	}
	for _, e := range endpoints {
		if model.IsIP(e.Address) {
			out.Addresses = append(out.Addresses, e.Address)
		} else {
			out.Names = append(out.Names, e.Address)
		}
	}
	slices.Sort(out.Addresses)
	slices.Sort(out.Names)
	out.Addresses, out.Names = slices.Compact(out.Addresses), slices.Compact(out.Names)
	return out
}

// selected returns the WorkloadEntries that a ServiceEntry selects and, if it also selects Pods, their labels.
func (all workloads) selected(s *model.Service) (entries []model.Endpoint, pods map[string]string) {
	for _, w := range all[s.Namespace] {
		switch {
		case !model.SelectorMatches(s.Selector, w.Labels):
		case w.Kind == model.KindPod:
			pods = s.Selector
		default:
			for _, a := range w.Addresses {
				entries = append(entries, model.Endpoint{Address: a, Ports: w.NamedPorts})
			}
		}
	}
	return entries, pods
}

// entryPorts returns a port of a ServiceEntry, once for each port of its endpoints.
func entryPorts(p *model.ServicePort, endpoints []model.Endpoint, pods bool) (out []Port) {
	if pods || len(endpoints) == 0 {
		endpoints = append([]model.Endpoint{{}}, endpoints...) // the port that it has without an endpoint's own
	}
	for _, e := range endpoints {
		number := cmp.Or(e.Ports[p.Name], p.TargetPort, p.Number)
		one := Port{p.Number, p.Protocol, strconv.FormatUint(uint64(number), 10)}
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

func targetOf(p *model.ServicePort) string {
	if p.TargetName != "" {
		return p.TargetName
	}
	return strconv.FormatUint(uint64(cmp.Or(p.TargetPort, p.Number)), 10)
}

// volatile are labels that change with each version of a workload, or that injection adds.
var volatile = append([]string{
	"pod-template-generation", "job-name", "controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid",
}, model.PodLabels...)

// names are labels that name a workload, the best first.
var names = []string{"app", "app.kubernetes.io/name", "k8s-app", "service.istio.io/canonical-name"}

// workloads are the Pods and WorkloadEntries of a snapshot.
type workloads map[string][]*model.Workload // by namespace

func workloadsOf(s *store.Snapshot) workloads {
	out := workloads{}
	for _, kind := range []model.Kind{model.KindPod, model.KindWorkloadEntry} {
		for o := range s.All(kind) {
			if w, ok := o.(*model.Workload); ok {
				out[w.Namespace] = append(out[w.Namespace], w)
			}
		}
	}
	return out
}

// isOf reports whether a Pod is one of a workload.
func isOf(pod *model.Workload, w Workload) bool {
	return pod.Account() == w.ServiceAccount && WorkloadOf(&model.Proxy{
		Namespace: pod.Namespace, ServiceAccount: pod.Account(), Name: pod.Name, Labels: pod.Labels,
		Metadata: map[string]string{"WORKLOAD_NAME": cmp.Or(pod.Labels[model.LabelWorkloadName], pod.Owner)},
	}) == w
}

// selector returns labels that select the Pods of a workload, and whether they also select other Pods. Without Pods there
// are none.
func (all workloads) selector(w Workload) (labels map[string]string, shared bool) {
	var common map[string]string
	var others []*model.Workload
	for _, pod := range all[w.Namespace] {
		switch {
		case !isOf(pod, w):
			others = append(others, pod)
		case common == nil:
			common = maps.Clone(pod.Labels)
		default:
			maps.DeleteFunc(common, func(k, v string) bool { return pod.Labels[k] != v })
		}
	}
	maps.DeleteFunc(common, func(k, _ string) bool {
		return slices.Contains(volatile, k) || strings.HasPrefix(k, "security.istio.io/")
	})
	if len(common) == 0 {
		return nil, false
	}
	selects := func(labels map[string]string) bool {
		return slices.ContainsFunc(others, func(o *model.Workload) bool { return model.SelectorMatches(labels, o.Labels) })
	}
	for _, k := range slices.Concat(names, slices.Sorted(maps.Keys(common))) {
		if one := map[string]string{k: common[k]}; common[k] != "" && !selects(one) {
			return one, false
		}
	}
	return common, selects(common)
}
