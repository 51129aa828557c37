package preview

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
)

// side reads documents.
func side(t testing.TB, documents ...string) Side {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(strings.Join(documents, "\n---\n")), 0o600))
	tree, err := file.Analyze(dir, config.Decoder{Domain: model.DefaultMesh().Domain})
	require.NoError(t, err)
	require.Empty(t, tree.Problems)
	return Side{Objects: tree.Objects, Templates: tree.Templates}
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

// shop is a frontend that calls two versions of reviews, and a database.
func shop(more ...string) []string {
	return append([]string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}",
		workload("frontend", "v1"), workload("reviews", "v1"), workload("reviews", "v2"), workload("db", "v1"),
		service("frontend", "{name: http, port: 8080}"), service("reviews", "{name: http, port: 9080}"), service("db", "{name: tcp, port: 5432}"),
		`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}`,
	}, more...)
}

const all = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews], http: [{match: [{uri: {prefix: /v2}}], route: [{destination: {host: reviews, subset: v2}}]}, {route: [{destination: {host: reviews, subset: v1}}]}]}`

func compare(t *testing.T, before, after []string) *Report {
	t.Helper()
	in := Input{Before: side(t, before...), After: side(t, after...)}
	Populate(&in.Before, &in.After, true)
	r, err := Compute(context.Background(), in)
	require.NoError(t, err)
	return r
}

// changesOf returns the changes of calls, as "host what: before -> after".
func changesOf(r *Report) []string {
	var out []string
	for _, d := range r.Differences {
		for _, c := range d.Changes {
			out = append(out, d.Host+" "+c.What+": "+c.Before+" -> "+c.After)
		}
	}
	return out
}

func TestNothingChanges(t *testing.T) {
	r := compare(t, shop(all), shop("# a comment", all))
	require.True(t, r.Same())
	require.Empty(t, r.Objects)
	require.Equal(t, 4, r.Of)
	require.Zero(t, r.Tried)
	require.NotNil(t, r.Differences, "an empty list in JSON")
}

// TestChanges checks what calls each kind of change decides differently.
func TestChanges(t *testing.T) {
	const host = "reviews.shop.svc.cluster.local:9080"
	deny := `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec: {selector: {matchLabels: {app: reviews}}, action: DENY, rules: [{to: [{operation: {paths: [/admin*]}}]}]}`
	strict := "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: db, namespace: shop}\nspec: {selector: {matchLabels: {app: db}}, mtls: {mode: STRICT}}"
	alone := []string{
		strings.Replace(workload("alone", "v1"), "metadata: {labels", `metadata: {annotations: {sidecar.istio.io/interceptionMode: NONE}, labels`, 1),
		`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: alone, namespace: shop}
