package listener

import (
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

// pluginsOf translates plugins to HTTP or network filters. It leaves out plugins without a filter.
func pluginsOf[F any](list []*ir.Wasm, of func(*ir.Wasm) (*F, error)) ([]*F, error) {
	var out []*F
	for _, v := range list {
		f, err := of(v)
		if err != nil {
			return nil, err
		}
		if f != nil {
			out = append(out, f)
		}
	}
	return out, nil
}

// A plugin whose module is fetched has two parts. The filter of the listener makes Envoy ask the agent for its
// configuration (ECDS). The agent asks the control plane for the configuration with the module's URL, fetches the
// module, and answers Envoy with a path to it.

// agentCluster is the cluster of the agent in the bootstrap.
const agentCluster = "sds-grpc"

// extensionWait is how long a listener waits for the agent. Afterwards failStrategy applies until the agent answers.
const extensionWait = 15 * time.Second

// Types of the agent's answer: a plugin, or a filter that applies failStrategy.
const (
	wasmURL        = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"
	rbacURL        = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	networkWasmURL = "type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm"
	networkRBACURL = "type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC"
)

// fetched makes Envoy ask the agent for a plugin.
func fetched(v *ir.Wasm) (*corev3.ExtensionConfigSource, error) {
	packed, err := envoyproto.Pack(wasmplugin.StandIn(v.Network, v.FailOpen))
	if err != nil {
		return nil, err
	}
	source := &corev3.ExtensionConfigSource{
		ConfigSource: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
					EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: agentCluster}}}},
			}},
			InitialFetchTimeout: durationpb.New(extensionWait), ResourceApiVersion: corev3.ApiVersion_V3,
		},
		DefaultConfig: packed, TypeUrls: []string{wasmURL, rbacURL},
	}
	if v.Network {
		source.TypeUrls = []string{networkWasmURL, networkRBACURL}
	}
	return source, source.Validate()
}

// Extension translates a plugin for the agent that fetches its module.
func Extension(v *ir.Wasm) (*corev3.TypedExtensionConfig, error) {
	config, err := wasmConfig(v)
	if err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	packed, err := envoyproto.Pack(config)
	return &corev3.TypedExtensionConfig{Name: v.Name, TypedConfig: packed}, err
}

func remoteModule(v *ir.Wasm) *corev3.AsyncDataSource {
	sum := v.Module.SHA256
	if sum == "" {
		sum = wasmplugin.NoSum
	}
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
		HttpUri: &corev3.HttpUri{
			Uri: v.Module.URL, Timeout: durationpb.New(30 * time.Second),
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "_"}, // does not exist: Envoy does not fetch the module
		},
		Sha256: sum,
	}}}
}

// pullEnv has the variables of the plugin, and those by which the agent fetches the module.
func pullEnv(v *ir.Wasm) map[string]string {
	out := map[string]string{}
	maps.Copy(out, v.Env)
	if v.Module.Always {
		out[wasmplugin.PullPolicy], out[wasmplugin.Version] = wasmplugin.PullAlways, v.Version
	}
	if login := v.Login.PEM(); login != "" {
		out[wasmplugin.PullSecret] = login
	}
	return out
}

const wasmRuntime = "envoy.wasm.runtime.v8"

// httpPlugin returns nil if no filter is needed.
func httpPlugin(v *ir.Wasm) (*hcmv3.HttpFilter, error) {
	config, source, err := filterOf(v)
	switch {
	case err != nil || config == nil && source == nil:
		return nil, err
	case config != nil:
		return envoyproto.HTTPFilter(v.Name, config)
	}
	return &hcmv3.HttpFilter{Name: v.Name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: source}}, nil
}

// networkPlugin returns nil if no filter is needed.
func networkPlugin(v *ir.Wasm) (*listenerv3.Filter, error) {
	config, source, err := filterOf(v)
	switch {
	case err != nil || config == nil && source == nil:
		return nil, err
	case config != nil:
		return envoyproto.NetworkFilter(v.Name, config)
	}
	return &listenerv3.Filter{Name: v.Name, ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: source}}, nil
}

// filterOf returns the configuration of a plugin's filter, or the source that Envoy asks for it. It returns neither if
// no agent fetches the module and failStrategy lets requests pass.
func filterOf(v *ir.Wasm) (envoyproto.Validated, *corev3.ExtensionConfigSource, error) {
	switch {
	case v.File != "":
		config, err := wasmConfig(v)
		return config, nil, err
	case v.From == ir.WasmFromAgent:
		source, err := fetched(v)
		return nil, source, err
	case v.FailOpen:
		return nil, nil, nil
	}
	return wasmplugin.StandIn(v.Network, v.FailOpen), nil, nil
}

func wasmConfig(v *ir.Wasm) (envoyproto.Validated, error) {
	config := &wasmv3.PluginConfig{
		Name: v.Name, RootId: v.RootID, FailurePolicy: failurePolicy(v),
		Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
			VmId: v.Name, Runtime: wasmRuntime, Code: moduleOf(v), EnvironmentVariables: wasmEnv(v),
		}},
	}
	if v.Config != "" {
		packed, err := anypb.New(wrapperspb.String(v.Config))
		if err != nil {
			return nil, err
		}
		config.Configuration = packed
	}
	return wasmplugin.New(v.Network, config), nil
}

func failurePolicy(v *ir.Wasm) wasmv3.FailurePolicy {
	switch {
	case v.FailOpen:
		return wasmv3.FailurePolicy_FAIL_OPEN
	case v.Reload:
		return wasmv3.FailurePolicy_FAIL_RELOAD
	}
	return wasmv3.FailurePolicy_FAIL_CLOSED
}

// moduleOf is a file for Envoy, or a URL for the agent. Envoy itself never fetches a module: Envoy 1.40 fetches it for
// the first of several listeners only, and its documentation warns of crashes.
func moduleOf(v *ir.Wasm) *corev3.AsyncDataSource {
	if v.File == "" {
		return remoteModule(v)
	}
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: envoyproto.Filename(v.File)}}
}

func wasmEnv(v *ir.Wasm) *wasmv3.EnvironmentVariables {
	values := v.Env
	if v.File == "" {
		values = pullEnv(v)
	}
	if len(values)+len(v.HostEnv) == 0 {
		return nil
	}
	return &wasmv3.EnvironmentVariables{HostEnvKeys: v.HostEnv, KeyValues: values}
}

// httpPlugins are a chain's plugins of requests: those before tokens are checked, those before authorization policies, and
// those after them.
type httpPlugins struct{ authn, authz, last []*hcmv3.HttpFilter }

func pluginsByPhase(w *ir.WasmFilters) (out httpPlugins, err error) {
	if w == nil {
		return out, nil
	}
	if out.authn, err = pluginsOf(w.Authn, httpPlugin); err != nil {
		return out, err
	}
	if out.authz, err = pluginsOf(w.Authz, httpPlugin); err != nil {
		return out, err
	}
	out.last, err = pluginsOf(slices.Concat(w.Stats, w.Last), httpPlugin)
	return out, err
}

// networkPlugins are a chain's plugins of connections: those before its policies (but after external authorizers, see
// tcpFilters), and those after them.
func networkPlugins(w *ir.WasmFilters) (before, behind []*listenerv3.Filter, err error) {
	if w == nil {
		return nil, nil, nil
	}
	if before, err = pluginsOf(slices.Concat(w.Authn, w.Authz), networkPlugin); err != nil {
		return nil, nil, err
	}
	behind, err = pluginsOf(slices.Concat(w.Stats, w.Last), networkPlugin)
	return before, behind, err
}
