package translate

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// VirtualHost translates a virtual host, for VHDS or as part of a route configuration
// that is served whole. Its name is that of the resource: Envoy removes a virtual host by
// VHDS only where they are the same. Its routes may be several people's: one that cannot
// be translated answers with an error, and is among refused, and the others are as they are.
func VirtualHost(v *ir.VirtualHost) (out *routev3.VirtualHost, refused []error, err error) {
	if v.Added != nil {
		out, err = addedVirtualHost(v)
		return out, nil, err
	}
	out, refused, err = virtualHost(v, v.ResourceName(), sharedRetry(v.Routes))
	if err == nil && out.Validate() != nil {
		refused, err = refuseInvalid(v, out, refused)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("virtual host %s: %w", v.ResourceName(), err)
	}
	return out, refused, nil
}

// refuseInvalid puts errors in the place of routes that Envoy would refuse.
func refuseInvalid(v *ir.VirtualHost, out *routev3.VirtualHost, refused []error) ([]error, error) {
	for i := range out.Routes {
		err := out.Routes[i].Validate()
		if err == nil {
			continue
		}
		refused = append(refused, fmt.Errorf("%s: %w", routeLabel(&v.Routes[i], i), err))
		if out.Routes[i], err = refusedRoute(&v.Routes[i]); err != nil {
			return nil, errors.Join(refused...)
		}
	}
	return refused, out.Validate()
}

// refusedRoute answers requests with an error that would be a route's which cannot be translated: a later one may let
// them go where that one did not. It fails where it is not known for which requests that one is.
func refusedRoute(v *ir.Route) (*routev3.Route, error) {
	return (&routing{}).route(&ir.Route{
		Name: v.Name, Match: v.Match, StatPrefix: v.StatPrefix, Origin: v.Origin, OriginKind: v.OriginKind,
		DirectResponse: model.NoBackend(v.OriginKind),
	})
}

// virtualHost has the retry policy that its routes share; nil: each says its own.
func virtualHost(v *ir.VirtualHost, name string, retry *routev3.RetryPolicy) (out *routev3.VirtualHost, refused []error, err error) {
	if err := checkDomains(v.Domains); err != nil {
		return nil, nil, err
	}
	rt := &routing{port: requestPort(v.RouteConfig), https: strings.HasPrefix(v.RouteConfig, "https."), retry: retry, forwardHost: v.ForwardHost}
	out = &routev3.VirtualHost{
		Name:                       name,
		Domains:                    v.Domains,
		Routes:                     make([]*routev3.Route, 0, len(v.Routes)),
		RetryPolicy:                rt.retry,
		IncludeRequestAttemptCount: v.IncludeAttempts,
	}
	if v.HidesPeer {
		out.RequestHeadersToRemove = []string{peerHeader}
	}
	if v.RequireTLS {
		out.RequireTls = routev3.VirtualHost_ALL
	}
	for i := range v.Routes {
		r, err := rt.route(&v.Routes[i])
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", routeLabel(&v.Routes[i], i), err))
			if r, err = refusedRoute(&v.Routes[i]); err != nil {
				return nil, nil, errors.Join(refused...)
			}
		}
		out.Routes = append(out.Routes, r)
	}
	return out, refused, nil
}

// checkDomains: Envoy compares them without regard to case, and wants each once.
func checkDomains(domains []string) error {
	for i, d := range domains {
		for _, other := range domains[:i] {
			if strings.EqualFold(d, other) {
				return fmt.Errorf("domain %q is there twice", d)
			}
		}
	}
	return nil
}

// routeLabel names a route in errors, for whoever wrote it.
func routeLabel(v *ir.Route, i int) string {
	label := fmt.Sprintf("route %d", i)
	if v.Name != "" {
		label += fmt.Sprintf(" %q", v.Name)
	}
	if v.Origin != "" {
		label += fmt.Sprintf(" of %s %s", cmp.Or(v.OriginKind, model.KindVirtualService), v.Origin)
	}
	return label
}

// RouteConfig translates a route configuration without its virtual hosts, which come by
// VHDS where vhds is true and are appended by the caller where not.
func RouteConfig(v ir.RouteConfig, vhds bool) *routev3.RouteConfiguration {
	out := &routev3.RouteConfiguration{
		Name: v.Name,
		// A route may be earlier than its cluster; Envoy answers 503 until that comes.
		ValidateClusters:               no,
		IgnorePortInHostMatching:       true,
		MaxDirectResponseBodySizeBytes: wrapperspb.UInt32(maxResponseBody),
	}
	if vhds {
		out.Vhds = &routev3.Vhds{ConfigSource: adsSourceBounded}
	}
	if v.Bucket {
		out.RequestHeadersToRemove = []string{scopeHeader}
	}
	if v.Inbound {
		out.RequestHeadersToRemove = []string{peerHeader}
	}
	return out
}

// inlineRoutes are part of a listener. Nothing refers to their virtual hosts, so they have
// the short names that Istio gives them, and say retries where EnvoyFilters for Istio look for them: in routes.
func inlineRoutes(v *ir.InlineRoutes) (*routev3.RouteConfiguration, error) {
	out := RouteConfig(v.RouteConfig, false)
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
