package route

import (
	"errors"
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Config translates a route configuration without its virtual hosts. With vhds Envoy requests them by VHDS; else the
// caller appends them.
func Config(v ir.RouteConfig, vhds bool) *routev3.RouteConfiguration {
	out := &routev3.RouteConfiguration{
		Name: v.Name,
		// A route may arrive before its cluster. Envoy answers 503 until the cluster arrives.
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
		out.RequestHeadersToRemove = []string{callstats.PeerHeader}
	}
	return out
}

// Inline translates a route configuration inside a listener. Nothing refers to its virtual hosts, so they have
// Istio's short names. Retry policies are in routes, where EnvoyFilters for Istio expect them.
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

// ScopeHeader has the key by which Envoy selects a scope. Listeners overwrite what an application sends under this
// name, and routes remove it.
const ScopeHeader = "x-moonsail-scope"

// Scope translates a scope. It refers to its route configuration by name: Envoy 1.40 crashes if a scope contains a
// route configuration that uses VHDS.
func Scope(v *ir.Scope) (*routev3.ScopedRouteConfiguration, error) {
	return &routev3.ScopedRouteConfiguration{
		Name:                   v.Name,
		RouteConfigurationName: v.Name,
		OnDemand:               v.OnDemand,
		Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
			Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: v.Name},
		}}},
	}, nil
}
