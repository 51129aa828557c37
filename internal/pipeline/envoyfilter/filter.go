package envoyfilter

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

const connectionManager = "envoy.filters.network.http_connection_manager"

// networkFilters patches the filters of a chain: first it inserts and removes filters, then it merges.
func (w *work) networkFilters(l *listenerv3.Listener, c *listenerv3.FilterChain) {
	was := c.Filters
	c.Filters = w.anchorNetwork(l, c)
	for _, p := range w.of(model.PatchNetworkFilter) {
		if !p.Operation.Merges() && p.matchesListener(l) && w.matchesChain(p, l, c) {
			c.Filters = place(w, c.Filters, p, p.namesFilter(), p.matchesFilter)
		}
	}
	c.Filters = withoutAnchors(w, c.Filters)
	if !slices.Equal(was, c.Filters) {
		connectAtOnce(c)
	}
	for _, f := range c.Filters {
		w.networkFilter(l, c, f)
	}
}

const tcpProxy = "envoy.filters.network.tcp_proxy"

// connectAtOnce makes the TCP proxy connect as soon as the preceding filters let a connection pass. Otherwise, if one of
// them delays the connection, Envoy 1.40 closes it after the handshake.
func connectAtOnce(c *listenerv3.FilterChain) {
	for i, f := range c.Filters {
		m := &tcpproxyv3.TcpProxy{}
		if f.GetName() != tcpProxy || f.GetTypedConfig().UnmarshalTo(m) != nil ||
			m.UpstreamConnectMode != tcpproxyv3.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE {
			continue
		}
		m.UpstreamConnectMode, m.MaxEarlyDataBytes = tcpproxyv3.UpstreamConnectMode_IMMEDIATE, nil
		if config, err := packed(m); err == nil {
			c.Filters[i] = &listenerv3.Filter{Name: f.Name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}
		}
	}
}

func (p *patch) namesFilter() bool { return p.Listener != nil && p.Listener.Filter != "" }

func (p *patch) matchesFilter(f *listenerv3.Filter) bool {
	return !p.namesFilter() || envoyext.Canonical(f.Name) == p.Listener.Filter
}

func (w *work) networkFilter(l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter) {
	for _, p := range w.of(model.PatchNetworkFilter) {
		if p.Operation.Merges() && p.matchesListener(l) && w.matchesChain(p, l, c) && p.matchesFilter(f) {
			if config := w.mergeFilter(p, &f.Name, f.GetTypedConfig()); config != nil {
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: config}
			}
		}
	}
	if envoyext.Canonical(f.Name) == connectionManager && (w.any(model.PatchHTTPFilter) || w.any(routeTargets...)) {
		w.connectionManager(l, c, f)
	}
}

// mergeFilter merges the network or HTTP filter of a patch into an existing one: its name, and its configuration, which
// it returns; nil: unchanged.
func (w *work) mergeFilter(p *patch, name *string, config *anypb.Any) *anypb.Any {
	value := p.value.(interface {
		GetName() string
		GetTypedConfig() *anypb.Any
	})
	if n := value.GetName(); n != "" && n != *name {
		*name = n
		w.did(p)
	}
	return w.mergedConfig(p, config, value.GetTypedConfig())
}

// mergedConfig merges configurations of one type; nil: there is nothing to merge.
func (w *work) mergedConfig(p *patch, to, from *anypb.Any) *anypb.Any {
	if to == nil || from == nil {
		return nil
	}
	merged, err := mergePacked(to, from, p.Operation == model.PatchMergeReplace)
	if err != nil {
		w.failed(p, "%v"+leftOut, err)
		return nil
	}
	w.did(p)
	return merged
}

// connectionManager patches HTTP filters and inline routes. An unchanged connection manager is not packed again.
func (w *work) connectionManager(l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter) {
	m := &hcmv3.HttpConnectionManager{}
	if f.GetTypedConfig().UnmarshalTo(m) != nil {
		return
	}
	before := proto.Clone(m)
	w.addMissing(l, c, f, m)
	w.httpFilters(l, c, f, m)
	if r := m.GetRouteConfig(); r != nil {
		w.inlineRoutes(r)
	}
	if proto.Equal(before, m) {
		return
	}
	if config, err := packed(m); err == nil {
		f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: config}
	}
}

