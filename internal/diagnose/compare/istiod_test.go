package compare_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/configdump"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/short"
)

// testdata/istiod has a mesh, mesh.yaml, and what istiod 1.31 gives to its proxies, as config dumps. Both come from istiod on a
// real API server: "moonsail compare --from xds://HOST:15010 --save testdata/istiod".
const istiodDir = "testdata/istiod"

func istiod(t testing.TB) *compare.Side {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(istiodDir, "*.json.gz"))
	require.NoError(t, err)
	side := &compare.Side{Name: "istiod"}
	for _, path := range paths {
		text, err := configdump.ReadFile(path)
		require.NoError(t, err)
		p, err := compare.ParseDump(text, server.ProxyOf)
		require.NoError(t, err, path)
		side.Proxies = append(side.Proxies, p)
	}
	require.Len(t, side.Proxies, 7)
	return side
}

// moonsailWith returns what Moonsail gives to the proxies of a mesh.
func moonsailWith(t testing.TB, proxies *compare.Side, mesh string) *compare.Side {
	t.Helper()
	content := objects(t, mesh)
	for _, p := range proxies.Proxies {
		content.Proxies = append(content.Proxies, p.Node.Proxy)
	}
	side, failures, err := compare.Compiled("Moonsail", nil, content)
	require.NoError(t, err)
	require.Empty(t, failures)
	return side
}

func meshText(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(istiodDir, "mesh.yaml"))
	require.NoError(t, err)
	return string(text)
}

// TestIstiodIsAlike compares istiod with Moonsail: all that differs is on purpose.
func TestIstiodIsAlike(t *testing.T) {
	left := istiod(t)
	r := run(t, left, moonsailWith(t, left, meshText(t)))
	for _, d := range r.Differences {
		require.NotNil(t, d.Deliberate, "%v at %v: %+v", d.Calls, d.Proxies, d.Changes)
	}
	require.Empty(t, r.Undecided)
	require.True(t, r.Same())
	require.Equal(t, 7, r.Proxies)
	require.Greater(t, r.Alike, 600)
	require.Empty(t, r.OnlyLeft)
	require.Empty(t, r.OnlyRight)
}

// TestDifferencesOnPurposeNeedTwoKinds compares istiod's resources with Moonsail's as if both came from one kind, as for an upgrade.
func TestDifferencesOnPurposeNeedTwoKinds(t *testing.T) {
	left := istiod(t)
	right := moonsailWith(t, left, meshText(t))
	require.Equal(t, compare.Moonsail, right.Kind)
	require.Equal(t, compare.Unknown, left.Kind)
	for _, tc := range []struct {
		left, right compare.Kind
		deliberate  bool
	}{
		{compare.Istiod, compare.Moonsail, true}, {compare.Moonsail, compare.Istiod, true},
		{compare.Unknown, compare.Moonsail, true}, {compare.Istiod, compare.Unknown, true},
		{compare.Moonsail, compare.Moonsail, false}, {compare.Istiod, compare.Istiod, false}, {compare.Unknown, compare.Unknown, false},
	} {
		set := func(s *compare.Side, k compare.Kind) {
			s.Kind = k
			for _, p := range s.Proxies {
				p.Kind = k
			}
		}
		set(left, tc.left)
		set(right, tc.right)
		r := run(t, left, right)
		require.NotZero(t, r.Differ)
		require.Equal(t, tc.deliberate, r.Same(), "%s %s", tc.left, tc.right)
		if !tc.deliberate {
			require.Zero(t, r.Deliberate)
		}
	}
}

