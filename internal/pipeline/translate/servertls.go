package translate

import (
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// userServerTLS ends TLS as a Gateway's server or a Sidecar's listener says, with certificates of Secrets by SDS or of files.
func userServerTLS(v *ir.ServerTLS, http bool) (*corev3.TransportSocket, error) {
	t := v.Server
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParams(t)}
	if http {
		common.AlpnProtocols = alpnServer
	}
	for _, name := range t.CredentialNames {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, credential(name, ""))
	}
	setFileCertificates(common, v.AgentFiles, t.Certificates...)
	if len(common.TlsCertificateSdsSecretConfigs)+len(common.TlsCertificates) == 0 {
		return nil, errors.New("a server that ends TLS needs a certificate")
	}
	if t.AsksClients() {
		setClientVerification(common, v)
	}
	out := &tlsv3.DownstreamTlsContext{CommonTlsContext: common}
	switch t.Mode {
	case model.ServerMutual:
		out.RequireClientCertificate = yes
	case model.ServerOptionalMutual: // Envoy's default, which it warns of
		out.RequireClientCertificate = no
	}
	if err := out.Validate(); err != nil {
		return nil, err
	}
	return tlsSocket(out)
}

// tlsParams has only what the server says: Envoy's default is TLS 1.2 at least.
func tlsParams(t *model.ServerTLS) *tlsv3.TlsParameters {
	if t.MinVersion == "" && t.MaxVersion == "" && len(t.CipherSuites) == 0 && len(t.ECDHCurves) == 0 {
		return nil
	}
	return &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsProtocol(t.MinVersion), TlsMaximumProtocolVersion: tlsProtocol(t.MaxVersion),
		CipherSuites: t.CipherSuites, EcdhCurves: t.ECDHCurves,
	}
}

// tlsProtocol is Envoy's default where no version is given.
func tlsProtocol(version string) tlsv3.TlsParameters_TlsProtocol {
	return tlsv3.TlsParameters_TlsProtocol(tlsv3.TlsParameters_TlsProtocol_value[version])
}

// setClientVerification: clients' certificates must be signed by the server's CAs, and have one of
// the names.
func setClientVerification(common *tlsv3.CommonTlsContext, v *ir.ServerTLS) {
	t := v.Server
	context := &tlsv3.CertificateValidationContext{
		MatchTypedSubjectAltNames: subjectAltNames(t.SubjectAltNames),
		VerifyCertificateSpki:     t.SPKI, VerifyCertificateHash: t.Hashes,
	}
	if t.InsecureSkipVerify {
		context = &tlsv3.CertificateValidationContext{TrustChainVerification: tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: context}
		return
	}
	if t.CACredential() != "" {
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         context,
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: t.CAResource(), SdsConfig: adsSourceBounded},
			},
		}
		return
	}
	setFileRoots(common, v.AgentFiles, context, t.CACertificates, t.CRL)
}
