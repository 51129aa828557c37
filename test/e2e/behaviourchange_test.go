package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// changedPolicy changes and removes a policy in use. A changed cluster replaces the old one once it has endpoints,
// which is after its ACK.
func changedPolicy(t *testing.T, b *behaviour) {
	web := startBackend(t, "fickle", "v1")
	connections := func() int {
		before := web.connectionCount()
		for range 4 {
			require.Equal(t, "fickle-v1", b.call(t, "fickle", "/").body)
		}
		return web.connectionCount() - before
	}
	b.given(t, service("fickle", &web.app))
	require.Equal(t, 1, connections())
	for range 2 {
		b.given(t, service("fickle", &web.app), policy("fickle", "{connectionPool: {http: {maxRequestsPerConnection: 1}}}"))
		eventually(t, "one request a connection", func() bool { return connections() == 4 }, nil)
		b.given(t, service("fickle", &web.app))
		eventually(t, "connections stay", func() bool { return connections() == 0 }, nil)
	}
}

// changedLabels moves a Pod from one subset to another, and back.
func changedLabels(t *testing.T, b *behaviour) {
	one, two := startBackend(t, "move", "v1"), startBackend(t, "move", "v2")
	both := service("move", &one.app, &two.app)
	rules := subsets("move", "v1", "v2") + "\n---\n" +
		routes("move", "{match: [{uri: {prefix: /v1}}], route: [{destination: {host: move, subset: v1}}]}", to("move/v2"))
	relabelled := strings.ReplaceAll(both, "labels: {app: move, version: v1}", "labels: {app: move, version: v2}")
	require.NotEqual(t, both, relabelled)
	answers := func(path string) map[string]bool {
		got := map[string]bool{}
		for range 20 {
			got[b.call(t, "move", path).body] = true
		}
		return got
	}
	for range 2 {
		b.given(t, both, rules)
		eventually(t, "each has its own", func() bool {
			one, two := answers("/v1"), answers("/")
			return len(one) == 1 && one["move-v1"] && len(two) == 1 && two["move-v2"]
		}, nil)
		b.given(t, relabelled, rules)
		eventually(t, "both are v2", func() bool { two := answers("/"); return two["move-v1"] && two["move-v2"] }, nil)
		require.Equal(t, 503, b.call(t, "move", "/v1").status, "no endpoint is v1")
	}
}

// chained checks a rule that delegates, and one that leads to the name of another service.
func chained(t *testing.T, b *behaviour) {
	front, back := startBackend(t, "front", "v1"), startBackend(t, "back", "v1")
	b.given(t, service("front", &front.app), service("back", &back.app),
		routes("front", "{match: [{uri: {prefix: /back}}], delegate: {name: part, namespace: shop}}", to("front")),
		`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: part, namespace: shop}
spec:
  http:
  - {match: [{uri: {prefix: /back/gone}}], directResponse: {status: 410}}
  - {match: [{uri: {prefix: /elsewhere}}], directResponse: {status: 411}}
  - {route: [{destination: {host: back.shop.svc.cluster.local, port: {number: 15080}}}], rewrite: {uri: /short}}`)
	require.Equal(t, "front-v1", b.call(t, "front", "/").body)
	require.Equal(t, "front-v1", b.call(t, "front", "/elsewhere").body)
	require.Equal(t, 410, b.call(t, "front", "/back/gone").status)
	require.Equal(t, "back-v1", b.call(t, "front", "/back/x").body)
	require.Equal(t, "/short/x", back.last(t).path)
	require.Equal(t, "front", back.last(t).host)
}

// staticEntries checks ServiceEntries with addresses, also of a wildcard host, and of workloads.
func staticEntries(t *testing.T, b *behaviour) {
	web, vm := startBackend(t, "static", "v1"), startBackend(t, "vm", "v1")
	entry := func(name, host, rest string) string {
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec: {hosts: ["%s"], location: MESH_EXTERNAL, resolution: STATIC, ports: [{number: %d, name: http, protocol: HTTP}], %s}`,
			name, host, meshPort, rest)
	}
	address := fmt.Sprintf("endpoints: [{address: %s, ports: {http: %d}}]", web.ip, web.port)
	b.given(t, entry("static", "static.example.com", address), entry("wild", "*.wild.example.com", address),
		entry("vms", "vms.example.com", "workloadSelector: {labels: {app: vm}}"),
		fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm, namespace: shop}
spec: {address: %s, ports: {http: %d}, labels: {app: vm}}`, vm.ip, vm.port),
		`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: wild, namespace: shop}
spec:
  hosts: ["*.wild.example.com"]
  http:
  - match: [{uri: {exact: /rule}}]
    directResponse: {status: 418}
  - route: [{destination: {host: "static.example.com"}}]`)
	for host, want := range map[string]string{
		"static.example.com": "static-v1", "a.wild.example.com": "static-v1", "b.a.wild.example.com": "static-v1", "vms.example.com": "vm-v1",
	} {
		require.Equal(t, want, b.call(t, host, "/").body, host)
	}
	require.Equal(t, "a.wild.example.com", func() string { b.call(t, "a.wild.example.com", "/"); return web.last(t).host }())
	require.Equal(t, 418, b.call(t, "a.wild.example.com", "/rule").status)
	require.NotEqual(t, 418, b.call(t, "static.example.com", "/rule").status)
}

// balanced checks that endpoints take turns.
func balanced(t *testing.T, b *behaviour) {
	one, two, three := startBackend(t, "even", "v1"), startBackend(t, "even", "v2"), startBackend(t, "even", "v3")
	b.given(t, service("even", &one.app, &two.app, &three.app), policy("even", "{loadBalancer: {simple: ROUND_ROBIN}}"))
	for range 300 {
		require.Equal(t, 200, b.call(t, "even", "/").status)
	}
	for _, backend := range []*backend{one, two, three} {
		require.InDelta(t, 100, len(backend.requests()), 1, backend.version)
	}
}
