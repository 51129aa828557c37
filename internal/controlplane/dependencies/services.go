package dependencies

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Service is the called service, as people and the objects that limit a workload need it.
type Service struct {
	Kind      model.Kind        `json:"kind,omitempty"` // empty: there is no such service now
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name,omitempty"`
	Pods      map[string]string `json:"pods,omitempty"`      // labels of its Pods, in its namespace; empty: others serve it
	Addresses []string          `json:"addresses,omitempty"` // outside of the cluster: of its endpoints, if they are known
	Ports     []Port            `json:"ports,omitempty"`
}

// Port is a port of a service.
type Port struct {
	Number   uint32         `json:"number"`
	Protocol model.Protocol `json:"protocol"`
	Target   string         `json:"target"` // number or name of the Pods' port
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

// of returns the service with a host for callers of a namespace; nil: there is none that they see. As in Istio, one of the
// same namespace precedes others, and a Kubernetes Service precedes a ServiceEntry.
func (all services) of(h model.Host, namespace string) *model.Service {
	var best *model.Service
	rank := func(s *model.Service) int {
		switch {
		case s.Namespace == namespace:
			return 0
		case s.IsKubernetes():
			return 1
		}
		return 2
	}
	for _, s := range all[h] {
		if s.Visibility.Sees(namespace) && (best == nil || cmp.Or(cmp.Compare(rank(s), rank(best)), model.CompareAge(s, best)) < 0) {
			best = s
		}
	}
	return best
}

func describe(s *model.Service) Service {
	if s == nil {
		return Service{}
	}
	out := Service{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, Pods: s.Selector}
	for i := range s.Ports {
		p := &s.Ports[i]
		out.Ports = append(out.Ports, Port{p.Number, p.Protocol, targetOf(p)})
	}
	if len(s.Selector) == 0 {
		for _, e := range s.Inline {
			if model.IsIP(e.Address) {
				out.Addresses = append(out.Addresses, e.Address)
			}
		}
	}
	slices.Sort(out.Addresses)
	out.Addresses = slices.Compact(out.Addresses)
	return out
}

func targetOf(p *model.ServicePort) string {
	if p.TargetName != "" {
		return p.TargetName
	}
	return strconv.FormatUint(uint64(cmp.Or(p.TargetPort, p.Number)), 10)
}

// volatile are labels that change with each version of a workload, or that injection adds.
var volatile = []string{"pod-template-hash", "controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"}

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
		Metadata: map[string]string{"WORKLOAD_NAME": cmp.Or(pod.Labels["service.istio.io/workload-name"], pod.Owner)},
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
