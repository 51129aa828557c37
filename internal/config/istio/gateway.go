package istio

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Gateway decodes a Gateway.
func Gateway(in convert.Cluster, o *networkingv1.Gateway) (*model.Gateway, problem.List) {
	c := gatewayConv{convert.Start(in, model.KindGateway, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	g := &model.Gateway{Meta: c.Meta}
	if !convert.IsLabel(o.Name) {
		c.Errorf(code.InvalidName, problem.Path("metadata").Field("name"), "%q cannot be a Gateway's name, which is part of others: leave out dots, and use at most 63 characters", o.Name)
	}
	if len(spec.Selector) > 0 {
		g.Selector = c.Selector(at, "selector", spec.Selector)
	} else {
		c.Add(code.MissingField, problem.SeverityInfo, at.Field("selector"), "is missing, so every router of the mesh serves this gateway; name labels of one")
	}
	if len(spec.Servers) == 0 {
		c.Errorf(code.MissingField, at.Field("servers"), "is missing; add at least one, with port and hosts")
	}
	names := map[string]bool{}
	for i, s := range spec.Servers {
		at := at.Field("servers").Index(i)
		if name := s.GetPort().GetName(); name != "" {
			if names[name] {
				c.Errorf(code.ListedTwice, at.Field("port").Field("name"), "%q is the name of two ports; rename one", name)
			}
			names[name] = true
		}
		if server, ok := c.gatewayServer(at, s); ok {
			g.Servers = append(g.Servers, server)
		}
	}
	return g, c.Problems
}

func (c gatewayConv) gatewayServer(at problem.Path, s *networking.Server) (model.GatewayServer, bool) {
	out := model.GatewayServer{Name: s.Name, Bind: s.Bind}
	if strings.HasPrefix(s.Bind, convert.UnixPrefix) {
		c.Warnf(code.NotSupported, at.Field("bind"), "Unix sockets are not supported, so this server has no effect; use a port")
		return out, false
	}
	sidecarConv(c).bindIP(at.Field("bind"), s.Bind)
	if s.DefaultEndpoint != "" {
		c.Warnf(code.NoEffect, at.Field("defaultEndpoint"), "has no effect; set the destination in a VirtualService that is bound to the gateway")
	}
	if s.Port == nil {
		c.Errorf(code.MissingField, at.Field("port"), "is missing; set number, name and protocol")
		return out, false
	}
	out.Port = c.gatewayPort(at.Field("port"), s.Port)
	out.Hosts = c.gatewayHosts(at.Field("hosts"), s)
	if c.onlyOfSDSServer(at.Field("tls"), s.Tls) {
		return out, false
	}
	out.TLS = c.gatewayTLS(at.Field("tls"), out.Port.Protocol, s.Tls)
	out.HTTPSRedirect = s.Tls.GetHttpsRedirect() && out.Port.Protocol.IsHTTP()
	return out, true
}

func (c gatewayConv) gatewayPort(at problem.Path, p *networking.Port) model.GatewayPort {
	c.CheckPort(at.Field("number"), p.Number)
	c.CheckPortName(at.Field("name"), p.Name)
	if p.TargetPort > 0 { //nolint:staticcheck // to report it
		c.Errorf(code.NotAllowedHere, at.Field("targetPort"), "has no effect here; set targetPort in the router's Service")
	}
	out := model.GatewayPort{Number: p.Number, Name: p.Name, Protocol: c.Protocol(at.Field("protocol"), p.Protocol)}
	switch out.Protocol {
	case model.ProtocolAuto:
		if p.Protocol == "" {
			c.Errorf(code.MissingField, at.Field("protocol"), "is missing; use HTTP, HTTPS, GRPC, HTTP2, TLS or TCP")
		}
	case model.ProtocolUDP:
		c.Errorf(code.NotAllowedHere, at.Field("protocol"), "UDP is not for gateways; use HTTP, HTTPS, GRPC, HTTP2, TLS or TCP")
	}
	return out
}

// gatewayHosts reads hosts, with or without a namespace. They are full names.
func (c gatewayConv) gatewayHosts(at problem.Path, s *networking.Server) []model.HostSelector {
	if len(s.Hosts) == 0 {
		c.Errorf(code.MissingField, at, "is missing; name hosts, or \"*\" for all")
	}
	var out []model.HostSelector
	for i, text := range s.Hosts {
		sel := model.HostSelector{Namespace: convert.ExportAll}
		host := text
		if ns, rest, ok := strings.Cut(text, "/"); ok {
			sel.Namespace, host = ns, rest
		}
		if sel.Namespace == convert.ExportHere {
			sel.Namespace = c.Meta.Namespace
		}
		if sel.Namespace != convert.ExportAll && !convert.IsLabel(sel.Namespace) {
			c.Errorf(code.InvalidName, at.Index(i), "%q is not a namespace; write host, ./host, */host or namespace/host", sel.Namespace)
			continue
		}
		switch {
		case model.IsIP(host) && strings.Contains(host, "."): // Istio takes IPv6 addresses for short names
		case !c.CheckHost(at.Index(i), host, true):
			continue
		case host != "*" && !strings.Contains(host, "."):
			c.Errorf(code.InvalidHost, at.Index(i), "%q is a short name, which no namespace completes; write the full name, as in %s.example.com", text, host)
			continue
		}
		if s.Tls != nil && strings.HasPrefix(host, "*") && host != "*" && !strings.HasPrefix(host, "*.") {
			c.Errorf(code.InvalidHost, at.Index(i), "%q is a partial wildcard, which SNI cannot match; leave whole parts open, as in *.example.com", host)
			continue
		}
		sel.Host = model.Host(strings.ToLower(strings.TrimSuffix(host, ".")))
		if slices.Contains(out, sel) {
			c.Warnf(code.ListedTwice, at.Index(i), "%q is listed twice; remove one", text)
			continue
		}
		out = append(out, sel)
	}
	return out
}

// gatewayTLS is nil for plain text, also where requests are redirected from it.
func (c gatewayConv) gatewayTLS(at problem.Path, p model.Protocol, t *networking.ServerTLSSettings) *model.ServerTLS {
	switch {
	case t == nil && p.IsTLS():
		c.Errorf(code.MissingField, at, "is missing, which %s needs; set mode, and credentialName for SIMPLE and MUTUAL", p)
		return nil
	case t == nil:
		return nil
	case p.IsHTTP():
		if t.Mode != networking.ServerTLSSettings_PASSTHROUGH || hasServerFiles(t) {
			c.Errorf(code.NotAllowedHere, at, "is not for ports in plain text, where only httpsRedirect has a meaning; set port.protocol to HTTPS")
		}
		return nil
	case !p.IsTLS():
		c.Errorf(code.NotAllowedHere, at, "is not for %s; set port.protocol to TLS, or to HTTPS", p)
		return nil
	}
	if t.HttpsRedirect {
		c.Warnf(code.NoEffect, at.Field("httpsRedirect"), "has no effect on TLS connections; set it at a server whose port.protocol is HTTP")
	}
	return c.serverTLS(at, t)
}

func hasServerFiles(t *networking.ServerTLSSettings) bool {
	return t.ServerCertificate != "" || t.PrivateKey != "" || t.CaCertificates != "" || len(t.TlsCertificates) > 0
}

// serverTLS converts a server's TLS settings.
func (c gatewayConv) serverTLS(at problem.Path, t *networking.ServerTLSSettings) *model.ServerTLS {
	out := &model.ServerTLS{
		Mode: model.ServerTLSMode(t.Mode.String()), CACertificates: t.CaCertificates, CRL: t.CaCrl,
		SubjectAltNames: t.SubjectAltNames, SPKI: t.VerifyCertificateSpki, Hashes: t.VerifyCertificateHash,
		MinVersion: tlsVersion(t.MinProtocolVersion), MaxVersion: tlsVersion(t.MaxProtocolVersion),
		InsecureSkipVerify: t.InsecureSkipVerify.GetValue(),
	}
	c.fingerprints(at, t)
	switch {
	case out.Mode == model.ServerAutoPassthrough:
		c.Warnf(code.NotSupported, at.Field("mode"), "AUTO_PASSTHROUGH has no effect in Moonsail yet: the server does not listen; use PASSTHROUGH with tls routes")
		return &model.ServerTLS{Mode: out.Mode}
	case !out.EndsTLS():
		if hasServerFiles(t) || hasServerCredential(t) {
			c.Warnf(code.NoEffect, at, "%s does not decrypt, so the certificates have no effect; remove them, or set mode to SIMPLE", t.Mode)
		}
		return &model.ServerTLS{Mode: out.Mode}
	case out.Mode == model.ServerIstioMutual:
		if hasServerFiles(t) || hasServerCredential(t) {
			c.Errorf(code.ExclusiveFields, at, "ISTIO_MUTUAL uses the mesh's own certificates; remove the others, or set mode to MUTUAL")
		}
	default:
		c.serverCertificates(at, t, out)
	}
	if out.MinVersion > out.MaxVersion && out.MaxVersion != "" {
		c.Errorf(code.ExclusiveFields, at.Field("minProtocolVersion"), "is later than maxProtocolVersion; swap the two")
	}
	out.CipherSuites = c.CipherSuites(at.Field("cipherSuites"), t.CipherSuites)
	if old := out.MinVersion == "TLSv1_0" || out.MinVersion == "TLSv1_1"; old && len(out.CipherSuites) == 0 {
		c.Warnf(code.NoEffect, at.Field("minProtocolVersion"), "the default cipher suites have none for such old versions; set cipherSuites")
	}
	return out
}

func hasServerCredential(t *networking.ServerTLSSettings) bool {
	return t.CredentialName != "" || len(t.CredentialNames) > 0
}

// serverCertificates takes certificates from one place: Secrets or files.
func (c gatewayConv) serverCertificates(at problem.Path, t *networking.ServerTLSSettings, out *model.ServerTLS) {
	places := 0
	for _, there := range []bool{
		t.CredentialName != "", len(t.CredentialNames) > 0,
		t.ServerCertificate != "" || t.PrivateKey != "", len(t.TlsCertificates) > 0,
	} {
		if there {
			places++
		}
	}
	switch {
	case places > 1:
		c.Errorf(code.ExclusiveFields, at, "has certificates from several places; keep one of credentialName, credentialNames, serverCertificate with privateKey, and tlsCertificates")
	case hasServerCredential(t):
		c.serverCredentials(at, t, out)
	case len(t.TlsCertificates) > 0:
		for i, f := range t.TlsCertificates {
			at := at.Field("tlsCertificates").Index(i)
			c.serverFiles(at, f.ServerCertificate, f.PrivateKey, out)
			if f.CaCertificates != "" {
				c.Warnf(code.NoEffect, at.Field("caCertificates"), "has no effect; name the file with the CAs of clients in caCertificates of tls")
			}
		}
	default:
		c.serverFiles(at, t.ServerCertificate, t.PrivateKey, out)
	}
	if needsCA := out.AsksClients() && !out.InsecureSkipVerify; needsCA && out.CACredential() == "" && t.CaCertificates == "" {
		c.Errorf(code.MissingField, at.Field("caCertificates"), "is missing; %s needs the file with the CAs of clients, or credentialName", t.Mode)
	}
	if t.CaCrl != "" && (hasServerCredential(t) || !out.AsksClients()) {
		c.Errorf(code.NotAllowedHere, at.Field("caCrl"), "needs caCertificates and mode MUTUAL; with credentialName, put it into the Secret as ca.crl")
	}
}

func (c gatewayConv) serverCredentials(at problem.Path, t *networking.ServerTLSSettings, out *model.ServerTLS) {
	if t.CredentialName != "" {
		name := c.withoutSDS(at.Field("credentialName"), t.CredentialName)
		c.ServerCredential(at.Field("credentialName"), name)
		out.CredentialNames = []string{name}
	}
	for i, name := range t.CredentialNames {
		name = c.withoutSDS(at.Field("credentialNames").Index(i), name)
		c.ServerCredential(at.Field("credentialNames").Index(i), name)
		out.CredentialNames = append(out.CredentialNames, name)
	}
	if t.CaCertCredentialName != "" {
		out.CACredentialName = c.withoutSDS(at.Field("caCertCredentialName"), t.CaCertCredentialName)
		c.CaCredential(at.Field("caCertCredentialName"), out.CACredentialName)
	}
}

// schemeSDS is the scheme of credentials that come from another SDS server than the control plane.
const schemeSDS = "sds://"

// withoutSDS returns the name of a credential without schemeSDS. A mesh without such a server has Secrets of these names, as
// in Istio.
func (c gatewayConv) withoutSDS(at problem.Path, name string) string {
	rest, ok := strings.CutPrefix(name, schemeSDS)
	if ok {
		c.Warnf(code.NotSupported, at, "other SDS servers are not supported, so %q is the Secret %s, as in a mesh without such a server; write %s", name, rest, rest)
	}
	return rest
}

// onlyOfSDSServer reports whether a credential of a server can only come from another SDS server: it has no name of a Secret.
func (c gatewayConv) onlyOfSDSServer(at problem.Path, t *networking.ServerTLSSettings) bool {
	if t == nil {
		return false
	}
	names := map[problem.Path]string{at.Field("credentialName"): t.CredentialName, at.Field("caCertCredentialName"): t.CaCertCredentialName}
	for i, name := range t.CredentialNames {
		names[at.Field("credentialNames").Index(i)] = name
	}
	found := false
	for _, at := range slices.Sorted(maps.Keys(names)) {
		rest, isSDS := strings.CutPrefix(names[at], schemeSDS)
		if credential, ok := model.ParseCredential(rest); isSDS && (!ok || !convert.IsName(credential.Name)) {
			c.Warnf(code.NotSupported, at, "other SDS servers are not supported, and %q is not the name of a Secret, so this server has no effect; use a Secret", rest)
			found = true
		}
	}
	return found
}

func (c gatewayConv) serverFiles(at problem.Path, certificate, key string, out *model.ServerTLS) {
	if certificate == "" {
		c.Errorf(code.MissingField, at.Field("serverCertificate"), "is missing; name a file of the proxy, or set credentialName")
	}
	if key == "" {
		c.Errorf(code.MissingField, at.Field("privateKey"), "is missing; name a file of the proxy, or set credentialName")
	}
	out.Certificates = append(out.Certificates, model.CertificateFiles{Certificate: certificate, PrivateKey: key})
}

// tlsVersion is a version as Envoy calls it; empty: its default.
func tlsVersion(v fmt.Stringer) string {
	if v.String() == networking.ServerTLSSettings_TLS_AUTO.String() {
		return ""
	}
	return "TLSv" + strings.TrimPrefix(v.String(), "TLSV")
}

// fingerprints checks those of clients' certificates and keys: Envoy refuses a listener with others, and with it all
// servers that share it.
func (c gatewayConv) fingerprints(at problem.Path, t *networking.ServerTLSSettings) {
	for i, s := range t.VerifyCertificateSpki {
		if sum, err := base64.StdEncoding.DecodeString(s); err != nil || len(sum) != sha256.Size {
			c.Errorf(code.InvalidFormat, at.Field("verifyCertificateSpki").Index(i), "%q is not a SHA-256 in base64, which has 44 characters", s)
		}
	}
	for i, s := range t.VerifyCertificateHash {
		plain := s
		if len(s) == 3*sha256.Size-1 {
			plain = strings.ReplaceAll(s, ":", "")
		}
		if sum, err := hex.DecodeString(plain); err != nil || len(sum) != sha256.Size {
			c.Errorf(code.InvalidFormat, at.Field("verifyCertificateHash").Index(i), "%q is not a SHA-256 in hex, which has 64 digits, with or without a \":\" after each two", s)
		}
	}
}
