package translate

import (
	"cmp"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// noCleanup is how long the idle hosts of inbound ORIGINAL_DST clusters are kept: there
// is one, the application, and its connections should stay. A hundred years.
var noCleanup = durationpb.New(100 * 365 * 24 * time.Hour)

// statDelimiter ends names in statistics, as in Istio: names have dots in them, and the
// bootstrap's tags must know where they end.
const statDelimiter = ";"

// Cluster translates a cluster.
func Cluster(v *ir.Cluster) (*clusterv3.Cluster, error) {
	if v.Added != nil {
		return addedCluster(v)
	}
	c := &clusterv3.Cluster{
		Name:           v.Name,
		AltStatName:    cmp.Or(v.AltStat, v.Name) + statDelimiter,
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

// clusterSteps in order: protocol options need to know of TLS, proxy protocol wraps TLS.
var clusterSteps = []func(*ir.Cluster, *clusterv3.Cluster) error{
	setDiscovery, setLoadBalancer, setConnections, setOutlierDetection, setTransport, setProtocol,
}

func connectTimeout(v *ir.Cluster) *durationpb.Duration {
	if p := v.Policy.ConnectionPool; p != nil && p.ConnectTimeout != 0 {
		return durationpb.New(p.ConnectTimeout)
	}
	return duration(v.ConnectTimeout)
}

func clusterMetadata(v *ir.Cluster) *corev3.Metadata {
	fields := map[string]*structpb.Value{}
	if v.Service != (ir.ServiceRef{}) {
		fields["services"] = serviceList(v.Service)
	}
	if text := serviceText(v); text != "" {
		fields["service"] = structpb.NewStringValue(text)
	}
	if v.Origin != "" {
		fields["config"] = configPath("destination-rule", v.Origin)
	}
	if v.TLSOrigin != "" {
		fields["backend_tls"] = configPath(model.KindBackendTLSPolicy.ConfigName(), v.TLSOrigin)
	}
	if v.Subset != "" {
		fields["subset"] = structpb.NewStringValue(v.Subset)
	}
	if v.External {
		fields["external"] = structpb.NewBoolValue(true)
	}
	return underIstio(fields)
}

// setConnections sets what holds for each connection and for all of them together.
func setConnections(v *ir.Cluster, c *clusterv3.Cluster) error {
	c.CircuitBreakers = circuitBreakers(v.Policy)
	c.UpstreamConnectionOptions = keepalive(v)
	if v.SourceAddress != "" {
		c.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: socketAddress(v.SourceAddress, 0)}
		if v.SourceAddress6 != "" {
			c.UpstreamBindConfig.ExtraSourceAddresses = []*corev3.ExtraSourceAddress{{Address: socketAddress(v.SourceAddress6, 0)}}
		}
	}
	return nil
}
