package istiodebug

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// redacted is what Envoy's config dump has in the place of secrets.
const redacted = "[redacted]"

// withoutKey returns a secret without what must stay secret. Secrets of types that are not certificates have only their
// names.
func withoutKey(packed *anypb.Any) (name string, public *anypb.Any, err error) {
	s := &tlsv3.Secret{}
	if err := packed.UnmarshalTo(s); err != nil {
		return "", nil, err
	}
	switch t := s.Type.(type) {
	case *tlsv3.Secret_ValidationContext:
	case *tlsv3.Secret_TlsCertificate:
		kept := &tlsv3.TlsCertificate{CertificateChain: t.TlsCertificate.CertificateChain}
		if t.TlsCertificate.PrivateKey != nil {
			kept.PrivateKey = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: redacted}}
		}
		s.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: kept}
	default:
		s.Type = nil
	}
	public, err = anypb.New(s)
	return s.Name, public, err
}
