package e2e

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func consistentHash(t *testing.T, b *behaviour) {
	backends := []*backend{startBackend(t, "sticky", "v1"), startBackend(t, "sticky", "v2"), startBackend(t, "sticky", "v3")}
	b.given(t, service("sticky", &backends[0].app, &backends[1].app, &backends[2].app),
		policy("sticky", "{loadBalancer: {consistentHash: {httpHeaderName: x-user}}}"))
	used := map[string]bool{}
	for user := range 60 {
		name := fmt.Sprint("user-", user)
		first := b.call(t, "sticky", "/", "x-user", name).body
		used[first] = true
		for range 3 {
			require.Equal(t, first, b.call(t, "sticky", "/", "x-user", name).body)
		}
	}
	require.Len(t, used, 3, "60 users are spread")
}

func tlsOrigination(t *testing.T, b *behaviour) {
	ours, err := certificate()
	require.NoError(t, err)
	stranger, err := newSelfSigned()
	require.NoError(t, err)
	ca, wrong := fileWith(t, "ca.pem", ours.certPEM), fileWith(t, "wrong.pem", stranger.certPEM)
	secure := startBackend(t, "secure", "v1", func(b *backend) {
		b.tls = &tls.Config{Certificates: []tls.Certificate{ours.tls}, MinVersion: tls.VersionTLS12}
	})
	rule := func(host, file, more string) string {
		return service(host, &secure.app) + "\n---\n" +
			policy(host, fmt.Sprintf("{tls: {mode: SIMPLE, caCertificates: %s, sni: sni.example.com%s}}", file, more))
	}
	b.given(t, rule("secure", ca, ""), rule("wrongca", wrong, ""),
		rule("rightname", ca, ", subjectAltNames: [localhost]"), rule("wrongname", ca, ", subjectAltNames: [other.example.com]"))
	for _, host := range []string{"secure", "rightname"} {
		require.Equal(t, "secure-v1", b.call(t, host, "/").body, host)
		require.Equal(t, "sni.example.com", secure.last(t).sni)
		require.Equal(t, 1, secure.last(t).major)
	}
	for host, reason := range map[string]string{"wrongca": "error", "wrongname": "san"} {
		require.Equal(t, 503, b.call(t, host, "/").status, host)
		eventually(t, host+" is refused by the client", func() bool {
			return only(b.client.stats(t, host+`.*ssl\.fail_verify_`+reason+"$")) > 0
		}, nil)
	}
	require.Len(t, secure.requests(), 2)
}

// http2 checks ports whose name selects HTTP/2, and policies that upgrade.
func http2(t *testing.T, b *behaviour) {
	web := startBackend(t, "rpc", "v1")
	b.given(t, strings.ReplaceAll(service("rpc", &web.app), "name: http,", "name: grpc-rpc,"),
		service("upgraded", &web.app), policy("upgraded", "{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}"),
		service("plain", &web.app))
	for host, major := range map[string]int{"rpc": 2, "upgraded": 2, "plain": 1} {
		require.Equal(t, "rpc-v1", b.call(t, host, "/").body, host)
		require.Equal(t, major, web.last(t).major, host)
	}
}

func requestsPerConnection(t *testing.T, b *behaviour) {
	limited, free := startBackend(t, "limited", "v1"), startBackend(t, "free", "v1")
	b.given(t, service("limited", &limited.app), policy("limited", "{connectionPool: {http: {maxRequestsPerConnection: 2}}}"),
		service("free", &free.app))
	for range 10 {
		require.Equal(t, 200, b.call(t, "limited", "/").status)
		require.Equal(t, 200, b.call(t, "free", "/").status)
	}
	require.Equal(t, 5, limited.connectionCount())
	require.Equal(t, 1, free.connectionCount())
}

