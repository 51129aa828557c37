package throughput

import "github.com/moonsail/moonsail/internal/lab/pair"

// grpcStats is a filter that Istio has in each sidecar.
var grpcStats = pair.BeforeRouter("grpc-stats", "envoy.filters.http.grpc_stats", `        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.grpc_stats.v3.FilterConfig, emit_filter_state: true, stats_for_all_methods: false}`)

// counted has routers count clusters' answers by code, as Istio's do: no statistics of that are kept by
// default, in Istio neither, but they are looked up.
const counted = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: counted, namespace: $NAMESPACE}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: MERGE
      value:
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, dynamic_stats: true}
`

// slow is a filter that takes time with each request: a defect that a report must show.
var slow = pair.BeforeRouter("slow", "slow", `        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code:
            inline_string: |
              function envoy_on_request(handle)
                local n = 0
                for i = 1, 200000 do n = n + i % 7 end
                handle:headers():add("x-slow", tostring(n))
              end`)
