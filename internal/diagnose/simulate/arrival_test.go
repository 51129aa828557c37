package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArrivalOfGRPC checks that mutual TLS hides nothing that makes a call one of gRPC.
func TestArrivalOfGRPC(t *testing.T) {
	c := Call{To: "10.0.0.1:9090", Protocol: GRPC, Path: "/pkg.S/M", Headers: map[string]string{"X-User": "anna"}}
	got := c.Arrival(&Result{}, &Upstream{TLS: &ClientTLS{SNI: "api", ALPN: []string{"istio"}}}, &Endpoint{Address: "10.1.0.1:9090"}, "spiffe://a/ns/b/sa/c")
	require.Equal(t, HTTPS, got.Protocol)
	require.Equal(t, "POST", got.Method)
	require.Equal(t, "10.0.0.1:9090", got.Host)
	require.Equal(t, map[string]string{"content-type": "application/grpc", "te": "trailers", "x-user": "anna"}, got.Headers)
	require.Equal(t, map[string]string{"X-User": "anna"}, c.Headers, "the call of the client is not changed")

	got = Call{To: "10.0.0.1:80", Method: "PUT"}.Arrival(&Result{}, &Upstream{}, &Endpoint{Address: "10.1.0.1:80"}, "")
	require.Equal(t, []string{"PUT", "http"}, []string{got.Method, string(got.Protocol)})
}

// arrivals are a proxy that changes requests and ends TLS, and a server with policies.
const arrivals = `
listeners:
- name: caller
  address: {socketAddress: {address: 10.0.0.1, portValue: 80}}
  filterChains:
  - filters: [&http {name: http, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, statPrefix: x, rds: {routeConfigName: out, configSource: {ads: {}}}, httpFilters: [&router {name: router, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}]
- name: https
  address: {socketAddress: {address: 10.0.0.1, portValue: 443}}
  filterChains:
  - transportSocket: &tls {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext}}
    filters: [*http]
- name: tls
  address: {socketAddress: {address: 10.0.0.1, portValue: 9443}}
  filterChains:
  - transportSocket: *tls
    filters: [&tcp {name: tcp, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, statPrefix: x, cluster: plain}}]
- name: passthrough
  address: {socketAddress: {address: 10.0.0.1, portValue: 8443}}
  filterChains: [{filters: [*tcp]}]
- name: gateway
  address: {socketAddress: {address: 10.0.0.1, portValue: 8080}}
  filterChains:
  - filters: [{name: http, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, statPrefix: x, useRemoteAddress: true, rds: {routeConfigName: out, configSource: {ads: {}}}, httpFilters: [*router]}}]
- name: behind a proxy
  address: {socketAddress: {address: 10.0.0.1, portValue: 8081}}
  filterChains:
  - filters: [{name: http, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, statPrefix: x, useRemoteAddress: true, skipXffAppend: true, rds: {routeConfigName: out, configSource: {ads: {}}}, httpFilters: [*router]}}]
- name: virtualInbound
  address: {socketAddress: {address: 0.0.0.0, portValue: 15006}}
  listenerFilters: [{name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}]
  filterChains:
  - name: tls
    filterChainMatch: {transportProtocol: tls, serverNames: [shop.example.com]}
    filters: [*tcp]
  - name: policies
    filterChainMatch: {transportProtocol: raw_buffer}
    filters:
    - name: http
      typedConfig:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        statPrefix: x
        rds: {routeConfigName: in, configSource: {ads: {}}}
        httpFilters:
        - name: rbac
          typedConfig:
            "@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC
            rules:
              action: DENY
              policies:
                role: {permissions: [{notRule: {header: {name: x-role, stringMatch: {exact: internal}}}}], principals: [{any: true}]}
                client: {permissions: [{any: true}], principals: [{remoteIp: {addressPrefix: 192.0.2.66, prefixLen: 32}}]}
                token: {permissions: [{header: {name: authorization, presentMatch: true}}], principals: [{any: true}]}
                host: {permissions: [{header: {name: ":authority", stringMatch: {exact: two.example.com}}}], principals: [{any: true}]}
        - *router
routes:
- name: out
  requestHeadersToAdd: [{header: {key: x-role, value: internal}, appendAction: OVERWRITE_IF_EXISTS_OR_ADD}]
  requestHeadersToRemove: [authorization]
  virtualHosts:
  - name: v
    domains: ["*"]
    routes:
    - match: {prefix: /split}
      route: {weightedClusters: {clusters: [{name: plain, weight: 1, hostRewriteLiteral: one.example.com}, {name: plain, weight: 1, hostRewriteLiteral: two.example.com}]}}
    - {match: {prefix: /sni}, route: {cluster: sni}}
    - {match: {prefix: /}, route: {cluster: plain}}
- {name: in, virtualHosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, directResponse: {status: 200}}]}]}
clusters:
- {name: plain, type: STATIC, loadAssignment: {clusterName: plain, endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 10.1.0.1, portValue: 3000}}}}]}]}}
- name: sni
  type: STATIC
  transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext}}
  typedExtensionProtocolOptions:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      upstreamHttpProtocolOptions: {autoSni: true}
      explicitHttpConfig: {httpProtocolOptions: {}}
  loadAssignment: {clusterName: sni, endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 10.1.0.1, portValue: 3000}}}}]}]}
`

