package envoyfilter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// everyListener and everyHost are the resources that TestEveryTargetAndOperation patches. The second of the three elements
// of each list is the one that patches name.
const everyListener = `
name: l
address: {socketAddress: {address: 0.0.0.0, portValue: 80}}
tcpBacklogSize: 1
listenerFilters: [{name: a, typedConfig: {"@type": TYPE/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector}}, {name: own, typedConfig: {"@type": TYPE/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol, statPrefix: old}}, {name: z, typedConfig: {"@type": TYPE/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector}}]
filterChains:
- name: a
  filters: [{name: t, typedConfig: {"@type": TYPE/envoy.extensions.filters.network.echo.v3.Echo}}]
- name: own
  filterChainMatch: {destinationPort: 1, serverNames: [old]}
  filters:
  - {name: a, typedConfig: {"@type": TYPE/envoy.extensions.filters.network.rbac.v3.RBAC, statPrefix: a}}
  - {name: own, typedConfig: {"@type": TYPE/envoy.extensions.filters.network.rbac.v3.RBAC, statPrefix: old, shadowRulesStatPrefix: kept}}
  - name: envoy.filters.network.http_connection_manager
    typedConfig:
      "@type": TYPE/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      statPrefix: own
      rds: {routeConfigName: r, configSource: {ads: {}}}
      httpFilters: [{name: a, typedConfig: {"@type": TYPE/envoy.extensions.filters.http.fault.v3.HTTPFault}}, {name: own, typedConfig: {"@type": TYPE/envoy.extensions.filters.http.fault.v3.HTTPFault, upstreamCluster: kept, abortPercentRuntime: old, downstreamNodes: [old]}}, {name: envoy.filters.http.router, typedConfig: {"@type": TYPE/envoy.extensions.filters.http.router.v3.Router}}]
- name: z
  filterChainMatch: {destinationPort: 2}
  filters: [{name: t, typedConfig: {"@type": TYPE/envoy.extensions.filters.network.echo.v3.Echo}}]
`

const everyHost = `
name: r/own
domains: [own]
requestHeadersToRemove: [old]
routes: [{name: a, match: {prefix: /}, redirect: {}}, {name: own, match: {prefix: /}, requestHeadersToRemove: [old], redirect: {}}, {name: z, match: {prefix: /}, redirect: {}}]
`

// everyPatch is a match and a value for each target.
var everyPatch = map[string]struct{ match, value string }{
	"LISTENER":            {`{listener: {name: l}}`, `{name: new, address: {socket_address: {address: 0.0.0.0, port_value: 80}}, tcp_backlog_size: 2, filter_chains: [{}]}`},
	"FILTER_CHAIN":        {`{listener: {filterChain: {name: own}}}`, `{name: new, filter_chain_match: {server_names: [new]}}`},
	"LISTENER_FILTER":     {`{listener: {listenerFilter: own}}`, `{name: new, typed_config: {"@type": TYPE/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol, stat_prefix: new}}`},
	"NETWORK_FILTER":      {`{listener: {filterChain: {name: own, filter: {name: own}}}}`, `{name: new, typed_config: {"@type": TYPE/envoy.extensions.filters.network.rbac.v3.RBAC, stat_prefix: new}}`},
	"HTTP_FILTER":         {`{listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: own}}}}}`, `{name: new, typed_config: {"@type": TYPE/envoy.extensions.filters.http.fault.v3.HTTPFault, abort_percent_runtime: new, downstream_nodes: [new]}}`},
	"ROUTE_CONFIGURATION": {`{routeConfiguration: {name: r}}`, `{request_headers_to_remove: [new]}`},
	"VIRTUAL_HOST":        {`{routeConfiguration: {vhost: {name: own}}}`, `{name: new, domains: [new], request_headers_to_remove: [new]}`},
	"HTTP_ROUTE":          {`{routeConfiguration: {vhost: {route: {name: own}}}}`, `{name: new, match: {prefix: /}, request_headers_to_remove: [new], redirect: {}}`},
	"CLUSTER":             {`{cluster: {name: own}}`, `{name: new, type: STATIC, lb_subset_config: {subset_selectors: [{keys: [new]}]}}`},
	"EXTENSION_CONFIG":    {`{}`, `{name: new, typed_config: {"@type": TYPE/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 2}}`},
	"BOOTSTRAP":           {`{}`, `{stats_flush_interval: 2s}`},
}

