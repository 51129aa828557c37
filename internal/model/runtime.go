package model

// Distribution is which of a service's endpoints callers prefer as long as there are such.
type Distribution string

// The distributions. Without one, where callers are is of no meaning, but for what DestinationRules say.
const (
	DistributionUnset  Distribution = ""
	DistributeSameZone Distribution = "PreferSameZone" // then those of the region, then all others
	DistributeSameNode Distribution = "PreferSameNode" // then those of the subzone, the zone, the region
)

// Labels are what is compared, the most important first.
func (d Distribution) Labels() []string {
	switch d {
	case DistributeSameZone:
		return []string{LabelRegion, LabelZone}
	case DistributeSameNode:
		return []string{LabelRegion, LabelZone, LabelSubzone, LabelNode}
	}
	return nil
}

// Labels that tell where something is.
const (
	LabelRegion  = "topology.kubernetes.io/region"
	LabelZone    = "topology.kubernetes.io/zone"
	LabelSubzone = "topology.istio.io/subzone"
	LabelNode    = "kubernetes.io/hostname"
)

// DrainNotice says that a workload is about to end: its endpoints are to take no more calls,
// whatever else lists them. No source has such objects; the control plane makes one when a
// sidecar asks to leave. Its name is the proxy's, which is the Pod's.
type DrainNotice struct {
	Meta
	Addresses []string // of the workload
}

// Concerns tells whether a departure is that of an endpoint at one of its addresses. pod is
// the name of the Pod behind the endpoint, in the namespace ns; empty: not known. Another
// Pod may have come to have the address.
func (d *DrainNotice) Concerns(ns, pod string) bool {
	return pod == "" || d.Namespace == ns && d.Name == pod
}