// missingFilters are those that each connection manager has in Istio, before the router. Those with inline routes lack them as long
// as no patch refers to them: inbound routes configure neither faults nor CORS.
var missingFilters = []*hcmv3.HttpFilter{
	envoyproto.MustHTTPFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
	envoyproto.MustHTTPFilter("envoy.filters.http.cors", &corsv3.Cors{}),
}

// addMissing adds the filters that patches refer to. They do nothing unless patches configure them.
func (w *work) addMissing(l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter, m *hcmv3.HttpConnectionManager) {
	routes := m.GetRouteConfig()
	if routes == nil || len(m.HttpFilters) == 0 {
		return
	}
	for _, missing := range missingFilters {
		has := slices.ContainsFunc(m.HttpFilters, func(h *hcmv3.HttpFilter) bool { return envoyext.Canonical(h.Name) == missing.Name })
		if !has && (w.placesBy(missing.Name, l, c, f) || w.configures(missing.Name, routes)) {
			m.HttpFilters = slices.Insert(m.HttpFilters, len(m.HttpFilters)-1, proto.Clone(missing).(*hcmv3.HttpFilter))
		}
	}
}

// placesBy reports whether a patch changes a filter of a connection manager, or places another one by it.
func (w *work) placesBy(name string, l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter) bool {
	return slices.ContainsFunc(w.of(model.PatchHTTPFilter), func(p *patch) bool {
		return p.Operation != model.PatchRemove && p.namesHTTPFilter() && p.Listener.SubFilter == name && w.matchesManager(p, l, c, f)
	})
}

// configures reports whether a patch of inline routes has a configuration of a filter.
func (w *work) configures(name string, r *routev3.RouteConfiguration) bool {
	of := w.inlineKey(r)
	for _, target := range routeTargets {
		if slices.ContainsFunc(w.of(target), func(p *patch) bool { return p.MatchesRoutes(w.gateway, of) && p.configures(name) }) {
			return true
		}
	}
	return false
}

// httpFilters patches the HTTP filters of a connection manager. If that changes them, no filter stays dormant: a patched
// filter must be active, and an added filter may choose another route, which may configure the filters after it.
func (w *work) httpFilters(l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter, m *hcmv3.HttpConnectionManager) {
	before := proto.Clone(m)
	dormant := slices.DeleteFunc(slices.Clone(m.HttpFilters), func(h *hcmv3.HttpFilter) bool { return !h.Disabled })
	m.HttpFilters = w.anchorHTTP(l, c, f, m.HttpFilters)
	for _, p := range w.of(model.PatchHTTPFilter) {
		if !p.Operation.Merges() && w.matchesManager(p, l, c, f) {
			m.HttpFilters = place(w, m.HttpFilters, p, p.namesHTTPFilter(), p.matchesHTTPFilter)
		}
	}
	m.HttpFilters = withoutAnchors(w, m.HttpFilters)
	for _, h := range m.HttpFilters {
		for _, p := range w.of(model.PatchHTTPFilter) {
			if p.Operation.Merges() && w.matchesManager(p, l, c, f) && p.matchesHTTPFilter(h) {
				if config := w.mergeFilter(p, &h.Name, h.GetTypedConfig()); config != nil {
					h.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}
				}
			}
		}
	}
	if proto.Equal(before, m) {
		return
	}
	for _, h := range dormant {
		h.Disabled = false
	}
}

func (w *work) matchesManager(p *patch, l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter) bool {
	return p.matchesListener(l) && w.matchesChain(p, l, c) && p.matchesFilter(f)
}

func (p *patch) namesHTTPFilter() bool { return p.Listener != nil && p.Listener.SubFilter != "" }

func (p *patch) matchesHTTPFilter(f *hcmv3.HttpFilter) bool {
	return !p.namesHTTPFilter() || envoyext.Canonical(f.Name) == p.Listener.SubFilter
}
