package translate

import (
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// setOutlierDetection ejects by consecutive failures only, as Istio does: success rates
// mean little with a handful of endpoints.
func setOutlierDetection(v *ir.Cluster, c *clusterv3.Cluster) error {
	o := v.Policy.OutlierDetection
	if o == nil || v.Inbound {
		return nil
	}
	out := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: wrapperspb.UInt32(0),
		Interval:             duration(o.Interval),
		BaseEjectionTime:     duration(o.BaseEjectionTime),
		MaxEjectionPercent:   positive(o.MaxEjectionPercent),
	}
	out.Consecutive_5Xx, out.EnforcingConsecutive_5Xx = consecutive(o.Consecutive5xx)
	out.ConsecutiveGatewayFailure, out.EnforcingConsecutiveGatewayFailure = consecutive(o.ConsecutiveGatewayErrors)
	if o.SplitExternalLocalOriginErrors {
		out.SplitExternalLocalOriginErrors = true
		out.EnforcingLocalOriginSuccessRate = wrapperspb.UInt32(0)
		if n := o.ConsecutiveLocalOriginFailures; n != nil && *n > 0 {
			out.ConsecutiveLocalOriginFailure, out.EnforcingConsecutiveLocalOriginFailure = consecutive(n)
		}
	}
	c.OutlierDetection = out
	if c.CommonLbConfig == nil {
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	}
	// Panic mode sends to ejected endpoints. With few endpoints it would come with the
	// first ejection, so it is off unless asked for.
	c.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{Value: float64(o.MinHealthPercent)}
	return nil
}

// consecutive gives the number of failures and how many percent of those who reach it are
// ejected. 0 failures switch the check off.
func consecutive(n *uint32) (failures, enforcing *wrapperspb.UInt32Value) {
	switch {
	case n == nil:
		return nil, nil
	case *n == 0:
		return wrapperspb.UInt32(0), wrapperspb.UInt32(0)
	}
	return wrapperspb.UInt32(*n), wrapperspb.UInt32(100)
}

// failureCodes makes the given codes, instead of 5xx, the failures that are counted.
func failureCodes(o *model.OutlierDetection) *upstreamhttpv3.HttpProtocolOptions_OutlierDetection {
	if o == nil || len(o.HTTPErrorCodes) == 0 {
		return nil
	}
	rules := make([]*matcherv3.MatchPredicate, 0, len(o.HTTPErrorCodes))
	for _, code := range o.HTTPErrorCodes {
		rules = append(rules, statusPredicate(code))
	}
	out := &upstreamhttpv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: rules[0]}
	if len(rules) > 1 {
		out.ErrorMatcher = &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_OrMatch{
			OrMatch: &matcherv3.MatchPredicate_MatchSet{Rules: rules},
		}}
	}
	return out
}

func statusPredicate(code uint32) *matcherv3.MatchPredicate {
	status := &routev3.HeaderMatcher{
		Name:                 ":status",
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exactly(strconv.Itoa(int(code)))},
	}
	return &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_HttpResponseHeadersMatch{
		HttpResponseHeadersMatch: &matcherv3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{status}},
	}}
}
