package translate

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// The secrets that the agent serves from the bootstrap's cluster "sds-grpc". Names are Istio's.
var (
	workloadCertificate = &tlsv3.SdsSecretConfig{Name: "default", SdsConfig: agentSource}
	meshRoots           = &tlsv3.SdsSecretConfig{Name: "ROOTCA", SdsConfig: agentSource}
)

var agentSource = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
		ApiType:                   corev3.ApiConfigSource_GRPC,
		TransportApiVersion:       corev3.ApiVersion_V3,
		SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*corev3.GrpcService{{
			TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "sds-grpc"},
			},
		}},
	}},
	InitialFetchTimeout: noDuration,
	ResourceApiVersion:  corev3.ApiVersion_V3,
}

// credential is a Kubernetes secret, served by the control plane. Waiting for it is
// bounded: a secret that does not exist must hold up nothing else.
func credential(name, suffix string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: model.CredentialURL(name) + suffix, SdsConfig: adsSourceBounded}
}

// Secret is what a credential's name stands for.
func Secret(v *ir.Secret) (*tlsv3.Secret, error) {
	if v.Certificate == "" {
		context := &tlsv3.CertificateValidationContext{TrustedCa: inlineBytes(v.CA)}
		if v.CRL != "" {
			context.Crl = inlineBytes(v.CRL)
		}
		return &tlsv3.Secret{Name: v.Name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: context}}, nil
	}
	return &tlsv3.Secret{Name: v.Name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inlineBytes(v.Certificate), PrivateKey: inlineBytes(v.PrivateKey.PEM()),
	}}}, nil
}

func inlineBytes(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(text)}}
}
