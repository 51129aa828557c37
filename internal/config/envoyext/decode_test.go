package envoyext

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"
)

func value(t *testing.T, text string) *structpb.Struct {
	t.Helper()
	var m map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &m))
	s, err := structpb.NewStruct(m)
	require.NoError(t, err)
	return s
}

// TestFindings checks values of messages, each with its findings.
func TestFindings(t *testing.T) {
	for name, row := range map[string]struct {
		value string
		into  proto.Message
		want  []Finding
	}{
		"fine": {
			value: "name: a\ntyped_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: x}}",
			into:  &hcmv3.HttpFilter{},
		},
		"both spellings of fields": {
			value: "name: a\ntypedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, defaultSourceCode: {inlineString: x}}",
			into:  &hcmv3.HttpFilter{},
		},
		"an unknown field is left out": {
			value: "name: a\ntyped_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inline_cod: x}",
			into:  &hcmv3.HttpFilter{},
			want:  []Finding{{Path: "typed_config.inline_cod", Message: "unknown field of envoy.extensions.filters.http.lua.v3.Lua; it is left out"}},
		},
		"Istio's own extension": {
			value: "name: a\ntyped_config: {'@type': type.googleapis.com/stats.PluginConfig}",
			into:  &hcmv3.HttpFilter{},
			want:  []Finding{{Path: "typed_config.@type", Message: "Envoy 1.40 has no extension with configuration of type stats.PluginConfig", Fatal: true}},
		},
		"version 2": {
			value: "name: a\ntyped_config: {'@type': type.googleapis.com/envoy.config.filter.http.lua.v2.Lua}",
			into:  &hcmv3.HttpFilter{},
			want: []Finding{{Path: "typed_config.@type", Fatal: true,
				Message: "envoy.config.filter.http.lua.v2.Lua is of version 2 of Envoy's API, which Envoy 1.40 does not have; write the type of v3"}},
		},
		"a type of Envoy's API that this Envoy lacks": {
			value: "name: a\ntyped_config: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster}",
			into:  &hcmv3.HttpFilter{},
			want:  []Finding{{Path: "typed_config.@type", Fatal: true, Message: "Envoy 1.40 has no extension with configuration of type envoy.config.cluster.v3.Cluster"}},
		},
		"no type": {
			value: "name: a\ntyped_config: {}",
			into:  &hcmv3.HttpFilter{},
			want: []Finding{{Path: "typed_config", Fatal: true,
				Message: "has no @type; name the type, such as type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"}},
		},
		"wrong types": {
			value: "name: 3\nconnect_timeout: 5\nlb_policy: ROUND\ncircuit_breakers: {thresholds: {}}\nlb_subset_config: 1\nclose_connections_on_host_health_failure: 1",
			into:  &clusterv3.Cluster{},
			want: []Finding{
				{Path: "circuit_breakers.thresholds", Fatal: true, Message: `must be a list, got an object; put "- " before each element`},
				{Path: "close_connections_on_host_health_failure", Fatal: true, Message: "must be true or false, got the number 1"},
				{Path: "connect_timeout", Fatal: true, Message: "must be a duration such as 500ms, 1.5s or 2m, got the number 5"},
				{Path: "lb_policy", Fatal: true, Message: `must be one of ROUND_ROBIN, LEAST_REQUEST, RING_HASH, RANDOM, MAGLEV, CLUSTER_PROVIDED, LOAD_BALANCING_POLICY_CONFIG, got the string "ROUND"`},
				{Path: "lb_subset_config", Fatal: true, Message: "must be an object (envoy.config.cluster.v3.Cluster.LbSubsetConfig), got the number 1"},
				{Path: "name", Fatal: true, Message: "must be a string, got the number 3"},
			},
		},
		"two of a oneof": {
			value: "name: a\ntype: EDS\ncluster_type: {name: b}",
			into:  &clusterv3.Cluster{},
			want:  []Finding{{Path: "type", Fatal: true, Message: "cannot be set beside cluster_type; keep one of them"}},
		},
		"a plugin that only Istio's proxy has": {
			value: `{name: a, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm,
  config: {vm_config: {runtime: envoy.wasm.runtime.null, code: {local: {inline_string: envoy.wasm.stats}}}}}}`,
			into: &hcmv3.HttpFilter{},
			want: []Finding{{Path: "typed_config.config.vm_config.runtime", Fatal: true,
				Message: "Envoy 1.40 has no plugin built in that envoy.wasm.runtime.null could run; only Istio's own proxy has envoy.wasm.stats and the like"}},
		},
		"in a typed struct": {
			value: `{name: a, typed_config: {'@type': type.googleapis.com/udpa.type.v1.TypedStruct,
  type_url: type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, value: {default_source_code: {inline_string: 1}}}}`,
			into: &hcmv3.HttpFilter{},
			want: []Finding{{Path: "typed_config.value.default_source_code.inline_string", Fatal: true, Message: "must be a string, got the number 1"}},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, Decode(value(t, row.value), row.into)) })
	}
}

