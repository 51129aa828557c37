package e2e

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// defaultRetries checks that a failed connection is retried at another endpoint, and that a 503 of the application is
// not retried.
func defaultRetries(t *testing.T, b *behaviour) {
	live, dead := startBackend(t, "half", "v1"), &app{name: "half", version: "v2", ip: ownIP()}
	require.NoError(t, dead.listen(t).Close())
	b.given(t, service("half", &live.app, dead))
	for range 20 {
		require.Equal(t, "half-v1", b.call(t, "half", "/").body)
	}
	before := len(live.requests())
	require.Equal(t, 503, b.call(t, "half", "/", "x-answer", "503").status)
	require.Len(t, live.requests(), before+1)
}

// hostNames checks that all names of a service are routed, and no others.
func hostNames(t *testing.T, b *behaviour) {
	web := startBackend(t, "named", "v1")
	b.given(t, service("named", &web.app), routes("named", toWith("named", "headers: {response: {set: {x-rule: mine}}}")))
	for _, host := range []string{"named", "named.shop", "named.shop.svc", "named.shop.svc.cluster.local", "NAMED.shop"} {
		for _, port := range []string{"", fmt.Sprint(":", meshPort)} {
			require.Equal(t, "mine", b.call(t, host+port, "/").header.Get("x-rule"), host+port)
		}
	}
	before := len(web.requests())
	for _, host := range []string{"named.other", "nam", "named.shop.svc.cluster"} {
		require.NotEqual(t, "mine", b.call(t, host, "/").header.Get("x-rule"), host)
	}
	require.Len(t, web.requests(), before)
}

// matches checks that the first rule that matches applies.
func matches(t *testing.T, b *behaviour) {
	rule := func(name, match string) string {
		return fmt.Sprintf("{match: [%s], directResponse: {status: 200, body: {string: %s}}}", match, name)
	}
	b.given(t, service("matched", &startBackend(t, "matched", "v1").app), routes("matched",
		rule("exact", "{uri: {exact: /exact}}"),
		rule("anycase", "{uri: {prefix: /CASE}, ignoreUriCase: true}"),
		rule("regex", `{uri: {regex: "/r[0-9]+"}}`),
		rule("query", "{uri: {exact: /q}, queryParams: {v: {exact: two}}}"),
		rule("present", "{uri: {exact: /h}, headers: {x-some: {}}}"),
		rule("prefix", `{uri: {exact: /h}, headers: {x-other: {prefix: ab}}}`),
		rule("without", "{uri: {exact: /h}, withoutHeaders: {x-not: {exact: here}}}"),
		rule("stranger", "{uri: {prefix: /l}, sourceLabels: {app: other}}"),
		rule("mine", "{uri: {prefix: /l}, sourceLabels: {app: client}}"),
		rule("namespace", "{uri: {exact: /n}, sourceNamespace: elsewhere}"),
		rule("authority", "{authority: {exact: matched.shop}}"),
		rule("port", fmt.Sprintf("{uri: {exact: /p}, port: %d}", meshPort)),
		rule("otherport", "{port: 1}"),
		to("matched")))
	for _, test := range []struct {
		path, want string
		headers    []string
	}{
		{"/exact", "exact", nil}, {"/exact?a=b", "exact", nil}, {"/exact/", "matched-v1", nil}, {"/Exact", "matched-v1", nil},
		{"/case", "anycase", nil}, {"/r12", "regex", nil}, {"/r12x", "matched-v1", nil}, {"/x/r12", "matched-v1", nil},
		{"/q?v=two", "query", nil}, {"/q?v=one", "matched-v1", nil}, {"/q", "matched-v1", nil},
		{"/h", "present", []string{"x-some", "1"}}, {"/h", "prefix", []string{"x-other", "abc"}},
		{"/h", "without", nil}, {"/h", "matched-v1", []string{"x-not", "here"}},
		{"/l", "mine", nil}, {"/n", "matched-v1", nil}, {"/p", "port", nil},
	} {
		require.Equal(t, test.want, b.call(t, "matched", test.path, test.headers...).body, "%s %v", test.path, test.headers)
	}
	require.Equal(t, "authority", b.call(t, "matched.shop", "/").body)
}

