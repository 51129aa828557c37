package wasm

import (
	"errors"
	"fmt"
	"maps"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

// TypeURL is the type of plugins, in the control plane and in Envoy.
const TypeURL = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"

// Module identifies a module to fetch.
type Module struct {
	URL     string // http://, https:// or oci://
	SHA256  string // in hex, of the module or of the image's manifest; empty: any
	Anew    bool   // pull policy Always: each Version is fetched
	Version string // of the object that refers to the module
	Login   Login  // for the registry
}

// Login is a Docker configuration with credentials, in JSON; empty: none. It prints as redacted.
type Login string

// String implements fmt.Stringer.
func (Login) String() string { return "[redacted]" }

// GoString implements fmt.GoStringer.
func (Login) GoString() string { return "[redacted]" }

// plugin is one plugin from the control plane.
type plugin struct {
	name, version string
	config        wasmplugin.Filter // without its module
	module        Module
}

// read decodes a plugin.
func read(r *discoveryv3.Resource) (*plugin, error) {
	named := &corev3.TypedExtensionConfig{}
	if err := r.GetResource().UnmarshalTo(named); err != nil {
		return nil, err
	}
	p := &plugin{name: r.Name, version: r.Version, config: wasmplugin.For(named.GetTypedConfig())}
	if p.config == nil {
		return nil, fmt.Errorf("%s is not a plugin", named.GetTypedConfig().GetTypeUrl())
	}
	if err := named.GetTypedConfig().UnmarshalTo(p.config); err != nil {
		return nil, err
	}
	vm := p.config.GetConfig().GetVmConfig()
	remote := vm.GetCode().GetRemote()
	if remote.GetHttpUri().GetUri() == "" {
		return nil, errors.New("the plugin has no module to fetch")
	}
	p.module = Module{URL: remote.HttpUri.Uri, SHA256: remote.Sha256}
	if p.module.SHA256 == wasmplugin.NoSum {
		p.module.SHA256 = ""
	}
	p.takeVariables(vm)
	return p, nil
}

// takeVariables removes the variables for the agent from the module's environment.
func (p *plugin) takeVariables(vm *wasmv3.VmConfig) {
	values := vm.GetEnvironmentVariables().GetKeyValues()
	p.module.Anew = values[wasmplugin.PullPolicy] == wasmplugin.PullAlways
	p.module.Version = values[wasmplugin.Version]
	p.module.Login = Login(values[wasmplugin.PullSecret])
	maps.DeleteFunc(values, func(name, _ string) bool {
		return name == wasmplugin.PullPolicy || name == wasmplugin.Version || name == wasmplugin.PullSecret
	})
	if e := vm.GetEnvironmentVariables(); e != nil && len(values)+len(e.HostEnvKeys) == 0 {
		vm.EnvironmentVariables = nil
	}
}

// with returns the plugin for Envoy, with its module in a file.
func (p *plugin) with(file string) (*anypb.Any, error) {
	c := proto.CloneOf(p.config)
	c.GetConfig().GetVmConfig().Code = &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{
		Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}}}
	return p.packed(c)
}

// without returns what replaces the plugin without a module: by its failStrategy, it passes or denies requests or
// connections.
func (p *plugin) without() (*anypb.Any, error) {
	_, network := p.config.(*networkwasmv3.Wasm)
	return p.packed(wasmplugin.StandIn(network, p.config.GetConfig().GetFailurePolicy() == wasmv3.FailurePolicy_FAIL_OPEN))
}

func (p *plugin) packed(config proto.Message) (*anypb.Any, error) {
	packed := &anypb.Any{}
	if err := anypb.MarshalFrom(packed, config, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return anypb.New(&corev3.TypedExtensionConfig{Name: p.name, TypedConfig: packed})
}
