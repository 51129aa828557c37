package cluster

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

const httpProtocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// upstreamProtocol is the HTTP version of requests to the endpoints.
type upstreamProtocol uint8

const (
	upstreamHTTP1    upstreamProtocol = iota
	upstreamHTTP2                     // with prior knowledge, or by ALPN with TLS
	upstreamAsClient                  // the version of the client
)

func protocolOf(v *ir.Cluster) upstreamProtocol {
	pool := v.Policy.ConnectionPool
	if pool == nil || v.Inbound && !pool.UseClientProtocol {
		pool = &model.ConnectionPool{}
	}
	switch {
	case v.MeshHTTP2:
		return upstreamHTTP2
	case pool.UseClientProtocol:
		return upstreamAsClient
	case v.Protocol.IsHTTP2() || pool.Upgrade == model.H2UpgradeAlways:
		return upstreamHTTP2
	case v.Protocol == model.ProtocolAuto && !v.Router, v.Protocol == "" && v.Discovery == ir.DiscoverOriginalDst:
		return upstreamAsClient
	}
	return upstreamHTTP1
}

// setProtocol adds protocol options unless they are Envoy's defaults.
func setProtocol(v *ir.Cluster, c *clusterv3.Cluster) error {
	protocol := protocolOf(v)
	o := &upstreamhttpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions:   connectionOptions(v.Policy.ConnectionPool),
		UpstreamHttpProtocolOptions: serverNameOptions(v),
	}
	if !v.Inbound {
		o.OutlierDetection = failureCodes(v.Policy.OutlierDetection)
	}
	http1 := http1Options(v, protocol)
	if protocol == upstreamHTTP1 && proto.Size(o)+proto.Size(http1) == 0 {
		return nil
	}
	setUpstreamProtocol(o, protocol, http1, v.Policy.ConnectionPool)
	if v.MeshHTTP2 { // an upgrade of HTTP/1.1 becomes a CONNECT on HTTP/2
		o.GetExplicitHttpConfig().GetHttp2ProtocolOptions().AllowConnect = true
	}
	packed, err := envoyproto.Pack(o)
	if err != nil {
		return err
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpProtocolOptions: packed}
	return nil
}

// http1Options keep the case of header names for clusters that may use HTTP/1.1.
func http1Options(v *ir.Cluster, protocol upstreamProtocol) *corev3.Http1ProtocolOptions {
	if v.KeepCase && (v.Protocol.IsHTTP() || v.Protocol == model.ProtocolAuto || protocol == upstreamAsClient) {
		return envoyproto.PreserveCase
	}
	return &corev3.Http1ProtocolOptions{}
}

func setUpstreamProtocol(o *upstreamhttpv3.HttpProtocolOptions, protocol upstreamProtocol, http1 *corev3.Http1ProtocolOptions, pool *model.ConnectionPool) {
	explicit := &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig{}
	switch protocol {
	case upstreamAsClient:
		o.UpstreamProtocolOptions = &upstreamhttpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &upstreamhttpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions:  http1,
				Http2ProtocolOptions: http2Options(pool),
			},
		}
		return
	case upstreamHTTP2:
		explicit.ProtocolConfig = &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: http2Options(pool),
		}
	default:
		explicit.ProtocolConfig = &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: http1,
		}
	}
	o.UpstreamProtocolOptions = &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit}
}

func http2Options(p *model.ConnectionPool) *corev3.Http2ProtocolOptions {
	out := &corev3.Http2ProtocolOptions{}
	if p == nil {
		return out
	}
	out.MaxConcurrentStreams = envoyproto.UInt32(p.MaxConcurrentStreams)
	if k := p.HTTP2Keepalive; k != nil {
		out.ConnectionKeepalive = &corev3.KeepaliveSettings{
			Interval: envoyproto.Duration(k.Interval), Timeout: envoyproto.Duration(k.Timeout),
		}
	}
	return out
}

// connectionOptions returns nil if the pool sets nothing. The idle timeout of TCP applies to HTTP if HTTP has none,
// as in Istio.
func connectionOptions(p *model.ConnectionPool) *corev3.HttpProtocolOptions {
	if p == nil {
		return nil
	}
	out := &corev3.HttpProtocolOptions{
		IdleTimeout:              envoyproto.OptionalDuration(cmp.Or(p.HTTPIdleTimeout, p.TCPIdleTimeout)),
		MaxConnectionDuration:    envoyproto.Duration(p.MaxConnectionDuration),
		MaxRequestsPerConnection: envoyproto.UInt32(p.MaxRequestsPerConnection),
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}
