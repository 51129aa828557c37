package translate

import (
	"errors"
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// filterChain translates a chain. What clients must prove before they get to its filters
// (mutual TLS) belongs here, as the chain's transport socket.
func filterChain(v *ir.FilterChain) (*listenerv3.FilterChain, error) {
	filters, err := networkFilters(v)
	if err != nil {
		return nil, fmt.Errorf("filter chain %s: %w", v.Name, err)
	}
	out := &listenerv3.FilterChain{
		Name:             v.Name,
		FilterChainMatch: chainMatch(&v.Match),
		Filters:          filters,
	}
	if v.TLS != nil {
		if out.TransportSocket, err = serverTLS(v.TLS, v.HTTP != nil); err != nil {
			return nil, fmt.Errorf("filter chain %s: %w", v.Name, err)
		}
	}
	return out, nil
}

// networkFilters end with the one that takes the connection.
func networkFilters(v *ir.FilterChain) ([]*listenerv3.Filter, error) {
	before, behind, err := networkPlugins(v.Wasm)
	if err != nil {
		return nil, err
	}
	shown := v.TLS != nil && v.TLS.IsMesh()
	switch {
	case v.HTTP != nil && v.TCP == nil:
		filters, err := httpFilters(v.HTTP)
		return slices.Concat(before, behind, filters), err
	case v.TCP != nil && v.HTTP == nil && v.TCP.Opaque:
		filters, err := tcpFilters(v.TCP, v.Match.DestinationPort, shown, before, behind)
		return append([]*listenerv3.Filter{offerBytes}, filters...), err
	case v.TCP != nil && v.HTTP == nil:
		return tcpFilters(v.TCP, v.Match.DestinationPort, shown, before, behind)
	}
	return nil, errors.New("it must be either HTTP or TCP")
}

// networkFilter packs a filter, after Envoy's own check of its configuration.
func networkFilter(name string, config validated) (*listenerv3.Filter, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	packed, err := pack(config)
	if err != nil {
		return nil, err
	}
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed}}, nil
}
