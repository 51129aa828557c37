package cluster

import (
	"fmt"
	"math/big"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// Envoy's limits.
const (
	maxRingSize   = 8 << 20
	maxMaglevSize = 5_000_011
)

func setLoadBalancer(v *ir.Cluster, c *clusterv3.Cluster) error {
	switch v.Discovery {
	case ir.DiscoverOriginalDst, ir.DiscoverDynamicDNS:
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		return nil
	}
	if v.LocalityWeighted {
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{
			LocalityConfigSpecifier: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
				LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
			},
		}
	}
	// There is one endpoint at most, so Envoy's simplest policy suffices.
	if v.Name == ir.BlackHoleCluster || v.Inbound {
		return nil
	}
	lb := v.Policy.LoadBalancer
	if lb == nil {
		lb = &model.LoadBalancer{}
	}
	return setAlgorithm(lb, c)
}

func setAlgorithm(lb *model.LoadBalancer, c *clusterv3.Cluster) error {
	switch lb.Algorithm {
	case "", model.LBLeastRequest:
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if lb.Warmup != nil {
			c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slowStart(lb.Warmup)},
			}
		}
	case model.LBRoundRobin:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if lb.Warmup != nil {
			c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{
				RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slowStart(lb.Warmup)},
			}
		}
	case model.LBRandom:
		c.LbPolicy = clusterv3.Cluster_RANDOM
	case model.LBPassthrough:
		// Connections go to their original destination, whatever endpoints the service has.
		c.ClusterDiscoveryType, c.LbPolicy = originalDst, clusterv3.Cluster_CLUSTER_PROVIDED
		c.LoadAssignment, c.EdsClusterConfig, c.CommonLbConfig = nil, nil, nil
	case model.LBRingHash:
		return setRingHash(lb, c)
	case model.LBMaglev:
		return setMaglev(lb, c)
	default:
		return fmt.Errorf("unknown load balancer %q", lb.Algorithm)
	}
	return nil
}

func setRingHash(lb *model.LoadBalancer, c *clusterv3.Cluster) error {
	c.LbPolicy = clusterv3.Cluster_RING_HASH
	if lb.RingSize == 0 {
		return nil
	}
	if lb.RingSize > maxRingSize {
		return fmt.Errorf("minimumRingSize %d: must be at most %d", lb.RingSize, maxRingSize)
	}
	c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
		RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(lb.RingSize)},
	}
	return nil
}

func setMaglev(lb *model.LoadBalancer, c *clusterv3.Cluster) error {
	c.LbPolicy = clusterv3.Cluster_MAGLEV
	if lb.TableSize == 0 {
		return nil
	}
	if lb.TableSize > maxMaglevSize || !new(big.Int).SetUint64(lb.TableSize).ProbablyPrime(0) {
		return fmt.Errorf("maglev tableSize %d: must be a prime number of at most %d", lb.TableSize, maxMaglevSize)
	}
	c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
		MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(lb.TableSize)},
	}
	return nil
}

func slowStart(w *model.Warmup) *clusterv3.Cluster_SlowStartConfig {
	out := &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: envoyproto.Duration(w.Duration)}
	if w.Aggression != 0 {
		out.Aggression = &corev3.RuntimeDouble{DefaultValue: w.Aggression, RuntimeKey: "moonsail.warmup.aggression"}
	}
	if w.MinimumPercent != nil {
		out.MinWeightPercent = &typev3.Percent{Value: *w.MinimumPercent}
	}
	return out
}

// setOutlierDetection ejects by consecutive failures only, as Istio does. Success rates are not significant with
// few endpoints.
func setOutlierDetection(v *ir.Cluster, c *clusterv3.Cluster) error {
	o := v.Policy.OutlierDetection
	if o == nil || v.Inbound {
		return nil
	}
	out := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: wrapperspb.UInt32(0),
		Interval:             envoyproto.Duration(o.Interval),
		BaseEjectionTime:     envoyproto.Duration(o.BaseEjectionTime),
		MaxEjectionPercent:   envoyproto.UInt32(o.MaxEjectionPercent),
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
	// In panic mode Envoy sends requests to ejected endpoints. With few endpoints the first ejection would start
	// it, so it is off unless minHealthPercent is set.
	c.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{Value: float64(o.MinHealthPercent)}
	return nil
}

// consecutive returns the number of failures, and the percentage of endpoints that are ejected when they reach it.
// 0 failures disable the check.
func consecutive(n *uint32) (failures, enforcing *wrapperspb.UInt32Value) {
	switch {
	case n == nil:
		return nil, nil
	case *n == 0:
		return wrapperspb.UInt32(0), wrapperspb.UInt32(0)
	}
	return wrapperspb.UInt32(*n), wrapperspb.UInt32(100)
}

// failureCodes counts the given status codes as failures, instead of 5xx.
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
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: envoyproto.MatchExact(strconv.Itoa(int(code)))},
	}
	return &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_HttpResponseHeadersMatch{
		HttpResponseHeadersMatch: &matcherv3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{status}},
	}}
}
