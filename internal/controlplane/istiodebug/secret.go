package istiodebug

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

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
		kept := &tlsv3.TlsCertificate{CertificateChain: t.TlsCertificate.CertificateChain, OcspStaple: t.TlsCertificate.OcspStaple}
		if t.TlsCertificate.PrivateKey != nil {
			kept.PrivateKey = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: wasmplugin.Redacted}}
		}
		s.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: kept}
	default:
		s.Type = nil
	}
	public, err = anypb.New(s)
	return s.Name, public, err
}

// withoutLogin returns an extension without the registry credentials of a plugin.
func withoutLogin(packed *anypb.Any) (*anypb.Any, error) {
	e := &corev3.TypedExtensionConfig{}
	if err := packed.UnmarshalTo(e); err != nil {
		return nil, err
	}
	if err := wasmplugin.Redact(e); err != nil {
		return nil, err
	}
	return anypb.New(e)
}
