package explain

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// compiledProxies have what the pipeline makes for them.
type compiledProxies struct {
	distribution.Proxies
	world   *compiledWorld
	proxies []*model.Proxy
	tables  map[string][]*table.Table
}

func (c *compiledProxies) Intended(id string, types ...resource.Type) (*model.Proxy, []distribution.Intended, bool) {
	for _, p := range c.proxies {
		if p.Name != id {
			continue
		}
		if c.tables[id] == nil {
			c.tables[id] = c.world.tables(p)
		}
		var out []distribution.Intended
		for _, tab := range c.tables[id] {
			for _, typ := range types {
				for e := range tab.State().All(typ) {
					out = append(out, distribution.Intended{Type: typ, Entry: e, State: tab.State(), Status: ledger.Has})
				}
			}
		}
		return p, out, true
	}
	return nil, nil, false
}

func (c *compiledProxies) OnDemand(string) []distribution.Intended { return nil }

func (c *compiledProxies) ProxyAt(ip string) (string, bool) {
	for _, p := range c.proxies {
		if p.IPs[0] == ip {
			return p.Name, true
		}
	}
	return "", false
}

func (c *compiledProxies) SidecarOf(id string) (model.Key, bool) {
	for _, o := range c.world.objects {
		for _, p := range c.proxies {
			if s, ok := o.(*model.Sidecar); ok && p.Name == id && s.IsFor(p.Namespace, p.Labels, "istio-system") {
				return s.Key, true
			}
		}
	}
	return model.Key{}, false
}

// document writes an object of Istio's API.
func document(group, kind, name, spec string) string {
	return "apiVersion: " + group + ".istio.io/v1\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: shop}\nspec: " + spec
}

const (
	services = `apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.0.0.2, selector: {app: reviews}, ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp-raw, port: 90, targetPort: 9090}]}
---
apiVersion: v1
kind: Service
metadata: {name: idle, namespace: shop}
spec: {clusterIP: 10.0.0.3, selector: {app: idle}, ports: [{name: http, port: 80}, {name: tcp-raw, port: 90}]}
---
apiVersion: v1
kind: Service
metadata: {name: hidden, namespace: data, annotations: {networking.istio.io/exportTo: .}}
spec: {clusterIP: 10.0.0.4, selector: {app: hidden}, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews-x, namespace: shop, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
endpoints:
- {addresses: [10.1.0.1], targetRef: {kind: Pod, name: a-1, namespace: shop}}
- {addresses: [10.1.0.2], targetRef: {kind: Pod, name: a-2, namespace: shop}}
- {addresses: [10.1.0.3], targetRef: {kind: Pod, name: b-1, namespace: shop}}
ports: [{name: http, port: 8080}, {name: tcp-raw, port: 9090}]
---
apiVersion: v1
kind: Pod
metadata: {name: a-1, namespace: shop, labels: {app: reviews, version: v1, security.istio.io/tlsMode: istio}}
spec: {}
status: {podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a-2, namespace: shop, labels: {app: reviews, version: v1, security.istio.io/tlsMode: istio}}
spec: {}
status: {podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b-1, namespace: shop, labels: {app: reviews, version: v2, security.istio.io/tlsMode: istio}}
spec: {}
status: {podIP: 10.1.0.3, podIPs: [{ip: 10.1.0.3}]}`
)

// verdictOf returns the verdict of a call of web-1 in namespace shop, or of the gateway edge-1, and its reasons.
func verdictOf(t *testing.T, docs []string, call Call) string {
	t.Helper()
	why := whyOf(t, docs, call, nil)
	return strings.Join(append([]string{why.Verdict.Text}, why.Verdict.Reasons...), "\n")
}

// whyOf answers as verdictOf. more are addresses, service accounts and versions of more sidecars, by name.
func whyOf(t *testing.T, docs []string, call Call, more map[string][3]string) *Why {
	t.Helper()
	w := compile(t, append(strings.Split(services, "\n---\n"), docs...)...)
	proxies := &compiledProxies{world: w, tables: map[string][]*table.Table{}}
	sidecars := map[string][3]string{"web-1": {"10.1.0.9", "web", ""}, "a-1": {"10.1.0.1", "reviews", "v1"}, "a-2": {"10.1.0.2", "reviews", "v1"}, "b-1": {"10.1.0.3", "reviews", "v2"}}
	maps.Copy(sidecars, more)
	for name, of := range sidecars {
		proxies.proxies = append(proxies.proxies, &model.Proxy{
			ID: name, Name: name, Namespace: "shop", Type: model.ProxySidecar, IPs: []string{of[0]}, Identity: true, ServiceAccount: of[1],
			Labels: map[string]string{"app": of[1], "version": of[2]},
		})
	}
	proxies.proxies = append(proxies.proxies, &model.Proxy{ID: "edge-1", Name: "edge-1", Namespace: "shop", Type: model.ProxyRouter, IPs: []string{"10.1.0.8"},
		Labels: map[string]string{"istio": "edge"}, Identity: true})
	if call.From == "" {
		call.From = "web-1"
	}
	why, err := (&Explainer{Snapshot: w.store.Snapshot, Proxies: proxies}).Why(call)
	require.NoError(t, err)
	require.NotEmpty(t, why.Verdict.Ends)
	return why
}

