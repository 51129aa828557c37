package compare_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// objects reads documents.
func objects(t testing.TB, documents ...string) preview.Side {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(strings.Join(documents, "\n---\n")), 0o600))
	tree, err := file.Analyze(dir, config.Decoder{Domain: model.DefaultMesh().Domain})
	require.NoError(t, err)
	require.Empty(t, tree.Problems)
	return preview.Side{Objects: tree.Objects, Templates: tree.Templates}
}

// compiled returns what Moonsail makes of two sets of documents.
func compiled(t testing.TB, left, right []string) (l, r *compare.Side) {
	t.Helper()
	a, b := objects(t, left...), objects(t, right...)
	preview.Populate(&a, &b, true)
	l, failures, err := compare.Compiled("old", nil, a)
	require.NoError(t, err)
	require.Empty(t, failures)
	r, failures, err = compare.Compiled("new", nil, b)
	require.NoError(t, err)
	require.Empty(t, failures)
	return l, r
}

func workload(name, version string) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: ` + name + `-` + version + `, namespace: shop}
spec:
  selector: {matchLabels: {app: ` + name + `, version: ` + version + `}}
  template:
    metadata: {labels: {app: ` + name + `, version: ` + version + `}}
    spec: {serviceAccountName: ` + name + `, containers: [{name: app, image: app}]}`
}

func service(name, port string) string {
	return `apiVersion: v1
kind: Service
metadata: {name: ` + name + `, namespace: shop}
spec: {selector: {app: ` + name + `}, ports: [` + port + `]}`
}

// shop is a frontend that calls two versions of reviews, a database and a service outside of the mesh.
var shop = map[string]string{
	"namespace":     "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}",
	"frontend":      workload("frontend", "v1"),
	"reviews-v1":    workload("reviews", "v1"),
	"reviews-v2":    workload("reviews", "v2"),
	"db":            workload("db", "v1"),
	"svc-frontend":  service("frontend", "{name: http, port: 8080}"),
	"svc-reviews":   service("reviews", "{name: http, port: 9080}"),
	"svc-db":        service("db", "{name: tcp, port: 5432}"),
	"mtls":          "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: STRICT}}",
	"service-entry": "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: pay, namespace: shop}\nspec: {hosts: [pay.example.com], addresses: [10.9.9.9], ports: [{number: 443, name: tls, protocol: TLS}], resolution: STATIC, endpoints: [{address: 192.0.2.7}], subjectAltNames: [pay.example.com]}",
	"dr-pay":        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: pay, namespace: shop}\nspec: {host: pay.example.com, trafficPolicy: {tls: {mode: SIMPLE}}}",
	"dr":            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: shop}\nspec: {host: reviews, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}, outlierDetection: {consecutive5xxErrors: 3}}, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}",
	"vs": `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews], http: [{match: [{uri: {prefix: /v2}}], timeout: 3s, retries: {attempts: 4, perTryTimeout: 1s}, route: [{destination: {host: reviews, subset: v2}}]}, {headers: {request: {add: {x-a: b}}}, mirror: {host: reviews, subset: v2}, route: [{destination: {host: reviews, subset: v1}}]}]}`,
	"allow": `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: allow, namespace: shop}
