package sds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
)

const typeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// stream is one Envoy subscription. Only its handler's goroutine uses it.
type stream struct {
	*Server
	out   secretv3.SecretDiscoveryService_StreamSecretsServer
	names []string
	files []string // the names that Files serves
	sent  string   // version that was sent last; "": none
	nonce int
}

// never is a channel without news.
var never <-chan struct{}

// StreamSecrets sends the requested secrets as soon as they exist, and again when they change.
func (s *Server) StreamSecrets(out secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	st := &stream{Server: s, out: out}
	requests := Requests(st.out)
	defer st.ask(nil)
	for {
		own, renewed, changed := st.look()
		if err := st.send(own); err != nil {
			return err
		}
		select {
		case <-out.Context().Done():
			return nil
		case <-renewed:
		case <-changed:
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			st.take(req)
		}
	}
}

// look returns the workload's present secrets, and channels that report later changes of them and of secrets in files.
func (st *stream) look() (own *identity.Secrets, renewed, changed <-chan struct{}) {
	renewed, changed = never, never
	if st.source != nil {
		own, renewed = st.source.Secrets()
	}
	if st.Server.files != nil {
		changed = st.Server.files.news()
	}
	return own, renewed, changed
}

// ask replaces the requested names.
func (st *stream) ask(names []string) {
	st.names, st.sent = slices.Clone(names), ""
	if st.Server.files == nil {
		return
	}
	before := st.files
	st.files = nil
	for _, name := range names {
		if st.Server.files.want(name) {
			st.files = append(st.files, name)
		}
	}
	for _, name := range before {
		st.Server.files.drop(name)
	}
}

// Requests reads a stream's requests until it ends.
func Requests(in interface {
	Recv() (*discoveryv3.DiscoveryRequest, error)
	Context() context.Context
}) <-chan *discoveryv3.DiscoveryRequest {
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			req, err := in.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- req:
			case <-in.Context().Done():
				return
			}
		}
	}()
	return requests
}

// take applies a request. It ignores a stale ACK, which a newer response has overtaken.
func (st *stream) take(req *discoveryv3.DiscoveryRequest) {
	if n := req.GetResponseNonce(); n != "" && n != strconv.Itoa(st.nonce) {
		return
	}
	if e := req.GetErrorDetail(); e != nil {
		st.log.Error("Envoy refused a certificate", "names", req.GetResourceNames(), "reason", e.GetMessage())
		for range st.files {
			st.Server.files.failures.Inc() // Envoy keeps the version before
		}
	}
	if !slices.Equal(st.names, req.GetResourceNames()) {
		st.ask(req.GetResourceNames())
		for _, name := range st.names {
			if !st.serves(name) {
				st.log.Warn("Envoy requests an unknown secret: listeners and clusters that use it wait for it", "name", name)
			}
		}
	}
}

func (st *stream) serves(name string) bool {
	if name == CertificateName || name == RootsName {
		return st.source != nil
	}
	return slices.Contains(st.files, name)
}

// send sends the requested secrets that exist, unless that version was sent before.
func (st *stream) send(secrets *identity.Secrets) error {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL}
	content := sha256.New()
	for _, name := range st.names {
		s := st.secretOf(secrets, name)
		if s == nil {
			continue
		}
		_, _ = content.Write([]byte(versionOf(s)))
		packed, err := anypb.New(s)
		if err != nil {
			return err
		}
		resp.Resources = append(resp.Resources, packed)
	}
	if len(resp.Resources) == 0 {
		return nil
	}
	if resp.VersionInfo = hex.EncodeToString(content.Sum(nil)[:8]); resp.VersionInfo == st.sent {
		return nil
	}
	st.nonce++
	resp.Nonce, st.sent = strconv.Itoa(st.nonce), resp.VersionInfo
	return st.out.Send(resp)
}

// versionOf is a hash of the public part of a secret. A new key has a new certificate.
func versionOf(s *tlsv3.Secret) string {
	h := sha256.New()
	for _, part := range []*corev3.DataSource{
		s.GetTlsCertificate().GetCertificateChain(), s.GetValidationContext().GetTrustedCa(), s.GetValidationContext().GetCrl(),
	} {
		sum := sha256.Sum256(part.GetInlineBytes())
		_, _ = h.Write(sum[:])
	}
	_, _ = h.Write(s.GetValidationContext().GetCustomValidatorConfig().GetTypedConfig().GetValue())
	return string(h.Sum(nil))
}

// secretOf returns nil if there is no secret of that name.
func (st *stream) secretOf(own *identity.Secrets, name string) *tlsv3.Secret {
	switch {
	case name == CertificateName || name == RootsName:
		return ownSecret(own, name)
	case slices.Contains(st.files, name):
		return st.Server.files.get(name)
	}
	return nil
}

// ownSecret returns a secret of the workload. own may be nil.
func ownSecret(own *identity.Secrets, name string) *tlsv3.Secret {
	switch {
	case own == nil:
	case name == CertificateName && own.Chain != nil:
		return certificateSecret(name, own.Chain, own.Key)
	case name == RootsName && own.Roots != nil && len(own.Federated) > 0:
		return federatedSecret(name, own)
	case name == RootsName && own.Roots != nil:
		out := rootSecret(name, own.Roots)
		if len(own.Revoked) > 0 {
			out.GetValidationContext().Crl = inline(own.Revoked)
		}
		return out
	}
	return nil
}

func certificateSecret(name string, chain, key []byte) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(chain), PrivateKey: inline(key),
	}}}
}

func rootSecret(name string, roots []byte) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa: inline(roots),
	}}}
}

// federatedSecret verifies a peer by the roots of the trust domain in its certificate, so that no trust domain can issue
// identities of another.
func federatedSecret(name string, own *identity.Secrets) *tlsv3.Secret {
	domains := []*tlsv3.SPIFFECertValidatorConfig_TrustDomain{{Name: own.TrustDomain, TrustBundle: inline(own.Roots)}}
	for _, b := range own.Federated {
		domains = append(domains, &tlsv3.SPIFFECertValidatorConfig_TrustDomain{Name: b.TrustDomain, TrustBundle: inline(b.Roots)})
	}
	packed, err := anypb.New(&tlsv3.SPIFFECertValidatorConfig{TrustDomains: domains})
	if err != nil {
		return nil // only an invalid message fails
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		CustomValidatorConfig: &corev3.TypedExtensionConfig{Name: spiffeValidator, TypedConfig: packed},
	}}}
}

// spiffeValidator is the name of Envoy's extension.
const spiffeValidator = "envoy.tls.cert_validator.spiffe"

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
