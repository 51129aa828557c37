package meshfiles

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// Change is a prepared change of the mesh.
type Change struct {
	What  string       // for messages
	Wants []fleet.Want // resources that each concerned proxy must receive
	Apply func() error // publishes the change
}

// ReplaceEndpoint replaces the oldest endpoint of a service by a new address.
func (m *Mesh) ReplaceEndpoint(i int) (Change, error) {
	name := m.Service(i)
	fresh := m.freshIP()
	m.endpoints[name] = append(slices.Clone(m.endpoints[name][1:]), fresh)
	return m.endpointsChange(name, fresh.String())
}

// ReplaceEndpoints replaces all endpoints of a service, as at the end of a rollout.
func (m *Mesh) ReplaceEndpoints(i int) (Change, error) {
	name := m.Service(i)
	list := slices.Clone(m.endpoints[name])
	for j := range list {
		list[j] = m.freshIP()
	}
	m.endpoints[name] = list
	return m.endpointsChange(name, list[0].String())
}

func (m *Mesh) endpointsChange(name, mark string) (Change, error) {
	apply, err := m.place.Stage(serviceFile(name), m.serviceYAML(name))
	return Change{
		What:  "endpoints of " + name,
		Wants: []fleet.Want{{Kind: fleet.EDS, Name: ClusterName(name), Accept: contains(mark)}},
		Apply: apply,
	}, err
}

// StormWants returns the last resources that a proxy must receive if ReplaceEndpoint is called for these services in
// that order, and nothing else changes.
func (m *Mesh) StormWants(services []int) (wants []fleet.Want) {
	last := map[int]uint32{}
	for n, i := range services {
		last[i] = m.fresh + 1 + uint32(n) //nolint:gosec // a small number
	}
	for i, n := range last {
		wants = append(wants, fleet.Want{Kind: fleet.EDS, Name: ClusterName(m.Service(i)), Accept: contains(ip(freshNet, n).String())})
	}
	return wants
}

// ChangeRoute changes a header in a service's VirtualService.
func (m *Mesh) ChangeRoute(i int) (Change, error) {
	name := m.Service(i)
	m.routes[name] = m.next()
	text, wants := Route(name, m.routes[name])
	apply, err := m.place.Stage(routeFile(name), text)
	return Change{What: "route of " + name, Wants: wants, Apply: apply}, err
}

// Route returns the n-th version of a service's VirtualService, and the resources that it must bring to each proxy.
func Route(service string, n uint32) (text string, wants []fleet.Want) {
	return routeYAML(service, n), hostWants(service, contains(routeMark(n)))
}

// hostWants waits for a virtual host: by VHDS, alone or in the route shard of its names, or in its route configuration.
func hostWants(name string, accept func([]byte) bool) []fleet.Want {
	whole := VirtualHostName(name)
	wants := []fleet.Want{
		{Kind: fleet.VHDS, Name: whole, Accept: accept},
		{Kind: fleet.RDS, Name: RouteConfigName, Accept: accept, Alternative: true},
	}
	part := routeshard.Name(RouteConfigName, routeshard.Bits, routeshard.Of(Host(name), routeshard.Bits))
	return append(wants, fleet.Want{
		Kind: fleet.VHDS, Name: part + strings.TrimPrefix(whole, RouteConfigName), Accept: accept, Alternative: true,
	})
}

// SetRule changes the connection limit in a service's DestinationRule.
func (m *Mesh) SetRule(i int) (Change, error) {
	name, n := m.Service(i), 1000+m.next()
	m.rules[name] = n
	apply, err := m.place.Stage(ruleFile(name), ruleYAML(name, n))
	return Change{
		What:  "destination rule of " + name,
		Wants: []fleet.Want{{Kind: fleet.CDS, Name: ClusterName(name), Accept: limits(n)}},
		Apply: apply,
	}, err
}

// AddService adds a service with one endpoint.
func (m *Mesh) AddService(name string) (Change, error) {
	fresh := m.freshIP()
	m.endpoints[name] = append(m.endpoints[name][:0:0], fresh)
	apply, err := m.place.Stage(serviceFile(name), m.serviceYAML(name))
	return Change{
		What: "new service " + name,
		Wants: append([]fleet.Want{
			{Kind: fleet.CDS, Name: ClusterName(name)},
			{Kind: fleet.EDS, Name: ClusterName(name), Accept: contains(fresh.String())},
		}, hostWants(name, contains(Host(name)))...),
		Apply: apply,
	}, err
}

// RemoveService removes a service that AddService has added.
func (m *Mesh) RemoveService(name string) (Change, error) {
	if m.endpoints[name] == nil {
		return Change{}, errors.New("unknown service " + name)
	}
	delete(m.endpoints, name)
	apply, err := m.place.Remove(serviceFile(name))
	wants := hostWants(name, nil)
	for i := range wants {
		wants[i].Gone = wants[i].Kind == fleet.VHDS
	}
	return Change{
		What:  "removed service " + name,
		Wants: append(wants, fleet.Want{Kind: fleet.CDS, Name: ClusterName(name), Gone: true}),
		Apply: apply,
	}, err
}

func contains(mark string) func([]byte) bool {
	return func(b []byte) bool { return bytes.Contains(b, []byte(mark)) }
}

// limits accepts a cluster with that connection limit.
func limits(n uint32) func([]byte) bool {
	return func(b []byte) bool {
		var a anypb.Any
		var c clusterv3.Cluster
		if proto.Unmarshal(b, &a) != nil || a.UnmarshalTo(&c) != nil {
			return false
		}
		return slices.ContainsFunc(c.GetCircuitBreakers().GetThresholds(), func(t *clusterv3.CircuitBreakers_Thresholds) bool {
			return t.GetMaxConnections().GetValue() == n
		})
	}
}
