package preview

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPropertiesOfCalls checks changes that keep the destination of a call.
func TestPropertiesOfCalls(t *testing.T) {
	external := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}"
	rule := func(policy string) string {
		return "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: api, namespace: shop}\nspec: {host: api.example.com, trafficPolicy: {" + policy + "}}"
	}
	route := func(settings string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec: {hosts: [reviews], http: [{" + settings + ", route: [{destination: {host: reviews}}]}]}"
	}
	for name, tc := range map[string]struct {
		before, after string
		want          []string
	}{
		"TLS of a server": {
			rule("tls: {mode: SIMPLE, sni: a.example.com, subjectAltNames: [a.example.com], caCertificates: /etc/a.pem}"),
			rule("tls: {mode: SIMPLE, sni: b.example.com, subjectAltNames: [b.example.com], caCertificates: /etc/b.pem}"),
			[]string{"server identity", "SNI", "certificate authority"},
		},
		"a hash":   {rule("loadBalancer: {consistentHash: {httpHeaderName: x-a}}"), rule("loadBalancer: {consistentHash: {httpHeaderName: x-b}}"), []string{"hash"}},
		"codes":    {route(`retries: {attempts: 2, retryOn: "5xx,503"}`), route(`retries: {attempts: 2, retryOn: "5xx,502"}`), []string{"retries"}},
		"back-off": {route("retries: {attempts: 2}"), route("retries: {attempts: 2, backoff: 5s}"), []string{"retries"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := compare(t, shop(external, tc.before), shop(external, tc.after))
			require.NotEmpty(t, r.Differences)
			var what []string
			for _, c := range r.Differences[0].Changes {
				what = append(what, c.What)
			}
			require.Equal(t, tc.want, what)
		})
	}
	t.Run("a removed header", func(t *testing.T) {
		in := Input{
			Before: side(t, shop(route("timeout: 5s"))...), After: side(t, shop(route("timeout: 5s, headers: {request: {remove: [x-user]}}"))...),
			Calls: []Call{{From: "frontend-v1.shop", URL: "http://reviews:9080/", Headers: map[string]string{"X-User": "anna"}}},
		}
		Populate(&in.Before, &in.After, true)
		r, err := Compute(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, []string{"reviews:9080 request headers: none -> without x-user"}, changesOf(r))
	})
}
