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

// TestListenerFiltersThatDecideNothing checks that filters which read the client's address, or limit connections, do not end the preview.
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
