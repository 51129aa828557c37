package simulate

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

const virtualInbound = "virtualInbound"

// Call evaluates one call. An error means that the resources or the call make no sense,
// or use a feature of Envoy that the simulator does not know.
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
	res.Chain = chain.GetName()
	if err := w.runChain(chain, r, res); err != nil {
		return fmt.Errorf("listener %s, filter chain %q: %w", l.GetName(), chain.GetName(), err)
	}
	return nil
}

// listenersFor gives the listeners that a connection passes: the one that accepts it,
// and the one that it is handed to by its original destination.
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

// entry is the listener that accepts the connection: the one that interception sends it
// to, else the one that is bound to the address.
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

// at finds a listener by address: the exact one before the one of any address.
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