// policyOfSubset checks that the policy of a subset or port replaces that of the host.
func policyOfSubset(t *testing.T, b *behaviour) {
	one, two := startBackend(t, "nested", "v1"), startBackend(t, "nested", "v2")
	port := startBackend(t, "ported", "v1")
	b.given(t, service("nested", &one.app, &two.app), service("ported", &port.app),
		`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: nested, namespace: shop}
spec:
  host: nested
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 3}}}}`,
		policy("ported", fmt.Sprintf("{connectionPool: {http: {maxRequestsPerConnection: 1}}, portLevelSettings: [{port: {number: %d}, connectionPool: {http: {maxRequestsPerConnection: 2}}}]}", meshPort)),
		routes("nested", "{match: [{uri: {prefix: /v1}}], route: [{destination: {host: nested, subset: v1}}]}", to("nested/v2")))
	for range 6 {
		require.Equal(t, "nested-v1", b.call(t, "nested", "/v1").body)
		require.Equal(t, "nested-v2", b.call(t, "nested", "/v2").body)
		require.Equal(t, "ported-v1", b.call(t, "ported", "/").body)
	}
	require.Equal(t, []int{6, 2, 3}, []int{one.connectionCount(), two.connectionCount(), port.connectionCount()})
}

func mutualTLS(t *testing.T, b *behaviour) {
	ours, err := certificate()
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ours.certPEM))
	secure := startBackend(t, "mutual", "v1", func(b *backend) {
		b.tls = &tls.Config{Certificates: []tls.Certificate{ours.tls}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	})
	ca, key := fileWith(t, "ca.pem", ours.certPEM), fileWith(t, "key.pem", ours.keyPEM)
	b.given(t, service("mutual", &secure.app), service("anonymous", &secure.app),
		policy("mutual", fmt.Sprintf("{tls: {mode: MUTUAL, caCertificates: %[1]s, clientCertificate: %[1]s, privateKey: %[2]s, sni: localhost}}", ca, key)),
		policy("anonymous", fmt.Sprintf("{tls: {mode: SIMPLE, caCertificates: %s, sni: localhost}}", ca)))
	require.Equal(t, "mutual-v1", b.call(t, "mutual", "/").body)
	require.Equal(t, 503, b.call(t, "anonymous", "/").status)
	require.Len(t, secure.requests(), 1)
}

// cookieHash checks that the sidecar sets the cookie that makes calls sticky.
func cookieHash(t *testing.T, b *behaviour) {
	one, two := startBackend(t, "baked", "v1"), startBackend(t, "baked", "v2")
	b.given(t, service("baked", &one.app, &two.app),
		policy("baked", "{loadBalancer: {consistentHash: {httpCookie: {name: stick, path: /p, ttl: 60s}}}}"))
	for range 5 {
		first := b.call(t, "baked", "/")
		cookie := first.header.Get("Set-Cookie")
		require.Regexp(t, `^stick="?[^";]+"?; Max-Age=60; Path=/p; HttpOnly$`, cookie)
		pair, _, _ := strings.Cut(cookie, ";")
		for range 5 {
			again := b.call(t, "baked", "/", "Cookie", pair)
			require.Equal(t, first.body, again.body)
			require.Empty(t, again.header.Get("Set-Cookie"))
		}
	}
}

// webSocket checks that upgraded connections carry bytes in both directions.
func webSocket(t *testing.T, b *behaviour) {
	up := startGreeterHTTP(t)
	b.given(t, service("socket", up))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(b.client.ip, fmt.Sprint(meshPort)))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: socket\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	_, err = io.WriteString(conn, "ping\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "echo ping\n", line)
}

// startGreeterHTTP upgrades a connection, and echoes one line.
func startGreeterHTTP(t *testing.T) *app {
	t.Helper()
	a := &app{name: "socket", version: "v1", ip: ownIP()}
	a.handle = func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	}
	a.serve(t)
	return a
}
