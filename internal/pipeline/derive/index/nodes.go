package index

import (
	"maps"

	"github.com/moonsail/moonsail/internal/model"
)

// nodeIndex knows the localities of nodes, and what depends on them.
type nodeIndex struct {
	byName    map[string]*model.Node
	workloads map[string]map[model.Key]*model.Workload // by node
	services  map[string]map[name]int                  // node -> services whose slices name it
}

func newNodeIndex() nodeIndex {
	return nodeIndex{
		byName:    map[string]*model.Node{},
		workloads: map[string]map[model.Key]*model.Workload{},
		services:  map[string]map[name]int{},
	}
}

// locality is a node's; empty if the node is unknown.
func (n *nodeIndex) locality(node string) model.Locality {
	if o := n.byName[node]; o != nil {
		return o.Locality
	}
	return model.Locality{}
}

func (n *nodeIndex) put(w *model.Workload) {
	if w.Node != "" {
		insert(n.workloads, w.Node, w.Key, w)
	}
}

// countSlice counts the nodes of endpoints without a Pod.
func (n *nodeIndex) countSlice(s *model.EndpointSlice, by int) {
	service := name{s.Namespace, s.Service}
	for i := range s.Members {
		if node := s.Members[i].Node; node != "" && s.Members[i].Pod == "" {
			countService(n.services, node, service, by)
		}
	}
}

// replaceNode touches what is on a node whose locality changed. Nothing else of a node matters.
func (x *endpointIndex) replaceNode(old, now *model.Node, touched *Touched) {
	var key string
	var was, is model.Locality
	if old != nil {
		key, was = old.Name, old.Locality
		delete(x.nodes.byName, key)
	}
	if now != nil {
		key, is = now.Name, now.Locality
		x.nodes.byName[key] = now
	}
	if was == is {
		return
	}
	for _, w := range x.nodes.workloads[key] {
		for _, s := range x.servicesWith(w) {
			x.touch(s, touched)
			if len(x.topology) > 0 {
				x.touchMembers(s, touched)
			}
		}
		touched.pods[nameOf(w)] = true
	}
	for n := range x.nodes.services[key] {
		if s := x.kube[n]; s != nil {
			x.touch(s, touched)
		}
	}
}

// where is the locality of a workload: its own, completed from its node's.
func (x *endpointIndex) where(w *model.Workload) model.Locality {
	return w.Locality.On(x.nodes.locality(w.Node))
}

// whereProxy is the locality of a proxy: the one it reports, completed from its Pod's. Sidecars read theirs from the Pod's labels, to
// which Kubernetes copies the region and the zone of the node, but not Istio's subzone.
func (x *endpointIndex) whereProxy(p *model.Proxy) model.Locality {
	if w := x.podOf(p); w != nil {
		return p.Locality.On(x.where(w))
	}
	return p.Locality
}

// podOf is a proxy's Pod; nil: unknown.
func (x *endpointIndex) podOf(p *model.Proxy) *model.Workload {
	return x.workloads[model.Key{Kind: model.KindPod, Namespace: p.Namespace, Name: p.Name}]
}

// moved records a Pod whose locality, node or named ports changed.
func (x *endpointIndex) moved(old, now *model.Workload, touched *Touched) {
	type position struct {
		locality model.Locality
		node     string
	}
	var was, is position
	pod := now
	if old != nil {
		was, pod = position{x.where(old), old.Node}, old
	}
	if now != nil {
		is = position{x.where(now), now.Node}
	}
	if pod.Kind != model.KindPod {
		return
	}
	if was != is {
		touched.pods[nameOf(pod)] = true
	}
	if !maps.Equal(portsOfPod(old), portsOfPod(now)) {
		touched.ports[nameOf(pod)] = true
	}
}

// portsOfPod returns the named ports of a Pod. It returns nil without a Pod.
func portsOfPod(w *model.Workload) map[string]uint32 {
	if w == nil {
		return nil
	}
	return w.NamedPorts
}

// withPorts returns a proxy with the named ports of its Pod, which decide about the endpoints of services. Those that the proxy reports
// count if the Pod is unknown or was written without them.
func (x *endpointIndex) withPorts(p *model.Proxy) *model.Proxy {
	named := portsOfPod(x.podOf(p))
	if len(named) == 0 || maps.Equal(named, p.NamedPorts) {
		return p
	}
	out := *p
	out.NamedPorts = named
	return &out
}
