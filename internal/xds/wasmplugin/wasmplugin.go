// Package wasmplugin is what the control plane and the sidecars' agents agree on about plugins in
// WebAssembly: how one is told of them, and what stands in for one. It is pure.
package wasmplugin

import (
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// What the agent is told beside the module's URL, by variables that Istio's agents know, and that
// the module does not see.
const (
	PullPolicy = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
	PullSecret = "ISTIO_META_WASM_IMAGE_PULL_SECRET"
	Version    = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"

	PullAlways = "Always" // a PullPolicy
	NoSum      = "nil"    // a module's checksum where none is known: Envoy's API wants some text
)

// Filter is a plugin's configuration: of a filter of requests, or of connections.
type Filter interface {
	proto.Message
	Validate() error
	GetConfig() *wasmv3.PluginConfig
}

// New is a plugin's configuration, of connections or of requests.
func New(network bool, c *wasmv3.PluginConfig) Filter {
	if network {
		return &networkwasmv3.Wasm{Config: c}
	}
	return &httpwasmv3.Wasm{Config: c}
}

// For is an empty configuration of the type that a message is of; nil: it is no plugin's.
func For(a *anypb.Any) Filter {
	switch {
	case a.MessageIs((*httpwasmv3.Wasm)(nil)):
		return &httpwasmv3.Wasm{}
	case a.MessageIs((*networkwasmv3.Wasm)(nil)):
		return &networkwasmv3.Wasm{}
	}
	return nil
}

// Denials begins the names of statistics of connections that are denied.
const Denials = "tcp."

// StandIn stands for a plugin whose module cannot be had: calls pass where it is open, or are denied.
// Connections are denied when their first bytes come.
func StandIn(network, open bool) StandInFilter {
	var rules *rbacconfigv3.RBAC
	if !open {
		rules = &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_ALLOW} // of nothing
	}
	if network {
		return &networkrbacv3.RBAC{StatPrefix: Denials, Rules: rules}
	}
	return &httprbacv3.RBAC{Rules: rules}
}

// StandInFilter is the configuration of a filter that Envoy has without any module.
type StandInFilter interface {
	proto.Message
	Validate() error
}