// everyOutcome has the result of each: names, and in brackets the texts of the configuration ("kept" is of the original,
// "new" of the patch).
const everyOutcome = `BOOTSTRAP MERGE: flushed every 2s
BOOTSTRAP ADD: left out
BOOTSTRAP REMOVE: left out
BOOTSTRAP INSERT_BEFORE: left out
BOOTSTRAP INSERT_AFTER: left out
BOOTSTRAP INSERT_FIRST: left out
BOOTSTRAP REPLACE: left out
BOOTSTRAP MERGE_AND_REPLACE_LIST: left out
CLUSTER MERGE: own[old new]
CLUSTER ADD: adds new
CLUSTER REMOVE: gone
CLUSTER INSERT_BEFORE: adds new
CLUSTER INSERT_AFTER: adds new
CLUSTER INSERT_FIRST: adds new
CLUSTER REPLACE: left out
CLUSTER MERGE_AND_REPLACE_LIST: own[new]
EXTENSION_CONFIG MERGE: left out
EXTENSION_CONFIG ADD: adds new
EXTENSION_CONFIG REMOVE: left out
EXTENSION_CONFIG INSERT_BEFORE: adds new
EXTENSION_CONFIG INSERT_AFTER: adds new
EXTENSION_CONFIG INSERT_FIRST: adds new
EXTENSION_CONFIG REPLACE: left out
EXTENSION_CONFIG MERGE_AND_REPLACE_LIST: left out
FILTER_CHAIN MERGE: a[] new[old new] z[]
FILTER_CHAIN ADD: a[] own[old] z[] new[new]
FILTER_CHAIN REMOVE: a[] z[]
FILTER_CHAIN INSERT_BEFORE: a[] own[old] z[] new[new]
FILTER_CHAIN INSERT_AFTER: a[] own[old] z[] new[new]
FILTER_CHAIN INSERT_FIRST: a[] own[old] z[] new[new]
FILTER_CHAIN REPLACE: left out
FILTER_CHAIN MERGE_AND_REPLACE_LIST: a[] new[new] z[]
HTTP_FILTER MERGE: a[] new[kept new news olds] http.router[]
HTTP_FILTER ADD: a[] own[kept old olds] http.router[]; Envoy would refuse the result: filter new comes after envoy.filters.http.router, which must be last: use INSERT_BEFORE; the patch is left out
HTTP_FILTER REMOVE: a[] http.router[]
HTTP_FILTER INSERT_BEFORE: a[] new[new news] own[kept old olds] http.router[]
HTTP_FILTER INSERT_AFTER: a[] own[kept old olds] new[new news] http.router[]
HTTP_FILTER INSERT_FIRST: new[new news] a[] own[kept old olds] http.router[]
HTTP_FILTER REPLACE: a[] new[new news] http.router[]
HTTP_FILTER MERGE_AND_REPLACE_LIST: a[] new[kept new news] http.router[]
HTTP_ROUTE MERGE: [old] a[] new[old new] z[]
HTTP_ROUTE ADD: [old] a[] own[old] z[] new[new]
HTTP_ROUTE REMOVE: [old] a[] z[]
HTTP_ROUTE INSERT_BEFORE: [old] a[] new[new] own[old] z[]
HTTP_ROUTE INSERT_AFTER: [old] a[] own[old] new[new] z[]
HTTP_ROUTE INSERT_FIRST: [old] new[new] a[] own[old] z[]
HTTP_ROUTE REPLACE: left out
HTTP_ROUTE MERGE_AND_REPLACE_LIST: [old] a[] new[new] z[]
LISTENER MERGE: l, backlog 2, 4 chains
LISTENER ADD: adds new
LISTENER REMOVE: gone
LISTENER INSERT_BEFORE: adds new
LISTENER INSERT_AFTER: adds new
LISTENER INSERT_FIRST: adds new
LISTENER REPLACE: left out
LISTENER MERGE_AND_REPLACE_LIST: l, backlog 2, 1 chains
LISTENER_FILTER MERGE: a[] own[new] z[]
LISTENER_FILTER ADD: a[] own[old] z[] new[new]
LISTENER_FILTER REMOVE: a[] z[]
LISTENER_FILTER INSERT_BEFORE: a[] new[new] own[old] z[]
LISTENER_FILTER INSERT_AFTER: a[] own[old] new[new] z[]
LISTENER_FILTER INSERT_FIRST: new[new] a[] own[old] z[]
LISTENER_FILTER REPLACE: a[] new[new] z[]
LISTENER_FILTER MERGE_AND_REPLACE_LIST: a[] own[new] z[]
NETWORK_FILTER MERGE: a[a] new[kept new] network.http_connection_manager[own]
NETWORK_FILTER ADD: a[a] own[kept old] network.http_connection_manager[own]; Envoy would refuse the result: filter new comes after envoy.filters.network.http_connection_manager, which must be last; the patch is left out
NETWORK_FILTER REMOVE: a[a] network.http_connection_manager[own]
NETWORK_FILTER INSERT_BEFORE: a[a] new[new] own[kept old] network.http_connection_manager[own]
NETWORK_FILTER INSERT_AFTER: a[a] own[kept old] new[new] network.http_connection_manager[own]
NETWORK_FILTER INSERT_FIRST: new[new] a[a] own[kept old] network.http_connection_manager[own]
NETWORK_FILTER REPLACE: a[a] new[new] network.http_connection_manager[own]
NETWORK_FILTER MERGE_AND_REPLACE_LIST: a[a] new[kept new] network.http_connection_manager[own]
ROUTE_CONFIGURATION MERGE: [old new]
ROUTE_CONFIGURATION ADD: left out
ROUTE_CONFIGURATION REMOVE: left out
ROUTE_CONFIGURATION INSERT_BEFORE: left out
ROUTE_CONFIGURATION INSERT_AFTER: left out
ROUTE_CONFIGURATION INSERT_FIRST: left out
ROUTE_CONFIGURATION REPLACE: left out
ROUTE_CONFIGURATION MERGE_AND_REPLACE_LIST: [new]
VIRTUAL_HOST MERGE: [old new] a[] own[old] z[]; domain "new" is not added to virtual host own, since another one may have it: use ADD, or a VirtualService
VIRTUAL_HOST ADD: adds new
VIRTUAL_HOST REMOVE: gone
VIRTUAL_HOST INSERT_BEFORE: adds new
VIRTUAL_HOST INSERT_AFTER: adds new
VIRTUAL_HOST INSERT_FIRST: adds new
VIRTUAL_HOST REPLACE: [new]; domain "new" is not added to virtual host own, since another one may have it: use ADD, or a VirtualService
VIRTUAL_HOST MERGE_AND_REPLACE_LIST: [new] a[] own[old] z[]
`

