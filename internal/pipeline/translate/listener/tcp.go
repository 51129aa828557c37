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

// sourceIPOfConnection is the only hash that connections can have.
var sourceIPOfConnection = []*typev3.HashPolicy{{
	PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}},
}}

// tcpFilters are a chain's; those before and behind its policies are given. Where callers show
// certificates the destination is called when they have: statistics of a connection that is opened
// name its caller then, and nobody without a certificate gets as far as the application.
// Not so behind plugins: where one has a new connection wait, Envoy (1.40) would end it when the caller has shown
// its certificate, for want of a destination, which is chosen when the plugin lets it pass.
// Where policies refuse all connections to the port (0: it is not known) it is never called.
func tcpFilters(v *ir.TCPChain, port uint32, shown bool, before, behind []*listenerv3.Filter) ([]*listenerv3.Filter, error) {
	external, err := security.ExternalTCP(v.Authorization)
	if err != nil {
		return nil, err
	}
	decisions := security.DecisionsOf(v.Authorization, true)
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
		proxy.MaxEarlyDataBytes = wrapperspb.UInt32(1) // there never are any
	case shown && len(before)+len(behind) == 0:
		proxy.UpstreamConnectMode = tcpproxyv3.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE
		proxy.MaxEarlyDataBytes = wrapperspb.UInt32(0) // Envoy wants it to be said
	}
	terminal, err := envoyproto.NetworkFilter("envoy.filters.network.tcp_proxy", proxy)
	if err != nil {
		return nil, err
	}
	if v.ForwardSNIPort == 0 {
		return append(policy, terminal), nil
	}
	resolve, err := envoyproto.NetworkFilter("envoy.filters.network.sni_dynamic_forward_proxy", &snidfpv3.FilterConfig{
		DnsCacheConfig: envoyproto.DNSCache,
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
		IdleTimeout:                     envoyproto.Duration(v.IdleTimeout),
		MaxDownstreamConnectionDuration: envoyproto.Duration(v.MaxDuration),
		AccessLog:                       log,
		AccessLogOptions:                telemetry.TCPLogOptions(v.Telemetry),
		TunnelingConfig:                 tunnel(v.Tunnel),
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

func tunnel(t *model.Tunnel) *tcpproxyv3.TcpProxy_TunnelingConfig {
	if t == nil {
		return nil
	}
	return &tcpproxyv3.TcpProxy_TunnelingConfig{
		Hostname: net.JoinHostPort(t.TargetHost, strconv.FormatUint(uint64(t.TargetPort), 10)),
		UsePost:  t.Post,
	}
}