// planted are changes of mesh.yaml in one place, with the property that then differs.
var planted = map[string]struct {
	old, replacement string
	change           string
	object           string
}{
	"timeout":              {"timeout: 3s", "timeout: 4s", "timeout", "VirtualService/shop/reviews"},
	"retries":              {"attempts: 4", "attempts: 2", "retries", "VirtualService/shop/reviews"},
	"per-try timeout":      {"perTryTimeout: 1s", "perTryTimeout: 2s", "retries", "VirtualService/shop/reviews"},
	"retry condition":      {"retryOn: '5xx,connect-failure'", "retryOn: 5xx", "retries", "VirtualService/shop/reviews"},
	"rewritten path":       {"rewrite: {uri: /new}", "rewrite: {uri: /newer}", "path", "VirtualService/shop/reviews"},
	"rewritten host":       {"authority: x.example.com", "authority: y.example.com", "host", "VirtualService/shop/any"},
	"redirect":             {"redirectCode: 302", "redirectCode: 307", "answer", "VirtualService/shop/reviews"},
	"direct response":      {"status: 404", "status: 410", "answer", "VirtualService/shop/any"},
	"abort":                {"httpStatus: 418", "httpStatus: 503", "answer", "VirtualService/shop/reviews"},
	"delay":                {"fixedDelay: 2s", "fixedDelay: 3s", "fault", "VirtualService/shop/any"},
	"mirror":               {"    mirror: {host: reviews.shop.svc.cluster.local, subset: v2}\n", "", "mirror", "VirtualService/shop/reviews"},
	"weights":              {"weight: 90", "weight: 80", "destination", "VirtualService/shop/reviews"},
	"request header":       {"x-a: b", "x-a: c", "request headers", "VirtualService/shop/reviews"},
	"response header":      {"remove: [x-b]", "remove: [x-c]", "response headers", "VirtualService/shop/reviews"},
	"route of a gateway":   {"uri: {prefix: /api}", "uri: {prefix: /apis}", "answer", "VirtualService/shop/web"},
	"SNI route":            {"destination: {host: db.shop.svc.cluster.local}", "destination: {host: reviews.shop.svc.cluster.local}", "destination", ""},
	"hash":                 {"httpHeaderName: x-user", "httpHeaderName: x-other", "hash", "DestinationRule/shop/reviews"},
	"load balancing":       {"simple: ROUND_ROBIN", "simple: RANDOM", "load balancing", "DestinationRule/shop/dns"},
	"connection limit":     {"maxConnections: 7", "maxConnections: 8", "connection limits", "DestinationRule/shop/reviews"},
	"outlier detection":    {"consecutive5xxErrors: 3", "consecutive5xxErrors: 4", "outlier detection", "DestinationRule/shop/reviews"},
	"subset":               {"- labels: {version: v1}\n    name: v1", "- labels: {version: v2}\n    name: v1", "endpoints", "DestinationRule/shop/reviews"},
	"server identity":      {"        subjectAltNames: [pay.example.com]\n", "        subjectAltNames: [other.example.com]\n", "server identity", "DestinationRule/shop/pay"},
	"TLS origination":      {"    outlierDetection: {consecutiveGatewayErrors: 2}\n    tls: {mode: SIMPLE}\n", "", "encryption", "ServiceEntry/shop/dns"},
	"endpoint":             {"- {address: 192.0.2.7}", "- {address: 192.0.2.8}", "endpoints", "ServiceEntry/shop/pay"},
	"mutual TLS":           {"metadata: {name: default, namespace: shop}\nspec:\n  mtls: {mode: STRICT}", "metadata: {name: default, namespace: shop}\nspec:\n  mtls: {mode: PERMISSIVE}", "answer", "PeerAuthentication/shop/default"},
	"mutual TLS of a port": {"'9000': {mode: DISABLE}", "'9000': {mode: STRICT}", "answer", "PeerAuthentication/shop/frontend"},
	"policy's principal":   {"principals: [cluster.local/ns/shop/sa/frontend]", "principals: [cluster.local/ns/shop/sa/db]", "answer", "AuthorizationPolicy/shop/allow"},
	"policy's method":      {"methods: [GET]", "methods: [GET, PUT]", "answer", "AuthorizationPolicy/shop/allow"},
	"policy's path":        {"paths: [/admin*]", "paths: [/administration]", "answer", "AuthorizationPolicy/shop/deny"},
	"policy's action":      {"action: DENY", "action: AUDIT", "answer", "AuthorizationPolicy/shop/deny"},
	"policy's namespace":   {"namespaces: [shop]", "namespaces: [ops]", "answer", "AuthorizationPolicy/shop/db"},
	"policy's port":        {"ports: ['8090', '9000']", "ports: ['9000']", "answer", "AuthorizationPolicy/shop/claims"},
	"policy's host":        {"hosts: [any*]", "hosts: [none*]", "answer", "AuthorizationPolicy/shop/claims"},
	"tokens":               {"issuer: a", "issuer: b", "tokens", "RequestAuthentication/shop/tokens"},
	"audience":             {"audiences: [shop]", "audiences: [other]", "tokens", "RequestAuthentication/shop/tokens"},
	"egress proxy":         {"    egressProxy:\n      host: egress.edge.svc.cluster.local\n      port: {number: 15443}\n", "", "destination", "Sidecar/ops/ops"},
	"registry only":        {"mode: REGISTRY_ONLY", "mode: ALLOW_ANY", "answer", ""},
	"access log":           {"- {name: envoy}", "- {name: none-of-these}", "access log", ""},
	"port of a service":    {"port: 9080, protocol: TCP, targetPort: 9080", "port: 9081, protocol: TCP, targetPort: 9080", "answer", ""},
}

// TestPlantedDifferencesFromIstiod breaks Moonsail's side in one place: the report has the property and the object.
func TestPlantedDifferencesFromIstiod(t *testing.T) {
	left := istiod(t)
	mesh := meshText(t)
	for _, name := range short.Sample(slices.Sorted(maps.Keys(planted))) {
		tc := planted[name]
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(mesh, tc.old), "mesh.yaml has it once")
			r := run(t, left, moonsailWith(t, left, strings.Replace(mesh, tc.old, tc.replacement, 1)))
			require.False(t, r.Same())
			require.True(t, slices.ContainsFunc(r.Differences, func(d compare.Difference) bool {
				return slices.ContainsFunc(d.Changes, func(c compare.Change) bool { return c.What == tc.change }) &&
					(tc.object == "" || slices.Contains(d.Objects, tc.object)) && d.Deliberate == nil
			}), "%+v", r.Differences)
		})
	}
}
