package translate

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// scopeHeader carries the scope's key from where it is computed to the choice of the scope.
// What an application sends under that name is overwritten, and no upstream gets it.
const scopeHeader = "x-moonsail-scope"

// scopeKeyBuilder takes the header as a whole. Its separator is in no key.
var scopeKeyBuilder = &hcmv3.ScopedRoutes_ScopeKeyBuilder{
	Fragments: []*hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
		Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
			HeaderValueExtractor: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
				Name:        scopeHeader,
				ExtractType: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{},
			},
		},
	}},
}

// setScopes makes the connection manager choose a route configuration by the bucket of the
// request's host, which setEarly has put into a header. Every connection manager gets the scopes of all, so that their keys, as
// their names, begin with the whole route configuration's name.
func setScopes(out *hcmv3.HttpConnectionManager) {
	out.RouteSpecifier = &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		Name:            "scopes",
		ScopeKeyBuilder: scopeKeyBuilder,
		RdsConfigSource: adsSource,
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: adsSource}},
	}}
}

// Scope translates a scope. It names its route configuration: Envoy 1.40 crashes on one
// with VHDS inside a scope.
func Scope(v *ir.Scope) (*routev3.ScopedRouteConfiguration, error) {
	return &routev3.ScopedRouteConfiguration{
		Name:                   v.Name,
		RouteConfigurationName: v.Name,
		Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
			Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: v.Name},
		}}},
	}, nil
}
