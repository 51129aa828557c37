package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// guarded is a workload with a sidecar that policies are about: requests and bytes come to
// the sidecar's own address.
type guarded struct {
	*client
	t    *testing.T
	mesh *mesh
	base []string
}

const (
	guardedHTTP = 8080
	guardedTCP  = 3306
	guardedSays = 3307 // its application speaks first
)

func startGuarded(t *testing.T, more ...string) *guarded {
	t.Helper()
	web := startBackend(t, "web", "v1")
	app := relay(t, fmt.Sprintf("%s:%d", web.ip, web.port))
	says := startSpeaker(t)
	g := &guarded{client: newClient("web"), t: t}
	g.drain = time.Minute
	g.base = append(more, fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress:
  - {port: {number: %d, name: http, protocol: HTTP}, bind: %s, captureMode: NONE, defaultEndpoint: "127.0.0.1:%d"}
  - {port: {number: %d, name: tcp, protocol: TCP}, bind: %s, captureMode: NONE, defaultEndpoint: "127.0.0.1:%d"}
  - {port: {number: %d, name: tcp-says, protocol: TCP}, bind: %s, captureMode: NONE, defaultEndpoint: "127.0.0.1:%d"}
  egress: [{hosts: ["./*"]}]`,
		guardedHTTP, g.ip, app, guardedTCP, g.ip, app, guardedSays, g.ip, says))
	g.mesh = startMesh(t, server.RoutesAuto, g.base...)
	g.start(t, g.mesh, false)
	return g
}

// startSpeaker is an application that says something to whoever connects.
func startSpeaker(t *testing.T) int {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { // ends with the listener
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "welcome\n")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return ln.Addr().(*net.TCPAddr).Port
}

// hears is what the application says to a client that keeps silent, for a while at most.
func (g *guarded) hears() string {
	g.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(g.t.Context(), "tcp", fmt.Sprintf("%s:%d", g.ip, guardedSays))
	require.NoError(g.t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(g.t, conn.SetReadDeadline(time.Now().Add(silence)))
	b, _ := io.ReadAll(conn)
	return string(b)
}

// silence is how long a client keeps silent: servers of this machine speak within milliseconds.
const silence = 300 * time.Millisecond

// relay listens on 127.0.0.1, where a sidecar's application has to be, for an application of
// another address.
func relay(t *testing.T, to string) int { return heldRelay(t, to, nil) }

// heldRelay is a relay whose callers are not heard while somebody has hold locked.
func heldRelay(t *testing.T, to string, hold *sync.RWMutex) int {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var relaying sync.WaitGroup
	relaying.Go(func() { // ends with the listener
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			relaying.Go(func() { _, _ = io.Copy(holdable{up, hold}, from); _ = up.Close() })
			relaying.Go(func() { _, _ = io.Copy(from, up); _ = from.Close() })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); relaying.Wait() }) // connections end with the sidecar, before
	return ln.Addr().(*net.TCPAddr).Port
}

// holdable passes nothing on while hold is locked.
type holdable struct {
	io.Writer
	hold *sync.RWMutex
}

func (h holdable) Write(b []byte) (int, error) {
	if h.hold != nil {
		h.hold.RLock()
		defer h.hold.RUnlock()
	}
	return h.Writer.Write(b)
}

// given puts policies in force.
func (g *guarded) given(policies ...string) {
	g.t.Helper()
	g.mesh.apply(append(append([]string{}, g.base...), policies...)...)
}

func authorization(name, spec string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: shop}\nspec: %s", name, spec)
}

// ask gives the status of a request; headers are pairs.
func (g *guarded) ask(method, path string, headers ...string) int {
	g.t.Helper()
	code, _ := g.answer(method, path, headers...)
	return code
}

func (g *guarded) answer(method, path string, headers ...string) (int, http.Header) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, fmt.Sprintf("http://%s:%d%s", g.ip, guardedHTTP, path), http.NoBody)
	require.NoError(g.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	require.NoError(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, resp.Header
}

// greets tells whether bytes from an address get through. (They are a request, which the
// sidecar does not know of.)
func (g *guarded) greets(from string) bool {
	g.t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(g.t.Context(), "tcp", fmt.Sprintf("%s:%d", g.ip, guardedTCP))
	require.NoError(g.t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n")
	require.NoError(g.t, err)
	b, _ := io.ReadAll(conn)
	return strings.Contains(string(b), "web-v1")
}

// requireStatus waits for a status: Envoy ACKs before its workers have what is new.
func (g *guarded) requireStatus(want int, method, path string, headers ...string) {
	g.t.Helper()
	got := 0
	eventually(g.t, method+" "+path+" is answered as it should", func() bool {
		got = g.ask(method, path, headers...)
		return got == want
	}, func() string { return fmt.Sprintf("%d instead of %d", got, want) })
}

// requireGreets waits until bytes from an address get through, or do not any more.
func (g *guarded) requireGreets(want bool, from string) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("bytes from %s get through: %t", from, want), func() bool { return g.greets(from) == want }, nil)
}

func TestAuthorization(t *testing.T) {
	g := startGuarded(t)
	g.requireStatus(200, "POST", "/")

	g.given(authorization("allow", "{rules: [{to: [{operation: {methods: [GET]}}]}]}"))
	g.requireStatus(200, "GET", "/")
	g.requireStatus(403, "POST", "/")
	g.requireGreets(false, "127.0.0.1") // what allows requests only allows no bytes

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
	require.Empty(t, g.hears(), "nobody is let in, so that no server is asked")

	g.given()
	g.requireStatus(200, "POST", "/")
	g.requireGreets(true, "127.0.0.7")
}

// checker is an external authorizer over gRPC, which asks for a header.
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
	t.Cleanup(func() { rpc.Stop(); <-serving })

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
	g.requireGreets(true, "127.0.0.1") // bytes are not for an authorizer of requests

	g.given(authorization("ask", "{action: CUSTOM, provider: {name: rpc}, rules: [{}]}"))
	g.requireStatus(http.StatusPaymentRequired, "GET", "/")
	code, header = g.answer("GET", "/", "x-key", "open")
	require.Equal(t, 200, code)
	require.Equal(t, "grpc", header.Get("x-checked"))
	g.requireGreets(false, "127.0.0.7")
	g.requireGreets(true, "127.0.0.8")

	rpc.Stop()
	g.requireStatus(403, "GET", "/", "x-key", "open") // without an answer nothing passes
}

// issuer makes tokens and serves its keys, which may be others from now on.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	id    string
	keys  atomic.Value // string; empty: no answer
	asked atomic.Int64
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.rotate(t, "1")
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		if text := i.keys.Load().(string); text != "" {
			_, _ = io.WriteString(w, text)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) rotate(t *testing.T, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := key.PublicKey.Bytes()
	require.NoError(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	i.key, i.id = key, id
	i.keys.Store(fmt.Sprintf(`{"keys": [{"kty": "EC", "crv": "P-256", "kid": %q, "x": %q, "y": %q}]}`, id, b64(point[1:33]), b64(point[33:])))
}

func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	signed := b64(fmt.Appendf(nil, `{"alg":"ES256","kid":%q}`, i.id)) + "." + b64(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	require.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return "Bearer " + signed + "." + b64(signature)
}

func authentication(name, rules string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: %s, namespace: shop}\nspec: {jwtRules: [%s]}", name, rules)
}

func TestTokens(t *testing.T) {
	i := startIssuer(t)
	g := startGuarded(t)
	later := time.Now().Add(time.Hour).Unix()
	good := i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "jane", "exp": later})
	// The policy names what a token must say; there is one for each set of keys.
	with := func(uri string) {
		t.Helper()
		g.given(authentication("a", fmt.Sprintf("{issuer: \"https://a.example.com\", jwksUri: %q}", uri)),
			authorization("jane", "{rules: [{from: [{source: {requestPrincipals: [\"https://a.example.com/jane\"]}}]}, {to: [{operation: {paths: [/open]}}]}]}"))
	}
	accepted := func(token string) func() bool {
		return func() bool { return g.ask("GET", "/", "Authorization", token) == 200 }
	}

	with(i.URL + "/first")
	eventually(t, "the keys have come", accepted(good), nil)
	g.requireStatus(403, "GET", "/") // no token
	g.requireStatus(200, "GET", "/open")
	for what, token := range map[string]string{
		"expired":      i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "jane", "exp": 1}),
		"wrong issuer": i.token(t, map[string]any{"iss": "https://b.example.com", "sub": "jane", "exp": later}),
		"forged":       good[:len(good)-8] + "AAAAAAAA",
		"no token":     "Bearer x",
	} {
		require.NotEqual(t, 200, g.ask("GET", "/", "Authorization", token), what)
	}
	g.requireStatus(401, "GET", "/open", "Authorization", good[:len(good)-8]+"AAAAAAAA") // a bad token is worse than none
	g.requireStatus(403, "GET", "/", "Authorization", i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "joe", "exp": later}))

	i.rotate(t, "2")
	second := i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "jane", "exp": later})
	g.requireStatus(401, "GET", "/", "Authorization", second) // the keys are still the old ones
	with(i.URL + "/second")
	eventually(t, "the new keys have come", accepted(second), nil)
	g.requireStatus(401, "GET", "/open", "Authorization", good)

	i.keys.Store("")
	asked := i.asked.Load()
	with(i.URL + "/third")
	eventually(t, "the keys have been asked for", func() bool { return i.asked.Load() > asked }, nil)
	g.requireStatus(401, "GET", "/open", "Authorization", second) // without keys no token is valid
	g.requireStatus(200, "GET", "/open")
}
