package listener

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ondemandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// askTimeout is how long a request or connection waits for its cluster. If the stream breaks, Envoy asks again within a
// second.
const askTimeout = 10 * time.Second

// onDemandSource makes Envoy ask on a separate delta stream. On the aggregated stream, a cluster that waits for its endpoints
// would hold back all others. Filters with equal sources share one stream.
var onDemandSource = &corev3.ConfigSource{
	ResourceApiVersion: corev3.ApiVersion_V3,
	ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
		ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
		TransportApiVersion:       corev3.ApiVersion_V3,
		SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
			ClusterName: agentapi.XDSCluster,
			RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
				BaseInterval: durationpb.New(200 * time.Millisecond), MaxInterval: durationpb.New(time.Second),
			}},
		}}}},
	}},
}

// onDemandHTTP makes Envoy ask for the cluster that a route has chosen, if Envoy does not have it.
var onDemandHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.on_demand", &ondemandv3.OnDemand{
	Odcds: &ondemandv3.OnDemandCds{Source: onDemandSource, Timeout: durationpb.New(askTimeout)},
})

// onDemandTCP makes Envoy ask for the cluster that a connection is for, if Envoy does not have it.
var onDemandTCP = &tcpproxyv3.TcpProxy_OnDemand{OdcdsConfig: onDemandSource, Timeout: durationpb.New(askTimeout)}
