package ir

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func TestPatchesMeetRoutesOfGateways(t *testing.T) {
	const https, plain = "https.443.web.edge.shop", "http.8080"
	for _, tc := range []struct {
		match model.RouteConfigMatch
		name  string
		meets bool
	}{
		{model.RouteConfigMatch{}, plain, true},
		{model.RouteConfigMatch{Name: https}, https, true},
		{model.RouteConfigMatch{Port: 8080}, plain, true},
		{model.RouteConfigMatch{Port: 443}, https, true},
		{model.RouteConfigMatch{Port: 443}, plain, false},
		{model.RouteConfigMatch{PortName: "web", Gateway: "shop/edge"}, https, true},
		{model.RouteConfigMatch{PortName: "web", Gateway: "shop/edge"}, https + ".10.0.0.1", true},
		{model.RouteConfigMatch{PortName: "other"}, https, false},
		{model.RouteConfigMatch{Gateway: "shop/other"}, https, false},
		{model.RouteConfigMatch{Gateway: "shop/edge"}, plain, false},
	} {
		p := Patch{EnvoyPatch: &model.EnvoyPatch{Routes: &tc.match}}
		require.Equal(t, tc.meets, p.MeetsRoutes(true, tc.name), "%+v %s", tc.match, tc.name)
	}
	p := Patch{EnvoyPatch: &model.EnvoyPatch{Routes: &model.RouteConfigMatch{Port: 80, Gateway: "shop/edge"}}}
	require.True(t, p.MeetsRoutes(false, "a.example.com:80"), "sidecars have no gateways")
}
