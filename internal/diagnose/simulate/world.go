// Package simulate computes what one Envoy does with a call, from its resources alone: the listener, filter
// chain, route and cluster that take it, the changes on the way, and the share of each endpoint.
//
// It is pure: no network, no clock, no randomness. If Envoy selects at random (weights, percentages), the
// result has the shares. If a random number decides whether a rule holds, Call.Dice is the number.
//
// It follows Envoy's documentation. Features of Envoy that it does not know are errors, never guesses.
//
// Start reading at World.Call in listener.go.
package simulate

import (
	"fmt"
	"net"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// World is everything that one proxy has. It is read-only.
type World struct {
	Listeners []*listenerv3.Listener
	Routes    []*routev3.RouteConfiguration
	// VirtualHosts came by VHDS. Their names are "<route configuration>/<virtual host>".
	VirtualHosts []*routev3.VirtualHost
	Clusters     []*clusterv3.Cluster
	Endpoints    []*endpointv3.ClusterLoadAssignment
}

// Add adds a resource. It ignores types that the simulator does not read.
func (w *World) Add(m proto.Message) {
	switch m := m.(type) {
	case *listenerv3.Listener:
		w.Listeners = append(w.Listeners, m)
	case *routev3.RouteConfiguration:
		w.Routes = append(w.Routes, m)
	case *routev3.VirtualHost:
		w.VirtualHosts = append(w.VirtualHosts, m)
	case *clusterv3.Cluster:
		w.Clusters = append(w.Clusters, m)
	case *endpointv3.ClusterLoadAssignment:
		w.Endpoints = append(w.Endpoints, m)
	}
}

func (w *World) cluster(name string) *clusterv3.Cluster {
	for _, c := range w.Clusters {
		if c.GetName() == name {
			return c
		}
	}
	return nil
}

func (w *World) assignment(name string) *endpointv3.ClusterLoadAssignment {
	for _, a := range w.Endpoints {
		if a.GetClusterName() == name {
			return a
		}
	}
	return nil
}

// routeConfig finds a route configuration and adds its virtual hosts from VHDS.
func (w *World) routeConfig(name string) (*routev3.RouteConfiguration, error) {
	for _, rc := range w.Routes {
		if rc.GetName() != name {
			continue
		}
		if rc.GetVhds() == nil {
			return rc, nil
		}
		whole := routeFields(rc)
		whole.VirtualHosts = append(append([]*routev3.VirtualHost{}, rc.GetVirtualHosts()...), w.served(name)...)
		return whole, nil
	}
	return nil, fmt.Errorf("route configuration %q: missing, so its listener would not finish warming", name)
}

// routeFields returns a copy of everything outside of virtual hosts that decides about a request.
func routeFields(rc *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:                            rc.GetName(),
		IgnorePortInHostMatching:        rc.GetIgnorePortInHostMatching(),
		RequestHeadersToAdd:             rc.GetRequestHeadersToAdd(),
		RequestHeadersToRemove:          rc.GetRequestHeadersToRemove(),
		ResponseHeadersToAdd:            rc.GetResponseHeadersToAdd(),
		ResponseHeadersToRemove:         rc.GetResponseHeadersToRemove(),
		MostSpecificHeaderMutationsWins: rc.GetMostSpecificHeaderMutationsWins(),
		TypedPerFilterConfig:            rc.GetTypedPerFilterConfig(),
	}
}

// served returns the virtual hosts of a route configuration that came by VHDS.
func (w *World) served(routeConfig string) []*routev3.VirtualHost {
	var out []*routev3.VirtualHost
	for _, vh := range w.VirtualHosts {
		if strings.HasPrefix(vh.GetName(), routeConfig+"/") {
			out = append(out, vh)
		}
	}
	return out
}

// RouteConfig finds a route configuration, with its virtual hosts from VHDS.
func (w *World) RouteConfig(name string) (*routev3.RouteConfiguration, error) {
	return w.routeConfig(name)
}

// HasEndpoints reports whether calls to a cluster can reach an endpoint.
func (w *World) HasEndpoints(cluster string) bool {
	c := w.cluster(cluster)
	if c == nil {
		return false
	}
	u := Upstream{}
	if err := w.fill(&u, c, &request{Call: Call{To: defaultSource}}); err != nil {
		return false
	}
	for _, e := range u.Endpoints {
		if e.Percent > 0 {
			return true
		}
	}
	return false
}

// Entry returns the name of the listener that accepts a call's connection; "" if there is none.
func (w *World) Entry(c Call) (string, error) {
	r, err := c.request()
	if err != nil {
		return "", err
	}
	return w.entry(r).GetName(), nil
}

// Outbound returns the addresses of the bound listeners for a workload's own calls.
func (w *World) Outbound() []string {
	var out []string
	for _, l := range w.Listeners {
		if l.GetTrafficDirection() == corev3.TrafficDirection_INBOUND || !isBound(l) || l.GetUseOriginalDst().GetValue() {
			continue
		}
		for _, a := range addresses(l) {
			out = append(out, a.String())
		}
	}
	return out
}

// Entrance returns the address of the sidecar's listener that an application calls if nothing intercepts its calls: the one
// at the port of the call, or else the only outbound listener, which assumed reports. ips are the workload's addresses.
func (w *World) Entrance(c Call, port string, ips []string) (to string, assumed bool) {
	const local = "127.0.0.1"
	c.Direct = true
	for _, ip := range append([]string{local}, ips...) {
		c.To = net.JoinHostPort(ip, port)
		if l, err := w.Entry(c); err == nil && l != "" {
			return c.To, false
		}
	}
	if all := w.Outbound(); len(all) == 1 {
		return all[0], true
	}
	return net.JoinHostPort(local, port), false
}

// Parse reads a world from YAML with the keys listeners, routes, virtualHosts, clusters and endpoints:
// lists of Envoy's resources.
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
