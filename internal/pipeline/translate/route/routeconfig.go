package route

import (
	"errors"
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/pipeline/translate/telemetry"
)

// ScopeHeader carries the scope's key from where it is computed to the choice of the scope.
// What an application sends under that name is overwritten, and no upstream gets it.
const ScopeHeader = "x-moonsail-scope"

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

// Config translates a route configuration without its virtual hosts, which come by
// VHDS where vhds is true and are appended by the caller where not.
func Config(v ir.RouteConfig, vhds bool) *routev3.RouteConfiguration {
	out := &routev3.RouteConfiguration{
		Name: v.Name,
		// A route may be earlier than its cluster; Envoy answers 503 until that comes.
		ValidateClusters:               envoyproto.False,
		IgnorePortInHostMatching:       true,
		MaxDirectResponseBodySizeBytes: wrapperspb.UInt32(maxResponseBody),
	}
	if vhds {
		out.Vhds = &routev3.Vhds{ConfigSource: envoyproto.ADSBounded}
	}
	if v.Shard {
		out.RequestHeadersToRemove = []string{ScopeHeader}
	}
	if v.Inbound {
		out.RequestHeadersToRemove = []string{telemetry.PeerHeader}
	}
	return out
}

// Inline are part of a listener. Nothing refers to their virtual hosts, so they have
// the short names that Istio gives them, and say retries where EnvoyFilters for Istio look for them: in routes.
func Inline(v *ir.InlineRoutes) (*routev3.RouteConfiguration, error) {
	out := Config(v.RouteConfig, false)
	for i := range v.VirtualHosts {
		h := &v.VirtualHosts[i]
		translated, refused, err := virtualHost(h, h.Name, nil)
		if err = errors.Join(append(refused, err)...); err != nil {
			return nil, fmt.Errorf("virtual host %s: %w", h.Name, err)
		}
		out.VirtualHosts = append(out.VirtualHosts, translated)
	}
	return out, nil
}
