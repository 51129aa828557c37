package simulate

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Parse reads a world from YAML with the keys listeners, routes, virtualHosts, clusters
// and endpoints: lists of Envoy's resources.
func Parse(text []byte) (*World, error) {
	var lists map[string][]any
	if err := yaml.UnmarshalStrict(text, &lists); err != nil {
		return nil, err
	}
	w := &World{}
	for key, list := range lists {
		for i, item := range list {
			m, err := w.add(key)
			if err != nil {
				return nil, err
			}
			raw, err := yaml.Marshal(item)
			if err == nil {
				raw, err = yaml.YAMLToJSON(raw)
			}
			if err == nil {
				err = protojson.Unmarshal(raw, m)
			}
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
			}
		}
	}
	return w, nil
}

// add appends an empty resource to one of the lists.
func (w *World) add(key string) (proto.Message, error) {
	switch key {
	case "listeners":
		return grow(&w.Listeners, &listenerv3.Listener{}), nil
	case "routes":
		return grow(&w.Routes, &routev3.RouteConfiguration{}), nil
	case "virtualHosts":
		return grow(&w.VirtualHosts, &routev3.VirtualHost{}), nil
	case "clusters":
		return grow(&w.Clusters, &clusterv3.Cluster{}), nil
	case "endpoints":
		return grow(&w.Endpoints, &endpointv3.ClusterLoadAssignment{}), nil
	}
	return nil, fmt.Errorf("key %q: want listeners, routes, virtualHosts, clusters or endpoints", key)
}

func grow[T any](list *[]*T, m *T) *T {
	*list = append(*list, m)
	return m
}
