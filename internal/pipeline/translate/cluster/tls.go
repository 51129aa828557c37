package cluster

import (
	"cmp"
	"errors"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/config/certfile"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/pipeline/translate/security"
)

// setTransport sets TLS, and the PROXY protocol that precedes it.
func setTransport(v *ir.Cluster, c *clusterv3.Cluster) error {
	if v.Inbound {
		return nil
	}
	context, err := upstreamTLS(v)
	if err != nil {
		return err
	}
	if context != nil {
		if c.TransportSocket, err = security.TLSSocket(context); err != nil {
			return err
		}
	}
	if v.Discovery == ir.DiscoverDynamicDNS && !verifiesName(v, context) {
		c.ClusterDiscoveryType = forwardProxy(v, true)
	}
	if v.AutoTLS && context != nil {
		matchSockets(c)
	}
	return setProxyProtocol(v.Policy.ProxyProtocol, c)
}

// verifiesName reports whether certificates must be for the host of the request.
func verifiesName(v *ir.Cluster, context *tlsv3.UpstreamTlsContext) bool {
	o := serverNameOptions(v)
	return context != nil && o != nil && o.AutoSni && o.AutoSanValidation
}

// upstreamTLS returns nil for connections in plain text.
func upstreamTLS(v *ir.Cluster) (*tlsv3.UpstreamTlsContext, error) {
	t := v.Policy.TLS
	if t == nil {
		return nil, nil
	}
	switch t.Mode {
	case model.TLSDisable, "":
		return nil, nil
	case model.TLSIstioMutual:
		return meshTLS(v, t), nil
	case model.TLSSimple, model.TLSMutual:
		return userTLS(v, t)
	}
	return nil, fmt.Errorf("unknown TLS mode %q", t.Mode)
}

// userTLS is TLS to a server outside of the mesh, with certificates in files of the proxy or in a Secret.
func userTLS(v *ir.Cluster, t *model.ClientTLS) (*tlsv3.UpstreamTlsContext, error) {
	common := &tlsv3.CommonTlsContext{TlsParams: clientParams(v.TLSDefaults)}
	if protocolOf(v) == upstreamHTTP2 {
		common.AlpnProtocols = []string{"h2"}
	}
	if t.Mode == model.TLSMutual {
		if err := setClientCertificate(common, v, t); err != nil {
			return nil, err
		}
	}
	if !t.InsecureSkipVerify {
		setVerification(common, v, t)
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: t.SNI}, nil
}

// clientParams are the TLS parameters for servers outside of the mesh.
func clientParams(d *model.TLSDefaults) *tlsv3.TlsParameters {
	if d == nil || len(d.CipherSuites)+len(d.ECDHCurves) == 0 {
		return security.TLSVersions
	}
	return &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: security.TLSVersions.TlsMinimumProtocolVersion, TlsMaximumProtocolVersion: security.TLSVersions.TlsMaximumProtocolVersion,
		CipherSuites: d.CipherSuites, EcdhCurves: d.ECDHCurves,
	}
}

func setClientCertificate(common *tlsv3.CommonTlsContext, v *ir.Cluster, t *model.ClientTLS) error {
	if name := cmp.Or(t.CertificateName, t.CredentialName); name != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{security.Credential(name, "")}
		return nil
	}
	if t.ClientCertificate == "" || t.PrivateKey == "" {
		return errors.New("TLS mode MUTUAL: set credentialName, or clientCertificate and privateKey")
	}
	security.SetFileCertificates(common, v.AgentFiles, model.CertificateFiles{Certificate: t.ClientCertificate, PrivateKey: t.PrivateKey})
	return nil
}

func setVerification(common *tlsv3.CommonTlsContext, v *ir.Cluster, t *model.ClientTLS) {
	context := &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: security.SubjectAltNames(sansOf(v, t))}
	if t.CredentialName != "" {
		if t.CRL != "" {
			context.Crl = envoyproto.Filename(t.CRL)
		}
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         context,
				ValidationContextSdsSecretConfig: security.Credential(t.CredentialName, model.SuffixCA),
			},
		}
		return
	}
	security.SetFileRoots(common, v.AgentFiles, context, cmp.Or(t.CACertificates, certfile.System), t.CRL)
}

// sansOf returns the names in the DestinationRule, or else those of the service.
func sansOf(v *ir.Cluster, t *model.ClientTLS) []string {
	if len(t.SubjectAltNames) > 0 {
		return t.SubjectAltNames
	}
	return v.SubjectAltNames
}

