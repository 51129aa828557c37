// Package simulate answers what one Envoy would do with a call, from its resources
// alone: which listener, filter chain, route and cluster take it, what is changed on the
// way, and which endpoints get which share of it.
//
// It is pure: no network, no clock, no chance. Where Envoy draws lots (weights,
// percentages) the result names the shares, and where a lot decides whether a rule
// holds, Call.Dice is the lot.
//
// It follows Envoy's documentation and is strict where Envoy has features that it does
// not know: those are errors, never guesses.
package simulate

import (
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// World is everything that one proxy has. It is only read.
type World struct {
	Listeners []*listenerv3.Listener
	Routes    []*routev3.RouteConfiguration
	// VirtualHosts came by VHDS: their names are "<route configuration>/<virtual host>".
	VirtualHosts []*routev3.VirtualHost
	Clusters     []*clusterv3.Cluster
	Endpoints    []*endpointv3.ClusterLoadAssignment
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

// routeConfig finds a route configuration and adds the virtual hosts that VHDS gave it.
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
	return nil, fmt.Errorf("route configuration %q is not there: its listener would not finish warming", name)
}

// routeFields is a copy of all that decides about a request outside of virtual hosts.
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

// served are the virtual hosts that came by VHDS for one route configuration.
func (w *World) served(routeConfig string) []*routev3.VirtualHost {
	var out []*routev3.VirtualHost
	for _, vh := range w.VirtualHosts {
		if strings.HasPrefix(vh.GetName(), routeConfig+"/") {
			out = append(out, vh)
		}
	}
	return out
}

// RouteConfig finds a route configuration, with the virtual hosts that VHDS gave it.
func (w *World) RouteConfig(name string) (*routev3.RouteConfiguration, error) {
	return w.routeConfig(name)
}

// HasEndpoints tells whether calls to a cluster can go anywhere.
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

// Entry names the listener that accepts a call's connection; "" where there is none.
func (w *World) Entry(c Call) (string, error) {
	r, err := c.request()
	if err != nil {
		return "", err
	}
	return w.entry(r).GetName(), nil
}

// Outbound are the addresses of the bound listeners that take a workload's own calls.
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
