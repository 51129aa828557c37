package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/moonsail/moonsail/test/await"
)

const (
	guardedHTTP = 8080
	guardedTCP  = 3306
	guardedSays = 3307 // its application speaks first
)

func authorization(name, spec string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: shop}\nspec: %s", name, spec)
}

func TestAuthorization(t *testing.T) {
	g := startGuarded(t)
	g.requireStatus(200, "POST", "/")

	g.given(authorization("allow", "{rules: [{to: [{operation: {methods: [GET]}}]}]}"))
	g.requireStatus(200, "GET", "/")
	g.requireStatus(403, "POST", "/")
	g.requireGreets(false, "127.0.0.1") // a policy that allows requests only allows no other bytes

	g.given(authorization("deny", "{action: DENY, rules: [{to: [{operation: {paths: [/admin*], ports: [\"8080\"]}}]}]}"))
	g.requireStatus(403, "GET", "/admin/x")
	g.requireStatus(403, "GET", "/a/../admin/x")
	g.requireStatus(200, "GET", "/")
	g.requireGreets(true, "127.0.0.1")

	g.given(authorization("block", "{action: DENY, rules: [{from: [{source: {ipBlocks: [127.0.0.7]}}]}]}"))
	g.requireGreets(false, "127.0.0.7")
	g.requireGreets(true, "127.0.0.8")

	g.given(authorization("audit", "{action: AUDIT, rules: [{}]}"))
	g.requireStatus(200, "GET", "/")

	tried := authorization("tried", "{action: DENY, rules: [{}]}")
	g.given(strings.Replace(tried, "namespace: shop", "namespace: shop, annotations: {istio.io/dry-run: \"true\"}", 1))
	eventually(t, "the dry run is counted", func() bool {
		g.requireStatus(200, "GET", "/")
		for _, n := range g.stats(t, `rbac\.istio_dry_run_deny_\.shadow_denied$`) {
			if n > 0 {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprint(g.stats(t, "rbac")) })

	eventually(t, "who keeps silent hears the server", func() bool { return g.hears() == "welcome\n" }, nil)
	g.given(authorization("nothing", "{}"))
	g.requireStatus(403, "GET", "/")
	g.requireGreets(false, "127.0.0.1")
	require.Empty(t, g.hears(), "no caller is admitted, so that no server is asked")

	g.given()
	g.requireStatus(200, "POST", "/")
	g.requireGreets(true, "127.0.0.7")
}

// checker is an external authorizer over gRPC, which requires a header.
type checker struct {
	authv3.UnimplementedAuthorizationServer
}

func (checker) Check(_ context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	h := r.GetAttributes().GetRequest().GetHttp().GetHeaders()
	if h["x-key"] == "open" || h == nil && r.GetAttributes().GetSource().GetAddress().GetSocketAddress().GetAddress() == "127.0.0.8" {
		return &authv3.CheckResponse{Status: &status.Status{Code: int32(codes.OK)}, HttpResponse: &authv3.CheckResponse_OkResponse{
			OkResponse: &authv3.OkHttpResponse{ResponseHeadersToAdd: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-checked", Value: "grpc"}}}},
		}}, nil
	}
	return &authv3.CheckResponse{Status: &status.Status{Code: int32(codes.PermissionDenied)}, HttpResponse: &authv3.CheckResponse_DeniedResponse{
		DeniedResponse: &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode_PaymentRequired}},
	}}, nil
}

// endpoint is a service at one address.
func endpoint(name string, protocol string, at net.Addr) string {
	a := at.(*net.TCPAddr)
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.example.com]
  ports: [{number: 80, name: p, protocol: %[2]s}]
  resolution: STATIC
  endpoints: [{address: %[3]s, ports: {p: %[4]d}}]`, name, protocol, a.IP, a.Port)
}

func TestExternalAuthorization(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-checked", r.URL.Path)
		if r.Header.Get("x-key") != "open" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(web.Close)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	rpc := grpc.NewServer()
	authv3.RegisterAuthorizationServer(rpc, checker{})
	serving := make(chan struct{})
	go func() { _ = rpc.Serve(ln); close(serving) }()
	t.Cleanup(func() { rpc.Stop(); await.From(t, serving) })

	g := startGuarded(t, endpoint("web", "HTTP", web.Listener.Addr()), endpoint("rpc", "GRPC", ln.Addr()), `apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    extensionProviders:
    - name: web
      envoyExtAuthzHttp: {service: web.example.com, port: 80, pathPrefix: /check, includeRequestHeadersInCheck: [x-key], headersToDownstreamOnAllow: [x-checked]}
    - name: rpc
      envoyExtAuthzGrpc: {service: rpc.example.com, port: 80}`)

	g.given(authorization("ask", "{action: CUSTOM, provider: {name: web}, rules: [{to: [{operation: {paths: [/closed*]}}]}]}"))
	g.requireStatus(200, "GET", "/")
	g.requireStatus(http.StatusTeapot, "GET", "/closed")
	code, header := g.answer("GET", "/closed/x", "x-key", "open")
	require.Equal(t, 200, code)
	require.Equal(t, "/check/closed/x", header.Get("x-checked"))
	g.requireGreets(true, "127.0.0.1") // an authorizer of requests does not see other bytes

	g.given(authorization("ask", "{action: CUSTOM, provider: {name: rpc}, rules: [{}]}"))
	g.requireStatus(http.StatusPaymentRequired, "GET", "/")
	code, header = g.answer("GET", "/", "x-key", "open")
	require.Equal(t, 200, code)
	require.Equal(t, "grpc", header.Get("x-checked"))
	g.requireGreets(false, "127.0.0.7")
	g.requireGreets(true, "127.0.0.8")

	rpc.Stop()
	g.requireStatus(403, "GET", "/", "x-key", "open") // without an answer every request is refused
}
