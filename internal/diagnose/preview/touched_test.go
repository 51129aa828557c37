package preview

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTouched checks that calls are tried which a change concerns although their host does not change.
func TestTouched(t *testing.T) {
	const host = "reviews.shop.svc.cluster.local:9080"
	rule := func(subset string) string {
		return `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: db, namespace: shop}
spec: {host: frontend, subsets: [{name: ` + subset + `, labels: {version: v1}}]}`
	}
	toSubset := strings.Replace(reviewsTo("frontend"), "{host: frontend}", "{host: frontend, subset: v1}", 1)
	tcp := func(rule string) []string {
		return shop(rule, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: db, namespace: shop}
spec: {hosts: [db], tcp: [{route: [{destination: {host: frontend, subset: v1}}]}]}`)
	}
	virtual := func(name, to string) string {
		return `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own, namespace: shop}
spec: {hosts: [` + name + `], http: [{route: [{destination: {host: ` + to + `}}]}]}`
	}
	http := service("web", "{name: http, port: 80}")
	wiki := `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wiki, namespace: shop}
spec: {hosts: ["*.wiki.org"], ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]}`
	sni := `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: sni, namespace: shop}
spec: {hosts: [en.wiki.org], tls: [{match: [{port: 443, sniHosts: [en.wiki.org]}], route: [{destination: {host: db}}]}]}`
	for name, tc := range map[string]struct {
		before, after []string
		want          string
	}{
		"a subset that routes of another host use": {
			shop(rule("v1"), toSubset), shop(rule("v2"), toSubset), host + " answer: forwarded -> answers 503: no DestinationRule has the subset v1 of frontend.shop.svc.cluster.local",
		},
		"a subset that connections to another host use": {
			tcp(rule("v1")), tcp(rule("v2")), "db.shop.svc.cluster.local:5432 answer: forwarded -> closes the connection: no healthy upstream: no DestinationRule has the subset v1 of frontend.shop.svc.cluster.local",
		},
		"a host without a service": {
			shop(http, virtual("api.internal", "reviews")), shop(http, virtual("api.internal", "frontend")), "api.internal:80 destination: reviews.shop.svc.cluster.local:9080 -> frontend.shop.svc.cluster.local:8080",
		},
		"a host that a wildcard of a ServiceEntry has": {
			shop(wiki), shop(wiki, strings.Replace(virtual("en.wiki.org", "en.wiki.org"), "http: [{", "http: [{fault: {abort: {httpStatus: 500, percentage: {value: 100}}}, ", 1)),
			"en.wiki.org:80 answer: forwarded -> answers 500: a fault of 100% answered with 500",
		},
		"a server name that a wildcard of a ServiceEntry has": {
			shop(wiki), shop(wiki, sni), "en.wiki.org:443 destination: *.wiki.org:443 -> db.shop.svc.cluster.local:5432",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := compare(t, tc.before, tc.after)
			require.Positive(t, r.Tried)
			require.Contains(t, changesOf(r), tc.want)
		})
	}
}
