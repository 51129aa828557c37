package translate

import (
	"testing"

	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/view"
)

// TestWasmFilters holds where plugins of each phase go, and what they are told.
func TestWasmFilters(t *testing.T) {
	plugin := func(name string) *view.Wasm { return &view.Wasm{Name: name, File: "/m.wasm"} }
	last := plugin("last")
	last.RootID, last.Config, last.Env, last.HostEnv, last.FailOpen = "root", `{"a":1}`, map[string]string{"A": "b"}, []string{"H"}, true
	manager, err := connectionManager(&view.HTTPChain{StatPrefix: "x", RouteConfig: "80", Wasm: &view.WasmFilters{
		Authn: []*view.Wasm{plugin("authn-1"), plugin("authn-2")}, Authz: []*view.Wasm{plugin("authz")}, Stats: []*view.Wasm{plugin("stats")}, Last: []*view.Wasm{last},
	}})
	require.NoError(t, err)
	var names []string
	for _, f := range manager.HttpFilters {
		names = append(names, f.Name)
	}
	require.Equal(t, []string{
		"authn-1", "authn-2", "authz", faultFilter, corsFilter, "stats", "last", "envoy.filters.http.router",
	}, names)
	validateDeep(t, manager)
	config := &wasmfilterv3.Wasm{}
	require.NoError(t, manager.HttpFilters[6].GetTypedConfig().UnmarshalTo(config))
	got := config.Config
	require.Equal(t, "root", got.RootId)
	require.Equal(t, wasmv3.FailurePolicy_FAIL_OPEN, got.FailurePolicy)
	require.Equal(t, "/m.wasm", got.GetVmConfig().Code.GetLocal().GetFilename())
	require.Equal(t, []string{"H"}, got.GetVmConfig().EnvironmentVariables.HostEnvKeys)
	require.Equal(t, "b", got.GetVmConfig().EnvironmentVariables.KeyValues["A"])
	require.Equal(t, wasmv3.FailurePolicy_FAIL_CLOSED, failurePolicy(plugin("x")))
	require.Equal(t, wasmv3.FailurePolicy_FAIL_RELOAD, failurePolicy(&view.Wasm{Reload: true}))
}
