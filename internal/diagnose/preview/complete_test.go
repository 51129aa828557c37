package preview

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reviewsTo is a VirtualService that sends calls of reviews to another host.
func reviewsTo(host string) string {
	return `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews], http: [{route: [{destination: {host: ` + host + `}}]}]}`
}

func envoyFilter(app, patch string) string {
	return `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patch, namespace: shop}
spec: {workloadSelector: {labels: {app: ` + app + `}}, configPatches: [` + patch + `]}`
}

// TestUndecidedCalls checks that calls which the simulator cannot decide are counted, and do not hide the others.
func TestUndecidedCalls(t *testing.T) {
	rewrite := envoyFilter("frontend", `{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: "reviews.shop.svc.cluster.local:9080"}}},
patch: {operation: MERGE, value: {route: {path_rewrite_policy: {name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig, path_template_rewrite: "/a"}}}}}}`)
	r := compare(t, shop(rewrite, reviewsTo("reviews")), shop(rewrite, reviewsTo("frontend")))
	require.Equal(t, 3, r.Differ, "calls of the other workloads")
	require.Len(t, r.Undecided, 1)
	u := r.Undecided[0]
	require.Equal(t, "before the change", u.Side)
	require.Contains(t, u.Reason, "path_rewrite_policy is unknown to the simulator")
	require.Equal(t, 1, u.Count)
	require.Equal(t, "http://reviews.shop.svc.cluster.local:9080/", u.Call)
	require.Equal(t, "frontend-v1.shop", u.Proxy)
	require.NotEmpty(t, r.Notes)

	own := func(host string) string {
		return strings.Replace(reviewsTo(host), "http: [{", "http: [{match: [{sourceLabels: {app: frontend}}], ", 1)
	}
	r = compare(t, shop(rewrite, own("reviews")), shop(rewrite, own("frontend")))
	require.Zero(t, r.Differ)
	require.False(t, r.Alike())
}

// TestListenerFiltersThatDecideNothing checks that filters which read the client's address, or limit connections, do not
// end the preview.
func TestListenerFiltersThatDecideNothing(t *testing.T) {
	limit := envoyFilter("reviews", `{applyTo: LISTENER_FILTER, match: {context: SIDECAR_INBOUND}, patch: {operation: INSERT_FIRST, value: {name: limit,
typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.local_ratelimit.v3.LocalRateLimit, stat_prefix: x, token_bucket: {max_tokens: 10000, fill_interval: 1s}}}}}`)
	proxyProtocol := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: \"defaultConfig: {gatewayTopology: {proxyProtocol: {}}}\"}"
	gateway := `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec: {selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [reviews.shop.svc.cluster.local]}]}`
	entering := func(host string) string {
		return strings.Replace(reviewsTo(host), "hosts: [reviews]", "hosts: [reviews.shop.svc.cluster.local], gateways: [gw]", 1)
	}
	for name, tc := range map[string]struct {
		before, after []string
		differ        int
	}{
		"a limit of connections": {shop(limit, reviewsTo("reviews")), shop(limit, reviewsTo("frontend")), 4},
		"the PROXY protocol":     {shop(proxyProtocol, gateway, entering("reviews")), shop(proxyProtocol, gateway, entering("frontend")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := compare(t, tc.before, tc.after)
			require.Empty(t, r.Undecided)
			require.Equal(t, tc.differ, r.Differ)
		})
	}
}

// TestWrongCalls checks that calls which users give wrongly are errors.
func TestWrongCalls(t *testing.T) {
	for url, want := range map[string]string{
		"http://reviews/%zz": "not a URL",
		"ftp://reviews/":     "want http, http2",
	} {
		t.Run(url, func(t *testing.T) {
			in := Input{Before: side(t, shop()...), After: side(t, shop()...), Calls: []Call{{From: "frontend-v1.shop", URL: url}}}
			Populate(&in.Before, &in.After, true)
			_, err := Compute(t.Context(), in)
			require.ErrorContains(t, err, want)
		})
	}
}

