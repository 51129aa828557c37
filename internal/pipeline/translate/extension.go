package translate

import (
	"maps"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

// A plugin whose module is fetched is two things: a filter of listeners, whose configuration
// Envoy asks the sidecar's agent for, and that configuration with the module's place, which the
// agent asks the control plane for.

// agentCluster is Envoy's static cluster of the sidecar's agent.
const agentCluster = "sds-grpc"

// extensionWait is how long a listener waits for its agent; then the filter is what failStrategy
// says, until the agent answers.
const extensionWait = 15 * time.Second

// What Envoy may be answered: a plugin, or what stands in for it.
const (
	wasmURL        = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"
	rbacURL        = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	networkWasmURL = "type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm"
	networkRBACURL = "type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC"
)

// fetched is where Envoy asks for a plugin.
func fetched(v *ir.Wasm) (*corev3.ExtensionConfigSource, error) {
	packed, err := pack(wasmplugin.StandIn(v.Network, v.FailOpen))
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

// Extension is a plugin as an agent is told of it.
func Extension(v *ir.Wasm) (*corev3.TypedExtensionConfig, error) {
	config, err := wasmConfig(v)
	if err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	packed, err := pack(config)
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
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "_"}, // nobody's: Envoy does not fetch it
		},
		Sha256: sum,
	}}}
}

// pullEnv are the module's variables and those for the agent.
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
