package translate

import (
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/view"
)

// VirtualHost translates a virtual host, for VHDS or as part of a route configuration
// that is served whole. Its name is that of the resource: Envoy removes a virtual host by
// VHDS only where they are the same.
func VirtualHost(v *view.VirtualHost) (*routev3.VirtualHost, error) {
	if v.Added != nil {
		return addedVirtualHost(v)
	}
	out, err := virtualHost(v, v.ResourceName(), sharedRetry(v.Routes))
	if err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", v.ResourceName(), err)
	}
	if err := out.Validate(); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", v.ResourceName(), err)
	}
	return out, nil
}

// virtualHost has the retry policy that its routes share; nil: each says its own.
func virtualHost(v *view.VirtualHost, name string, retry *routev3.RetryPolicy) (*routev3.VirtualHost, error) {
	if err := checkDomains(v.Domains); err != nil {
		return nil, err
	}
	rt := &routing{port: requestPort(v.RouteConfig), https: strings.HasPrefix(v.RouteConfig, "https."), retry: retry, forwardHost: v.ForwardHost}
	out := &routev3.VirtualHost{
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
			return nil, fmt.Errorf("%s: %w", routeLabel(&v.Routes[i], i), err)
		}
		out.Routes = append(out.Routes, r)
	}
	return out, nil
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
func routeLabel(v *view.Route, i int) string {
	label := fmt.Sprintf("route %d", i)
	if v.Name != "" {
		label += fmt.Sprintf(" %q", v.Name)
	}
	if v.Origin != "" {
		label += " of VirtualService " + v.Origin
	}
	return label
}

// RouteConfig translates a route configuration without its virtual hosts, which come by
// VHDS where vhds is true and are appended by the caller where not.
func RouteConfig(v view.RouteConfig, vhds bool) *routev3.RouteConfiguration {
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
func inlineRoutes(v *view.InlineRoutes) (*routev3.RouteConfiguration, error) {
	out := RouteConfig(v.RouteConfig, false)
	for i := range v.VirtualHosts {
		h := &v.VirtualHosts[i]
		translated, err := virtualHost(h, h.Name, nil)
		if err != nil {
			return nil, fmt.Errorf("virtual host %s: %w", h.Name, err)
		}
		out.VirtualHosts = append(out.VirtualHosts, translated)
	}
	return out, nil
}