// TestTypedStructsAreUnpacked also covers structs inside of each other.
func TestTypedStructsAreUnpacked(t *testing.T) {
	filter := &hcmv3.HttpFilter{}
	findings := Decode(value(t, `{name: a, typed_config: {'@type': type.googleapis.com/udpa.type.v1.TypedStruct,
  type_url: type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm,
  value: {config: {root_id: r, configuration: {'@type': type.googleapis.com/xds.type.v3.TypedStruct,
    type_url: type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, value: {default_source_code: {inline_string: code}}}}}}}`), filter)
	require.Empty(t, findings)
	wasm, lua := &wasmv3.Wasm{}, &luav3.Lua{}
	require.NoError(t, filter.GetTypedConfig().UnmarshalTo(wasm))
	require.Equal(t, "r", wasm.Config.RootId)
	require.NoError(t, wasm.Config.Configuration.UnmarshalTo(lua))
	require.Equal(t, "code", lua.DefaultSourceCode.GetInlineString())
}

// TestDurations checks that Go's durations, which Istio takes, are read wherever a duration is.
func TestDurations(t *testing.T) {
	cluster := &clusterv3.Cluster{}
	require.Empty(t, Decode(value(t, `{connect_timeout: 500ms, cleanupInterval: 1m0s, health_checks: [{timeout: 2s, interval: 1h}],
  common_lb_config: {update_merge_window: 1us}}`), cluster))
	require.Equal(t, 500*time.Millisecond, cluster.GetConnectTimeout().AsDuration())
	require.Equal(t, time.Minute, cluster.GetCleanupInterval().AsDuration())
	require.Equal(t, time.Hour, cluster.GetHealthChecks()[0].GetInterval().AsDuration())
	require.Equal(t, time.Microsecond, cluster.GetCommonLbConfig().GetUpdateMergeWindow().AsDuration())

	limited := &hcmv3.HttpFilter{}
	require.Empty(t, Decode(value(t, `{name: a, typed_config: {'@type': type.googleapis.com/udpa.type.v1.TypedStruct,
  type_url: type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit,
  value: {stat_prefix: 1m, token_bucket: {max_tokens: 10, fill_interval: 1m}}}}`), limited))
	limit := &ratelimitv3.LocalRateLimit{}
	require.NoError(t, limited.GetTypedConfig().UnmarshalTo(limit))
	require.Equal(t, time.Minute, limit.GetTokenBucket().GetFillInterval().AsDuration())
	require.Equal(t, "1m", limit.GetStatPrefix(), "a text stays")

	require.Equal(t, []Finding{{Path: "connect_timeout", Fatal: true, Message: `must be a duration such as 500ms, 1.5s or 2m, got the string "5"`}},
		Decode(value(t, `connect_timeout: "5"`), &clusterv3.Cluster{}))
}

func TestValidateLooksInside(t *testing.T) {
	filter := &hcmv3.HttpFilter{}
	require.Empty(t, Decode(value(t, `{name: a, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer}}`), filter))
	require.ErrorContains(t, Validate(filter), "MaxRequestBytes")
}
