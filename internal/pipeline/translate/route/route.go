package route

import (
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// routing is what routes inherit from their virtual host.
type routing struct {
	port  uint32               // of the request
	https bool                 // clients use TLS, which a gateway terminates
	retry *routev3.RetryPolicy // set by the virtual host; nil: each route sets its own
	// forwardHost sets x-forwarded-host if a route changes the host of the request.
	forwardHost bool
}

func (rt *routing) route(v *ir.Route) (*routev3.Route, error) {
	match, err := routeMatch(v.Match)
	if err != nil {
		return nil, err
	}
	out := &routev3.Route{Name: v.Name, Match: match, StatPrefix: v.StatPrefix}
	if v.Operation != "" {
		out.Decorator = &routev3.Decorator{Operation: v.Operation}
	}
	if v.Origin != (model.Key{}) {
		out.Metadata = envoyproto.IstioMetadata(map[string]*structpb.Value{"config": structpb.NewStringValue(resourcename.ConfigPath(v.Origin))})
	}
	if out.TypedPerFilterConfig, err = filterConfigs(v); err != nil {
		return nil, err
	}
	if err := rt.setAction(v, out); err != nil {
		return nil, err
	}
	return out, nil
}

func (rt *routing) setAction(v *ir.Route, out *routev3.Route) (err error) {
	request, err := headers(&v.Headers.Request)
	if err != nil {
		return fmt.Errorf("headers.request: %w", err)
	}
	response, err := headers(&v.Headers.Response)
	if err != nil {
		return fmt.Errorf("headers.response: %w", err)
	}
	out.RequestHeadersToAdd, out.RequestHeadersToRemove = request.add, request.remove
	out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = response.add, response.remove
	switch {
	case v.Redirect != nil:
		out.Action, err = rt.redirect(v.Redirect)
	case v.DirectResponse != nil:
		out.Action, err = directResponse(v.DirectResponse)
	default:
		err = rt.setForwarding(v, out, request.authority)
	}
	return err
}