spec:
  workloadSelector: {labels: {app: alone}}
  egress: [{port: {number: 9080, name: http, protocol: HTTP}, bind: 127.0.0.1, captureMode: NONE, hosts: ["./*"]}]`,
	}
	for name, tc := range map[string]struct {
		before, after []string
		want          []string
		from          int // callers
		proxies       int
	}{
		"a canary": {
			shop(all), shop(strings.Replace(all, "subset: v1}}]}]", "subset: v1}, weight: 90}, {destination: {host: reviews, subset: v2}, weight: 10}]}]", 1)),
			[]string{
				host + " destination: v1 -> v1 90%, v2 10%",
				host + " endpoints: reviews-v1.shop -> reviews-v1.shop 90%, reviews-v2.shop 10%",
			}, 4, 4,
		},
		"a canary for a client that calls its sidecar, because nothing intercepts its calls": {
			append(shop(all), alone...), append(shop(strings.Replace(all, "subset: v1}}]}]", "subset: v2}}]}]", 1)), alone...),
			[]string{host + " destination: v1 -> v2", host + " endpoints: reviews-v1.shop -> reviews-v2.shop"}, 5, 5,
		},
		"a timeout": {
			shop(all), shop(strings.Replace(all, "http: [{", "http: [{timeout: 5s, ", 1)),
			[]string{host + " timeout: none -> 5s"}, 4, 4,
		},
		"a policy": {
			shop(all), shop(all, deny),
			[]string{host + " server: accepts -> answers 403, because of AuthorizationPolicy/shop/deny, rules[0]"}, 4, 2,
		},
		"a route beside a dry-run policy": {
			shop(all), shop(strings.Replace(all, "http: [{", "http: [{timeout: 5s, ", 1), strings.Replace(deny, "name: deny,", `name: deny, annotations: {istio.io/dry-run: "true"},`, 1)),
			[]string{host + " timeout: none -> 5s"}, 4, 4,
		},
		"strict mutual TLS loses a client without a certificate": {
			shop(strings.Replace(workload("old", "v1"), "labels: {app: old", "labels: {sidecar.istio.io/inject: \"false\", app: old", 1)),
			shop(strings.Replace(workload("old", "v1"), "labels: {app: old", "labels: {sidecar.istio.io/inject: \"false\", app: old", 1),
				"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: db, namespace: shop}\nspec: {host: db, trafficPolicy: {tls: {mode: DISABLE}}}", strict),
			[]string{
				"db.shop.svc.cluster.local:5432 server: accepts -> closes the connection: no filter chain matches",
				"db.shop.svc.cluster.local:5432 encryption: mutual TLS -> plain text",
				"db.shop.svc.cluster.local:5432 server: accepts -> closes the connection: no filter chain matches", // from the workload without a sidecar
			}, 4, 4,
		},
		"TLS without a certificate of the client under strict mutual TLS": {
			shop(strict), shop(strict, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: db, namespace: shop}\nspec: {host: db, trafficPolicy: {tls: {mode: SIMPLE}}}"),
			[]string{
				"db.shop.svc.cluster.local:5432 server: accepts -> closes the connection: the client has no certificate",
				"db.shop.svc.cluster.local:5432 encryption: mutual TLS -> TLS",
			}, 4, 4,
		},
		"TLS with a certificate of another authority under strict mutual TLS": {
			shop(strict), shop(strict, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: db, namespace: shop}\nspec: {host: db, trafficPolicy: {tls: {mode: MUTUAL, clientCertificate: /etc/certs/client.pem, privateKey: /etc/certs/key.pem}}}"),
			[]string{
				"db.shop.svc.cluster.local:5432 server: accepts -> closes the connection: a client with the certificate of file-cert:/etc/certs/client.pem~/etc/certs/key.pem is refused",
				"db.shop.svc.cluster.local:5432 server identity: spiffe://cluster.local/ns/shop/sa/db -> none",
				"db.shop.svc.cluster.local:5432 SNI: outbound_.5432_._.db.shop.svc.cluster.local -> auto",
				"db.shop.svc.cluster.local:5432 certificate authority: ROOTCA -> file-root:system",
				"db.shop.svc.cluster.local:5432 certificate: default -> file-cert:/etc/certs/client.pem~/etc/certs/key.pem",
			}, 4, 4,
		},
		"a service goes": {
			shop(), slicesWithout(shop(), "kind: Service\nmetadata: {name: db"), nil, 4, 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := compare(t, tc.before, tc.after)
			if tc.want != nil {
				require.Equal(t, tc.want, changesOf(r))
			}
			require.NotEmpty(t, r.Differences)
			require.Len(t, r.Differences[0].From, tc.from)
			require.Len(t, r.Proxies, tc.proxies)
			require.Positive(t, r.Bytes)
			require.GreaterOrEqual(t, r.Tried, r.Differ)
		})
	}
}

// TestOwnCalls checks that the calls that Compute makes up find what a change decides differently.
func TestOwnCalls(t *testing.T) {
	const host = "reviews.shop.svc.cluster.local:9080"
	policy := func(rule string) string {
		return `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: reviews, namespace: shop}
