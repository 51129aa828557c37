package sample

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

const anyAccount = "ns/default/sa/default"

// ClientName returns a name in the certificate of a client that a filter chain accepts. asks is set if the chain asks clients for
// certificates.
func ClientName(chain *listenerv3.FilterChain) (name string, asks bool) {
	name = "spiffe://cluster.local/" + anyAccount
	t := &tlsv3.DownstreamTlsContext{}
	packed := chain.GetTransportSocket().GetTypedConfig()
	if !packed.MessageIs(t) || packed.UnmarshalTo(t) != nil {
		return name, false
	}
	c := t.GetCommonTlsContext()
	asks = t.GetRequireClientCertificate().GetValue() || c.GetValidationContextType() != nil
	for _, m := range simulate.ExpectedNames(c) {
		if text, ok := certificateName(m); ok {
			return text, asks
		}
	}
	return name, asks
}

func certificateName(m *matcherv3.StringMatcher) (string, bool) {
	if prefix := m.GetPrefix(); prefix != "" { // of a trust domain
		return prefix + anyAccount, true
	}
	return Text(m)
}
