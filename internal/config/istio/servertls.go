package istio

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// serverTLS converts what a server says of TLS connections.
func (c *conv) serverTLS(at path, t *networking.ServerTLSSettings) *model.ServerTLS {
	out := &model.ServerTLS{
		Mode: model.ServerTLSMode(t.Mode.String()), CACertificates: t.CaCertificates, CRL: t.CaCrl,
		SubjectAltNames: t.SubjectAltNames, SPKI: t.VerifyCertificateSpki, Hashes: t.VerifyCertificateHash,
		MinVersion: tlsVersion(t.MinProtocolVersion), MaxVersion: tlsVersion(t.MaxProtocolVersion),
		InsecureSkipVerify: t.InsecureSkipVerify.GetValue(),
	}
	c.fingerprints(at, t)
	switch {
	case out.Mode == model.ServerAutoPassthrough:
		c.warnf(at.f("mode"), "AUTO_PASSTHROUGH has no effect in Moonsail yet: the server does not listen; use PASSTHROUGH with tls routes")
		return &model.ServerTLS{Mode: out.Mode}
	case !out.EndsTLS():
		if hasServerFiles(t) || hasServerCredential(t) {
			c.warnf(at, "%s does not decrypt, so the certificates have no effect; remove them, or set mode to SIMPLE", t.Mode)
		}
		return &model.ServerTLS{Mode: out.Mode}
	case out.Mode == model.ServerIstioMutual:
		if hasServerFiles(t) || hasServerCredential(t) {
			c.errorf(at, "ISTIO_MUTUAL uses the mesh's own certificates; remove the others, or set mode to MUTUAL")
		}
	default:
		c.serverCertificates(at, t, out)
	}
	if out.MinVersion > out.MaxVersion && out.MaxVersion != "" {
		c.errorf(at.f("minProtocolVersion"), "is later than maxProtocolVersion; swap the two")
	}
	out.CipherSuites = c.cipherSuites(at.f("cipherSuites"), t.CipherSuites)
	if old := out.MinVersion == "TLSv1_0" || out.MinVersion == "TLSv1_1"; old && len(out.CipherSuites) == 0 {
		c.warnf(at.f("minProtocolVersion"), "clients of such old versions find no cipher suite among the default ones; give cipherSuites")
	}
	return out
}

func hasServerCredential(t *networking.ServerTLSSettings) bool {
	return t.CredentialName != "" || len(t.CredentialNames) > 0
}

// serverCertificates takes certificates from one place: Secrets or files.
func (c *conv) serverCertificates(at path, t *networking.ServerTLSSettings, out *model.ServerTLS) {
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
		c.errorf(at, "has certificates from several places; keep one of credentialName, credentialNames, serverCertificate with privateKey, and tlsCertificates")
	case hasServerCredential(t):
		c.serverCredentials(at, t, out)
	case len(t.TlsCertificates) > 0:
		for i, f := range t.TlsCertificates {
			c.serverFiles(at.f("tlsCertificates").i(i), f.ServerCertificate, f.PrivateKey, out)
		}
	default:
		c.serverFiles(at, t.ServerCertificate, t.PrivateKey, out)
	}
	if needsCA := out.AsksClients() && !out.InsecureSkipVerify; needsCA && out.CACredential() == "" && t.CaCertificates == "" {
		c.errorf(at.f("caCertificates"), "is missing; %s needs the file with the CAs of clients, or credentialName", t.Mode)
	}
	if t.CaCrl != "" && (hasServerCredential(t) || !out.AsksClients()) {
		c.errorf(at.f("caCrl"), "goes with caCertificates and mode MUTUAL only; with credentialName the Secret has it, as ca.crl")
	}
}