func outlierDetection(t *testing.T, b *behaviour) {
	good, bad := startBackend(t, "partly", "v1"), startBackend(t, "partly", "v2", func(b *backend) { b.broken = true })
	b.given(t, service("partly", &good.app, &bad.app),
		policy("partly", "{outlierDetection: {consecutive5xxErrors: 1, interval: 60s, baseEjectionTime: 300s, maxEjectionPercent: 100}}"))
	eventually(t, "the endpoint fails once", func() bool { return b.call(t, "partly", "/").status == 500 }, nil)
	eventually(t, "it is ejected", func() bool {
		return only(b.client.stats(t, `partly.*outlier_detection\.ejections_active$`)) == 1
	}, nil)
	before := len(bad.requests())
	for range 30 {
		require.Equal(t, "partly-v1", b.call(t, "partly", "/").body)
	}
	require.Len(t, bad.requests(), before)
}

// overflow checks limits: one call is in progress, one waits for its connection, and a third one fails.
func overflow(t *testing.T, b *behaviour) {
	narrow(t, b, "narrow", policy("narrow", "{connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1}}}"))
}

// TestDefaultTrafficPolicy checks that the mesh's limits apply to a host whose DestinationRule sets something else.
func TestDefaultTrafficPolicy(t *testing.T) {
	b := startBehaviour(t)
	narrow(t, b, "wide", meshConfig("defaultTrafficPolicy: {connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1}}}"),
		policy("wide", "{outlierDetection: {consecutive5xxErrors: 5}}"))
	noRefusals(t, b.mesh, b.client)
}

// narrow checks that a host gets one request at a time, and that one waits.
func narrow(t *testing.T, b *behaviour, host string, rules ...string) {
	t.Helper()
	web := startBackend(t, host, "v1")
	b.given(t, append(rules, service(host, &web.app))...)
	var calls sync.WaitGroup
	statuses := make([]int, 2)
	call := func(i int) func() {
		return func() {
			a, err := b.try("GET", host, "/", "x-hang", "1")
			if err == nil {
				statuses[i] = a.status
			}
		}
	}
	let := sync.OnceFunc(func() { close(web.release); calls.Wait() })
	defer let()
	calls.Go(call(0))
	eventually(t, "one is under way", func() bool { return len(web.requests()) == 1 }, nil)
	calls.Go(call(1))
	eventually(t, "one waits", func() bool {
		return only(b.client.stats(t, host+`.*upstream_rq_pending_active$`)) == 1
	}, nil)
	got := b.call(t, host, "/")
	require.Equal(t, 503, got.status)
	require.Contains(t, got.body, "overflow")
	let()
	require.True(t, slices.Equal([]int{200, 200}, statuses), "%v", statuses)
	require.Equal(t, 1, web.connectionCount())
}

// tcpSplit has a tolerance of six standard deviations.
func tcpSplit(t *testing.T, b *behaviour) {
	one, two := startGreeter(t, "greet", "v1"), startGreeter(t, "greet", "v2")
	tcp := strings.NewReplacer("name: http,", "name: tcp,", fmt.Sprintf("port: %d}", meshPort), fmt.Sprintf("port: %d}", tcpPort))
	b.given(t, tcp.Replace(service("greet", one, two)), subsets("greet", "v1", "v2"), `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: greet, namespace: shop}
spec:
  hosts: [greet]
  tcp:
  - route: [{destination: {host: greet, subset: v1}, weight: 25}, {destination: {host: greet, subset: v2}, weight: 75}]`)
	got := map[string]int{}
	for range 200 {
		got[b.dial(t)]++
	}
	require.InDelta(t, 50, got["v1"], 37, "%v", got)
	require.Equal(t, 200, got["v1"]+got["v2"], "%v", got)
}

// dnsEntry checks a host outside of the mesh, which Envoy resolves.
func dnsEntry(t *testing.T, b *behaviour) {
	web := startBackend(t, "outside", "v1", func(b *backend) { b.ip = "127.0.0.1" })
	b.given(t, fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: [outside.example.com]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: localhost, ports: {http: %d}}]`, meshPort, web.port))
	require.Equal(t, "outside-v1", b.call(t, "outside.example.com", "/").body)
	require.Equal(t, "outside.example.com", web.last(t).host)
}
