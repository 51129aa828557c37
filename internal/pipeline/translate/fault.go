package translate

import (
	"fmt"
	"math"
	"strconv"

	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/moonsail/moonsail/internal/model"
)

// fault is nil where nothing is ever injected.
func fault(f *model.Fault) (*faultv3.HTTPFault, error) {
	out := &faultv3.HTTPFault{}
	if f.Delay != 0 && f.DelayPercent > 0 {
		out.Delay = &commonfaultv3.FaultDelay{
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: duration(f.Delay)},
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

// grpcStatus reads a status code's name or number.
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

// percent has a resolution of a ten thousandth of a percent.
func percent(p float64) *typev3.FractionalPercent {
	if p == math.Trunc(p) {
		return &typev3.FractionalPercent{Numerator: uint32(p)}
	}
	return &typev3.FractionalPercent{
		Numerator:   uint32(math.Round(p * 10_000)),
		Denominator: typev3.FractionalPercent_MILLION,
	}
}
