package translate

import (
	"cmp"
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// unlimited is Istio's default for each limit. Envoy's own are so low (3 retries) that
// they are reached when pods come and go.
var unlimited = wrapperspb.UInt32(math.MaxUint32)

// retryBudgetConcurrency is Istio's default of a retry budget.
const retryBudgetConcurrency = 3

// noLimits is what a cluster without a connection pool has.
var noLimits = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
	MaxConnections: unlimited, MaxPendingRequests: unlimited, MaxRequests: unlimited, MaxRetries: unlimited,
}}}

func circuitBreakers(p model.TrafficPolicy) *clusterv3.CircuitBreakers {
	if p.ConnectionPool == nil && p.RetryBudget == nil {
		return noLimits
	}
	pool := p.ConnectionPool
	if pool == nil {
		pool = &model.ConnectionPool{}
	}
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     limit(pool.MaxConnections),
		MaxPendingRequests: limit(pool.MaxPendingRequests),
		MaxRequests:        limit(pool.MaxRequests),
		MaxRetries:         limit(pool.MaxRetries),
		RetryBudget:        retryBudget(p.RetryBudget),
	}}}
}

func limit(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return unlimited
	}
	return wrapperspb.UInt32(n)
}

func retryBudget(b *model.RetryBudget) *clusterv3.CircuitBreakers_Thresholds_RetryBudget {
	if b == nil {
		return nil
	}
	out := &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
		BudgetPercent:       &typev3.Percent{Value: b.Percent}, // 0: MinRetryConcurrency alone
		MinRetryConcurrency: wrapperspb.UInt32(retryBudgetConcurrency),
		BudgetInterval:      duration(b.Interval),
	}
	if b.MinConcurrency != 0 {
		out.MinRetryConcurrency = wrapperspb.UInt32(b.MinConcurrency)
	}
	return out
}

// keepalive that names nothing has the system's settings.
func keepalive(v *ir.Cluster) *clusterv3.UpstreamConnectionOptions {
	var own *model.TCPKeepalive
	if p := v.Policy.ConnectionPool; p != nil {
		own = p.Keepalive
	}
	if own == nil && v.Keepalive == nil {
		return nil
	}
	k := model.TCPKeepalive{}
	for _, said := range []*model.TCPKeepalive{own, v.Keepalive} {
		if said != nil {
			k.Probes, k.Time, k.Interval = cmp.Or(k.Probes, said.Probes), cmp.Or(k.Time, said.Time), cmp.Or(k.Interval, said.Interval)
		}
	}
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
		KeepaliveProbes:   positive(k.Probes),
		KeepaliveTime:     positive(uint32(k.Time.Seconds())),
		KeepaliveInterval: positive(uint32(k.Interval.Seconds())),
	}}
}
