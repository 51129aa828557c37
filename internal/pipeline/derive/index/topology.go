package index

import (
	"maps"

	"github.com/moonsail/moonsail/internal/model"
)

// As in Istio, workloads get labels from the place where they run: region, zone, subzone, node, cluster and network. Most meshes
// have no object that asks clients for them, and then they do not make groups differ.

// countTopology counts the labels of topology that an object asks clients for. ask adds all labels that it asks for.
func (x *Index) countTopology(by int, ask func(labelUse)) (changed bool) {
	asked := labelUse{}
	ask(asked)
	for k, n := range asked {
		if model.IsTopologyLabel(k) {
			changed = countIn(x.endpoints.topology, k, by*n) || changed
		}
	}
	return changed
}

// withTopology returns a proxy with those labels of topology that some object asks for. They precede its own labels, except for
// the network.
func (x *Index) withTopology(p *model.Proxy) *model.Proxy {
	if len(x.endpoints.topology) == 0 {
		return p
	}
	place := model.Endpoint{Labels: p.Labels, Locality: x.endpoints.whereProxy(p), Network: p.Network}
	if w := x.endpoints.podOf(p); w != nil {
		place.Node = w.Node
	}
	out := *p
	out.Labels = x.endpoints.labelsOf(&place)
	if _, asked := x.endpoints.topology[model.LabelCluster]; asked && p.ClusterID != "" {
		out.Labels[model.LabelCluster] = p.ClusterID
	}
	return &out
}

// labelsOf are an endpoint's labels with those of topology that some object asks for. Nothing knows the cluster of an endpoint:
// a mesh has one.
func (x *endpointIndex) labelsOf(e *model.Endpoint) map[string]string {
	if len(x.topology) == 0 {
		return e.Labels
	}
	out := map[string]string{}
	maps.Copy(out, e.Labels)
	for k := range x.topology {
		if v, ok := e.Label(k); ok {
			out[k] = v
		}
	}
	return out
}

// labelsOfWorkload are those of its endpoints.
func (x *endpointIndex) labelsOfWorkload(w *model.Workload) map[string]string {
	if len(x.topology) == 0 {
		return w.Labels
	}
	e := x.endpointOf(w)
	return x.labelsOf(&e)
}

// samePlace reports whether two versions of a workload have the same labels of topology.
func (x *endpointIndex) samePlace(old, now *model.Workload) bool {
	if len(x.topology) == 0 || old == nil || now == nil {
		return true
	}
	return x.where(old) == x.where(now) && old.Node == now.Node && old.Network == now.Network
}