// TestVerdicts checks what `why` says first about calls.
func TestVerdicts(t *testing.T) {
	route := func(http string) string {
		return document("networking", "VirtualService", "reviews", "{hosts: [reviews], http: ["+http+"]}")
	}
	const to = "route: [{destination: {host: reviews}}]"
	subsets := document("networking", "DestinationRule", "reviews", "{host: reviews, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}")
	policy := func(name, spec string) string { return document("security", "AuthorizationPolicy", name, spec) }
	sidecar := func(spec string) string { return document("networking", "Sidecar", "own", spec) }
	registry := sidecar("{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}")
	for name, tc := range map[string]struct {
		docs []string
		call Call
		want string
	}{
		"all endpoints": {nil, Call{To: "http://reviews/"}, "reaches a-1.shop 33.3 %, a-2.shop 33.3 %, b-1.shop 33.3 %"},
		"one endpoint":  {[]string{subsets, route("{route: [{destination: {host: reviews, subset: v2}}]}")}, Call{To: "http://reviews/"}, "reaches b-1.shop"},
		"an empty policy": {[]string{policy("deny-all", "{}")}, Call{To: "http://reviews/"},
			"403 denied by AuthorizationPolicy shop/deny-all at a-1.shop, a-2.shop, b-1.shop: no rule allows it\nthe call is GET / from principal cluster.local/ns/shop/sa/web\nAuthorizationPolicy shop/deny-all has no rules, so it allows nothing"},
		"a rule of DENY": {[]string{policy("no-post", "{action: DENY, rules: [{to: [{operation: {methods: [POST]}}]}]}")}, Call{To: "http://reviews/", Method: "POST"},
			"403 denied by AuthorizationPolicy shop/no-post at a-1.shop, a-2.shop, b-1.shop\nthe call is POST / from principal cluster.local/ns/shop/sa/web\nAuthorizationPolicy shop/no-post rules[0] matches calls to methods POST"},
		"no rule of ALLOW": {[]string{policy("gets", "{rules: [{to: [{operation: {methods: [GET]}}]}]}"), policy("puts", "{rules: [{to: [{operation: {methods: [PUT]}}]}]}")},
			Call{To: "http://reviews/", Method: "POST"}, "403 denied by AuthorizationPolicy shop/gets, shop/puts at a-1.shop, a-2.shop, b-1.shop: no rule allows it\nthe call is POST / from principal cluster.local/ns/shop/sa/web\nAuthorizationPolicy shop/gets rules[0] allows calls to methods GET\nAuthorizationPolicy shop/puts rules[0] allows calls to methods PUT"},
		"gRPC": {[]string{policy("deny-all", "{}")}, Call{To: "grpc://reviews/p.S/M", Headers: map[string]string{"content-type": "application/grpc"}},
			"gRPC status 7 (PERMISSION_DENIED) denied by AuthorizationPolicy shop/deny-all at a-1.shop, a-2.shop, b-1.shop: no rule allows it\nthe call is POST /p.S/M from principal cluster.local/ns/shop/sa/web\nAuthorizationPolicy shop/deny-all has no rules, so it allows nothing"},
		"a part is denied": {[]string{subsets, policy("no-v2", "{selector: {matchLabels: {version: v2}}}"),
			route("{route: [{destination: {host: reviews, subset: v1}, weight: 90}, {destination: {host: reviews, subset: v2}, weight: 10}]}")}, Call{To: "http://reviews/"},
			"90 % reaches a-1.shop 50 %, a-2.shop 50 %; 10 % 403 denied by AuthorizationPolicy shop/no-v2 at b-1.shop: no rule allows it\nthe call is GET / from principal cluster.local/ns/shop/sa/web\nAuthorizationPolicy shop/no-v2 has no rules, so it allows nothing"},
		"a connection is denied": {[]string{policy("deny-all", "{}")}, Call{To: "tcp://reviews:90"},
			"connection denied by AuthorizationPolicy shop/deny-all at a-1.shop, a-2.shop, b-1.shop: no rule allows it\nthe call is a connection from principal cluster.local/ns/shop/sa/web\nAuthorizationPolicy shop/deny-all has no rules, so it allows nothing"},
		"plain text": {[]string{document("security", "PeerAuthentication", "strict", "{mtls: {mode: STRICT}}"),
			document("networking", "DestinationRule", "reviews", "{host: reviews, trafficPolicy: {tls: {mode: DISABLE}}}")}, Call{To: "http://reviews/"},
			"503 from web-1.shop: connection closed by a-1.shop, a-2.shop, b-1.shop: it accepts only mutual TLS, and the call is in plain text: PeerAuthentication shop/strict"},
		"a token": {[]string{document("security", "RequestAuthentication", "users", `{jwtRules: [{issuer: a.example, jwks: '{"keys": [{"kty": "oct", "kid": "a", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]}'}]}`)},
			Call{To: "http://reviews/", Headers: map[string]string{"authorization": "Bearer x.y.z"}}, "401 denied by RequestAuthentication shop/users at a-1.shop, a-2.shop, b-1.shop: token cannot be read: illegal base64 data at input byte 0"},
		"no endpoint": {nil, Call{To: "http://idle/"}, "503 from web-1.shop: no healthy endpoint in idle.shop.svc.cluster.local:80"},
		"a subset that does not exist": {[]string{subsets, route("{match: [{uri: {prefix: /a}}], " + to + "}, {route: [{destination: {host: reviews, subset: stable}}]}")}, Call{To: "http://reviews/"},
			"503 from web-1.shop: subset \"stable\" of reviews.shop.svc.cluster.local is in no DestinationRule\nroute of VirtualService shop/reviews http[1]"},
		"a host that does not exist": {[]string{route("{route: [{destination: {host: reviewz}}]}")}, Call{To: "http://reviews/"},
			"503 from web-1.shop: no Service or ServiceEntry has the host reviewz.shop.svc.cluster.local\nroute of VirtualService shop/reviews http[0]"},
		"no rule has the principal": {[]string{policy("readers", "{rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/cart]}}], to: [{operation: {methods: [GET], notPaths: [/x*]}}], when: [{key: 'request.headers[a]', values: [b, c]}]}]}")},
			Call{To: "http://reviews/"}, "403 denied by AuthorizationPolicy shop/readers at a-1.shop, a-2.shop, b-1.shop: no rule allows it\n" +
				"the call is GET / from principal cluster.local/ns/shop/sa/web\nAuthorizationPolicy shop/readers rules[0] allows calls " +
				"from principals cluster.local/ns/shop/sa/cart; to methods GET and paths other than /x*; when request.headers[a] b or c"},
		"no endpoint for a connection":   {nil, Call{To: "tcp://idle:90"}, "connection closed by web-1.shop: no healthy endpoint in idle.shop.svc.cluster.local:90"},
		"a part without endpoints":       {[]string{route("{route: [{destination: {host: reviews}, weight: 60}, {destination: {host: idle}, weight: 40}]}")}, Call{To: "http://reviews/"}, "60 % reaches a-1.shop 33.3 %, a-2.shop 33.3 %, b-1.shop 33.3 %; 40 % 503 from web-1.shop: no healthy endpoint in idle.shop.svc.cluster.local:80"},
		"a direct response":              {[]string{route("{directResponse: {status: 418}}")}, Call{To: "http://reviews/"}, "418 from web-1.shop: direct response of VirtualService shop/reviews"},
		"a redirect":                     {[]string{route("{redirect: {uri: /new}}")}, Call{To: "http://reviews/"}, "301 from web-1.shop: redirect to http://reviews/new of VirtualService shop/reviews"},
		"a fault":                        {[]string{route("{" + to + ", fault: {abort: {httpStatus: 500, percentage: {value: 100}}}}")}, Call{To: "http://reviews/"}, "500 from web-1.shop: fault of VirtualService shop/reviews"},
		"a fault of a part":              {[]string{subsets, route("{route: [{destination: {host: reviews, subset: v2}}], fault: {abort: {httpStatus: 500, percentage: {value: 30}}}}")}, Call{To: "http://reviews/"}, "70 % reaches b-1.shop; 30 % 500 from web-1.shop: fault of VirtualService shop/reviews"},
		"no route":                       {[]string{route("{match: [{uri: {prefix: /a}}], " + to + "}")}, Call{To: "http://reviews/"}, "404 from web-1.shop: no route"},
		"no route of a gateway":          {[]string{gatewayDocument("edge", "shop", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}")}, Call{From: "edge-1", To: "http://a.example:80/"}, "404 from edge-1.shop: no route"},
		"an unknown host":                {nil, Call{To: "http://nowhere.example/"}, "passed on unchanged to nowhere.example:80: no Service or ServiceEntry has the host nowhere.example\noutboundTrafficPolicy ALLOW_ANY of the mesh: PassthroughCluster"},
		"TLS to an unknown host":         {nil, Call{To: "https://nowhere.example/"}, "passed on unchanged to nowhere.example:443: no Service or ServiceEntry has the host nowhere.example\noutboundTrafficPolicy ALLOW_ANY of the mesh: PassthroughCluster"},
		"an unknown host is blocked":     {[]string{registry}, Call{To: "http://nowhere.example/"}, "502 from web-1.shop: no Service or ServiceEntry has the host nowhere.example\noutboundTrafficPolicy REGISTRY_ONLY of Sidecar shop/own: 502 for HTTP, BlackHoleCluster for other connections"},
		"an unknown host of TCP, too":    {[]string{registry}, Call{To: "tcp://nowhere.example:3306"}, "connection closed by web-1.shop: no Service or ServiceEntry has the host nowhere.example\noutboundTrafficPolicy REGISTRY_ONLY of Sidecar shop/own: 502 for HTTP, BlackHoleCluster for other connections"},
		"an unknown name of the cluster": {nil, Call{To: "http://reviewz/"}, "fails: DNS has no address: no Service or ServiceEntry has the host reviewz; did you mean \"reviews\"?\nto an address of no service, as from /etc/hosts, the proxy passes it on unchanged (outboundTrafficPolicy ALLOW_ANY of the mesh: PassthroughCluster)"},
		"its namespace":                  {[]string{registry}, Call{To: "http://reviewz.shop/"}, "fails: DNS has no address: no Service or ServiceEntry has the host reviewz.shop; did you mean \"reviews.shop\"?\nto an address of no service, as from /etc/hosts, the proxy answers 502, and closes connections that are not HTTP (outboundTrafficPolicy REGISTRY_ONLY of Sidecar shop/own: 502 for HTTP, BlackHoleCluster for other connections)"},
		"localhost":                      {nil, Call{To: "http://localhost:8080/"}, "stays in the workload: calls of web-1.shop to itself do not go through its sidecar"},
		"a loopback address":             {[]string{registry}, Call{To: "tcp://127.0.0.1:8080"}, "stays in the workload: calls of web-1.shop to itself do not go through its sidecar"},
		"its own name":                   {nil, Call{To: "http://web-1/"}, "stays in the workload: calls of web-1.shop to itself do not go through its sidecar"},
		"an unknown address":             {nil, Call{To: "tcp://10.9.9.9:3306"}, "passed on unchanged to 10.9.9.9:3306: no Service or ServiceEntry has the address 10.9.9.9, or not with port 3306\noutboundTrafficPolicy ALLOW_ANY of the mesh: PassthroughCluster"},
		"another port":                   {nil, Call{To: "http://reviews:81/"}, "passed on unchanged to 10.0.0.2:81: reviews.shop.svc.cluster.local has no port 81: its ports are 80, 90\noutboundTrafficPolicy ALLOW_ANY of the mesh: PassthroughCluster"},
		"a service of others":            {nil, Call{To: "http://hidden.data/"}, "passed on unchanged to 10.0.0.4:80: web-1.shop does not see hidden.data.svc.cluster.local: the exportTo of the service leaves it out\noutboundTrafficPolicy ALLOW_ANY of the mesh: PassthroughCluster"},
		"a service that the Sidecar leaves out": {[]string{sidecar("{egress: [{hosts: [./idle.shop.svc.cluster.local]}]}")}, Call{To: "http://reviews/"},
			"passed on unchanged to 10.0.0.2:80: web-1.shop does not see reviews.shop.svc.cluster.local: the egress hosts of Sidecar shop/own, or the exportTo of the service, leave it out\noutboundTrafficPolicy ALLOW_ANY of the mesh: PassthroughCluster"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, verdictOf(t, tc.docs, tc.call)) })
	}
}

func (*compiledProxies) Disconnected() []distribution.Disconnected { return nil }
