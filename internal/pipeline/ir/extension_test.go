package ir

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func TestPatchesMatchRoutesOfGateways(t *testing.T) {
	gateway := &model.Gateway{}
	gateway.Namespace, gateway.Name = "shop", "edge"
	server := model.GatewayServer{Port: model.GatewayPort{Number: 443, Name: "web"}}
	bound := server
	bound.Bind = "10.0.0.1"
	https, atAddress, plain := GatewayTLSRoutes(gateway, &server), GatewayTLSRoutes(gateway, &bound), GatewayRoutes(8080, "")
	plain.Plain.Add(80)
	require.Equal(t, "https.443.web.edge.shop", https.Name)
	require.Equal(t, "https.443.web.edge.shop.10.0.0.1", atAddress.Name)
	require.Equal(t, "http.8080", plain.Name)
	for _, tc := range []struct {
		match   model.RouteConfigMatch
		key     RouteConfigKey
		matches bool
	}{
		{model.RouteConfigMatch{}, plain, true},
		{model.RouteConfigMatch{Name: https.Name}, https, true},
		{model.RouteConfigMatch{Port: 80}, plain, true},
		{model.RouteConfigMatch{Port: 8080}, plain, false},
		{model.RouteConfigMatch{Port: 443}, https, true},
		{model.RouteConfigMatch{Port: 443}, plain, false},
		{model.RouteConfigMatch{PortName: "web", Gateway: "shop/edge"}, https, true},
		{model.RouteConfigMatch{PortName: "web", Gateway: "shop/edge"}, atAddress, true},
		{model.RouteConfigMatch{PortName: "other"}, https, false},
		{model.RouteConfigMatch{Gateway: "shop/other"}, https, false},
		{model.RouteConfigMatch{Gateway: "shop/edge"}, plain, false},
	} {
		p := Patch{EnvoyPatch: &model.EnvoyPatch{Routes: &tc.match}}
		require.Equal(t, tc.matches, p.MatchesRoutes(true, tc.key), "%+v %s", tc.match, tc.key.Name)
	}
	p := Patch{EnvoyPatch: &model.EnvoyPatch{Routes: &model.RouteConfigMatch{Port: 80, Gateway: "shop/edge"}}}
	require.True(t, p.MatchesRoutes(false, HostRoutes("a.example.com", 80)), "sidecars have no gateways")
	require.True(t, p.MatchesRoutes(false, HostRoutes("https.example.com", 80)), "a host may begin like the name of a gateway's routes")
	p.Routes.Port = 8080
	require.True(t, p.MatchesRoutes(false, InboundRoutes(8080)))
	require.False(t, p.MatchesRoutes(false, AddressRoutes("127.0.0.1", 8080)), "as in Istio")
}
