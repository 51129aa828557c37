package bootstrap

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
)

// xdsTLS verifies the control plane by the names in Options. With an identity, Envoy presents the workload's certificate
// and trusts the mesh's roots. Both come from SDS, so that they change without a restart. Until SDS has a certificate,
// Envoy does not connect to the control plane.
func (o *Options) xdsTLS() *corev3.TransportSocket {
	names := o.XDS.ServerNames
	validation := &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: sanMatchers(names)}
	common := &tlsv3.CommonTlsContext{
		AlpnProtocols: []string{"h2"},
		TlsParams:     &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
	}
	if o.XDS.Identity {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{sdsSecret(sds.CertificateName)}
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: validation, ValidationContextSdsSecretConfig: sdsSecret(sds.RootsName),
			},
		}
	} else {
		validation.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: o.XDS.RootCert}}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation}
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(
			&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: names[0]})},
	}
}

func sanMatchers(names []string) []*tlsv3.SubjectAltNameMatcher {
	var out []*tlsv3.SubjectAltNameMatcher
	for _, name := range names {
		kind := tlsv3.SubjectAltNameMatcher_DNS
		if isIP(name) {
			kind = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
		}
		out = append(out, &tlsv3.SubjectAltNameMatcher{
			SanType: kind,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
		})
	}
	return out
}

// sdsSecret refers to a secret of the agent. All references are equal, so that Envoy subscribes once.
func sdsSecret(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: sdsCluster}}}},
		}},
		InitialFetchTimeout: durationpb.New(0),
		ResourceApiVersion:  corev3.ApiVersion_V3,
	}}
}
