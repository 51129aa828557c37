package security

import (
	"errors"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// ServerTLS terminates TLS. With mesh TLS, clients need a certificate of a trust domain.
func ServerTLS(v *ir.ServerTLS, http bool) (*corev3.TransportSocket, error) {
	if !v.IsMesh() {
		return userServerTLS(v)
	}
	peers := make([]*tlsv3.SubjectAltNameMatcher, 0, len(v.TrustDomains))
	for _, td := range v.TrustDomains {
		peers = append(peers, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + td + "/"}},
		})
	}
	if v.Server != nil && len(v.Server.SubjectAltNames) > 0 {
		peers = SubjectAltNames(v.Server.SubjectAltNames)
	}
	alpn := alpnServer
	if !http && v.Server == nil {
		alpn = nil
	}
	common := MeshContext(peers, alpn)
	common.TlsParams = meshServerParams(v)
	if v.Server != nil && v.Server.CRL != "" {
		common.GetCombinedValidationContext().DefaultValidationContext.Crl = envoyproto.Filename(v.Server.CRL)
	}
	return TLSSocket(&tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: envoyproto.True})
}

// meshServerParams returns the TLS parameters of the server if it sets any, else those of the mesh.
func meshServerParams(v *ir.ServerTLS) *tlsv3.TlsParameters {
	if v.Server != nil {
		if own := tlsParams(v.Server); own != nil {
			return own
		}
	}
	params := TLSVersions
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

// userServerTLS terminates the TLS of a Gateway's server or a Sidecar's listener, with certificates in Secrets or files.
func userServerTLS(v *ir.ServerTLS) (*corev3.TransportSocket, error) {
	t := v.Server
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParams(t), AlpnProtocols: alpnServer}
	for _, name := range t.CredentialNames {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, Credential(name, ""))
	}
	if t.MeshCertificate {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, workloadCertificate)
	}
	SetFileCertificates(common, v.AgentFiles, t.Certificates...)
	if len(common.TlsCertificateSdsSecretConfigs)+len(common.TlsCertificates) == 0 {
		return nil, errors.New("server without a certificate: set credentialName, or serverCertificate and privateKey")
	}
	if t.AsksClients() {
		setClientVerification(common, v)
	}
	out := &tlsv3.DownstreamTlsContext{CommonTlsContext: common}
	switch t.Mode {
	case model.ServerMutual:
		out.RequireClientCertificate = envoyproto.True
	case model.ServerOptionalMutual: // Envoy warns if its default is not set explicitly
		out.RequireClientCertificate = envoyproto.False
	}
	if err := out.Validate(); err != nil {
		return nil, err
	}
	return TLSSocket(out)
}

// MeshALPN distinguishes sidecars of the mesh from other TLS clients, as in Istio.
const MeshALPN = "istio"

// alpnServer are the ALPN protocols of servers of requests and, as in Istio, of servers of bytes that a Gateway or Sidecar
// configures: what is inside TLS may be requests. istio-peer-exchange is not among them, because no filter speaks it.
var alpnServer = []string{"h2", "http/1.1"}

// MeshContext is the common part of clients and servers of mesh TLS.
func MeshContext(peers []*tlsv3.SubjectAltNameMatcher, alpn []string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams:                      TLSVersions,
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

// TLSSocket is the transport socket of a TLS context of clients or servers.
func TLSSocket(context proto.Message) (*corev3.TransportSocket, error) {
	packed, err := envoyproto.Pack(context)
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed},
	}, nil
}

// tlsParams returns nil if the server sets none. Envoy's default minimum is TLS 1.2.
func tlsParams(t *model.ServerTLS) *tlsv3.TlsParameters {
	if t.MinVersion == "" && t.MaxVersion == "" && len(t.CipherSuites) == 0 && len(t.ECDHCurves) == 0 {
		return nil
	}
	return &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsProtocol(t.MinVersion), TlsMaximumProtocolVersion: tlsProtocol(t.MaxVersion),
		CipherSuites: t.CipherSuites, EcdhCurves: t.ECDHCurves,
	}
}

// tlsProtocol returns Envoy's default for an empty version.
func tlsProtocol(version string) tlsv3.TlsParameters_TlsProtocol {
	return tlsv3.TlsParameters_TlsProtocol(tlsv3.TlsParameters_TlsProtocol_value[version])
}

// setClientVerification verifies clients: a CA of the server must have signed their certificates, which must have
// one of its subjectAltNames, if it lists any.
func setClientVerification(common *tlsv3.CommonTlsContext, v *ir.ServerTLS) {
	t := v.Server
	context := &tlsv3.CertificateValidationContext{
		MatchTypedSubjectAltNames: SubjectAltNames(t.SubjectAltNames),
		VerifyCertificateSpki:     t.SPKI, VerifyCertificateHash: t.Hashes,
	}
	if t.InsecureSkipVerify {
		context = &tlsv3.CertificateValidationContext{TrustChainVerification: tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: context}
		return
	}
	if t.AcceptUntrusted {
		context.TrustChainVerification = tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED
	}
	if t.CACredential() != "" {
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         context,
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: t.CAResource(), SdsConfig: envoyproto.ADSBounded},
			},
		}
		return
	}
	SetFileRoots(common, v.AgentFiles, context, t.CACertificates, t.CRL)
}

// TLSVersions are the versions of TLS that the mesh uses unless a setting restricts them.
var TLSVersions = &tlsv3.TlsParameters{
	TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
	TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
}

var onlyTLS13 = &tlsv3.TlsParameters{
	TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
	TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
}

// SubjectAltNames matches certificates that have one of the names.
func SubjectAltNames(names []string) []*tlsv3.SubjectAltNameMatcher {
	var out []*tlsv3.SubjectAltNameMatcher
	for _, n := range names {
		out = append(out, &tlsv3.SubjectAltNameMatcher{SanType: sanType(n), Matcher: envoyproto.MatchExact(n)})
	}
	return out
}

// sanType derives the type of a name from its form, since configuration does not state it. URIs need not have slashes: "urn:a:b".
func sanType(name string) tlsv3.SubjectAltNameMatcher_SanType {
	switch _, err := netip.ParseAddr(name); {
	case err == nil:
		return tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	case strings.Contains(name, ":"):
		return tlsv3.SubjectAltNameMatcher_URI
	case strings.Contains(name, "@"):
		return tlsv3.SubjectAltNameMatcher_EMAIL
	}
	return tlsv3.SubjectAltNameMatcher_DNS
}
