package simulate

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	setfilterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// handshake ends the connection's TLS if the chain does so. If it cannot, the connection is closed.
func handshake(chain *listenerv3.FilterChain, r *request, res *Result) error {
	packed := chain.GetTransportSocket().GetTypedConfig()
	if packed == nil {
		return nil
	}
	msg, err := packed.UnmarshalNew()
	if err != nil {
		return err
	}
	t, ok := msg.(*tlsv3.DownstreamTlsContext)
	switch {
	case !ok:
		return nil
	case !r.isTLS():
		res.Closed = "plain text, but TLS is required"
	case t.GetRequireClientCertificate().GetValue() && r.Principal == "":
		res.Closed = "the client has no certificate"
	case (t.GetRequireClientCertificate().GetValue() || r.Principal != "") && !accepts(t.GetCommonTlsContext(), r.Principal):
		res.Closed = fmt.Sprintf("a client with the certificate of %s is refused", r.Principal)
	default:
		res.ALPN = selectALPN(t.GetCommonTlsContext().GetAlpnProtocols(), r.ALPN)
	}
	return nil
}

// selectALPN returns the first protocol of the server that the client offers; empty: none.
func selectALPN(server, client []string) string {
	if i := slices.IndexFunc(server, func(p string) bool { return slices.Contains(client, p) }); i >= 0 {
		return server[i]
	}
	return ""
}

// accepts reports whether a context accepts a peer with a name, a URI or another one, in its certificate. Without expected
// names it accepts every peer that the roots vouch for.
func accepts(c *tlsv3.CommonTlsContext, name string) bool {
	v := validation(c)
	expected, untyped := v.GetMatchTypedSubjectAltNames(), v.GetMatchSubjectAltNames()
	if slices.ContainsFunc(untyped, func(m *matcherv3.StringMatcher) bool { return matchesName(m, name) }) {
		return true
	}
	return len(expected)+len(untyped) == 0 || slices.ContainsFunc(expected, func(m *tlsv3.SubjectAltNameMatcher) bool {
		if (m.GetSanType() == tlsv3.SubjectAltNameMatcher_URI) != strings.Contains(name, "://") {
			return false
		}
		return matchesName(m.GetMatcher(), name)
	})
}

func validation(c *tlsv3.CommonTlsContext) *tlsv3.CertificateValidationContext {
	if combined := c.GetCombinedValidationContext(); combined != nil {
		return combined.GetDefaultValidationContext()
	}
	return c.GetValidationContext()
}

// ExpectedNames returns what names in certificates of peers must match. Without any, a context accepts every peer that the
// roots vouch for.
func ExpectedNames(c *tlsv3.CommonTlsContext) []*matcherv3.StringMatcher {
	v := validation(c)
	out := slices.Clone(v.GetMatchSubjectAltNames())
	for _, m := range v.GetMatchTypedSubjectAltNames() {
		out = append(out, m.GetMatcher())
	}
	return out
}

// matchesName compares a name of a certificate. Control planes use exact matches and prefixes only.
func matchesName(m *matcherv3.StringMatcher, name string) bool {
	if prefix := m.GetPrefix(); prefix != "" {
		return strings.HasPrefix(name, prefix)
	}
	return m.GetExact() == name
}

// offered is the ALPN that a chain's filters set for upstream connections, whatever their cluster has; nil:
// none.
func offered(filters []*listenerv3.Filter) []string {
	for _, f := range filters {
		c := &setfilterstatev3.Config{}
		if f.GetTypedConfig().UnmarshalTo(c) != nil {
			continue
		}
		for _, v := range c.GetOnNewConnection() {
			if v.GetObjectKey() == "envoy.network.application_protocols" {
				return strings.Split(v.GetFormatString().GetTextFormatSource().GetInlineString(), ",")
			}
		}
	}
	return nil
}

// secureMatches selects the transport socket of each endpoint by its metadata. The result describes the
// cluster by its endpoints with TLS.
func secureMatches(u *Upstream, c *clusterv3.Cluster) error {
	for _, m := range c.GetTransportSocketMatches() {
		t, err := clientTLS(m.GetTransportSocket().GetTypedConfig(), c)
		if err != nil {
			return err
		}
		if u.TLS == nil {
			u.TLS = t
		}
	}
	for i := range u.Endpoints {
		e := &u.Endpoints[i]
		for _, m := range c.GetTransportSocketMatches() {
			if !holds(m.GetMatch(), e.socketMatch) {
				continue
			}
			t, err := clientTLS(m.GetTransportSocket().GetTypedConfig(), c)
			if err != nil {
				return err
			}
			e.Plain = t == nil
			break
		}
	}
	return nil
}

// holds reports whether metadata has everything that a match requires.
func holds(match, metadata *structpb.Struct) bool {
	for k, v := range match.GetFields() {
		if !proto.Equal(v, metadata.GetFields()[k]) {
			return false
		}
	}
	return true
}
