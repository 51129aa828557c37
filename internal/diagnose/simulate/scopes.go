package simulate

import (
	"errors"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// mutateEarly removes headers that are removed before all else. What is added is the key of a scope.
func (x *exchange) mutateEarly() error {
	for _, e := range x.hcm.GetEarlyHeaderMutationExtensions() {
		msg, err := unpack(e.GetTypedConfig())
		if err != nil {
			return err
		}
		early, ok := msg.(*earlyv3.HeaderMutation)
		if !ok {
			continue
		}
		for _, m := range early.GetMutations() {
			delete(x.headers, strings.ToLower(m.GetRemove()))
		}
	}
	return nil
}

// scopedRoutes finds the route configuration of the scope that a request's host has. Of
// scopes it knows those whose key is a bucket, and which lead to the route configuration
// of that name.
func (w *World) scopedRoutes(x *exchange) (*routev3.RouteConfiguration, error) {
	for _, e := range x.hcm.GetEarlyHeaderMutationExtensions() {
		msg, err := unpack(e.GetTypedConfig())
		if err != nil {
			return nil, err
		}
		early, ok := msg.(*earlyv3.HeaderMutation)
		if !ok {
			continue
		}
		for _, m := range early.GetMutations() {
			if key, ok := routeshard.Key(m.GetAppend().GetHeader().GetValue(), x.headers[":authority"]); ok {
				return w.routeConfig(key)
			}
		}
	}
	return nil, errors.New("scopes by anything but buckets of hosts are not known to the simulator")
}
