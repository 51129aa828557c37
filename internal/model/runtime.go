package model

import "maps"

// Distribution is the preference of callers for endpoints of a service by locality.
type Distribution string

// The distributions. Without one, only DestinationRules make the locality of callers matter.
const (
	DistributionUnset  Distribution = ""
	DistributeSameZone Distribution = "PreferSameZone" // then endpoints of the region, then all others
	DistributeSameNode Distribution = "PreferSameNode" // then endpoints of the subzone, the zone, the region
)

// Labels returns the labels to compare, most important first.
func (d Distribution) Labels() []string {
	switch d {
	case DistributeSameZone:
		return []string{LabelRegion, LabelZone}
	case DistributeSameNode:
		return []string{LabelRegion, LabelZone, LabelSubzone, LabelNode}
	}
	return nil
}

// Labels about the place of an endpoint or a client.
const (
	LabelRegion  = "topology.kubernetes.io/region"
	LabelZone    = "topology.kubernetes.io/zone"
	LabelSubzone = "topology.istio.io/subzone"
	LabelNode    = "kubernetes.io/hostname"
	LabelNetwork = "topology.istio.io/network"
	LabelCluster = "topology.istio.io/cluster"
)

// IsTopologyLabel reports whether workloads get a label from the place where they run.
func IsTopologyLabel(key string) bool {
	switch key {
	case LabelRegion, LabelZone, LabelSubzone, LabelNode, LabelNetwork, LabelCluster:
		return true
	}
	return false
}

// WithoutTopology returns the labels of a selector that are not of topology. It is for code that knows the labels of Pods, but
// not where they run.
func WithoutTopology(selector map[string]string) map[string]string {
	if !SelectsByTopology(selector) {
		return selector
	}
	out := maps.Clone(selector)
	maps.DeleteFunc(out, func(k, _ string) bool { return IsTopologyLabel(k) })
	return out
}

// SelectsByTopology reports whether a selector has labels of topology.
func SelectsByTopology(selector map[string]string) bool {
	for k := range selector {
		if IsTopologyLabel(k) {
			return true
		}
	}
	return false
}

// DrainNotice means that a workload ends: its endpoints must not receive new calls, even if another object lists them.
// It comes from no source: the control plane creates it when a sidecar deregisters. Its name is the proxy's, which is
// the Pod's.
type DrainNotice struct {
	Meta
	Addresses      []string // of the workload
	ServiceAccount string   // of the workload; empty: unknown
}

// Concerns reports whether the notice applies to an endpoint at one of its addresses. It applies in its own namespace
// only: the caller that made it may have claimed an address that another namespace lists, now or later. pod and account
// are the name and service account of the workload behind the endpoint; empty: unknown. Another Pod may have got the
// address.
func (d *DrainNotice) Concerns(ns, pod, account string) bool {
	return d.Namespace == ns && (pod == "" || d.Name == pod) && (account == "" || d.ServiceAccount == "" || d.ServiceAccount == account)
}
