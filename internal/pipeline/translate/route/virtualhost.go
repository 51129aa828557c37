// Package route translates virtual hosts (VHDS), route configurations (RDS) and scopes (SRDS).
//
// A route that cannot be translated does not affect the others of its virtual host: its requests get an error,
// because a later route might send them where this one would not.
//
// Start reading at VirtualHost.
package route

import (
	"errors"
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// VirtualHost translates a virtual host, for VHDS or for a route configuration that is served whole. Its name is that
// of the resource: otherwise Envoy ignores its removal by VHDS. Routes may come from several objects. A route that
// cannot be translated is replaced by one that answers with an error, and listed in refused.
func VirtualHost(v *ir.VirtualHost) (out *routev3.VirtualHost, refused []error, err error) {
	return served(v, sharedRetry(v.Routes))
}

// VirtualHostForPatches translates a virtual host for EnvoyFilters that change how its routes forward. They expect the form
// of Istio: each route has its own retry policy. Envoy would not combine one that a patch sets with that of the virtual host.
func VirtualHostForPatches(v *ir.VirtualHost) (out *routev3.VirtualHost, refused []error, err error) {
	return served(v, nil)
}

func served(v *ir.VirtualHost, retry *routev3.RetryPolicy) (out *routev3.VirtualHost, refused []error, err error) {
	if v.Added != nil {
		out, err = addedVirtualHost(v)
		return out, nil, err
	}
	out, refused, err = virtualHost(v, v.ResourceName(), retry)
	if err == nil && out.Validate() != nil {
		refused, err = refuseInvalid(v, out, refused)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("virtual host %s: %w", v.ResourceName(), err)
	}
	return out, refused, nil
}

// addedVirtualHost has the name of its resource, and those of its domains that no other virtual host has.
func addedVirtualHost(v *ir.VirtualHost) (*routev3.VirtualHost, error) {
	out, err := envoyproto.Added[*routev3.VirtualHost](v.Added)
	if err != nil {
		return nil, err
	}
	out.Name, out.Domains = v.ResourceName(), v.Domains
	if v.RemovesPeerHeader {
		out.RequestHeadersToRemove = append(out.RequestHeadersToRemove, callstats.PeerHeader)
	}
	return out, nil
}

// refuseInvalid replaces the routes that Envoy would refuse.
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

// refusedRoute answers with an error the requests of a route that cannot be translated. Without it a later route might
// send them elsewhere. It fails if the match of the route cannot be translated.
func refusedRoute(v *ir.Route) (*routev3.Route, error) {
	return (&routing{}).route(&ir.Route{
		Name: v.Name, Match: v.Match, StatPrefix: v.StatPrefix, Origin: v.Origin,
		DirectResponse: model.NoBackend(v.Origin.Kind),
	})
}

// virtualHost translates a virtual host with a retry policy; nil: each route has its own.
func virtualHost(v *ir.VirtualHost, name string, retry *routev3.RetryPolicy) (out *routev3.VirtualHost, refused []error, err error) {
	if err := checkDomains(v.Domains); err != nil {
		return nil, nil, err
	}
	rt := &routing{port: v.Of.Port, https: v.Of.Server != nil, retry: retry, forwardHost: v.ForwardHost}
	out = &routev3.VirtualHost{
		Name:                       name,
		Domains:                    v.Domains,
		Routes:                     make([]*routev3.Route, 0, len(v.Routes)),
		RetryPolicy:                rt.retry,
		IncludeRequestAttemptCount: v.IncludeAttempts,
	}
	if v.RemovesPeerHeader {
		out.RequestHeadersToRemove = []string{callstats.PeerHeader}
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

// checkDomains returns an error for a duplicate domain. Envoy ignores the case of domains.
func checkDomains(domains []string) error {
	for i, d := range domains {
		for _, other := range domains[:i] {
			if strings.EqualFold(d, other) {
				return fmt.Errorf("domain %q is listed twice", d)
			}
		}
	}
	return nil
}

// routeLabel names a route in errors: its index, its name and its object.
func routeLabel(v *ir.Route, i int) string {
	label := fmt.Sprintf("route %d", i)
	if v.Name != "" {
		label += fmt.Sprintf(" %q", v.Name)
	}
	if v.Origin != (model.Key{}) {
		label += fmt.Sprintf(" of %s %s/%s", v.Origin.Kind, v.Origin.Namespace, v.Origin.Name)
	}
	return label
}