spec: {selector: {matchLabels: {app: reviews}}, action: ALLOW, rules: [` + rule + `]}`
	}
	web := policy("{from: [{source: {principals: [cluster.local/ns/shop/sa/frontend]}}]}")
	role := policy("{when: [{key: \"request.headers[x-role]\", values: [\"adm*\"]}]}")
	gateway := func(protocol, tls string) string {
		return `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 443, name: all, protocol: ` + protocol + `}, ` + tls + `hosts: ["*"]}]}`
	}
	passed := func(hosts, kind, match, to string) string {
		return `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gw, namespace: shop}
spec: {hosts: [` + hosts + `], gateways: [gw], ` + kind + `: [{match: [` + match + `], route: [{destination: {host: ` + to + `}}]}]}`
	}
	tls := func(to string) string {
		return passed(`"*.example.com"`, "tls", `{port: 443, sniHosts: ["*.example.com"]}`, to)
	}
	tcp := func(to string) string { return passed(`"*"`, "tcp", "{port: 443}", to) }
	for name, tc := range map[string]struct {
		before, after []string
		want          string
		calls         []string
		from          []string
		notes         []string
	}{
		"a caller has another service account": {
			before: shop(web), after: replaced(shop(web), "serviceAccountName: frontend", "serviceAccountName: other"),
			want: host + " server: accepts -> answers 403, because no rule of shop/reviews allows it", calls: []string{"http://" + host + "/"}, from: []string{"frontend-v1.shop"},
		},
		"a condition on a header": {
			before: shop(role), after: shop(strings.Replace(role, "adm*", "root", 1)),
			want: host + " server: answers 403, because no rule of shop/reviews allows it -> accepts", calls: []string{"http://" + host + "/ x-role: root"},
		},
		"TLS that a gateway passes on": {
			before: shop(gateway("TLS", "tls: {mode: PASSTHROUGH}, "), tls("db")), after: shop(gateway("TLS", "tls: {mode: PASSTHROUGH}, "), tls("frontend")),
			calls: []string{"tls://any.example.com:443"}, from: []string{"ingressgateway.shop"},
		},
		"TCP that a gateway passes on": {
			before: shop(gateway("TCP", ""), tcp("db")), after: shop(gateway("TCP", ""), tcp("frontend")),
			calls: []string{"tcp://example.com:443"}, from: []string{"ingressgateway.shop"},
		},
		"a condition that no call is made up for": {
			before: shop(), after: shop(policy("{from: [{source: {ipBlocks: [10.0.0.0/8]}}]}")),
			notes: []string{"conditions of changed AuthorizationPolicies on source.ip are not tried: give calls with --calls"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := compare(t, tc.before, tc.after)
			require.NotEmpty(t, r.Differences)
			require.Subset(t, r.Notes, tc.notes)
			if tc.want != "" {
				require.Contains(t, changesOf(r), tc.want)
			}
			var calls, from []string
			for _, d := range r.Differences {
				for i := range d.Calls {
					calls = append(calls, d.Calls[i].String())
				}
				from = append(from, d.From...)
			}
			require.Subset(t, calls, tc.calls)
			require.Subset(t, from, tc.from)
		})
	}
}

func slicesWithout(documents []string, part string) []string {
	var out []string
	for _, d := range documents {
		if !strings.Contains(d, part) {
			out = append(out, d)
		}
	}
	return out
}

func replaced(documents []string, was, is string) []string {
	var out []string
	for _, d := range documents {
		out = append(out, strings.ReplaceAll(d, was, is))
	}
	return out
}

// BenchmarkCompute compares a mesh of 200 services and workloads before and after the change of a route.
func BenchmarkCompute(b *testing.B) {
	var documents []string
	for i := range 200 {
		name := fmt.Sprintf("app%03d", i)
		documents = append(documents, workload(name, "v1"), service(name, "{name: http, port: 8080}"))
	}
	route := "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\nspec: {hosts: [app007], http: [{timeout: 5s, route: [{destination: {host: app007}}]}]}"
	in := Input{Before: side(b, documents...), After: side(b, append(documents, route)...)}
	Populate(&in.Before, &in.After, true)
	for b.Loop() {
		r, err := Compute(context.Background(), in)
		require.NoError(b, err)
		require.Equal(b, 200, r.Differ)
	}
}
