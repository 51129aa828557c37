package route

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// Names of the HTTP filters that routes configure.
const (
	FaultFilter = "envoy.filters.http.fault"
	CORSFilter  = "envoy.filters.http.cors"
)

// filterConfigs has the configurations of filters for one route; nil: none.
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
			if err := put(out, FaultFilter, f); err != nil {
				return nil, err
			}
		}
	}
	if v.CORS != nil {
		c, err := cors(v.CORS)
		if err != nil {
			return nil, fmt.Errorf("corsPolicy: %w", err)
		}
		if err := put(out, CORSFilter, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func put(configs map[string]*anypb.Any, filter string, m envoyproto.Validated) error {
	if err := m.Validate(); err != nil {
		return err
	}
	packed, err := envoyproto.Pack(m)
	configs[filter] = packed
	return err
}

func cors(c *model.CORS) (*corsv3.CorsPolicy, error) {
	out := &corsv3.CorsPolicy{
		AllowMethods:  strings.Join(c.AllowMethods, ","),
		AllowHeaders:  strings.Join(c.AllowHeaders, ","),
		ExposeHeaders: strings.Join(c.ExposeHeaders, ","),
	}
	for i := range c.AllowOrigins {
		m, err := stringMatcher(&c.AllowOrigins[i])
		if err != nil {
			return nil, fmt.Errorf("allowOrigins[%d]: %w", i, err)
		}
		if m == nil {
			if m, err = stringMatcher(&model.StringMatch{Kind: model.MatchRegex, Value: ".*"}); err != nil {
				return nil, err
			}
		}
		out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, m)
	}
	if c.MaxAge != nil {
		out.MaxAge = strconv.FormatInt(int64(c.MaxAge.Seconds()), 10)
	}
	if c.AllowCredentials != nil {
		out.AllowCredentials = wrapperspb.Bool(*c.AllowCredentials)
	}
	if c.ForwardUnmatched != nil && !*c.ForwardUnmatched {
		out.ForwardNotMatchingPreflights = envoyproto.False
	}
	return out, nil
}

// fault returns nil if no request is affected.
func fault(f *model.Fault) (*faultv3.HTTPFault, error) {
	out := &faultv3.HTTPFault{}
	if f.Delay != 0 && f.DelayPercent > 0 {
		out.Delay = &commonfaultv3.FaultDelay{
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: envoyproto.Duration(f.Delay)},
			Percentage:         percent(f.DelayPercent),
		}
	}
	if (f.AbortHTTP != 0 || f.AbortGRPC != "") && f.AbortPercent > 0 {
		out.Abort = &faultv3.FaultAbort{Percentage: percent(f.AbortPercent)}
		if f.AbortHTTP != 0 {
			out.Abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: f.AbortHTTP}
		} else {
			status, err := grpcStatus(f.AbortGRPC)
			if err != nil {
				return nil, err
			}
			out.Abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: status}
		}
	}
	if out.Delay == nil && out.Abort == nil {
		return nil, nil
	}
	return out, nil
}

// grpcStatus reads the name or number of a status code.
func grpcStatus(s string) (uint32, error) {
	if n, ok := code.Code_value[s]; ok {
		return uint32(n), nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if _, ok := code.Code_name[int32(n)]; err != nil || !ok {
		return 0, fmt.Errorf("abort.grpcStatus: unknown gRPC status %q: use a name or number such as UNAVAILABLE or 14", s)
	}
	return uint32(n), nil
}

// percent has a resolution of 0.0001 %.
func percent(p float64) *typev3.FractionalPercent {
	if p == math.Trunc(p) {
		return &typev3.FractionalPercent{Numerator: uint32(p)}
	}
	return &typev3.FractionalPercent{
		Numerator:   uint32(math.Round(p * 10_000)),
		Denominator: typev3.FractionalPercent_MILLION,
	}
}
