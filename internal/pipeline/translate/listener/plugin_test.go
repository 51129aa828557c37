package listener

import (
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

// TestWasmFilters checks the places of plugins by phase, and their configuration.
func TestWasmFilters(t *testing.T) {
	plugin := func(name string) *ir.Wasm { return &ir.Wasm{Name: name, File: "/m.wasm"} }
	last := plugin("last")
	last.RootID, last.Config, last.Env, last.HostEnv, last.FailOpen = "root", `{"a":1}`, map[string]string{"A": "b"}, []string{"H"}, true
	policies := []*model.AuthorizationPolicy{{Rules: []model.AuthorizationRule{{}}}}
	both := &ir.Authorization{Deny: policies, Custom: []ir.ExternalAuthorization{{Name: "x", Provider: &model.ExternalAuthorizer{}, Cluster: "x", Policies: policies}}}
	manager, err := connectionManager(&ir.HTTPChain{StatPrefix: "x", RouteConfig: "80", GRPCWeb: true, Authorization: both, Wasm: &ir.WasmFilters{
		Authn: []*ir.Wasm{plugin("authn-1"), plugin("authn-2")}, Authz: []*ir.Wasm{plugin("authz")}, Stats: []*ir.Wasm{plugin("stats")}, Last: []*ir.Wasm{last},
	}})
	require.NoError(t, err)
	var names []string
	for _, f := range manager.HttpFilters {
		names = append(names, f.Name)
	}
	require.Equal(t, []string{
		"envoy.filters.http.rbac", "envoy.filters.http.ext_authz", "authn-1", "authn-2", "authz", "envoy.filters.http.rbac", "stats", "last", "envoy.filters.http.grpc_web", route.FaultFilter, route.CORSFilter, "envoy.filters.http.router",
	}, names)
	require.NoError(t, envoyext.Validate(manager))
	config := &wasmfilterv3.Wasm{}
	require.NoError(t, manager.HttpFilters[7].GetTypedConfig().UnmarshalTo(config))
	got := config.Config
	require.Equal(t, "root", got.RootId)
	require.Equal(t, wasmv3.FailurePolicy_FAIL_OPEN, got.FailurePolicy)
	require.Equal(t, "/m.wasm", got.GetVmConfig().Code.GetLocal().GetFilename())
	require.Equal(t, []string{"H"}, got.GetVmConfig().EnvironmentVariables.HostEnvKeys)
	require.Equal(t, "b", got.GetVmConfig().EnvironmentVariables.KeyValues["A"])
	require.Equal(t, wasmv3.FailurePolicy_FAIL_CLOSED, failurePolicy(plugin("x")))
	require.Equal(t, wasmv3.FailurePolicy_FAIL_RELOAD, failurePolicy(&ir.Wasm{Reload: true}))
}

// TestNetworkPlugins checks that plugins of connections have the same configuration as those of requests.
func TestNetworkPlugins(t *testing.T) {
	v := &ir.Wasm{Name: "bytes", Network: true, File: "/m.wasm", Config: `{"a":1}`, FailOpen: true}
	filters, err := networkFilters(&ir.FilterChain{
		TCP:  &ir.TCPChain{StatPrefix: "x", Opaque: true, Backends: []ir.Backend{{Cluster: "x", Weight: 1}}},
		Wasm: &ir.WasmFilters{Stats: []*ir.Wasm{v}},
	})
	require.NoError(t, err)
	require.Len(t, filters, 3)
	require.Equal(t, offerBytes.Name, filters[0].Name)
	require.Equal(t, "bytes", filters[1].Name)
	config := &networkwasmv3.Wasm{}
	require.NoError(t, filters[1].GetTypedConfig().UnmarshalTo(config))
	require.Equal(t, wasmv3.FailurePolicy_FAIL_OPEN, config.Config.FailurePolicy)
	require.Equal(t, "/m.wasm", config.Config.GetVmConfig().Code.GetLocal().GetFilename())

	v.File, v.From, v.Module = "", ir.WasmFromAgent, model.WasmModule{URL: "https://example.com/x.wasm"}
	extension, err := Extension(v)
	require.NoError(t, err)
	require.NoError(t, extension.TypedConfig.UnmarshalTo(config))
	require.Equal(t, "https://example.com/x.wasm", config.Config.GetVmConfig().Code.GetRemote().HttpUri.Uri)
}

// TestFetchedPlugins checks that listeners only name a fetched plugin and its failStrategy, and agents get the rest.
func TestFetchedPlugins(t *testing.T) {
	v := &ir.Wasm{
		Name: "extenstions.istio.io/wasmplugin/shop.auth", From: ir.WasmFromAgent, Version: "7",
		Module: model.WasmModule{URL: "oci://example.com/auth:v1", Always: true}, Env: map[string]string{"A": "b"},
	}
	f, err := httpPlugin(v)
	require.NoError(t, err)
	source := f.GetConfigDiscovery()
	require.Equal(t, "sds-grpc", source.ConfigSource.GetApiConfigSource().GrpcServices[0].GetEnvoyGrpc().ClusterName)
	require.NotZero(t, source.ConfigSource.InitialFetchTimeout.AsDuration(), "a listener does not wait without limit")
	rbac := &rbacv3.RBAC{}
	require.NoError(t, source.DefaultConfig.UnmarshalTo(rbac))
	require.NotNil(t, rbac.Rules, "no request passes without a module")

	extension, err := Extension(v)
	require.NoError(t, err)
	config := &wasmfilterv3.Wasm{}
	require.NoError(t, extension.TypedConfig.UnmarshalTo(config))
	vm := config.Config.GetVmConfig()
	require.Equal(t, "oci://example.com/auth:v1", vm.Code.GetRemote().HttpUri.Uri)
	require.Equal(t, map[string]string{"A": "b", wasmplugin.PullPolicy: "Always", wasmplugin.Version: "7"}, vm.EnvironmentVariables.KeyValues)
	require.Equal(t, map[string]string{"A": "b"}, v.Env, "the IR is unchanged")
	v.Login = model.NewPrivateKey("{}")
	extension, err = Extension(v)
	require.NoError(t, err)
	require.NoError(t, extension.TypedConfig.UnmarshalTo(config))
	require.Equal(t, "{}", config.Config.GetVmConfig().EnvironmentVariables.KeyValues[wasmplugin.PullSecret])

	v.FailOpen = true
	f, err = httpPlugin(v)
	require.NoError(t, err)
	require.NoError(t, f.GetConfigDiscovery().DefaultConfig.UnmarshalTo(rbac))
	require.Nil(t, rbac.Rules)

	unfetched := &ir.Wasm{Name: "x", FailOpen: true}
	f, err = httpPlugin(unfetched)
	require.NoError(t, err)
	require.Nil(t, f, "no agent fetches it: requests pass")
	unfetched.FailOpen = false
	f, err = httpPlugin(unfetched)
	require.NoError(t, err)
	require.NoError(t, f.GetTypedConfig().UnmarshalTo(rbac))
	require.NotNil(t, rbac.Rules)
}
