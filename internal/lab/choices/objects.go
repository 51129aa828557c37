package choices

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/lab/pair"
)

// toServer matches the client's cluster for the server's sidecar.
const toServer = `{context: SIDECAR_OUTBOUND, cluster: {service: server.$NAMESPACE.svc.cluster.local}}`

// buffers limits the bytes of a connection that are read before they are processed.
func buffers(bytes int) string {
	return pair.Patches("buffers", fmt.Sprintf(`  - {applyTo: LISTENER, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: %[1]d}}}
  - {applyTo: CLUSTER, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: %[1]d}}}`, bytes))
}

// windows sets the HTTP/2 windows of both ends.
func windows(stream, connection int) string {
	options := fmt.Sprintf("{initial_stream_window_size: %d, initial_connection_window_size: %d}", stream, connection)
	return pair.Patches("windows", `  - applyTo: NETWORK_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: MERGE
      value:
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          http2_protocol_options: `+options+`
  - applyTo: CLUSTER
    match: `+toServer+`
    patch:
      operation: MERGE
      value:
        typed_extension_protocol_options:
          envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
            "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
            explicit_http_config: {http2_protocol_options: `+options+`}`)
}

// cipher sets a cipher suite of TLS 1.2 between the sidecars. Those of TLS 1.3 cannot be selected.
func cipher(name string) string {
	return pair.Patches("cipher", transportSocket(`common_tls_context: {tls_params: {tls_maximum_protocol_version: TLSv1_2, cipher_suites: [`+name+`]}}`))
}

// codec makes both sidecars use Envoy's other implementation of HTTP/2.
var codec = pair.Patches("codec", `  - applyTo: BOOTSTRAP
    patch:
      operation: MERGE
      value: {layered_runtime: {layers: [{name: codec, static_layer: {envoy.reloadable_features.http2_use_oghttp2: true}}]}}`)

// balanced spreads the client's connections over its sidecar's workers. The name of the statistics shows that it is in
// force.
var balanced = pair.Patches("balanced", `  - applyTo: LISTENER
    match: {context: SIDECAR_OUTBOUND}
    patch: {operation: MERGE, value: {connection_balance_config: {exact_balance: {}}, stat_prefix: balanced}}`)

// noSessions makes each connection between the sidecars begin with a full handshake.
var noSessions = pair.Patches("no-sessions", transportSocket(`max_session_keys: 0`))

// transportSocket changes the TLS settings of the client's sidecar.
func transportSocket(fields string) string {
	return `  - applyTo: CLUSTER
    match: ` + toServer + `
    patch:
      operation: MERGE
      value:
        transport_socket:
          name: envoy.transport_sockets.tls
          typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, ` + fields + `}`
}

// policy is a DestinationRule for the server.
func policy(name, traffic string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %s, namespace: $NAMESPACE}
spec: {host: server, trafficPolicy: %s}`, name, traffic)
}

// noInboundRetries adds a route before the generated one that differs from it only in retries.
var noInboundRetries = pair.Patches("once", `  - applyTo: HTTP_ROUTE
    match: {context: SIDECAR_INBOUND}
    patch:
      operation: INSERT_FIRST
      value:
        name: once
        match: {prefix: /}
        route: {cluster: "inbound|18080||", timeout: 0s, max_stream_duration: {grpc_timeout_header_max: 0s}}
        decorator: {operation: once}
`)

// With limits of connections, sidecars would use HTTP/1.1, which is another choice.
var (
	freshConnections = policy("fresh", `{connectionPool: {http: {h2UpgradePolicy: UPGRADE, maxRequestsPerConnection: 1}}}`)
	limits           = policy("limits", `{connectionPool: {tcp: {maxConnections: 1024}, http: {h2UpgradePolicy: UPGRADE, http1MaxPendingRequests: 1024, http2MaxRequests: 1024, maxRetries: 3}}}`)
	outliers         = policy("outliers", `{outlierDetection: {consecutive5xxErrors: 5}}`)
)

const (
	noRetries = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: server, namespace: $NAMESPACE}
spec: {hosts: [server], http: [{retries: {attempts: 0}, route: [{destination: {host: server}}]}]}`

	noMetrics = `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: no-metrics, namespace: $NAMESPACE}
spec: {metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: ALL_METRICS}, disabled: true}]}]}`

	noCount = `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: no-count, namespace: $NAMESPACE}
spec: {metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: REQUEST_COUNT}, disabled: true}]}]}`
)
