// Package listener translates listeners (LDS), with their filter chains, connection managers and TCP
// proxies, and the configuration of Wasm plugins (ECDS).
//
// The order of filters is Istio's. Of HTTP filters: the caller's workload, external authorizers, plugins of
// phase AUTHN, JWT, plugins of phase AUTHZ, RBAC, faults and CORS, plugins of the other phases, router.
//
// Start reading at Translate, then httpFilters and tcpFilters.
package listener

import (
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// Translate translates a listener.
func Translate(v *ir.Listener) (*listenerv3.Listener, error) {
	if v.Added != nil {
		return addedListener(v)
	}
	out, err := listener(v)
	if err == nil {
		err = out.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", v.Name, err)
	}
	return out, nil
}

func addedListener(v *ir.Listener) (*listenerv3.Listener, error) {
	return envoyproto.Added[*listenerv3.Listener](v.Added)
}

func listener(v *ir.Listener) (*listenerv3.Listener, error) {
	if len(v.Chains) == 0 && v.Default == nil {
		return nil, errors.New("has no filter chain")
	}
	out := &listenerv3.Listener{
		Name:             v.Name,
		Address:          envoyproto.Address(v.Address, v.Port),
		TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		ListenerFilters:  listenerFilters(v),
	}
	if v.Inbound {
		out.TrafficDirection = corev3.TrafficDirection_INBOUND
	}
	setSocket(v, out)
	setInspection(v, out)
	setNumber(&out.PerConnectionBufferLimitBytes, v.BufferLimit)
	if err := checkMatches(v.Chains); err != nil {
		return nil, err
	}
	for i := range v.Chains {
		c, err := filterChain(&v.Chains[i])
		if err != nil {
			return nil, err
		}
		out.FilterChains = append(out.FilterChains, c)
	}
	if v.Default != nil {
		c, err := filterChain(v.Default)
		if err != nil {
			return nil, err
		}
		// Envoy ignores the match of a default chain.
		c.FilterChainMatch = nil
		out.DefaultFilterChain = c
	}
	return out, nil
}

// exactBalance distributes connections evenly over the workers. It costs a lock for each connection.
var exactBalance = &listenerv3.Listener_ConnectionBalanceConfig{
	BalanceType: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance_{
		ExactBalance: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance{},
	},
}

// The listener filters. EnvoyFilters refer to their names, which are Envoy's.
var (
	// The mark routes the responses of the application back to Envoy.
	useOriginalSrc  = listenerFilter("envoy.filters.listener.original_src", &originalsrcv3.OriginalSrc{Mark: tproxyMark})
	readOriginalDst = listenerFilter("envoy.filters.listener.original_dst", &originaldstv3.OriginalDst{})
	readProxyHeader = listenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocolv3.ProxyProtocol{})
	inspectTLS      = listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{})
	inspectHTTP     = listenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{})
)

// tproxyMark is Istio's mark. The rules of package intercept use it.
const tproxyMark = 1337

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{
		Name:       name,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: envoyproto.MustPack(config)},
	}
}

func setSocket(v *ir.Listener, out *listenerv3.Listener) {
	if v.Also != "" {
		out.AdditionalAddresses = []*listenerv3.AdditionalAddress{{Address: envoyproto.Address(v.Also, v.Port)}}
	}
	if !v.BindToPort {
		out.BindToPort = envoyproto.False
	}
	if v.UseOriginalDst {
		out.UseOriginalDst = envoyproto.True
	}
	if v.Transparent {
		out.Transparent = envoyproto.True
	}
	if v.ExactBalance {
		out.ConnectionBalanceConfig = exactBalance
	}
}

// setInspection sets how long listener filters wait for bytes. If the server sends first, the client sends none.
func setInspection(v *ir.Listener, out *listenerv3.Listener) {
	if len(out.ListenerFilters) == 0 {
		return
	}
	out.ListenerFiltersTimeout = envoyproto.Duration(v.InspectTimeout)
	if v.InspectForever {
		out.ListenerFiltersTimeout = durationpb.New(0)
	}
	out.ContinueOnListenerFiltersTimeout = v.ContinueOnTimeout
}

// listenerFilters are in order: the original destination needs no bytes; a PROXY header precedes the bytes of the
// client; the HTTP inspector must not see TLS.
func listenerFilters(v *ir.Listener) []*listenerv3.ListenerFilter {
	var out []*listenerv3.ListenerFilter
	if v.ReadOriginalDst {
		out = append(out, readOriginalDst)
	}
	if v.Transparent {
		out = append(out, useOriginalSrc)
	}
	if v.ProxyProtocol {
		out = append(out, readProxyHeader)
	}
	if v.InspectTLS {
		out = append(out, exceptFor(v.Uninspected, inspectTLS))
	}
	if v.InspectHTTP {
		out = append(out, exceptFor(v.UninspectedHTTP, inspectHTTP))
	}
	return out
}

// exceptFor disables a filter for connections to some ports.
func exceptFor(ports []uint32, f *listenerv3.ListenerFilter) *listenerv3.ListenerFilter {
	if len(ports) == 0 {
		return f
	}
	rules := make([]*listenerv3.ListenerFilterChainMatchPredicate, 0, len(ports))
	for _, p := range ports {
		rules = append(rules, &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
				DestinationPortRange: &typev3.Int32Range{Start: int32(p), End: int32(p) + 1},
			},
		})
	}
	disabled := rules[0]
	if len(rules) > 1 {
		disabled = &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
				OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules},
			},
		}
	}
	return &listenerv3.ListenerFilter{Name: f.Name, ConfigType: f.ConfigType, FilterDisabled: disabled}
}