func (c *conv) serverCredentials(at path, t *networking.ServerTLSSettings, out *model.ServerTLS) {
	if t.CredentialName != "" {
		c.serverCredential(at.f("credentialName"), t.CredentialName)
		out.CredentialNames = []string{t.CredentialName}
	}
	for i, name := range t.CredentialNames {
		c.serverCredential(at.f("credentialNames").i(i), name)
		out.CredentialNames = append(out.CredentialNames, name)
	}
	if t.CaCertCredentialName != "" {
		c.caCredential(at.f("caCertCredentialName"), t.CaCertCredentialName)
		out.CACredentialName = t.CaCertCredentialName
	}
}

// caCredential checks the name of what has the CAs of clients.
func (c *conv) caCredential(at path, name string) {
	if !model.IsConfigMap(name) {
		c.serverCredential(at, name)
		return
	}
	c.configMapName(at, name)
}

// configMapName checks the name of a ConfigMap with CAs; false: it is none.
func (c *conv) configMapName(at path, name string) bool {
	credential, ok := model.ParseCredential(name)
	if !ok || !isName(credential.Name) || !isName(credential.Namespace) {
		c.errorf(at, "%q is not the name of a ConfigMap with CAs; write configmap://NAMESPACE/NAME", name)
		return false
	}
	return true
}

func (c *conv) serverCredential(at path, name string) {
	if model.IsConfigMap(name) {
		c.errorf(at, "a ConfigMap has CAs alone, and here a certificate with its key is needed; use a Secret")
		return
	}
	if credential, ok := model.ParseCredential(name); !ok || !isName(credential.Name) {
		c.errorf(at, "%q is not the name of a Secret; write the name of one in the proxy's namespace", name)
	}
}

func (c *conv) serverFiles(at path, certificate, key string, out *model.ServerTLS) {
	if certificate == "" {
		c.errorf(at.f("serverCertificate"), "is missing; name a file of the proxy, or give credentialName")
	}
	if key == "" {
		c.errorf(at.f("privateKey"), "is missing; name a file of the proxy, or give credentialName")
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

// cipherSuites are those that Envoy knows, for versions before 1.3.
var cipherSuites = []string{
	"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
	"ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
	"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA",
}

// ecdhCurves are those that Envoy knows.
var ecdhCurves = []string{"P-256", "P-384", "P-521", "X25519", "X25519MLKEM768", "MLKEM1024"}

func (c *conv) cipherSuites(at path, list []string) []string {
	return c.knownToEnvoy(at, list, "a cipher suite", cipherSuites)
}

// knownToEnvoy leaves out what Envoy would refuse the listener or the cluster for.
func (c *conv) knownToEnvoy(at path, list []string, what string, known []string) []string {
	var out []string
	for i, s := range list {
		switch {
		case !slices.Contains(known, s):
			c.warnf(at.i(i), "%q is not %s that Envoy knows, and is left out%s", s, what, spelling.DidYouMean(s, known))
		case slices.Contains(out, s):
			c.warnf(at.i(i), "%q is listed twice; remove one", s)
		default:
			out = append(out, s)
		}
	}
	return out
}

// fingerprints checks those of clients' certificates and keys: Envoy refuses a listener with others, and with it all
// servers that share it.
func (c *conv) fingerprints(at path, t *networking.ServerTLSSettings) {
	for i, s := range t.VerifyCertificateSpki {
		if sum, err := base64.StdEncoding.DecodeString(s); err != nil || len(sum) != sha256.Size {
			c.errorf(at.f("verifyCertificateSpki").i(i), "%q is no SHA-256 in base64, which has 44 characters", s)
		}
	}
	for i, s := range t.VerifyCertificateHash {
		plain := s
		if len(s) == 3*sha256.Size-1 {
			plain = strings.ReplaceAll(s, ":", "")
		}
		if sum, err := hex.DecodeString(plain); err != nil || len(sum) != sha256.Size {
			c.errorf(at.f("verifyCertificateHash").i(i), "%q is no SHA-256 in hex, which has 64 digits, with or without a \":\" after each two", s)
		}
	}
}
