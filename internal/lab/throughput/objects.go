package throughput

// grpcStats is a filter that Istio has in each sidecar.
const grpcStats = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: grpc-stats, namespace: $NAMESPACE}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: envoy.filters.http.grpc_stats
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.grpc_stats.v3.FilterConfig, emit_filter_state: true, stats_for_all_methods: false}`

// slow is a filter that takes time with each request: a defect that a report must show.
const slow = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: slow, namespace: $NAMESPACE}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: slow
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code:
            inline_string: |
              function envoy_on_request(handle)
                local n = 0
                for i = 1, 200000 do n = n + i % 7 end
                handle:headers():add("x-slow", tostring(n))
              end`
