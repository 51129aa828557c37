package simulate

import (
	"fmt"
	"net/http"
	"strings"

	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// Types of the HTTP filters that can answer. Envoy selects extensions by type; names are free.
const (
	corsType         = "envoy.extensions.filters.http.cors.v3.Cors"
	faultType        = "envoy.extensions.filters.http.fault.v3.HTTPFault"
	rbacHTTPType     = "envoy.extensions.filters.http.rbac.v3.RBAC"
	extAuthzHTTPType = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
	jwtType          = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
)

// typeName returns the type of a packed message; "" without one. A google.protobuf.Struct stands for a message of a type that
// this binary does not know; its field "type" has the name.
func typeName(packed *anypb.Any) string {
	if packed.MessageIs(&structpb.Struct{}) {
		s := &structpb.Struct{}
		if packed.UnmarshalTo(s) == nil {
			return s.GetFields()["type"].GetStringValue()
		}
	}
	url := packed.GetTypeUrl()
	return url[strings.LastIndexByte(url, '/')+1:]
}

// runFilters runs the HTTP filters that can answer. Per-route configuration of a filter counts only if the
// connection manager has the filter. Other filters let everything pass.
func (x *exchange) runFilters() (answered bool, err error) {
	for _, f := range x.hcm.GetHttpFilters() {
		switch typeName(f.GetTypedConfig()) {
		case corsType:
			x.cors = f.GetName()
			answered, err = x.runCORS()
		case faultType:
			answered, err = x.runFault(f)
		case rbacHTTPType, extAuthzHTTPType, jwtType:
			answered, err = x.runPolicy(f)
		case istioALPNType:
			x.meshALPN = true
		}
		if answered || err != nil {
			return answered, err
		}
		if x.reroute {
			x.reroute = false
			if err := x.pick(); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// faultReason is the reason of an answer by the fault filter.
const faultReason = "fault"

// runFault answers only if every request is aborted.
func (x *exchange) runFault(f *hcmv3.HttpFilter) (bool, error) {
	packed := x.perFilter(f.GetName())
	if packed == nil {
		packed = f.GetTypedConfig()
	}
	cfg := &faultv3.HTTPFault{}
	if packed == nil {
		return false, nil
	}
	if err := packed.UnmarshalTo(cfg); err != nil {
		return false, fmt.Errorf("fault filter: %w", err)
	}
	for _, h := range cfg.GetHeaders() {
		if ok, err := matchesHeader(h, x.headers); !ok || err != nil {
			return false, err
		}
	}
	x.res.Fault = faults(cfg.GetDelay(), cfg.GetAbort())
	if x.res.Fault == nil || x.res.Fault.AbortPercent < 100 {
		return false, nil
	}
	x.res.Status, x.res.Reason = int(x.res.Fault.Abort), faultReason
	if x.res.Fault.AbortGRPC != nil {
		x.res.Status = 200 // with the code in grpc-status
	}
	return true, nil
}

func faults(d *commonfaultv3.FaultDelay, a *faultv3.FaultAbort) *Fault {
	if d == nil && a == nil {
		return nil
	}
	f := &Fault{}
	if d != nil {
		f.Delay = d.GetFixedDelay().AsDuration().String()
		f.DelayPercent = round(fractional(d.GetPercentage()))
	}
	if a != nil {
		f.Abort = a.GetHttpStatus()
		f.AbortPercent = round(fractional(a.GetPercentage()))
		if s, ok := a.GetErrorType().(*faultv3.FaultAbort_GrpcStatus); ok {
			f.AbortGRPC = proto.Uint32(s.GrpcStatus)
		}
	}
	return f
}

// corsPolicy returns nil if there is no policy, or it is off.
func (x *exchange) corsPolicy() (*corsv3.CorsPolicy, error) {
	packed := x.perFilter(x.cors)
	if packed == nil {
		return nil, nil
	}
	cfg := &corsv3.CorsPolicy{}
	if err := packed.UnmarshalTo(cfg); err != nil {
		return nil, fmt.Errorf("cors filter: %w", err)
	}
	if f := cfg.GetFilterEnabled(); f != nil && !x.holds(fraction(f)) {
		return nil, nil
	}
	return cfg, nil
}

// runCORS answers preflight requests of allowed origins. It answers those of other origins if they must not
// be forwarded.
func (x *exchange) runCORS() (answered bool, err error) {
	cfg, err := x.corsPolicy()
	origin, has := x.headers["origin"]
	if err != nil || cfg == nil || !has {
		return false, err
	}
	x.res.CORS = &CORS{}
	for _, m := range cfg.GetAllowOriginStringMatch() {
		ok, err := matchesString(m, origin)
		if err != nil {
			return false, err
		}
		x.res.CORS.Allowed = x.res.CORS.Allowed || ok
	}
	asked := x.headers["access-control-request-method"]
	if x.Method != http.MethodOptions || asked == "" {
		return false, nil
	}
	x.res.CORS.Preflight = true
	forward := cfg.GetForwardNotMatchingPreflights() == nil || cfg.GetForwardNotMatchingPreflights().GetValue()
	if !x.res.CORS.Allowed && forward {
		return false, nil
	}
	x.res.Status, x.res.Reason = 200, "preflight"
	if x.res.CORS.Allowed {
		x.res.ResponseHeaders = x.corsHeaders()
	}
	return true, nil
}

// corsHeaders are what the filter adds to answers for an allowed origin.
func (x *exchange) corsHeaders() map[string]string {
	cfg, err := x.corsPolicy()
	if err != nil || cfg == nil {
		return nil
	}
	h := map[string]string{"access-control-allow-origin": x.headers["origin"]}
	set := func(name, value string) {
		if value != "" {
			h[name] = value
		}
	}
	if cfg.GetAllowCredentials().GetValue() {
		set("access-control-allow-credentials", "true")
	}
	if x.res.CORS.Preflight {
		set("access-control-allow-methods", cfg.GetAllowMethods())
		set("access-control-allow-headers", cfg.GetAllowHeaders())
		set("access-control-max-age", strings.TrimSpace(cfg.GetMaxAge()))
	} else {
		set("access-control-expose-headers", cfg.GetExposeHeaders())
	}
	return h
}