spec: {selector: {matchLabels: {app: reviews}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/frontend]}}], to: [{operation: {paths: [/v2*, /], methods: [GET]}}]}]}`,
	"jwt": `apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec: {selector: {matchLabels: {app: frontend}}, jwtRules: [{issuer: a, jwks: '{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}]}'}]}`,
}

// except returns the documents of the shop without some, and with others.
func except(without string, more ...string) []string {
	var out []string
	for name, text := range shop {
		if name != without {
			out = append(out, text)
		}
	}
	return append(out, more...)
}

// changed returns the documents of the shop with one text in one of them replaced.
func changed(t *testing.T, name, old, replacement string) []string {
	t.Helper()
	require.Contains(t, shop[name], old)
	return except(name, strings.Replace(shop[name], old, replacement, 1))
}

func run(t testing.TB, left, right *compare.Side) *compare.Report {
	t.Helper()
	r, err := compare.Run(context.Background(), left, right, nil)
	require.NoError(t, err)
	return r
}

func TestEqualSidesAreAlike(t *testing.T) {
	r := run2(t, except(""), except(""))
	require.True(t, r.Same())
	require.Empty(t, r.Differences)
	require.Empty(t, r.Undecided)
	require.Equal(t, 4, r.Proxies)
	require.Equal(t, r.Calls, r.Alike)
	require.Greater(t, r.Calls, 100)
}

func run2(t testing.TB, left, right []string) *compare.Report {
	t.Helper()
	l, r := compiled(t, left, right)
	return run(t, l, r)
}

// TestPlantedDifferences changes one thing on one side: the report has it, and the object.
func TestPlantedDifferences(t *testing.T) {
	for name, tc := range map[string]struct {
		right  []string
		change string
		object string
	}{
		"timeout":           {changed(t, "vs", "timeout: 3s", "timeout: 4s"), "timeout", "VirtualService/shop/reviews"},
		"retries":           {changed(t, "vs", "attempts: 4", "attempts: 1"), "retries", "VirtualService/shop/reviews"},
		"per-try timeout":   {changed(t, "vs", "perTryTimeout: 1s", "perTryTimeout: 2s"), "retries", "VirtualService/shop/reviews"},
		"subset":            {changed(t, "vs", "subset: v1", "subset: v2"), "destination", "VirtualService/shop/reviews"},
		"mirror":            {changed(t, "vs", "mirror: {host: reviews, subset: v2}, ", ""), "mirror", "VirtualService/shop/reviews"},
		"header":            {changed(t, "vs", "x-a: b", "x-a: c"), "request headers", "VirtualService/shop/reviews"},
		"connection limit":  {changed(t, "dr", "maxConnections: 7", "maxConnections: 8"), "connection limits", "DestinationRule/shop/reviews"},
		"outlier detection": {changed(t, "dr", "consecutive5xxErrors: 3", "consecutive5xxErrors: 4"), "outlier detection", "DestinationRule/shop/reviews"},
		"policy removed":    {except("allow"), "answer", "AuthorizationPolicy/shop/allow"},
		"policy wider":      {changed(t, "allow", "methods: [GET]", "methods: [GET, POST]"), "answer", "AuthorizationPolicy/shop/allow"},
		"principal":         {changed(t, "allow", "sa/frontend", "sa/other"), "answer", "AuthorizationPolicy/shop/allow"},
		"mutual TLS":        {changed(t, "mtls", "STRICT", "PERMISSIVE"), "answer", ""},
		"tokens":            {except("jwt"), "answer", ""},
		"issuer":            {changed(t, "jwt", "issuer: a", "issuer: b"), "tokens", ""},
		"server identity":   {changed(t, "service-entry", "subjectAltNames: [pay.example.com]", "subjectAltNames: []"), "server identity", ""},
		"TLS origination":   {except("dr-pay"), "encryption", ""},
		"endpoint":          {changed(t, "service-entry", "192.0.2.7", "192.0.2.8"), "endpoints", ""},
		"service":           {except("svc-db"), "destination", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := run2(t, except(""), tc.right)
			require.False(t, r.Same())
			require.True(t, slices.ContainsFunc(r.Differences, func(d compare.Difference) bool {
				return slices.ContainsFunc(d.Changes, func(c compare.Change) bool { return c.What == tc.change }) &&
					(tc.object == "" || slices.Contains(d.Objects, tc.object))
			}), "%+v", r.Differences)
		})
	}
}

// TestDumpsAreAlike writes each proxy as a config dump and reads it again: nothing may be lost.
func TestDumpsAreAlike(t *testing.T) {
	left, _ := compiled(t, except(""), except(""))
	read := &compare.Side{Name: "dumps"}
	for _, p := range left.Proxies {
		var b bytes.Buffer
		require.NoError(t, compare.WriteDump(&b, p))
		back, err := compare.ParseDump(b.Bytes(), server.ProxyOf)
		require.NoError(t, err)
		require.Equal(t, p.Name, back.Name)
		require.Equal(t, p.IPs, back.IPs)
		require.Equal(t, compare.Moonsail, back.Kind)
		read.Proxies = append(read.Proxies, back)
	}
	r := run(t, left, read)
	require.True(t, r.Same(), "%+v %+v", r.Differences, r.Undecided)
	require.Equal(t, len(left.Proxies), r.Proxies)
}

func TestDumpsThatCannotBeRead(t *testing.T) {
	for text, problem := range map[string]string{
		`{`: "config dump: unexpected end", `{"configs": []}`: "no bootstrap with a node id",
		`{"configs": [{"bootstrap": {"node": {"id": "x"}}}]}`:                                        "node id",
		`{"configs": [{"bootstrap": {"node": {"id": "sidecar~10.0.0.1~a.b~b.svc.cluster.local"}}}]}`: "no dynamic listeners",
	} {
		_, err := compare.ParseDump([]byte(text), server.ProxyOf)
		require.ErrorContains(t, err, problem, text)
	}
}

// TestKindOfDumps reads the control plane from the versions that Envoy has.
func TestKindOfDumps(t *testing.T) {
	const dump = `{"configs": [{"bootstrap": {"node": {"id": "sidecar~10.0.0.1~a.b~b.svc.cluster.local"}}}, {"version_info": "CLUSTERS", "dynamic_listeners": [
{"active_state": {"version_info": "LISTENER", "listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "x"}}}]}]}`
	for _, tc := range []struct {
		clusters, listener string
		want               compare.Kind
	}{
		{"", "", compare.Unknown},
		{"v1", "2026-01-02/3", compare.Unknown},
		{"2026-01-02T15:04:05Z/3", "", compare.Istiod},
		{"", "2026-01-02T15:04:05+01:00/12", compare.Istiod},
		{"17", "", compare.Moonsail},
		{"", "c0ffee0123456789", compare.Moonsail},
	} {
		p, err := compare.ParseDump([]byte(strings.NewReplacer("CLUSTERS", tc.clusters, "LISTENER", tc.listener).Replace(dump)), server.ProxyOf)
		require.NoError(t, err)
		require.Equal(t, tc.want, p.Kind, "%q %q", tc.clusters, tc.listener)
	}
}

// TestUntried checks that routes and operations without a call are counted.
func TestUntried(t *testing.T) {
	var paths []string
	for i := range 69 { // one more is that of dot segments with parameters
		paths = append(paths, fmt.Sprintf("/p%d", i))
	}
	many := changed(t, "allow", "/v2*, /", strings.Join(paths, ", "))
	r := run2(t, many, many)
	require.Zero(t, r.Differ)
	require.Equal(t, 10*3*2, r.Untried, "10 paths at 3 ports of 2 proxies, although both sides and several filter chains have them")
	require.False(t, r.Same())

	odd := changed(t, "vs", "uri: {prefix: /v2}", `uri: {regex: '/a\b/.*'}`)
	r = run2(t, odd, odd)
	require.Zero(t, r.Differ)
	require.Positive(t, r.Untried)
}

// TestCallsInsideTLS makes calls for a gateway's routes of gRPC and CONNECT.
func TestCallsInsideTLS(t *testing.T) {
	pack := func(m proto.Message) *anypb.Any {
		packed, err := anypb.New(m)
		require.NoError(t, err)
		return packed
	}
	manager := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
		VirtualHosts: []*routev3.VirtualHost{{Name: "a", Domains: []string{"a.example.com"}, Routes: []*routev3.Route{
			{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/echo"}, Grpc: &routev3.RouteMatch_GrpcRouteMatchOptions{}}},
			{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_ConnectMatcher_{ConnectMatcher: &routev3.RouteMatch_ConnectMatcher{}}}},
		}}},
	}}}
	address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "0.0.0.0", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 443},
	}}}
	p := &compare.Proxy{Name: "gateway.edge", Gateway: true, IPs: []string{"10.0.0.1"}, World: &simulate.World{Listeners: []*listenerv3.Listener{{
		Name: "https", Address: address, FilterChains: []*listenerv3.FilterChain{{
			FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: []string{"a.example.com"}},
			TransportSocket:  &corev3.TransportSocket{Name: "tls"},
			Filters:          []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)}}},
		}},
	}}}}
	calls, untried := compare.Calls(p, p)
	require.Equal(t, 2, untried, "CONNECT with and without a client certificate")
	require.True(t, slices.ContainsFunc(calls, func(c compare.Call) bool {
		return c.Protocol == simulate.HTTPS && c.SNI == "a.example.com" && c.Method == http.MethodPost && c.Path == "/echo" && c.Headers["content-type"] == "application/grpc"
	}), "%v", calls)
}

