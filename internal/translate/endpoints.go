package translate

import (
	"math"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// Endpoints translates an EDS resource. Envoy resolves no names there and would refuse
// the whole message: endpoints whose address is neither an IP address nor the path of a
// Unix socket are left out.
func Endpoints(v *view.Endpoints) *endpointv3.ClusterLoadAssignment {
	return assignment(v.Cluster, v.Localities, isReachable)
}

// assignment takes the endpoints whose address is usable.
func assignment(cluster string, localities []view.LocalityEndpoints, usable func(string) bool) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	if len(localities) > 0 {
		out.Endpoints = make([]*endpointv3.LocalityLbEndpoints, 0, len(localities))
	}
	for i := range localities {
		out.Endpoints = append(out.Endpoints, locality(&localities[i], usable))
	}
	return out
}

func locality(l *view.LocalityEndpoints, usable func(string) bool) *endpointv3.LocalityLbEndpoints {
	out := &endpointv3.LocalityLbEndpoints{
		Locality:    localityName(l.Locality),
		Priority:    l.Priority,
		LbEndpoints: make([]*endpointv3.LbEndpoint, 0, len(l.Endpoints)),
	}
	sum := uint64(0)
	for i := range l.Endpoints {
		e := &l.Endpoints[i]
		if !usable(e.Address) {
			continue
		}
		sum += uint64(max(e.Weight, 1))
		out.LbEndpoints = append(out.LbEndpoints, endpoint(e))
	}
	// A locality without a weight gets nothing where localities are weighed.
	weight := uint32(min(sum, math.MaxUint32))
	if l.Weight != 0 {
		weight = l.Weight
	}
	out.LoadBalancingWeight = positive(weight)
	return out
}

func localityName(l model.Locality) *corev3.Locality {
	if l == (model.Locality{}) {
		return nil
	}
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.Subzone}
}

// endpoint leaves out what is Envoy's default: a weight of 1 and being healthy.
func endpoint(e *view.Endpoint) *endpointv3.LbEndpoint {
	out := &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: addressOf(e.Address, e.Port),
		}},
		HealthStatus: health(e.Health),
		Metadata:     workloadMetadata(e),
	}
	if e.Weight > 1 {
		out.LoadBalancingWeight = wrapperspb.UInt32(e.Weight)
	}
	return out
}

func health(h model.Health) corev3.HealthStatus {
	switch h {
	case model.Unhealthy:
		return corev3.HealthStatus_UNHEALTHY
	case model.Draining:
		return corev3.HealthStatus_DRAINING
	}
	return corev3.HealthStatus_UNKNOWN
}

// workloadMetadata is Istio's "workload;namespace;service;revision;cluster", by which
// clients name in their statistics whom they talk to.
func workloadMetadata(e *view.Endpoint) *corev3.Metadata {
	if e.Workload == "" && e.Namespace == "" && e.Canonical == "" {
		return nil
	}
	revision := e.Revision
	if revision == "latest" {
		revision = ""
	}
	text := e.Workload + ";" + e.Namespace + ";" + e.Canonical + ";" + revision + ";" + e.Cluster
	return underIstio(map[string]*structpb.Value{"workload": structpb.NewStringValue(text)})
}
