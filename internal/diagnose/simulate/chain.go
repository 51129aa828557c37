package simulate

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// no is the rank of a filter chain whose criterion excludes the connection; unsaid the
// rank of one that does not have the criterion.
const (
	no     = -1
	unsaid = 0
)

// criteria are FilterChainMatch's, in Envoy's order. Each ranks how specifically a chain
// names the connection; only the best ones go on to the next criterion, and there is
// no way back: a chain that is more specific early hides the others even where it
// fails later.
var criteria = []func(*listenerv3.FilterChainMatch, *request) int{
	rankPort, rankDestination, rankServerName, rankTransport, rankALPN,
	rankDirectSource, rankSourceType, rankSource, rankSourcePort,
}

// pickChain gives the filter chain for a connection: nil where none matches and there is
// no default.
func pickChain(l *listenerv3.Listener, r *request) (*listenerv3.FilterChain, error) {
	if l.GetFilterChainMatcher() != nil {
		return nil, errors.New("filter_chain_matcher is not known to the simulator")
	}
	left := l.GetFilterChains()
	for _, rank := range criteria {
		left = best(left, r, rank)
	}
	if len(left) > 0 {
		return left[0], nil
	}
	return l.GetDefaultFilterChain(), nil
}

func best(chains []*listenerv3.FilterChain, r *request, rank func(*listenerv3.FilterChainMatch, *request) int) []*listenerv3.FilterChain {
	top := no
	var out []*listenerv3.FilterChain
	for _, c := range chains {
		n := rank(c.GetFilterChainMatch(), r)
		if n > top {
			top, out = n, nil
		}
		if n == top && n != no {
			out = append(out, c)
		}
	}
	return out
}

func rankPort(m *listenerv3.FilterChainMatch, r *request) int {
	switch {
	case m.GetDestinationPort() == nil:
		return unsaid
	case m.GetDestinationPort().GetValue() == uint32(r.to.Port()):
		return 1
	}
	return no
}

func rankDestination(m *listenerv3.FilterChainMatch, r *request) int {
	return rankRanges(m.GetPrefixRanges(), r.to.Addr())
}

func rankSource(m *listenerv3.FilterChainMatch, r *request) int {
	return rankRanges(m.GetSourcePrefixRanges(), r.from.Addr())
}

func rankDirectSource(m *listenerv3.FilterChainMatch, r *request) int {
	return rankRanges(m.GetDirectSourcePrefixRanges(), r.from.Addr())
}

// rankRanges is the longest prefix that holds ip. No ranges are the same as 0.0.0.0/0.
func rankRanges(ranges []*corev3.CidrRange, ip netip.Addr) int {
	if len(ranges) == 0 {
		return unsaid
	}
	rank := no
	for _, c := range ranges {
		addr, err := netip.ParseAddr(c.GetAddressPrefix())
		if err != nil {
			continue
		}
		p := netip.PrefixFrom(addr, int(c.GetPrefixLen().GetValue()))
		if p.Contains(ip) {
			rank = max(rank, p.Bits())
		}
	}
	return rank
}

// rankServerName puts exact names before wildcards, and longer ones before shorter.
func rankServerName(m *listenerv3.FilterChainMatch, r *request) int {
	if len(m.GetServerNames()) == 0 {
		return unsaid
	}
	rank, sni := no, strings.ToLower(r.sni)
	for _, name := range m.GetServerNames() {
		suffix, wildcard := strings.CutPrefix(name, "*")
		switch {
		case !wildcard && name == sni:
			return 1 << 16
		case wildcard && strings.HasSuffix(sni, suffix) && len(sni) > len(suffix):
			rank = max(rank, len(suffix))
		}
	}
	return rank
}

func rankTransport(m *listenerv3.FilterChainMatch, r *request) int {
	switch m.GetTransportProtocol() {
	case "":
		return unsaid
	case r.transport:
		return 1
	}
	return no
}

// rankALPN follows the client's order of preference.
func rankALPN(m *listenerv3.FilterChainMatch, r *request) int {
	if len(m.GetApplicationProtocols()) == 0 {
		return unsaid
	}
	for i, p := range r.alpn {
		if slices.Contains(m.GetApplicationProtocols(), p) {
			return len(r.alpn) - i
		}
	}
	return no
}

func rankSourceType(m *listenerv3.FilterChainMatch, r *request) int {
	local := r.from.Addr().IsLoopback() || r.from.Addr() == r.to.Addr()
	switch m.GetSourceType() {
	case listenerv3.FilterChainMatch_ANY:
		return unsaid
	case listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK:
		if local {
			return 1
		}
	case listenerv3.FilterChainMatch_EXTERNAL:
		if !local {
			return 1
		}
	}
	return no
}

func rankSourcePort(m *listenerv3.FilterChainMatch, r *request) int {
	if len(m.GetSourcePorts()) == 0 {
		return unsaid
	}
	if slices.Contains(m.GetSourcePorts(), uint32(r.from.Port())) {
		return 1
	}
	return no
}
