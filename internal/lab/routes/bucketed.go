package routes

import (
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// bucketed is SRDS with a scope for each bucket of hosts. A scope names a route configuration, which comes by RDS, and
// whose virtual hosts come by VHDS: a change sends one of them, and Envoy rebuilds one bucket. Each bucket also has the
// wildcards and the virtual host for unknown hosts, so that every host finds the same route as in one table.
//
// The scope must name its route configuration. Envoy 1.40 crashes if a scope of the listener contains one with vhds (in
// each of four tries), and did so with one in a scope from SRDS (in one of four).
type bucketed struct {
	port string
	bits int
}

func (b bucketed) name(k int) string { return fmt.Sprintf("%s~%d", b.port, k) }

// bucketsOf returns the buckets of a service's domains, each once.
func (b bucketed) bucketsOf(i int) (out []int) {
	for _, d := range domains(i) {
		if k := routeshard.Of(d, b.bits); !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// The port is part of the key because every connection manager gets all scopes, also those of other listeners.
func (b bucketed) manage(_ *mesh, out *hcmv3.HttpConnectionManager) error {
	return scoped(out, b.port+"~%CEL("+routeshard.Expression(b.bits)+")%", "", &hcmv3.ScopedRoutes{
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: ads}},
	})
}

func (b bucketed) all(m *mesh) (out []item, err error) {
	for k := range routeshard.Count(b.bits) {
		s := &routev3.ScopedRouteConfiguration{Name: b.name(k), Key: scopeKey(b.name(k)), RouteConfigurationName: b.name(k)}
		rc := route.Config(ir.RouteConfig{Name: s.GetName()}, true)
		rc.RequestHeadersToRemove = []string{scopeHeader}
		rest, err := m.others(s.GetName())
		if err != nil {
			return nil, err
		}
		out = append(out, item{scopeURL, s.GetName(), s}, item{resource.RouteConfigURL, s.GetName(), rc})
		out = append(out, hostItems(rest)...)
	}
	for i := range m.versions {
		list, err := b.changed(m, i)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// changed sends the virtual host to each of its buckets, with only the domains that are looked up there.
func (b bucketed) changed(m *mesh, i int) (out []item, err error) {
	for _, k := range b.bucketsOf(i) {
		v, err := m.service(i, b.name(k))
		if err != nil {
			return nil, err
		}
		v.Domains = slices.DeleteFunc(v.GetDomains(), func(d string) bool { return routeshard.Of(d, b.bits) != k })
		out = append(out, hostItems([]*routev3.VirtualHost{v})...)
	}
	return out, nil
}
