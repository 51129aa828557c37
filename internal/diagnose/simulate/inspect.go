package simulate

import (
	"fmt"
	"net/netip"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// inspect runs a listener's filters on the first bytes. It tells whether they waited in
// vain for bytes.
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
		"envoy.extensions.filters.listener.original_src.v3.OriginalSrc":
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
		return false, fmt.Errorf("listener filter %s (%s) is not known to the simulator", f.GetName(), name)
	}
}

// inspectHTTP leaves alone what is known to be TLS.
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
		return false, fmt.Errorf("filter_disabled %T is not known to the simulator", rule)
	}
}

// anyPorts is stop where some rule says stop, else !stop.
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