// serverNameOptions derive SNI from the host of the request if no SNI is set. The certificate must then be for that
// host, unless names are set or verification is off.
func serverNameOptions(v *ir.Cluster) *corev3.UpstreamHttpProtocolOptions {
	t := v.Policy.TLS
	if v.Inbound || t == nil || t.Mode != model.TLSSimple && t.Mode != model.TLSMutual {
		return nil
	}
	out := &corev3.UpstreamHttpProtocolOptions{AutoSni: t.SNI == ""}
	out.AutoSanValidation = !t.InsecureSkipVerify &&
		(v.Discovery == ir.DiscoverDynamicDNS || out.AutoSni && len(sansOf(v, t)) == 0)
	if !out.AutoSni && !out.AutoSanValidation {
		return nil
	}
	return out
}

// meshTLS uses the mesh's certificate, which the agent serves.
func meshTLS(v *ir.Cluster, t *model.ClientTLS) *tlsv3.UpstreamTlsContext {
	out := &tlsv3.UpstreamTlsContext{
		CommonTlsContext: security.MeshContext(security.SubjectAltNames(sansOf(v, t)), upstreamALPN(v)), Sni: t.SNI,
	}
	if out.Sni == "" && v.Discovery != ir.DiscoverDynamicDNS {
		out.Sni = fmt.Sprintf("outbound_.%d_.%s_.%s", v.Of.Port, v.Of.Subset, v.Of.Host)
	}
	return out
}

// ALPN protocols that clients offer in the handshake of mesh TLS, by what they send next. Servers distinguish
// HTTP from other bytes by them, and choose the last of each list if they support it. With alpnAsClient the server
// detects the HTTP version from the first bytes.
var (
	alpnBytes    = []string{security.MeshALPN}
	alpnHTTP1    = []string{"istio-http/1.1", security.MeshALPN, "http/1.1"}
	alpnHTTP2    = []string{"istio-h2", security.MeshALPN, "h2"}
	alpnAsClient = []string{"istio-http/1.1", security.MeshALPN}
)

func upstreamALPN(v *ir.Cluster) []string {
	switch protocol := protocolOf(v); {
	case protocol == upstreamHTTP2:
		return alpnHTTP2
	case protocol == upstreamAsClient:
		return alpnAsClient
	case v.Protocol.IsHTTP(), v.Protocol == model.ProtocolAuto: // of a router in the second case
		return alpnHTTP1
	}
	return alpnBytes
}

// Endpoints that do not accept mesh TLS have metadata about it. Istio marks those that do; but they are more, and
// each change of one endpoint sends all of them.
const (
	socketMatch = "envoy.transport_socket_match"
	tlsModeKey  = "tlsMode"
)

var speaksPlain = &structpb.Struct{Fields: map[string]*structpb.Value{
	tlsModeKey: structpb.NewStringValue("disabled"),
}}

// matchSockets restricts the cluster's TLS socket to endpoints that accept mesh TLS; marked endpoints get plain
// text. An endpoint without a mark never gets plain text.
func matchSockets(c *clusterv3.Cluster) {
	secured := c.TransportSocket
	c.TransportSocket = nil
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-disabled", Match: speaksPlain, TransportSocket: rawBuffer},
		{Name: "tlsMode-istio", Match: &structpb.Struct{}, TransportSocket: secured},
	}
}

var rawBuffer = &corev3.TransportSocket{
	Name:       "envoy.transport_sockets.raw_buffer",
	ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoyproto.MustPack(&rawbufferv3.RawBuffer{})},
}

// setProxyProtocol wraps the cluster's transport socket, or each of its transport socket matches.
func setProxyProtocol(version uint32, c *clusterv3.Cluster) (err error) {
	if version == 0 {
		return nil
	}
	for _, m := range c.TransportSocketMatches {
		if m.TransportSocket, err = proxyProtocol(version, m.TransportSocket); err != nil {
			return err
		}
	}
	if len(c.TransportSocketMatches) == 0 {
		c.TransportSocket, err = proxyProtocol(version, c.TransportSocket)
	}
	return err
}

func proxyProtocol(version uint32, inner *corev3.TransportSocket) (*corev3.TransportSocket, error) {
	config := &corev3.ProxyProtocolConfig{Version: corev3.ProxyProtocolConfig_V1}
	if version == 2 {
		config.Version = corev3.ProxyProtocolConfig_V2
	}
	if inner == nil {
		inner = rawBuffer
	}
	packed, err := envoyproto.Pack(&proxyprotocolv3.ProxyProtocolUpstreamTransport{Config: config, TransportSocket: inner})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.upstream_proxy_protocol",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed},
	}, nil
}