// TestEveryTargetAndOperation checks that each applyTo with each operation of Istio's API has its effect, or is left out
// with a warning.
func TestEveryTargetAndOperation(t *testing.T) {
	var got strings.Builder
	for _, target := range slices.Sorted(maps.Keys(networking.EnvoyFilter_ApplyTo_value)) {
		for _, n := range slices.Sorted(maps.Keys(networking.EnvoyFilter_Patch_Operation_name)) {
			if op := networking.EnvoyFilter_Patch_Operation_name[n]; target != "INVALID" && op != "INVALID" {
				fmt.Fprintf(&got, "%s %s: %s\n", target, op, outcome(t, target, op))
			}
		}
	}
	require.Equal(t, everyOutcome, got.String())
}

func outcome(t *testing.T, target, op string) string {
	t.Helper()
	typed := func(s string) []byte { return []byte(strings.ReplaceAll(s, "TYPE", "type.googleapis.com")) }
	p := everyPatch[target]
	require.NotEmpty(t, p, target)
	o, problems := config.Decoder{}.FromYAML(typed(fmt.Sprintf(`apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: a, namespace: shop}
spec: {configPatches: [{applyTo: %s, match: %s, patch: {operation: %s, value: %s}}]}`, target, p.match, op, p.value)))
	require.False(t, problems.HasErrors(), "%s %s: %v", target, op, problems)
	list := o.(*model.EnvoyFilter).Patches
	if len(list) == 0 {
		require.Positive(t, problems.Count(problem.SeverityWarning), "there is a warning")
		return "left out"
	}
	if target == "BOOTSTRAP" {
		b, err := Bootstrap(&ir.Bootstrap{Patches: []ir.Patch{{EnvoyPatch: &list[0], Origin: o.Metadata().Key}}})
		require.NoError(t, err)
		return fmt.Sprint("flushed every ", b.GetStatsFlushInterval().AsDuration())
	}
	if list[0].Operation == model.PatchAdd && slices.Contains([]string{"LISTENER", "VIRTUAL_HOST", "CLUSTER", "EXTENSION_CONFIG"}, target) {
		return "adds " + list[0].Name // derive adds it, or resolve puts it into filters
	}
	set, left := New(&ir.Patches{List: []ir.Patch{{EnvoyPatch: &list[0], Origin: o.Metadata().Key}}})
	require.Empty(t, left)
	file := func(s string) txtar.File { return txtar.File{Name: target, Data: typed(s)} }
	switch target {
	case "CLUSTER":
		return ofCluster(set.Cluster(&ir.Cluster{Name: "own"}, read(t, file("{name: own, type: STATIC, lbSubsetConfig: {subsetSelectors: [{keys: [old]}]}}"), &clusterv3.Cluster{})))
	case "ROUTE_CONFIGURATION":
		r, problems := set.RouteConfig(ir.RouteConfigKey{Name: "r"}, read(t, file("{name: r, requestHeadersToRemove: [old]}"), &routev3.RouteConfiguration{}))
		return fmt.Sprint(r.RequestHeadersToRemove) + textsOf(problems)
	case "VIRTUAL_HOST", "HTTP_ROUTE":
		return ofHost(set.VirtualHost(ir.RouteConfigKey{Name: "r"}, "own", read(t, file(everyHost), &routev3.VirtualHost{})))
	}
	return ofListener(t, target, set, read(t, file(everyListener), &listenerv3.Listener{}))
}