// TestCallsInTurn checks that the first of too many calls are of all callers and to all targets.
func TestCallsInTurn(t *testing.T) {
	for name, tc := range map[string]struct{ callers, targets int }{
		"as many callers as targets": {30, 30},
		"few callers":                {3, 50},
		"few targets":                {50, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []Call
			for from := range tc.callers {
				for to := range tc.targets {
					calls = append(calls, Call{From: fmt.Sprint("caller-", from), URL: fmt.Sprint("http://", to, ".shop/")})
				}
			}
			callers, targets := map[string]bool{}, map[string]bool{}
			turns := inTurn(calls)
			for _, call := range turns[:max(tc.callers, tc.targets)] {
				callers[call.From], targets[call.URL] = true, true
			}
			require.Len(t, callers, tc.callers)
			require.Len(t, targets, tc.targets)
			require.ElementsMatch(t, calls, turns)
		})
	}
}

// TestTooManyCalls checks that a change which concerns all servers is found for each caller, and that calls which are left out count.
func TestTooManyCalls(t *testing.T) {
	var documents []string
	for i := range 6 {
		name := fmt.Sprintf("app%d", i)
		documents = append(documents, workload(name, "v1"), service(name, "{name: http, port: 8080}"))
	}
	for _, refused := range []string{"app0", "app5"} {
		t.Run(refused, func(t *testing.T) {
			deny := `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: istio-system}
spec: {action: DENY, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/` + refused + `]}}]}]}`
			in := Input{Before: side(t, documents...), After: side(t, append(documents, deny)...), MaxCalls: 6}
			Populate(&in.Before, &in.After, true)
			r, err := Compute(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, 6, r.Tried)
			require.Equal(t, 30, r.Untried)
			require.Len(t, r.Differences, 1)
			require.Equal(t, []string{refused + "-v1.shop"}, r.Differences[0].From)

			in.Calls = []Call{{From: "app1-v1.shop", URL: "http://app2:8080/"}, {From: "app2-v1.shop", URL: "http://app2:8080/"}}
			in.MaxCalls = 1
			r, err = Compute(t.Context(), in)
			require.NoError(t, err)
			require.Zero(t, r.Differ)
			require.False(t, r.Alike())
		})
	}
}

// egress sends calls of api.example.com through an egress gateway, as Istio documents it. Routes are those of the VirtualService.
func egress(routes string, more ...string) []string {
	return append([]string{
		strings.ReplaceAll(workload("egress", "v1"), "{app: egress", "{istio: egress, app: egress"),
		"apiVersion: v1\nkind: Service\nmetadata: {name: egress, namespace: shop}\nspec: {selector: {app: egress}, ports: [{name: https, port: 443, targetPort: 8443}]}",
		"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
		"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: egress, namespace: shop}\nspec: {selector: {istio: egress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [api.example.com], tls: {mode: ISTIO_MUTUAL}}]}",
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], gateways: [mesh, egress], http: [" +
			"{match: [{gateways: [mesh], port: 80}], route: [{destination: {host: egress, subset: api, port: {number: 443}}}]}" + routes + "]}",
	}, more...)
}

const (
	onward     = ", {match: [{gateways: [egress], port: 443}], route: [{destination: {host: api.example.com, port: {number: 80}}}]}"
	egressRule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: egress, namespace: shop}\nspec: {host: egress, subsets: [{name: api, labels: {istio: egress}, trafficPolicy: {tls: {mode: ISTIO_MUTUAL, sni: api.example.com}}}]}"
)

// TestClientsWithCertificates checks calls that enter at gateways with mutual TLS.
func TestClientsWithCertificates(t *testing.T) {
	route := func(host string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: gw, namespace: shop}\nspec: {hosts: [a.example.com], gateways: [gw], http: [{route: [{destination: {host: " + host + "}}]}]}"
	}
	gateway := func(tls string) string {
		return "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: gw, namespace: shop}\nspec: {selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {" + tls + "}}]}"
	}
	for name, tc := range map[string]struct{ tls, client string }{
		"MUTUAL":            {"mode: MUTUAL, credentialName: cred", "spiffe://cluster.local/ns/default/sa/default"},
		"MUTUAL with names": {"mode: MUTUAL, credentialName: cred, subjectAltNames: [client.example.com]", "client.example.com"},
		"ISTIO_MUTUAL":      {"mode: ISTIO_MUTUAL", "spiffe://cluster.local/ns/default/sa/default"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: cred, namespace: shop}\ntype: Opaque"
			r := compare(t, shop(secret, gateway(tc.tls), route("frontend")), shop(secret, gateway(tc.tls), route("reviews")))
			require.Len(t, r.Differences, 1)
			require.Contains(t, requestsOf(r), "https://a.example.com:443/ with the certificate of "+tc.client)
			require.Contains(t, changesOf(r), "a.example.com:443 destination: frontend.shop.svc.cluster.local:8080 -> reviews.shop.svc.cluster.local:9080")
		})
	}
}

