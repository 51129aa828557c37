package envoyfilter

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
)

// Istio's chains have filters that Moonsail's lack, and patches place others relative to them. While such patches insert, a
// chain has an anchor at the place of each filter of Istio that they name: a filter with this name and without a
// configuration. No anchor stays in the chain. Merging and removing leave anchors alone.

// The filters of Istio that can be anchors.
const (
	anchorExchange  = "istio.metadata_exchange"
	anchorGRPCStats = "envoy.filters.http.grpc_stats"
	anchorALPN      = "istio.alpn"
	anchorStats     = "istio.stats"
)

// NamesIstioFilter reports whether a match names a filter of Istio's chains that Moonsail's chains lack; nil names none.
func NamesIstioFilter(m *model.ListenerMatch) bool {
	return m != nil && (isIstioOnly(m.SubFilter) || isIstioOnly(m.Filter))
}

func isIstioOnly(filter string) bool {
	return slices.Contains([]string{anchorExchange, anchorGRPCStats, anchorALPN, anchorStats}, filter)
}

// httpAnchors are the places of anchors among HTTP filters, each before the filters that follow it in Istio 1.31
// (buildHTTPConnectionManager in pilot/pkg/networking/core/listener_builder.go):
//
//	metadata_exchange, policies and plugins, grpc_stats, alpn, fault, cors, stats, dynamic_forward_proxy, router
var httpAnchors = []struct {
	name   string
	before []string
}{
	{anchorStats, []string{"envoy.filters.http.dynamic_forward_proxy", router}},
	{anchorALPN, []string{"envoy.filters.http.fault", "envoy.filters.http.cors", anchorStats, "envoy.filters.http.dynamic_forward_proxy", router}},
	{anchorGRPCStats, []string{anchorALPN, "envoy.filters.http.fault", "envoy.filters.http.cors", anchorStats, "envoy.filters.http.dynamic_forward_proxy", router}},
	{anchorExchange, nil},
}

// anchorHTTP adds anchors for patches of a connection manager.
func (w *work) anchorHTTP(l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter, list []*hcmv3.HttpFilter) []*hcmv3.HttpFilter {
	for _, a := range httpAnchors {
		has := slices.ContainsFunc(list, func(h *hcmv3.HttpFilter) bool { return envoyext.Canonical(h.Name) == a.name })
		if has || a.name == anchorALPN && isInbound(l) || !w.placesBy(a.name, l, c, f) {
			continue
		}
		at := preceding(list, a.before)
		if a.name == anchorExchange {
			at = afterPeer(list)
		}
		anchor := &hcmv3.HttpFilter{Name: a.name}
		w.anchors, list = append(w.anchors, anchor), slices.Insert(list, at, anchor)
	}
	return list
}

// afterPeer returns the index after Moonsail's filter for the calling workload, which precedes all others. It does what
// Istio's exchange of metadata does: requests that a filter after it refuses are counted with their caller.
func afterPeer(list []*hcmv3.HttpFilter) int {
	if len(list) > 0 && list[0].Name == "envoy.filters.http.set_filter_state" {
		return 1
	}
	return 0
}

// anchorNetwork adds anchors for patches of a chain. Istio has the exchange of metadata first in inbound chains and behind
// mutual TLS of gateways, and statistics of connections before the filters that call the destination.
func (w *work) anchorNetwork(l *listenerv3.Listener, c *listenerv3.FilterChain) []*listenerv3.Filter {
	list := slices.Clone(c.Filters)
	places := func(name string) bool {
		return slices.ContainsFunc(w.of(model.PatchNetworkFilter), func(p *patch) bool {
			return !p.Operation.Merges() && p.namesFilter() && p.Listener.Filter == name && p.matchesListener(l) && w.matchesChain(p, l, c)
		})
	}
	anchor := func(name string, at int) {
		a := &listenerv3.Filter{Name: name}
		w.anchors, list = append(w.anchors, a), slices.Insert(list, at, a)
	}
	tcp := slices.ContainsFunc(list, func(f *listenerv3.Filter) bool { return f.Name == tcpProxy })
	if (isInbound(l) || w.gateway && tcp && c.TransportSocket != nil) && places(anchorExchange) {
		anchor(anchorExchange, 0)
	}
	if tcp && places(anchorStats) {
		anchor(anchorStats, preceding(list, []string{"envoy.filters.network.sni_dynamic_forward_proxy", tcpProxy}))
	}
	return list
}

func isInbound(l *listenerv3.Listener) bool {
	return l.GetTrafficDirection() == corev3.TrafficDirection_INBOUND
}

// preceding returns the index of the first filter with one of the names; without any, the end.
func preceding[F interface{ GetName() string }](list []F, names []string) int {
	if i := slices.IndexFunc(list, func(f F) bool { return slices.Contains(names, f.GetName()) }); i >= 0 {
		return i
	}
	return len(list)
}

// isAnchor reports whether a filter is an anchor of the chain in progress.
func (w *work) isAnchor(m proto.Message) bool { return slices.Contains(w.anchors, m) }

// withoutAnchors ends the insertion into a chain.
func withoutAnchors[F proto.Message](w *work, list []F) []F {
	if len(w.anchors) == 0 {
		return list
	}
	list = slices.DeleteFunc(list, func(f F) bool { return w.isAnchor(f) })
	w.anchors = nil
	return list
}
