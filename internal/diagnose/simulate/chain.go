package simulate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	// These register the types of filters that a chain may have, so that their configuration can be decoded.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
)

// Ranks of a filter chain: no if one of its criteria excludes the connection, unsaid if it does not have
// the criterion.
const (
	no     = -1
	unsaid = 0
)

// criteria are those of FilterChainMatch, in Envoy's order. Each ranks how specifically a chain matches the
// connection. Only the best chains go on to the next criterion, without backtracking: a chain that is more
// specific early hides the others even if it fails later.
var criteria = []func(*listenerv3.FilterChainMatch, *request) int{
	rankPort, rankDestination, rankServerName, rankTransport, rankALPN,
	rankDirectSource, rankSourceType, rankSource, rankSourcePort,
}

// pickChain returns the filter chain for a connection. It returns nil if none matches and there is no
// default.
func pickChain(l *listenerv3.Listener, r *request) (*listenerv3.FilterChain, error) {
	if l.GetFilterChainMatcher() != nil {
		return nil, errors.New("filter_chain_matcher is unknown to the simulator")
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

// rankRanges returns the length of the longest prefix that contains ip. No ranges equal 0.0.0.0/0.
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

// rankServerName ranks exact names before wildcards, and longer names before shorter ones.
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

func unpack(a *anypb.Any) (proto.Message, error) {
	if a == nil {
		return nil, errors.New("typed_config: missing")
	}
	return a.UnmarshalNew()
}

func messageName(m proto.Message) string {
	return string(m.ProtoReflect().Descriptor().FullName())
}

// runChain gives the connection to the terminal filter of its chain, unless an earlier filter refuses it.
func (w *World) runChain(chain *listenerv3.FilterChain, r *request, res *Result) error {
	if r.isTLS() && chain.GetTransportSocket() == nil {
		// TLS is passed on as it is: no filter reads requests inside.
		r.Protocol = TLS
	}
	res.EndsTLS = r.isTLS() && chain.GetTransportSocket() != nil
	if err := handshake(chain, r, res); err != nil || res.Closed != "" {
		return err
	}
	filters := chain.GetFilters()
	r.offers = offered(filters)
	if len(filters) == 0 {
		res.Closed = "filter chain without filters"
		return nil
	}
	r.secured = res.EndsTLS
	last := filters[len(filters)-1]
	if refused, err := w.runNetworkFilters(filters[:len(filters)-1], r, res); refused || err != nil {
		return err
	}
	msg, err := unpack(last.GetTypedConfig())
	if err != nil {
		return fmt.Errorf("filter %s: %w", last.GetName(), err)
	}
	switch f := msg.(type) {
	case *hcmv3.HttpConnectionManager:
		return w.runHTTP(f, r, res)
	case *tcpv3.TcpProxy:
		return w.runTCP(f, r, res)
	default:
		return fmt.Errorf("filter %s (%s) is unknown to the simulator", last.GetName(), messageName(msg))
	}
}

func (w *World) runTCP(f *tcpv3.TcpProxy, r *request, res *Result) error {
	for _, h := range f.GetHashPolicy() {
		if h.GetSourceIp() != nil {
			res.Hash = append(res.Hash, "sourceIP")
		}
	}
	if t := f.GetTunnelingConfig(); t != nil {
		res.Tunnel = "CONNECT " + t.GetHostname()
		if t.GetUsePost() {
			res.Tunnel = "POST " + t.GetHostname()
		}
	}
	var shares []share
	switch s := f.GetClusterSpecifier().(type) {
	case *tcpv3.TcpProxy_Cluster:
		shares = []share{{name: s.Cluster, weight: 1}}
	case *tcpv3.TcpProxy_WeightedClusters:
		for _, c := range s.WeightedClusters.GetClusters() {
			shares = append(shares, share{name: c.GetName(), weight: c.GetWeight()})
		}
	default:
		return errors.New("tcp_proxy: no cluster")
	}
	if err := w.forward(shares, r, res); err != nil {
		return err
	}
	if !res.reachesAny() {
		res.Closed = NoHealthyUpstream
	}
	return nil
}
