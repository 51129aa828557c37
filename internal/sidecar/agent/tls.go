package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
)

// controlPlaneName is in the certificate of each control plane, and of nobody else: Istio's
// name of its Service.
const controlPlaneName = "istiod.istio-system.svc"

// serverNames are whom the certificate of the server at host must be for: one of them. An
// address or localhost says little, so that there the control plane's own name does, too.
func (s *settings) serverNames(host string) []string {
	switch {
	case s.XDS.ServerName != "":
		return []string{s.XDS.ServerName}
	case host == "":
		return []string{controlPlaneName}
	case isIP(host) || host == "localhost":
		return []string{controlPlaneName, host}
	}
	return []string{host}
}

// xdsTLS: with an identity the sidecar shows its certificate, and checks the control plane
// by the mesh's roots, both from SDS, so that both change without a restart. Until there is
// a certificate, Envoy waits with its cluster, and so with the control plane.
func (s *settings) xdsTLS() *corev3.TransportSocket {
	names := s.serverNames(s.xdsHost)
	validation := &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: sanMatchers(names)}
	common := &tlsv3.CommonTlsContext{
		AlpnProtocols: []string{"h2"},
		TlsParams:     &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
	}
	if s.identified {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{sdsSecret(sds.CertificateName)}
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: validation, ValidationContextSdsSecretConfig: sdsSecret(sds.RootsName),
			},
		}
	} else {
		validation.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: s.XDS.RootCert}}
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

// sdsSecret is how everything in Envoy refers to a secret of the agent: alike, so that Envoy
// subscribes once.
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

// sdsCluster is the agent.
func (s *settings) sdsCluster() *clusterv3.Cluster {
	socket := &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: sds.SocketPath(s.workDir)}}}
	return &clusterv3.Cluster{
		Name:                 sdsCluster,
		AltStatName:          sdsCluster + ";",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment:       assignment(sdsCluster, socket),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptionsName: pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
					},
				},
			},
		})},
	}
}

// xdsCredentials are Envoy's own for the control plane.
func (a *agent) xdsCredentials() (credentials.TransportCredentials, error) {
	names := a.serverNames(a.xdsHost)
	switch {
	case a.XDS.Plaintext:
		return insecure.NewCredentials(), nil
	case a.identity != nil:
		return credentials.NewTLS(a.identity.ClientTLS(names)), nil
	}
	c, err := a.anonymousTLS(names)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

func (a *agent) anonymousTLS(names []string) (*tls.Config, error) {
	pem, err := os.ReadFile(a.XDS.RootCert)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificates", a.XDS.RootCert)
	}
	return identity.ServerTLS(roots, names), nil
}
