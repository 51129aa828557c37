package security

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/config/certfile"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// Secret translates a certificate with its key, or certificates of CAs.
func Secret(v *ir.Secret) (*tlsv3.Secret, error) {
	if v.Certificate == "" {
		context := &tlsv3.CertificateValidationContext{TrustedCa: envoyproto.InlineBytes(v.CA)}
		if v.CRL != "" {
			context.Crl = envoyproto.InlineBytes(v.CRL)
		}
		return &tlsv3.Secret{Name: v.Name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: context}}, nil
	}
	pair := &tlsv3.TlsCertificate{CertificateChain: envoyproto.InlineBytes(v.Certificate), PrivateKey: envoyproto.InlineBytes(v.PrivateKey.PEM())}
	if v.OCSPStaple != "" {
		pair.OcspStaple = envoyproto.InlineBytes(v.OCSPStaple)
	}
	return &tlsv3.Secret{Name: v.Name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: pair}}, nil
}

// Credential is a Kubernetes Secret that the control plane serves. The wait is bounded, so that a missing Secret does
// not delay other resources.
func Credential(name, suffix string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: model.CredentialURL(name) + suffix, SdsConfig: envoyproto.ADSBounded}
}

// Secrets that the agent serves at the bootstrap's cluster "sds-grpc". Names are Istio's.
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
	InitialFetchTimeout: envoyproto.NoDuration,
	ResourceApiVersion:  corev3.ApiVersion_V3,
}

// The agent of a proxy reads the certificates in files of the proxy, watches them, reports problems, and serves them by
// SDS. Envoy itself refuses a cluster or listener if a file is missing. Envoy reads the files if the agent does
// not support it, or if a path contains the separator of paths in names of secrets.

// systemRoots is the file of the system's CAs, for servers without a configured CA, if Envoy reads it. It is the path in
// Debian and Alpine.
const systemRoots = "/etc/ssl/certs/ca-certificates.crt"

// fileWait is how long a cluster or listener waits for files, and with it the next ones of its type. Afterwards its
// connections fail until the files exist.
const fileWait = 2 * time.Second

var fileSource = &corev3.ConfigSource{
	ConfigSourceSpecifier: agentSource.ConfigSourceSpecifier,
	InitialFetchTimeout:   durationpb.New(fileWait),
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

// SetFileCertificates sets certificates in files. All come from the agent, or all from Envoy: Envoy does not allow
// both.
func SetFileCertificates(common *tlsv3.CommonTlsContext, fromAgent bool, list ...model.CertificateFiles) {
	var asked []*tlsv3.SdsSecretConfig
	var read []*tlsv3.TlsCertificate
	for _, f := range list {
		name, ok := certfile.Pair(f.Certificate, f.PrivateKey)
		fromAgent = fromAgent && ok
		asked = append(asked, &tlsv3.SdsSecretConfig{Name: name, SdsConfig: fileSource})
		read = append(read, &tlsv3.TlsCertificate{CertificateChain: envoyproto.Filename(f.Certificate), PrivateKey: envoyproto.Filename(f.PrivateKey)})
	}
	if fromAgent {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, asked...)
	} else {
		common.TlsCertificates = read
	}
}

// SetFileRoots verifies peers by the CAs in a file, or the system's, in addition to context. crl may be empty.
func SetFileRoots(common *tlsv3.CommonTlsContext, fromAgent bool, context *tlsv3.CertificateValidationContext, cas, crl string) {
	if name, ok := certfile.Roots(cas, crl); ok && fromAgent {
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         context,
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: name, SdsConfig: fileSource},
			},
		}
		return
	}
	if cas == certfile.System {
		cas = systemRoots
	}
	context.TrustedCa = envoyproto.Filename(cas)
	if crl != "" {
		context.Crl = envoyproto.Filename(crl)
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: context}
}
