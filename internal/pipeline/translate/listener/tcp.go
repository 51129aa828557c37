package listener

import (
	"net"
	"slices"
	"strconv"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	snidfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
	"github.com/moonsail/moonsail/internal/pipeline/translate/security"
	"github.com/moonsail/moonsail/internal/pipeline/translate/telemetry"
)

// tcpFilters returns the filters of a chain: external authorizers, plugins before the policies, policies, plugins
// after them, and the TCP proxy. The proxy connects to the destination
//
//   - never, if policies refuse all connections to the port (0: unknown)
//   - after the handshake of mesh TLS (meshTLS) without plugins, so that no connection without a certificate reaches the application,
//     and the statistics of the opened connection name the caller
//   - at once otherwise, and with plugins. If a plugin delays the connection, Envoy 1.40 would close it after the
//     handshake, because the destination is chosen only when the plugin continues.
func tcpFilters(v *ir.TCPChain, port uint32, meshTLS bool, before, behind []*listenerv3.Filter) ([]*listenerv3.Filter, error) {
	external, err := security.ExternalTCP(v.Authorization)
	if err != nil {
		return nil, err
	}
	decisions := security.ConnectionDecisions(v.Authorization)
	own, err := decisions.TCPFilters()
	if err != nil {
		return nil, err
	}
	policy := slices.Concat(external, before, own, behind)
	proxy, err := tcpProxy(v)
	if err != nil {
		return nil, err
	}
	switch {
	case decisions.RefuseAll(port):
		proxy.UpstreamConnectMode = tcpproxyv3.UpstreamConnectMode_ON_DOWNSTREAM_DATA
		proxy.MaxEarlyDataBytes = wrapperspb.UInt32(1) // none ever arrive
	case meshTLS && len(before)+len(behind) == 0:
		proxy.UpstreamConnectMode = tcpproxyv3.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE
		proxy.MaxEarlyDataBytes = wrapperspb.UInt32(0) // Envoy requires a value
	}
	terminal, err := envoyproto.NetworkFilter("envoy.filters.network.tcp_proxy", proxy)
	if err != nil {
		return nil, err
	}
	if v.ForwardSNIPort == 0 {
		return append(policy, terminal), nil
	}
	resolve, err := envoyproto.NetworkFilter("envoy.filters.network.sni_dynamic_forward_proxy", &snidfpv3.FilterConfig{
		DnsCacheConfig: envoyproto.DNSCache(v.Families),
		PortSpecifier:  &snidfpv3.FilterConfig_PortValue{PortValue: v.ForwardSNIPort},
	})
	if err != nil {
		return nil, err
	}
	return append(policy, resolve, terminal), nil
}

func tcpProxy(v *ir.TCPChain) (*tcpproxyv3.TcpProxy, error) {
	log, err := telemetry.TCPLogs(v.Telemetry)
	if err != nil {
		return nil, err
	}
	out := &tcpproxyv3.TcpProxy{
		StatPrefix:                      v.StatPrefix,
		IdleTimeout:                     envoyproto.OptionalDuration(v.IdleTimeout),
		MaxDownstreamConnectionDuration: envoyproto.Duration(v.MaxDuration),
		AccessLog:                       log,
		AccessLogOptions:                telemetry.TCPLogOptions(v.Telemetry),
		TunnelingConfig:                 tunnel(v.Tunnel),
	}
	if v.OnDemand {
		out.OnDemand = onDemandTCP
	}
	if v.Hash != nil && v.Hash.SourceIP {
		out.HashPolicy = sourceIPOfConnection
	}
	backends, err := route.Weighted(v.Backends)
	if err != nil {
		return nil, err
	}
	if len(backends) == 1 {
		out.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: backends[0].Cluster}
		return out, nil
	}
	weighted := &tcpproxyv3.TcpProxy_WeightedCluster{}
	for _, b := range backends {
		weighted.Clusters = append(weighted.Clusters, &tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight{
			Name: b.Cluster, Weight: b.Weight,
		})
	}
	out.ClusterSpecifier = &tcpproxyv3.TcpProxy_WeightedClusters{WeightedClusters: weighted}
	return out, nil
}

// sourceIPOfConnection is the only hash policy of connections.
var sourceIPOfConnection = []*typev3.HashPolicy{{
	PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}},
}}

func tunnel(t *model.Tunnel) *tcpproxyv3.TcpProxy_TunnelingConfig {
	if t == nil {
		return nil
	}
	return &tcpproxyv3.TcpProxy_TunnelingConfig{
		Hostname: net.JoinHostPort(t.TargetHost, strconv.FormatUint(uint64(t.TargetPort), 10)),
		UsePost:  t.Post,
	}
}
