package translate

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setfilterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// meshALPN tells sidecars of the mesh from other TLS clients, as in Istio.
const meshALPN = "istio"

// What clients offer in the mesh's handshake, by what follows it. Servers tell requests from
// bytes by it, and choose the last of each list if they have it. Where requests are of the
// version that the application speaks, the server has to see it by their first bytes.
var (
	alpnBytes    = []string{meshALPN}
	alpnHTTP1    = []string{"istio-http/1.1", meshALPN, "http/1.1"}
	alpnHTTP2    = []string{"istio-h2", meshALPN, "h2"}
	alpnAsClient = []string{"istio-http/1.1", meshALPN}
	alpnServer   = []string{"h2", "http/1.1"}
)

func upstreamALPN(v *ir.Cluster) []string {
	switch protocol := protocolOf(v); {
	case protocol == upstreamHTTP2:
		return alpnHTTP2
	case protocol == upstreamAsClient:
		return alpnAsClient
	case v.Protocol.IsHTTP():
		return alpnHTTP1
	}
	return alpnBytes
}

// meshTLS has the mesh's certificate, which the agent serves.
func meshTLS(v *ir.Cluster, t *model.ClientTLS) *tlsv3.UpstreamTlsContext {
	out := &tlsv3.UpstreamTlsContext{
		CommonTlsContext: meshContext(subjectAltNames(sansOf(v, t)), upstreamALPN(v)), Sni: t.SNI,
	}
	if out.Sni == "" && v.Discovery != ir.DiscoverDynamicDNS {
		out.Sni = fmt.Sprintf("outbound_.%d_.%s_.%s", v.Port, v.Subset, v.Host)
	}
	return out
}

// meshContext is what both sides of the mesh's TLS have in common.
func meshContext(peers []*tlsv3.SubjectAltNameMatcher, alpn []string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams:                      tlsVersions,
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{workloadCertificate},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: peers},
				ValidationContextSdsSecretConfig: meshRoots,
			},
		},
		AlpnProtocols: alpn,
	}
}

// serverTLS ends the mesh's TLS: who has no certificate of a trust domain does not get in.
func serverTLS(v *ir.ServerTLS, http bool) (*corev3.TransportSocket, error) {
	if !v.IsMesh() {
		return userServerTLS(v, http)
	}
	peers := make([]*tlsv3.SubjectAltNameMatcher, 0, len(v.TrustDomains))
	for _, td := range v.TrustDomains {
		peers = append(peers, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + td + "/"}},
		})
	}
	if v.Server != nil && len(v.Server.SubjectAltNames) > 0 {
		peers = subjectAltNames(v.Server.SubjectAltNames)
	}
	alpn := alpnServer
	if !http {
		alpn = nil
	}
	common := meshContext(peers, alpn)
	common.TlsParams = meshServerParams(v)
	return tlsSocket(&tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: yes})
}

// meshServerParams are the server's own where it says something, else the mesh's.
func meshServerParams(v *ir.ServerTLS) *tlsv3.TlsParameters {
	if v.Server != nil {
		if own := tlsParams(v.Server); own != nil {
			return own
		}
	}
	params := tlsVersions
	if v.OnlyTLS13 {
		params = onlyTLS13
	}
	if len(v.CipherSuites) == 0 {
		return params
	}
	return &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: params.TlsMinimumProtocolVersion, TlsMaximumProtocolVersion: params.TlsMaximumProtocolVersion,
		CipherSuites: v.CipherSuites,
	}
}

func tlsSocket(context proto.Message) (*corev3.TransportSocket, error) {
	packed, err := pack(context)
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed},
	}, nil
}

// Endpoints that do not speak the mesh's TLS say so in their metadata. With Istio it is those that
// do; but they are the many, and each change of one endpoint is a message of them all.
const (
	socketMatch = "envoy.transport_socket_match"
	tlsModeKey  = "tlsMode"
)

var speaksPlain = &structpb.Struct{Fields: map[string]*structpb.Value{
	tlsModeKey: structpb.NewStringValue("disabled"),
}}

// matchSockets has the cluster's transport socket used but for endpoints that say that they do
// not speak the mesh's TLS; these get plain text. What says nothing is never sent plain text.
func matchSockets(c *clusterv3.Cluster) {
	secured := c.TransportSocket
	c.TransportSocket = nil
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-disabled", Match: speaksPlain, TransportSocket: rawBuffer},
		{Name: "tlsMode-istio", Match: &structpb.Struct{}, TransportSocket: secured},
	}
}

// offerBytes has connections offer what bytes do in the handshake of the mesh's TLS,
// whatever their cluster offers for requests.
var offerBytes = &listenerv3.Filter{
	Name: "envoy.filters.network.set_filter_state",
	ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: constant(&setfilterstatev3.Config{
		OnNewConnection: []*commonv3.FilterStateValue{{
			Key: &commonv3.FilterStateValue_ObjectKey{ObjectKey: "envoy.network.application_protocols"},
			Value: &commonv3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
					Specifier: &corev3.DataSource_InlineString{InlineString: meshALPN},
				}},
			}},
		}},
	})},
}