// TestArrivalAfterTheProxy checks that the server judges what the proxy of the caller sends, and not what the client sends.
func TestArrivalAfterTheProxy(t *testing.T) {
	w, err := Parse([]byte(arrivals))
	require.NoError(t, err)
	claim := map[string]string{"X-Forwarded-For": "192.0.2.66"}
	token := map[string]string{"Authorization": "Bearer x", "X-Role": "none"}
	for name, tc := range map[string]struct {
		call   Call
		chain  string
		status []int // by upstream
	}{
		"headers": {Call{To: "10.0.0.1:80", Headers: token}, "policies", []int{200}},
		"hosts of several upstreams": {
			Call{To: "10.0.0.1:80", Path: "/split", Host: "shop.example.com"}, "policies", []int{200, 403},
		},
		"HTTPS that ends":                    {Call{To: "10.0.0.1:443", Protocol: HTTPS, SNI: "shop.example.com"}, "policies", []int{200}},
		"TLS that ends":                      {Call{To: "10.0.0.1:9443", Protocol: TLS, SNI: "shop.example.com"}, "policies", []int{0}},
		"HTTPS passed on":                    {Call{To: "10.0.0.1:8443", Protocol: HTTPS, SNI: "shop.example.com"}, "tls", []int{0}},
		"a client that a gateway reports":    {Call{To: "10.0.0.1:8080", From: "192.0.2.66:1"}, "policies", []int{403}},
		"a client that it does not report":   {Call{To: "10.0.0.1:8081", From: "192.0.2.66:1"}, "policies", []int{200}},
		"an address that its client claims":  {Call{To: "10.0.0.1:8080", Headers: claim}, "policies", []int{200}},
		"an address that applications claim": {Call{To: "10.0.0.1:80", Headers: claim}, "policies", []int{403}},
		"SNI by the authority":               {Call{To: "10.0.0.1:80", Path: "/sni", Host: "shop.example.com:8443"}, "tls", []int{0}},
		"requests in a pipe":                 {Call{To: "10.0.0.1:8443", Headers: token}, "policies", []int{403}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.call.Direct = true
			r, err := w.Call(tc.call)
			require.NoError(t, err)
			require.Len(t, r.Upstreams, len(tc.status))
			for i := range r.Upstreams {
				u := &r.Upstreams[i]
				next := tc.call.Arrival(r, u, &u.Endpoints[0], "")
				next.From = "10.0.0.1:50000"
				in, err := w.Call(next)
				require.NoError(t, err)
				require.Equal(t, tc.chain, in.Chain)
				require.Equal(t, tc.status[i], in.Status, in)
			}
		})
	}
}
