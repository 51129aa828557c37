package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// moreReviews returns Pods of reviews besides those in `services`, one for each label version, and their sidecars. Their endpoints
// are 10.1.1.10, 10.1.1.11, and so on.
func moreReviews(versions ...string) (docs []string, sidecars map[string][3]string) {
	sidecars = map[string][3]string{}
	var endpoints strings.Builder
	for i, v := range versions {
		name, ip := fmt.Sprintf("%s-%d", v, i), fmt.Sprintf("10.1.1.%d", i+10)
		sidecars[name] = [3]string{ip, "reviews", v}
		fmt.Fprintf(&endpoints, "- {addresses: [%s], targetRef: {kind: Pod, name: %s, namespace: shop}}\n", ip, name)
		docs = append(docs, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: reviews, version: %s, statefulset.kubernetes.io/pod-name: %s, security.istio.io/tlsMode: istio}}
spec: {}
status: {podIP: %s, podIPs: [{ip: %s}]}`, name, v, name, ip, ip))
	}
	return append(docs, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews-y, namespace: shop, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: tcp-raw, port: 9090}]
endpoints:
`+endpoints.String()), sidecars
}

// TestManyEndpoints checks verdicts about more endpoints than are followed.
func TestManyEndpoints(t *testing.T) {
	policy := func(name, spec string) string { return document("security", "AuthorizationPolicy", name, spec) }
	const assumes = "this answer follows the sidecars of %d endpoints, and assumes that others of the same workloads decide the same"
	for name, tc := range map[string]struct {
		versions []string
		docs     []string
		want     string
		notes    []string
		followed int
	}{
		"the fourth endpoint's policy denies": {[]string{"v3"}, []string{policy("no-v3", "{selector: {matchLabels: {version: v3}}}")},
			"75 % reaches a-1.shop 33.3 %, a-2.shop 33.3 %, b-1.shop 33.3 %; 25 % 403 denied by AuthorizationPolicy shop/no-v3 at v3-0.shop: no rule allows it", nil, 4},
		"many of one workload": {strings.Fields(strings.Repeat("v3 ", 17)), []string{policy("no-v3", "{selector: {matchLabels: {version: v3}}}")},
			"85 % 403 denied by AuthorizationPolicy shop/no-v3 at v3-0.shop, v3-1.shop, v3-2.shop and 14 more: no rule allows it; 15 % reaches a-1.shop 33.3 %, a-2.shop 33.3 %, b-1.shop 33.3 %",
			[]string{fmt.Sprintf(assumes, 4)}, 4},
		"all accept":         {[]string{"v1", "v1"}, nil, "reaches a-1.shop 20 %, a-2.shop 20 %, b-1.shop 20 % and 2 more", []string{fmt.Sprintf(assumes, 3)}, 3},
		"too many workloads": {[]string{"v3", "v4", "v5", "v6", "v7", "v8", "v9"}, nil, "80 % reaches a-1.shop 12.5 %, a-2.shop 12.5 %, b-1.shop 12.5 % and 5 more; 20 % reaches v8-5.shop 50 %, v9-6.shop 50 %, if its sidecar accepts the call", nil, 8},
		"all deny":           {[]string{"v1"}, []string{policy("no-post", "{action: DENY, rules: [{to: [{operation: {methods: [GET]}}]}]}")}, "403 denied by AuthorizationPolicy shop/no-post at a-1.shop, a-2.shop, b-1.shop and 1 more", []string{fmt.Sprintf(assumes, 3)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			docs, sidecars := moreReviews(tc.versions...)
			why := whyOf(t, append(docs, tc.docs...), Call{To: "http://reviews/"}, sidecars)
			require.Equal(t, tc.want, why.Verdict.Text)
			require.Equal(t, tc.notes, why.Notes)
			require.Len(t, why.Inbound, tc.followed)
		})
	}
}

// TestHops checks the order of endpoints of several clusters, and that its time is not quadratic.
func TestHops(t *testing.T) {
	endpoints := func(n int) (out []simulate.Endpoint) {
		for i := range n {
			out = append(out, simulate.Endpoint{Address: fmt.Sprint(i), Percent: 1})
		}
		return out
	}
	r := &simulate.Result{Upstreams: []simulate.Upstream{
		{Cluster: "a", Percent: 50, Endpoints: endpoints(3)},
		{Cluster: "unused", Endpoints: endpoints(1)},
		{Cluster: "b", Percent: 50, Endpoints: append([]simulate.Endpoint{{Address: "unhealthy"}}, endpoints(1)...)},
	}}
	var got []string
	for _, h := range hops(r) {
		got = append(got, h.upstream.Cluster+h.endpoint.Address)
	}
	require.Equal(t, []string{"a0", "b0", "a1", "a2"}, got)

	const many = 30000 // 0.01 s; with quadratic time minutes
	r.Upstreams[0].Endpoints = endpoints(many)
	began := time.Now()
	require.Len(t, hops(r), many+1)
	var ends endList
	for i := range many {
		ends.add(&End{Percent: 1, Outcome: Reaches, At: []string{fmt.Sprint(i)}})
	}
	require.Len(t, ends[0].At, many)
	require.Less(t, time.Since(began), 2*time.Second)
}