// TestRoutersAtEndpoints checks that calls are followed through egress gateways.
func TestRoutersAtEndpoints(t *testing.T) {
	r := compare(t, shop(egress(onward, egressRule)...), shop(egress("", egressRule)...))
	require.Contains(t, changesOf(r), "api.example.com:8443 answer: forwarded -> answers 404")
	in := Input{Before: side(t, shop(egress(onward, egressRule)...)...), After: side(t, shop(egress("", egressRule)...)...), Calls: []Call{{From: "frontend-v1.shop", URL: "http://api.example.com/"}}}
	Populate(&in.Before, &in.After, true)
	r, err := Compute(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []string{"api.example.com server: egress-v1.shop forwards to api.example.com:80 -> egress-v1.shop answers 404"}, changesOf(r))
}

// TestHostHeader checks that a header Host of a given call is its authority.
func TestHostHeader(t *testing.T) {
	gateway := "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: gw, namespace: shop}\nspec: {selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example.com]}]}"
	route := func(host string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: gw, namespace: shop}\nspec: {hosts: [a.example.com], gateways: [gw], http: [{route: [{destination: {host: " + host + "}}]}]}"
	}
	in := Input{
		Before: side(t, shop(gateway, route("reviews"))...), After: side(t, shop(gateway, route("frontend"))...),
		Calls: []Call{{From: "ingress.shop", URL: "http://203.0.113.5/", Headers: map[string]string{"Host": "a.example.com"}}},
	}
	Populate(&in.Before, &in.After, true)
	r, err := Compute(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 1, r.Differ)
	require.Equal(t, []string{"http://203.0.113.5/ Host: a.example.com"}, requestsOf(r))
}

// TestRoutesWithSpecialMatches checks that each route gets a call, or is counted.
func TestRoutesWithSpecialMatches(t *testing.T) {
	const host = "reviews.shop.svc.cluster.local:9080"
	matching := func(match, to string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\n" +
			"spec: {hosts: [reviews], http: [{match: [" + match + "], route: [{destination: {host: " + to + "}}]}, {route: [{destination: {host: reviews}}]}]}"
	}
	for name, tc := range map[string]struct {
		match, call string
		untried     int
	}{
		"an authority":            {"{authority: {exact: reviews.shop}}", "http://" + host + "/ host: reviews.shop", 0},
		"a scheme":                {"{scheme: {exact: http}, uri: {exact: /a}}", "http://" + host + "/a", 0},
		"a scheme of other calls": {"{scheme: {exact: https}}", "", 1},
		"a percent sign":          {"{uri: {exact: /100%}}", "http://" + host + "/100%", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := compare(t, shop(matching(tc.match, "reviews")), shop(matching(tc.match, "frontend")))
			require.Empty(t, r.Undecided)
			require.Equal(t, tc.untried, r.Untried)
			if tc.call == "" {
				require.False(t, r.Alike())
				require.Contains(t, r.Notes, "no call could be made up for routes of reviews.shop.svc.cluster.local (1): give calls that they match with --calls")
				return
			}
			require.Len(t, r.Differences, 1)
			require.Equal(t, []string{tc.call}, requestsOf(r))
		})
	}
	t.Run("a percent sign of a policy", func(t *testing.T) {
		deny := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: deny, namespace: shop}\n" +
			"spec: {selector: {matchLabels: {app: reviews}}, action: DENY, rules: [{to: [{operation: {paths: [\"/100%/*\"]}}]}]}"
		r := compare(t, shop(), shop(deny))
		require.Empty(t, r.Undecided)
		require.Len(t, r.Differences, 1)
	})
}

// requestsOf returns the requests of the first difference.
func requestsOf(r *Report) []string {
	var out []string
	for _, c := range r.Differences[0].Calls {
		out = append(out, c.String())
	}
	return out
}
