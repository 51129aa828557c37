package translate

import (
	"cmp"
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Names of the HTTP filters that routes configure. Istio's and Envoy's.
const (
	faultFilter = "envoy.filters.http.fault"
	corsFilter  = "envoy.filters.http.cors"
)

// routing is what a route needs to know of its virtual host.
type routing struct {
	port  uint32               // that clients use
	https bool                 // they speak TLS with a gateway, which ends it
	retry *routev3.RetryPolicy // said by the virtual host; nil: each route says its own
	// forwardHost sets x-forwarded-host where the route's host is another one than the request's.
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
	if v.Origin != "" {
		kind := cmp.Or(v.OriginKind, model.KindVirtualService)
		out.Metadata = underIstio(map[string]*structpb.Value{"config": configPath(kind.ConfigName(), v.Origin)})
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

// filterConfigs are what the route asks of filters; nil: nothing.
func filterConfigs(v *ir.Route) (map[string]*anypb.Any, error) {
	if v.Fault == nil && v.CORS == nil {
		return nil, nil
	}
	out := map[string]*anypb.Any{}
	if v.Fault != nil {
		f, err := fault(v.Fault)
		if err != nil {
			return nil, fmt.Errorf("fault: %w", err)
		}
		if f != nil {
			if err := put(out, faultFilter, f); err != nil {
				return nil, err
			}
		}
	}
	if v.CORS != nil {
		c, err := cors(v.CORS)
		if err != nil {
			return nil, fmt.Errorf("corsPolicy: %w", err)
		}
		if err := put(out, corsFilter, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// validated is a message of Envoy's API. Envoy's rules for what is packed into an Any are
// not checked with the message around it.
type validated interface {
	proto.Message
	Validate() error
}

func put(configs map[string]*anypb.Any, filter string, m validated) error {
	if err := m.Validate(); err != nil {
		return err
	}
	packed, err := pack(m)
	configs[filter] = packed
	return err
}
