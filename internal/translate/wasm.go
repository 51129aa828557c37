package translate

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/view"
)

const wasmRuntime = "envoy.wasm.runtime.v8"

func wasmFilters(list []*view.Wasm) ([]*hcmv3.HttpFilter, error) {
	var out []*hcmv3.HttpFilter
	for _, v := range list {
		f, err := wasmFilter(v)
		if err != nil {
			return nil, err
		}
		if f != nil {
			out = append(out, f)
		}
	}
	return out, nil
}

// wasmFilter is a plugin as a listener has it; nil where it is none: its module is with nobody,
// and requests may pass.
func wasmFilter(v *view.Wasm) (*hcmv3.HttpFilter, error) {
	switch {
	case v.File != "":
		config, err := wasmConfig(v)
		if err != nil {
			return nil, err
		}
		return checkedHTTPFilter(v.Name, config)
	case v.From == view.WasmFromAgent:
		return fetchedFilter(v)
	case v.FailOpen:
		return nil, nil
	}
	return checkedHTTPFilter(v.Name, denyAll())
}

func wasmConfig(v *view.Wasm) (*wasmfilterv3.Wasm, error) {
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
	return &wasmfilterv3.Wasm{Config: config}, nil
}

func failurePolicy(v *view.Wasm) wasmv3.FailurePolicy {
	switch {
	case v.FailOpen:
		return wasmv3.FailurePolicy_FAIL_OPEN
	case v.Reload:
		return wasmv3.FailurePolicy_FAIL_RELOAD
	}
	return wasmv3.FailurePolicy_FAIL_CLOSED
}

// moduleOf is a file, for Envoy: it fetches modules for the first of several listeners alone (1.40),
// and says that it may crash at it. What is fetched the agent makes to one.
func moduleOf(v *view.Wasm) *corev3.AsyncDataSource {
	if v.File == "" {
		return remoteModule(v)
	}
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: file(v.File)}}
}

func wasmEnv(v *view.Wasm) *wasmv3.EnvironmentVariables {
	values := v.Env
	if v.File == "" {
		values = pullEnv(v)
	}
	if len(values)+len(v.HostEnv) == 0 {
		return nil
	}
	return &wasmv3.EnvironmentVariables{HostEnvKeys: v.HostEnv, KeyValues: values}
}

// between puts plugins around the filters that find out who calls.
func between(authn []*hcmv3.HttpFilter, before, after []*view.Wasm) ([]*hcmv3.HttpFilter, error) {
	first, err := wasmFilters(before)
	if err != nil {
		return nil, err
	}
	last, err := wasmFilters(after)
	return slices.Concat(first, authn, last), err
}

// beforeRouter puts the plugins of the last phases before the router, the last of filters.
func beforeRouter(filters []*hcmv3.HttpFilter, w *view.WasmFilters) ([]*hcmv3.HttpFilter, error) {
	own, err := wasmFilters(slices.Concat(w.Stats, w.Last))
	return slices.Insert(filters, len(filters)-1, own...), err
}
