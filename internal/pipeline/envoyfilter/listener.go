package envoyfilter

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

var listenerTargets = []model.PatchTarget{
	model.PatchListener, model.PatchFilterChain, model.PatchListenerFilter, model.PatchNetworkFilter, model.PatchHTTPFilter,
}

var routeTargets = []model.PatchTarget{model.PatchRouteConfig, model.PatchVirtualHost, model.PatchHTTPRoute}

// Listener patches a listener and the route configurations inside it. v is the IR of m. Not present: a patch removes it.
func (s *Set) Listener(v *ir.Listener, m *listenerv3.Listener) (out *listenerv3.Listener, present bool, problems []Problem) {
	if !s.any(listenerTargets...) && !s.any(routeTargets...) {
		return m, true, nil
	}
	inline, names := v.InlineRoutes(), v.IstioNames()
	return run(s, m, func(w *work, l *listenerv3.Listener) bool {
		w.inline, w.istioNames = inline, names
		return w.listener(l)
	}, checkListener)
}

func (w *work) listener(l *listenerv3.Listener) bool {
	for _, p := range w.of(model.PatchListener) {
		if !p.matchesListener(l) {
			continue
		}
		switch {
		case p.Operation == model.PatchRemove:
			w.did(p)
			return false
		case p.Operation.Merges():
			name := l.Name
			mergeMessages(l, p.value, p.Operation == model.PatchMergeReplace)
			l.Name = name // updates and removals refer to it
			w.did(p)
		}
	}
	w.listenerFilters(l)
	w.chains(l)
	return true
}

func (w *work) listenerFilters(l *listenerv3.Listener) {
	for _, p := range w.of(model.PatchListenerFilter) {
		if !p.matchesListener(l) {
			continue
		}
		named := p.Listener != nil && p.Listener.ListenerFilter != ""
		matches := func(f *listenerv3.ListenerFilter) bool {
			return !named || envoyext.Canonical(f.Name) == p.Listener.ListenerFilter
		}
		if p.Operation.Merges() {
			for _, f := range l.ListenerFilters {
				if matches(f) {
					w.mergeListenerFilter(p, f)
				}
			}
			continue
		}
		l.ListenerFilters = place(w, slices.Clone(l.ListenerFilters), p, named, matches)
	}
}

func (w *work) mergeListenerFilter(p *patch, f *listenerv3.ListenerFilter) {
	value := p.value.(*listenerv3.ListenerFilter)
	config := w.mergedConfig(p, f.GetTypedConfig(), value.GetTypedConfig())
	if config != nil {
		f.ConfigType = &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config}
	}
}

// chains patches the filter chains, with the default one, and adds new ones.
func (w *work) chains(l *listenerv3.Listener) {
	l.FilterChains = slices.DeleteFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool { return !w.chain(l, c) })
	if c := l.DefaultFilterChain; c != nil && !w.chain(l, c) {
		l.DefaultFilterChain = nil
	}
	for _, p := range w.of(model.PatchFilterChain) {
		if p.Operation == model.PatchAdd && p.matchesListener(l) {
			l.FilterChains = place(w, l.FilterChains, p, false, func(*listenerv3.FilterChain) bool { return false })
		}
	}
}

// chain patches a filter chain and reports whether it still exists.
func (w *work) chain(l *listenerv3.Listener, c *listenerv3.FilterChain) bool {
	for _, p := range w.of(model.PatchFilterChain) {
		if p.Operation == model.PatchAdd || !p.matchesListener(l) || !w.matchesChain(p, l, c) {
			continue
		}
		w.did(p)
		switch {
		case p.Operation == model.PatchRemove:
			return false
		case p.Operation.Merges():
			w.mergeChain(p, c)
		}
	}
	w.networkFilters(l, c)
	return true
}

// mergeChain merges a filter chain. If the patch has a transport socket with the chain's name of it, only that is merged,
// as in Istio.
func (w *work) mergeChain(p *patch, c *listenerv3.FilterChain) {
	value := p.value.(*listenerv3.FilterChain)
	if sameSocket(c.TransportSocket, value.TransportSocket) {
		w.mergeSocket(p, c.TransportSocket, value.TransportSocket)
		return
	}
	mergeMessages(c, value, p.Operation == model.PatchMergeReplace)
}

func sameSocket(a, b *corev3.TransportSocket) bool {
	return a != nil && b != nil && a.Name == b.Name
}

func (w *work) mergeSocket(p *patch, to, from *corev3.TransportSocket) {
	if config := w.mergedConfig(p, to.GetTypedConfig(), from.GetTypedConfig()); config != nil {
		to.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: config}
	}
}

// matchesListener reports whether a patch is for a listener. In the virtual listeners, a port is that of a filter chain.
func (p *patch) matchesListener(l *listenerv3.Listener) bool {
	m := p.Listener
	switch {
	case m == nil:
		return true
	case m.Name != "" && m.Name != l.Name:
		return false
	case p.Target != model.PatchListener && isVirtual(l):
		return true
	}
	return m.Port == 0 || l.GetAddress().GetSocketAddress().GetPortValue() == m.Port
}

func isVirtual(l *listenerv3.Listener) bool {
	return l.Name == ir.VirtualInbound || l.Name == ir.VirtualOutbound
}

// matchesChain reports whether a patch is for a filter chain of a matching listener.
func (w *work) matchesChain(p *patch, l *listenerv3.Listener, c *listenerv3.FilterChain) bool {
	m, match := p.Listener, c.GetFilterChainMatch()
	if m == nil {
		return true
	}
	to := match.GetDestinationPort().GetValue()
	switch {
	case isVirtual(l) && m.Port != 0 && to != m.Port,
		m.ChainName != "" && m.ChainName != c.Name && m.ChainName != w.istioNames[c.Name],
		m.SNI != "" && !slices.Contains(match.GetServerNames(), m.SNI),
		m.TransportProtocol != "" && m.TransportProtocol != match.GetTransportProtocol(),
		m.DestinationPort != 0 && m.DestinationPort != to:
		return false
	}
	for _, protocol := range m.ApplicationProtocols {
		if !slices.Contains(match.GetApplicationProtocols(), protocol) {
			return false
		}
	}
	return true
}
