package listener

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setfilterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/pipeline/translate/security"
)

// filterChain translates a chain: its match, its TLS (the transport socket), and its filters.
func filterChain(v *ir.FilterChain) (*listenerv3.FilterChain, error) {
	filters, err := networkFilters(v)
	if err != nil {
		return nil, fmt.Errorf("filter chain %s: %w", v.Name, err)
	}
	out := &listenerv3.FilterChain{
		Name:             v.Name,
		FilterChainMatch: chainMatch(&v.Match),
		Filters:          filters,
	}
	if v.TLS != nil {
		if out.TransportSocket, err = security.ServerTLS(v.TLS, v.HTTP != nil); err != nil {
			return nil, fmt.Errorf("filter chain %s: %w", v.Name, err)
		}
		out.TransportSocketConnectTimeout = envoyproto.Duration(v.HandshakeTimeout)
	}
	return out, nil
}

// networkFilters end with the filter that handles the connection.
func networkFilters(v *ir.FilterChain) ([]*listenerv3.Filter, error) {
	before, behind, err := networkPlugins(v.Wasm)
	if err != nil {
		return nil, err
	}
	meshTLS := v.TLS != nil && v.TLS.IsMesh()
	switch {
	case v.HTTP != nil && v.TCP == nil:
		filters, err := httpFilters(v.HTTP)
		return slices.Concat(before, behind, filters), err
	case v.TCP != nil && v.HTTP == nil && v.TCP.Opaque:
		filters, err := tcpFilters(v.TCP, v.Match.DestinationPort, meshTLS, before, behind)
		return append([]*listenerv3.Filter{offerBytes}, filters...), err
	case v.TCP != nil && v.HTTP == nil:
		return tcpFilters(v.TCP, v.Match.DestinationPort, meshTLS, before, behind)
	}
	return nil, errors.New("must be either HTTP or TCP")
}

// offerBytes makes connections offer the ALPN protocol of opaque bytes in the handshake of mesh TLS, although their
// cluster may offer protocols of requests.
var offerBytes = &listenerv3.Filter{
	Name: "envoy.filters.network.set_filter_state",
	ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoyproto.MustPack(&setfilterstatev3.Config{
		OnNewConnection: []*commonv3.FilterStateValue{{
			Key: &commonv3.FilterStateValue_ObjectKey{ObjectKey: "envoy.network.application_protocols"},
			Value: &commonv3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
					Specifier: &corev3.DataSource_InlineString{InlineString: security.MeshALPN},
				}},
			}},
		}},
	})},
}

// chainMatch returns nil if everything matches.
func chainMatch(m *ir.ChainMatch) *listenerv3.FilterChainMatch {
	if m.DestinationPort == 0 && len(m.Destinations) == 0 && len(m.ServerNames) == 0 &&
		m.TransportProtocol == "" && len(m.ALPN) == 0 {
		return nil
	}
	return &listenerv3.FilterChainMatch{
		DestinationPort:      envoyproto.UInt32(m.DestinationPort),
		PrefixRanges:         prefixRanges(m.Destinations),
		ServerNames:          m.ServerNames,
		TransportProtocol:    m.TransportProtocol,
		ApplicationProtocols: m.ALPN,
	}
}

func prefixRanges(list []netip.Prefix) []*corev3.CidrRange {
	var out []*corev3.CidrRange
	for _, p := range list {
		out = append(out, &corev3.CidrRange{
			AddressPrefix: p.Addr().String(),
			PrefixLen:     wrapperspb.UInt32(uint32(p.Bits())),
		})
	}
	return out
}

// matchCase is one combination of the values of a match. Envoy refuses two chains with the same case.
type matchCase struct {
	port        uint32
	destination netip.Prefix
	serverName  string
	transport   string
	alpn        string
}

// checkMatches returns an error if two chains match the same case, or a server name is invalid.
func checkMatches(chains []ir.FilterChain) error {
	taken := map[matchCase]string{}
	for i := range chains {
		c := &chains[i]
		if err := checkServerNames(c.Match.ServerNames); err != nil {
			return fmt.Errorf("filter chain %s: %w", c.Name, err)
		}
		for _, one := range casesOfMatch(&c.Match) {
			if other, ok := taken[one]; ok {
				return fmt.Errorf("filter chains %s and %s have the same match (%s)", other, c.Name, one)
			}
			taken[one] = c.Name
		}
	}
	return nil
}

func casesOfMatch(m *ir.ChainMatch) []matchCase {
	out := []matchCase{{port: m.DestinationPort, transport: m.TransportProtocol}}
	out = times(out, m.Destinations, func(c *matchCase, p netip.Prefix) { c.destination = p.Masked() })
	out = times(out, m.ServerNames, func(c *matchCase, n string) { c.serverName = n })
	return times(out, m.ALPN, func(c *matchCase, p string) { c.alpn = p })
}

// times combines each case with each value. Without values it returns the cases as they are.
func times[V any](cases []matchCase, values []V, set func(*matchCase, V)) []matchCase {
	if len(values) == 0 {
		return cases
	}
	out := make([]matchCase, 0, len(cases)*len(values))
	for _, c := range cases {
		for _, v := range values {
			set(&c, v)
			out = append(out, c)
		}
	}
	return out
}

// String lists the parts that are set.
func (c matchCase) String() string {
	var parts []string
	if c.port != 0 {
		parts = append(parts, fmt.Sprintf("port %d", c.port))
	}
	if c.destination.IsValid() {
		parts = append(parts, "destination "+c.destination.String())
	}
	for _, p := range [][2]string{{"SNI ", c.serverName}, {"transport ", c.transport}, {"ALPN ", c.alpn}} {
		if p[1] != "" {
			parts = append(parts, p[0]+p[1])
		}
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, ", ")
}

// checkServerNames returns an error for a wildcard that is not the first label.
func checkServerNames(names []string) error {
	for _, n := range names {
		if strings.Contains(strings.TrimPrefix(n, "*."), "*") {
			return fmt.Errorf(`SNI host %q: a wildcard must be "*." at the beginning`, n)
		}
	}
	return nil
}
