package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// targeting are policies of namespace edge that name the Gateway: one refuses a path, one checks tokens, and a patch
// adds a header to responses.
func targeting(keys string) string {
	const refs = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]"
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: admin, namespace: edge}
spec:
  %[1]s
  action: DENY
  rules: [{to: [{operation: {paths: [/admin]}}]}]
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: edge}
spec:
  %[1]s
  jwtRules: [{issuer: "https://a.example.com", jwks: '%[2]s'}]
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: header, namespace: edge}
spec:
  %[1]s
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: lua
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code: {inline_string: "function envoy_on_response(h) h:headers():add('x-lua', 'gateway') end"}`, refs, keys)
}

// redirecting is a route without a backend.
const redirecting = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: redirect, namespace: edge}
spec:
  parentRefs: [{name: edge}]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: there.example.com}}]}]`

// gatewayReply calls the Gateway's HTTP listener on a separate connection.
func (e *edge) gatewayReply(path, token string) (reply, error) {
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d%s", e.gateway.ip, listenerCalls, path), http.NoBody)
	require.NoError(e.t, err)
	req.Host, req.Close = webHost, true
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	return reply{resp.StatusCode, resp.Header.Get("x-lua")}, resp.Body.Close()
}

func (e *edge) requireGatewayReply(want reply, path, token string) {
	e.t.Helper()
	var got reply
	var err error
	eventually(e.t, fmt.Sprintf("%s is answered with %v", path, want), func() bool {
		got, err = e.gatewayReply(path, token)
		return err == nil && got == want
	}, func() string { return fmt.Sprintf("%v %v\n%s", got, err, e.gateway.log) })
}

// TestTargetRefs checks that policies that name a Gateway of the Gateway API apply to its router, and can be added and
// removed.
func TestTargetRefs(t *testing.T) {
	e, i := startEdge(t), startIssuer(t)
	forged := i.token(t, map[string]any{"iss": "https://b.example.com", "sub": "jane"})
	good := i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "jane"})
	redirect := reply{http.StatusFound, ""}
	without := e.config("server", gatewayOfAPI(), redirecting)

	e.apply(without...)
	e.requireGatewayReply(redirect, "/admin", forged)
	e.apply(e.config("server", gatewayOfAPI(), redirecting, targeting(i.keys.Load().(string)))...)
	e.requireGatewayReply(reply{http.StatusForbidden, "gateway"}, "/admin", "")
	e.requireGatewayReply(reply{http.StatusUnauthorized, "gateway"}, "/", forged)
	e.requireGatewayReply(reply{http.StatusFound, "gateway"}, "/", good)
	e.requireNothingHeld()
	e.apply(without...)
	e.requireGatewayReply(redirect, "/admin", forged)
}
