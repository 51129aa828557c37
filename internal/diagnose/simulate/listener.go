package simulate

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

const virtualInbound = "virtualInbound"

// Call evaluates one call. It returns an error if the resources or the call are invalid, or use a feature
// of Envoy that the simulator does not know.
func (w *World) Call(c Call) (*Result, error) {
	r, err := c.request()
	if err != nil {
		return nil, err
	}
	res := &Result{}
	if err := w.connect(r, res); err != nil {
		return res, err
	}
	return res, nil
}

func (w *World) connect(r *request, res *Result) error {
	path := w.listenersFor(r)
	if len(path) == 0 {
		res.Closed = "no listener at " + r.To
		return nil
	}
	l := path[len(path)-1]
	res.Listener = l.GetName()
	for _, p := range path {
		timedOut, err := inspect(p, r)
		if err != nil {
			return fmt.Errorf("listener %s: %w", p.GetName(), err)
		}
		if timedOut && !p.GetContinueOnListenerFiltersTimeout() {
			res.Closed = "listener filter timeout"
			return nil
		}
	}
	chain, err := pickChain(l, r)
	if err != nil {
		return fmt.Errorf("listener %s: %w", l.GetName(), err)
	}
	if chain == nil {
		res.Closed = "no filter chain matches"
		return nil
	}
	res.Chain, res.Filters = chain.GetName(), chain.GetFilters()
	if err := w.runChain(chain, r, res); err != nil {
		return fmt.Errorf("listener %s, filter chain %q: %w", l.GetName(), chain.GetName(), err)
	}
	return nil
}

// listenersFor returns the listeners that a connection passes: the one that accepts it, and the one that
// gets it by its original destination.
func (w *World) listenersFor(r *request) []*listenerv3.Listener {
	entry := w.entry(r)
	if entry == nil {
		return nil
	}
	path := []*listenerv3.Listener{entry}
	if entry.GetUseOriginalDst().GetValue() {
		if l := w.at(r.to, false); l != nil && l != entry {
			path = append(path, l)
		}
	}
	return path
}

// entry returns the listener that accepts the connection: the target of interception, or else the one that
// is bound to the address.
func (w *World) entry(r *request) *listenerv3.Listener {
	if !r.Direct {
		for _, l := range w.Listeners {
			switch {
			case r.Inbound && l.GetName() == virtualInbound:
				return l
			case !r.Inbound && l.GetUseOriginalDst().GetValue() && l.GetTrafficDirection() != corev3.TrafficDirection_INBOUND:
				return l
			}
		}
	}
	return w.at(r.to, true)
}

// at finds a listener by address: the exact one before the wildcard.
func (w *World) at(to netip.AddrPort, boundOnly bool) *listenerv3.Listener {
	anyIP := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		anyIP = netip.IPv6Unspecified()
	}
	for _, want := range []netip.AddrPort{to, netip.AddrPortFrom(anyIP, to.Port())} {
		for _, l := range w.Listeners {
			if boundOnly && !isBound(l) {
				continue
			}
			for _, a := range addresses(l) {
				if a == want {
					return l
				}
			}
		}
	}
	return nil
}

func isBound(l *listenerv3.Listener) bool {
	if b := l.GetBindToPort(); b != nil {
		return b.GetValue()
	}
	if b := l.GetDeprecatedV1().GetBindToPort(); b != nil {
		return b.GetValue()
	}
	return true
}

func addresses(l *listenerv3.Listener) []netip.AddrPort {
	all := []*corev3.Address{l.GetAddress()}
	for _, a := range l.GetAdditionalAddresses() {
		all = append(all, a.GetAddress())
	}
	var out []netip.AddrPort
	for _, a := range all {
		ip, err := netip.ParseAddr(a.GetSocketAddress().GetAddress())
		if err == nil {
			out = append(out, netip.AddrPortFrom(ip, uint16(a.GetSocketAddress().GetPortValue())))
		}
	}
	return out
}

// inspect runs a listener's filters on the first bytes. It reports whether they waited in vain for bytes.
func inspect(l *listenerv3.Listener, r *request) (timedOut bool, err error) {
	for _, f := range l.GetListenerFilters() {
		disabled, err := portsMatch(f.GetFilterDisabled(), r.to)
		if err != nil {
			return false, err
		}
		if disabled {
			continue
		}
		waits, err := inspectOne(f, r)
		if err != nil {
			return false, err
		}
		timedOut = timedOut || waits
	}
	return timedOut, nil
}

func inspectOne(f *listenerv3.ListenerFilter, r *request) (waits bool, err error) {
	msg, err := unpack(f.GetTypedConfig())
	if err != nil {
		return false, fmt.Errorf("listener filter %s: %w", f.GetName(), err)
	}
	switch name := messageName(msg); name {
	case "envoy.extensions.filters.listener.original_dst.v3.OriginalDst",
		"envoy.extensions.filters.listener.original_src.v3.OriginalSrc",
		// A call's source is the address that a load balancer reports, and no call exceeds a limit of connections.
		"envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
		"envoy.extensions.filters.listener.local_ratelimit.v3.LocalRateLimit":
		return false, nil
	case "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector":
		if r.isTLS() {
			r.transport, r.sni, r.alpn = "tls", r.SNI, r.ALPN
		}
		return r.Silent, nil
	case "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector":
		inspectHTTP(r)
		return r.Silent, nil
	default:
		return false, fmt.Errorf("listener filter %s (%s) is unknown to the simulator", f.GetName(), name)
	}
}

// inspectHTTP skips connections that are known to be TLS.
func inspectHTTP(r *request) {
	if r.transport != "raw_buffer" {
		return
	}
	switch r.Protocol {
	case HTTP:
		r.alpn = []string{"http/1.1"}
	case HTTP2, GRPC:
		r.alpn = []string{"h2c"}
	}
}

// portsMatch evaluates filter_disabled; nil never matches.
func portsMatch(p *listenerv3.ListenerFilterChainMatchPredicate, to netip.AddrPort) (bool, error) {
	switch rule := p.GetRule().(type) {
	case nil:
		return false, nil
	case *listenerv3.ListenerFilterChainMatchPredicate_AnyMatch:
		return rule.AnyMatch, nil
	case *listenerv3.ListenerFilterChainMatchPredicate_NotMatch:
		ok, err := portsMatch(rule.NotMatch, to)
		return !ok, err
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		port := int32(to.Port())
		return port >= rule.DestinationPortRange.GetStart() && port < rule.DestinationPortRange.GetEnd(), nil
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		return anyPorts(rule.OrMatch.GetRules(), to, true)
	case *listenerv3.ListenerFilterChainMatchPredicate_AndMatch:
		return anyPorts(rule.AndMatch.GetRules(), to, false)
	default:
		return false, fmt.Errorf("filter_disabled %T is unknown to the simulator", rule)
	}
}

// anyPorts returns stop if some rule equals stop, and else !stop.
func anyPorts(rules []*listenerv3.ListenerFilterChainMatchPredicate, to netip.AddrPort, stop bool) (bool, error) {
	for _, p := range rules {
		ok, err := portsMatch(p, to)
		if err != nil {
			return false, err
		}
		if ok == stop {
			return stop, nil
		}
	}
	return !stop, nil
}

// Addresses returns the addresses of a listener.
func Addresses(l *listenerv3.Listener) []netip.AddrPort { return addresses(l) }

// IsBound reports whether a listener binds its port. Clients can connect to such a listener without interception.
func IsBound(l *listenerv3.Listener) bool { return isBound(l) }
