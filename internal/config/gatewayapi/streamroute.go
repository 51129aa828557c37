package gatewayapi

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// TLSRoute decodes a TLSRoute of the Gateway API. Connections are forwarded encrypted, by SNI.
func TLSRoute(in convert.Cluster, o *gatewayv1.TLSRoute) (*model.VirtualService, problem.List) {
	c := start(in, model.KindTLSRoute, &o.ObjectMeta)
	v, backends := c.streamRoute(&o.Spec.CommonRouteSpec, o.Spec.Hostnames, tlsRules(o.Spec.Rules))
	if v != nil {
		v.TLS = []model.TLSRoute{{Matches: []model.L4Match{{SNIHosts: v.Hosts}}, Backends: backends}}
	}
	return v, c.Problems
}

// TCPRoute decodes a TCPRoute of the Gateway API. It receives all connections of its listeners.
func TCPRoute(in convert.Cluster, o *gatewayv1.TCPRoute) (*model.VirtualService, problem.List) {
	c := start(in, model.KindTCPRoute, &o.ObjectMeta)
	v, backends := c.streamRoute(&o.Spec.CommonRouteSpec, nil, tcpRules(o.Spec.Rules))
	if v != nil {
		v.TCP = []model.TCPRoute{{Backends: backends}}
	}
	return v, c.Problems
}

// streamRoute is a route of connections with the backends of its first rule; nil: it has no parent here.
func (c *conv) streamRoute(common *gatewayv1.CommonRouteSpec, hostnames []gatewayv1.Hostname, rules []gatewayv1.HTTPRouteRule) (*model.VirtualService, []model.Backend) {
	at := problem.Path("spec")
	v := c.route(at, common, hostnames)
	if v == nil {
		return nil, nil
	}
	var backends []model.Backend
	for i := range rules {
		if i > 0 {
			c.Warnf(code.NoEffect, at.Field("rules").Index(i), "has no effect: the first rule takes all connections")
			continue
		}
		backends = c.backendRefs(at.Field("rules").Index(i).Field("backendRefs"), rules[i].BackendRefs)
	}
	return v, backends
}

// streamRules are rules as those of HTTPRoutes.
func streamRules[R any](list []R, backends func(*R) []gatewayv1.BackendRef) []gatewayv1.HTTPRouteRule {
	out := make([]gatewayv1.HTTPRouteRule, len(list))
	for i := range list {
		for _, b := range backends(&list[i]) {
			out[i].BackendRefs = append(out[i].BackendRefs, gatewayv1.HTTPBackendRef{BackendRef: b})
		}
	}
	return out
}

func tlsRules(list []gatewayv1.TLSRouteRule) []gatewayv1.HTTPRouteRule {
	return streamRules(list, func(r *gatewayv1.TLSRouteRule) []gatewayv1.BackendRef { return r.BackendRefs })
}

func tcpRules(list []gatewayv1.TCPRouteRule) []gatewayv1.HTTPRouteRule {
	return streamRules(list, func(r *gatewayv1.TCPRouteRule) []gatewayv1.BackendRef { return r.BackendRefs })
}
