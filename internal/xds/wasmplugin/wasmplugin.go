// Package wasmplugin declares what the control plane and agents agree on about WebAssembly plugins:
// how agents learn of them, and what replaces one. It is pure.
package wasmplugin

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Variables that pass settings to the agent besides the module's URL. Istio's agents use the same
// names. The module does not see them.
const (
	PullPolicy = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
	PullSecret = "ISTIO_META_WASM_IMAGE_PULL_SECRET"
	Version    = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"

	PullAlways = "Always" // value of PullPolicy
	NoSum      = "nil"    // checksum of a module without one: Envoy's API requires some text
)

// Filter is the configuration of a plugin: an HTTP filter or a network filter.
type Filter interface {
	proto.Message
	Validate() error
	GetConfig() *wasmv3.PluginConfig
}

// New returns the configuration of a plugin.
func New(network bool, c *wasmv3.PluginConfig) Filter {
	if network {
		return &networkwasmv3.Wasm{Config: c}
	}
	return &httpwasmv3.Wasm{Config: c}
}

// For returns an empty configuration of the type of a message; nil if it is not a plugin.
func For(a *anypb.Any) Filter {
	switch {
	case a.MessageIs((*httpwasmv3.Wasm)(nil)):
		return &httpwasmv3.Wasm{}
	case a.MessageIs((*networkwasmv3.Wasm)(nil)):
		return &networkwasmv3.Wasm{}
	}
	return nil
}

// Redacted replaces secrets in output for people, as in Envoy's config dump.
const Redacted = "[redacted]"

// Redact removes the registry credentials from an extension. Extensions that are not plugins stay as they are.
func Redact(e *corev3.TypedExtensionConfig) error {
	config := For(e.GetTypedConfig())
	if config == nil {
		return nil
	}
	if err := e.TypedConfig.UnmarshalTo(config); err != nil {
		return err
	}
	values := config.GetConfig().GetVmConfig().GetEnvironmentVariables().GetKeyValues()
	if _, there := values[PullSecret]; !there {
		return nil
	}
	values[PullSecret] = Redacted
	return e.TypedConfig.MarshalFrom(config)
}

// Denials is the prefix of statistics of denied connections.
const Denials = "tcp."

// StandIn returns a replacement for a plugin whose module is not available. If open, it allows all
// requests, otherwise it denies them. It denies a connection when the first bytes arrive.
func StandIn(network, open bool) StandInFilter {
	var rules *rbacconfigv3.RBAC
	if !open {
		rules = &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_ALLOW} // no rules
	}
	if network {
		return &networkrbacv3.RBAC{StatPrefix: Denials, Rules: rules}
	}
	return &httprbacv3.RBAC{Rules: rules}
}

// StandInFilter is the configuration of a filter that is part of Envoy.
type StandInFilter interface {
	proto.Message
	Validate() error
}
