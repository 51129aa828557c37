package route

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// TestRefusedRoute checks that a route that cannot be translated answers with an error, and other routes stay.
func TestRefusedRoute(t *testing.T) {
	to := func(name, path string) ir.Route {
		return ir.Route{
			Name: name, Origin: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: name}, Backends: []ir.Backend{{Cluster: name, Weight: 1}},
			Match: &ir.Match{URI: &model.StringMatch{Kind: model.MatchPrefix, Value: path}},
		}
	}
	for name, breakIt := range map[string]func(*ir.Route){
		"by our rules": func(r *ir.Route) {
			r.Headers.Request.Set = []model.HeaderValue{{Name: "a b", Value: "c"}}
		},
		"by Envoy's rules": func(r *ir.Route) {
			r.Headers.Request.Set = []model.HeaderValue{{Name: "a", Value: strings.Repeat("x", 1<<15)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := to("bad", "/admin")
			breakIt(&bad)
			call := to("call", "/shop.Orders/")
			call.Origin.Kind = model.KindGRPCRoute
			breakIt(&call)
			v := &ir.VirtualHost{RouteConfig: "80", Name: "a:80", Domains: []string{"*"}, Routes: []ir.Route{to("first", "/first"), bad, call, to("last", "/")}}
			m, refused, err := VirtualHost(v)
			require.NoError(t, err)
			require.NoError(t, m.Validate())
			require.Len(t, refused, 2)
			require.ErrorContains(t, refused[0], `route 1 "bad" of VirtualService shop/bad: `)
			require.ErrorContains(t, refused[1], `route 2 "call" of GRPCRoute shop/call: `)
			require.Len(t, m.Routes, 4)
			require.Equal(t, "first", m.Routes[0].GetRoute().GetCluster())
			require.Equal(t, "/admin", m.Routes[1].Match.GetPrefix())
			require.Equal(t, uint32(500), m.Routes[1].GetDirectResponse().GetStatus())
			require.Equal(t, "/shop.Orders/", m.Routes[2].Match.GetPrefix())
			require.Equal(t, uint32(503), m.Routes[2].GetDirectResponse().GetStatus())
			require.Equal(t, "last", m.Routes[3].GetRoute().GetCluster())
		})
	}
	unknown := to("unknown", "/")
	unknown.Match = &ir.Match{URI: &model.StringMatch{Kind: model.MatchRegex, Value: "("}}
	_, _, err := VirtualHost(&ir.VirtualHost{RouteConfig: "80", Name: "a:80", Domains: []string{"*"}, Routes: []ir.Route{unknown}})
	require.ErrorContains(t, err, `route 0 "unknown" of VirtualService shop/unknown: uri: `)
}