func ofCluster(c *clusterv3.Cluster, present bool, problems []Problem) string {
	if !present {
		return "gone"
	}
	var keys []string
	for _, s := range c.GetLbSubsetConfig().GetSubsetSelectors() {
		keys = append(keys, s.GetKeys()...)
	}
	return fmt.Sprint(c.Name, keys) + textsOf(problems)
}

func ofHost(v *routev3.VirtualHost, present bool, problems []Problem) string {
	if !present {
		return "gone"
	}
	out := fmt.Sprint(v.RequestHeadersToRemove)
	for _, r := range v.Routes {
		out += fmt.Sprint(" ", r.Name, r.RequestHeadersToRemove)
	}
	return out + textsOf(problems)
}

func textsOf(problems []Problem) string {
	out := ""
	for _, p := range problems {
		out += "; " + p.Message
	}
	return out
}

func ofListener(t *testing.T, target string, set *Set, l *listenerv3.Listener) string {
	t.Helper()
	out, present, problems := set.Listener(&ir.Listener{}, l)
	if !present {
		return "gone"
	}
	var list []string
	switch target {
	case "LISTENER":
		list = append(list, fmt.Sprintf("%s, backlog %d, %d chains", out.Name, out.TcpBacklogSize.GetValue(), len(out.FilterChains)))
	case "FILTER_CHAIN":
		for _, c := range out.FilterChains {
			list = append(list, fmt.Sprint(c.Name, c.GetFilterChainMatch().GetServerNames()))
		}
	case "LISTENER_FILTER":
		for _, f := range out.ListenerFilters {
			list = append(list, words(t, f.Name, f.GetTypedConfig()))
		}
	case "NETWORK_FILTER", "HTTP_FILTER":
		for _, f := range out.FilterChains[1].Filters {
			m := &hcmv3.HttpConnectionManager{}
			if target == "NETWORK_FILTER" {
				list = append(list, words(t, f.Name, f.GetTypedConfig()))
			} else if f.GetTypedConfig().UnmarshalTo(m) == nil {
				for _, h := range m.HttpFilters {
					list = append(list, words(t, h.Name, h.GetTypedConfig()))
				}
			}
		}
	}
	return strings.Join(list, " ") + textsOf(problems)
}

// words returns the name of a filter and the texts in its configuration.
func words(t *testing.T, name string, config *anypb.Any) string {
	t.Helper()
	m, err := config.UnmarshalNew()
	require.NoError(t, err)
	var list []string
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() == protoreflect.StringKind && f.IsList():
			for i := range v.List().Len() {
				list = append(list, v.List().Get(i).String()+"s")
			}
		case f.Kind() == protoreflect.StringKind:
			list = append(list, v.String())
		}
		return true
	})
	slices.Sort(list)
	return strings.TrimPrefix(name, "envoy.filters.") + fmt.Sprint(list)
}