func TestReportAsHTML(t *testing.T) {
	r := run2(t, except(""), changed(t, "vs", "timeout: 3s", "timeout: 4s"))
	var b strings.Builder
	require.NoError(t, compare.WriteHTML(&b, r))
	for _, want := range []string{"<code>VirtualService/shop/reviews</code>", "<td>timeout</td><td>3s</td><td>4s</td>", r.Summary()} {
		require.Contains(t, b.String(), want)
	}
}

func TestSummary(t *testing.T) {
	for want, r := range map[string]compare.Report{
		"1,204 of 1,204 calls of 86 proxies are decided alike":                                  {Proxies: 86, Calls: 1204, Alike: 1204},
		"1,201 of 1,204 calls of 86 proxies are decided alike; 3 differ":                        {Proxies: 86, Calls: 1204, Alike: 1201, Differ: 3},
		"1,201 of 1,204 calls of 86 proxies are decided alike; 3 differ, on purpose":            {Proxies: 86, Calls: 1204, Alike: 1201, Differ: 3, Deliberate: 3},
		"1,201 of 1,204 calls of 86 proxies are decided alike; 3 differ, 1 of them on purpose":  {Proxies: 86, Calls: 1204, Alike: 1201, Differ: 3, Deliberate: 1},
		"1 of 1 calls of 1 proxy are decided alike; 2 are undecided; 1,000 more were not tried": {Proxies: 1, Calls: 1, Alike: 1, Untried: 1000, Undecided: []outcome.Undecided{{Count: 2}}},
	} {
		require.Equal(t, want, r.Summary())
	}
}
