// Package cluster translates clusters (CDS) and their endpoints (EDS). Translate makes a cluster in steps:
// discovery, load balancing, connections, outlier detection, TLS, protocol. EncodeEndpoints writes the bytes of
// endpoints without a message for each, because a service may have thousands.
//
// Start reading at Translate.
package cluster

import (
	"cmp"
	"fmt"
	"math"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/callstats"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Translate translates a cluster.
func Translate(v *ir.Cluster) (*clusterv3.Cluster, error) {
	if v.Added != nil {
		return addedCluster(v)
	}
	c := &clusterv3.Cluster{
		Name:           v.Name,
		AltStatName:    cmp.Or(v.AltStat, v.Name) + envoyproto.StatDelimiter,
		ConnectTimeout: connectTimeout(v),
		Metadata:       clusterMetadata(v),
	}
	for _, step := range clusterSteps {
		if err := step(v, c); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", v.Name, err)
		}
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", v.Name, err)
	}
	return c, nil
}

// clusterSteps are in order: setProtocol reads the TLS settings, and the PROXY protocol wraps the TLS socket.
var clusterSteps = []func(*ir.Cluster, *clusterv3.Cluster) error{
	setDiscovery, setLoadBalancer, setConnections, setOutlierDetection, setTransport, setProtocol,
}

func addedCluster(v *ir.Cluster) (*clusterv3.Cluster, error) {
	return envoyproto.Added[*clusterv3.Cluster](v.Added)
}

func connectTimeout(v *ir.Cluster) *durationpb.Duration {
	if p := v.Policy.ConnectionPool; p != nil && p.ConnectTimeout != 0 {
		return durationpb.New(p.ConnectTimeout)
	}
	return envoyproto.Duration(v.ConnectTimeout)
}

func clusterMetadata(v *ir.Cluster) *corev3.Metadata {
	fields := map[string]*structpb.Value{}
	if v.Service != (ir.ServiceRef{}) {
		fields["services"] = serviceList(v.Service)
	}
	if text := serviceText(v); text != "" {
		fields["service"] = structpb.NewStringValue(text)
	}
	if v.Origin != (model.Key{}) {
		fields["config"] = structpb.NewStringValue(resourcename.ConfigPath(v.Origin))
	}
	if v.TLSOrigin != (model.Key{}) {
		fields["backend_tls"] = structpb.NewStringValue(resourcename.ConfigPath(v.TLSOrigin))
	}
	if v.Of.Subset != "" {
		fields["subset"] = structpb.NewStringValue(v.Of.Subset)
	}
	if v.External {
		fields["external"] = structpb.NewBoolValue(true)
	}
	return envoyproto.IstioMetadata(fields)
}

// serviceText names the service of a cluster for statistics; empty: none. Package telemetry reads it from the metadata.
func serviceText(v *ir.Cluster) string {
	s := v.Service
	switch {
	case v.Name == ir.BlackHoleCluster || v.Name == ir.PassthroughCluster || v.Name == ir.InboundPassthroughCluster:
		return callstats.ServiceText("", v.Name, "")
	case s.Host == "":
		return ""
	}
	return callstats.ServiceText(string(s.Host), s.Name, s.Namespace)
}

// serviceList is a list of one service, in the form that Istio's statistics read.
func serviceList(s ir.ServiceRef) *structpb.Value {
	service := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"host":      structpb.NewStringValue(string(s.Host)),
		"name":      structpb.NewStringValue(s.Name),
		"namespace": structpb.NewStringValue(s.Namespace),
	}})
	return structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{service}})
}

// noCleanup is how long an inbound ORIGINAL_DST cluster keeps an idle host, a hundred years. There is one host,
// the application, and its connections must stay open.
var noCleanup = durationpb.New(100 * 365 * 24 * time.Hour)

// setConnections sets limits, keepalive and the source address of connections.
func setConnections(v *ir.Cluster, c *clusterv3.Cluster) error {
	c.CircuitBreakers = circuitBreakers(v.Policy)
	c.UpstreamConnectionOptions = keepalive(v)
	if v.SourceAddress != "" {
		c.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: envoyproto.SocketAddress(v.SourceAddress, 0)}
		if v.SourceAddress6 != "" {
			c.UpstreamBindConfig.ExtraSourceAddresses = []*corev3.ExtraSourceAddress{{Address: envoyproto.SocketAddress(v.SourceAddress6, 0)}}
		}
	}
	return nil
}

// unlimited is Istio's default of each limit. Envoy's defaults are so low (3 retries) that a rolling update
// reaches them.
var unlimited = wrapperspb.UInt32(math.MaxUint32)

// retryBudgetConcurrency is Istio's default of minRetryConcurrency.
const retryBudgetConcurrency = 3

// noLimits are the thresholds of a cluster without a connection pool.
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
		BudgetInterval:      envoyproto.Duration(b.Interval),
	}
	if b.MinConcurrency != 0 {
		out.MinRetryConcurrency = wrapperspb.UInt32(b.MinConcurrency)
	}
	return out
}

// keepalive combines the settings of the DestinationRule with those of the mesh. A field that neither sets has
// the default of the operating system.
func keepalive(v *ir.Cluster) *clusterv3.UpstreamConnectionOptions {
	var own *model.TCPKeepalive
	if p := v.Policy.ConnectionPool; p != nil {
		own = p.Keepalive
	}
	if own == nil && v.Keepalive == nil {
		return nil
	}
	k := model.TCPKeepalive{}
	for _, from := range []*model.TCPKeepalive{own, v.Keepalive} {
		if from != nil {
			k.Probes, k.Time, k.Interval = cmp.Or(k.Probes, from.Probes), cmp.Or(k.Time, from.Time), cmp.Or(k.Interval, from.Interval)
		}
	}
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
		KeepaliveProbes:   envoyproto.UInt32(k.Probes),
		KeepaliveTime:     envoyproto.UInt32(uint32(k.Time.Seconds())),
		KeepaliveInterval: envoyproto.UInt32(uint32(k.Interval.Seconds())),
	}}
}
