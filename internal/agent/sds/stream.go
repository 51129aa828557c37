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

	"github.com/moonsail/moonsail/internal/agent/identity"
)

const typeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// stream is one Envoy subscription; its handler's goroutine alone touches it.
type stream struct {
	*Server
	out   secretv3.SecretDiscoveryService_StreamSecretsServer
	names []string
	sent  string // version of what was sent last; "": nothing
	nonce int
}

// StreamSecrets sends what is asked for as soon as it is there, and again when it changes.
func (s *Server) StreamSecrets(out secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	st := &stream{Server: s, out: out}
	requests := Requests(st.out)
	for {
		secrets, changed := s.source.Secrets()
		if err := st.send(secrets); err != nil {
			return err
		}
		select {
		case <-out.Context().Done():
			return nil
		case <-changed:
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			st.take(req)
		}
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

// take notes what is asked for. An ACK asks for what was asked for before; one that was
// overtaken by a newer response counts for nothing.
func (st *stream) take(req *discoveryv3.DiscoveryRequest) {
	if n := req.GetResponseNonce(); n != "" && n != strconv.Itoa(st.nonce) {
		return
	}
	if e := req.GetErrorDetail(); e != nil {
		st.log.Error("Envoy refused a certificate", "names", req.GetResourceNames(), "reason", e.GetMessage())
	}
	if !slices.Equal(st.names, req.GetResourceNames()) {
		st.names, st.sent = slices.Clone(req.GetResourceNames()), ""
		for _, name := range st.names {
			if name != CertificateName && name != RootsName {
				st.log.Warn("Envoy asks for a secret that is not served here: whoever uses it waits for it", "name", name)
			}
		}
	}
}

// send sends what there is of the names, unless it was sent before.
func (st *stream) send(secrets *identity.Secrets) error {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL}
	content := sha256.New()
	for _, name := range st.names {
		s := secretOf(secrets, name)
		if s == nil {
			continue
		}
		// Of what is public; a new key has a new certificate.
		_, _ = content.Write(s.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
		_, _ = content.Write(s.GetValidationContext().GetTrustedCa().GetInlineBytes())
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

// secretOf is nil while there is none of that name.
func secretOf(s *identity.Secrets, name string) *tlsv3.Secret {
	switch {
	case name == CertificateName && s.Chain != nil:
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(s.Chain), PrivateKey: inline(s.Key),
		}}}
	case name == RootsName && s.Roots != nil:
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inline(s.Roots),
		}}}
	}
	return nil
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
