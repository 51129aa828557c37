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
