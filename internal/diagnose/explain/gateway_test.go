package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// worldOf is what a proxy gets.
func (w *compiledWorld) worldOf(p *model.Proxy) *proxyWorld {
	out := &proxyWorld{proxy: p, made: map[resourceName]*model.Origins{}}
	for _, tab := range w.tables(p) {
		for _, typ := range []resource.Type{resource.Listener, resource.RouteConfig, resource.VirtualHost, resource.Cluster, resource.Endpoints} {
			for e := range tab.State().All(typ) {
				require.NoError(w.t, out.add(&distribution.Intended{Type: typ, Entry: e, State: tab.State(), Status: ledger.Has}))
			}
		}
	}
	return out
}

// TestGatewaysThatACallCameBy checks that a call leads back to the Gateways whose servers took it.
func TestGatewaysThatACallCameBy(t *testing.T) {
	https := func(name, host string) string {
		return gatewayDocument(name, "edge", "{istio: edge}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['"+host+"'], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}")
	}
	plain := func(name, host string) string {
		return gatewayDocument(name, "edge", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['"+host+"']}")
	}
	w := compile(t, https("web", "a.example.com"), https("web2", "b.example.com"), plain("plain", "*.example.com"), plain("other", "*.example.org"),
		gatewayDocument("mysql", "edge", "{istio: edge}", "{port: {number: 3306, name: mysql, protocol: TCP}, hosts: ['*']}"),
		"apiVersion: v1\nkind: Service\nmetadata: {name: edge, namespace: edge}\nspec: {selector: {istio: edge}, ports: [{name: http, port: 80, targetPort: 8080}]}",
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: edge}\nspec: {hosts: [a.example.com, b.example.com, c.example.org], "+
			"gateways: [web, web2, plain, other, mysql], http: [{directResponse: {status: 200}}], tcp: [{match: [{port: 3306}], route: [{destination: {host: edge.edge.svc.cluster.local, port: {number: 80}}}]}]}",
	)
	world := w.worldOf(&model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"istio": "edge"}, Files: true})
	for about, tc := range map[string]struct {
		to, host string
		protocol simulate.Protocol
		want     []string
	}{
		"TLS":            {"10.9.0.1:443", "a.example.com", simulate.HTTPS, []string{"Gateway/edge/web"}},
		"TLS of another": {"10.9.0.1:443", "b.example.com", simulate.HTTPS, []string{"Gateway/edge/web2"}},
		"plain text":     {"10.9.0.1:8080", "a.example.com", simulate.HTTP, []string{"Gateway/edge/plain"}},
		"another host":   {"10.9.0.1:8080", "c.example.org", simulate.HTTP, []string{"Gateway/edge/other"}},
		"no routes":      {"10.9.0.1:3306", "", simulate.TCP, []string{"Gateway/edge/mysql"}},
	} {
		r, err := world.Call(simulate.Call{Direct: true, From: "198.51.100.7:40000", To: tc.to, Host: tc.host, SNI: tc.host, Path: "/", Method: "GET", Protocol: tc.protocol})
		require.NoError(t, err, about)
		s := &sourceList{snap: w.store.Snapshot(), errorOf: (&Explainer{}).errorOf, placeOf: (&Explainer{}).placeOf}
		s.gateways(world, r)
		var got []string
		for _, o := range s.list {
			got = append(got, o.Object.String())
			require.Equal(t, "listener "+r.Listener, o.Decides)
		}
		require.Equal(t, tc.want, got, about)
	}
}

// TestResourcesOfAGateway checks that a Gateway is in what its servers need, at the port that a Service leads to, and in
// nothing of sidecars.
func TestResourcesOfAGateway(t *testing.T) {
	w := compile(t,
		gatewayDocument("web", "edge", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}, "+
			"{port: {number: 443, name: https, protocol: HTTPS}, bind: 10.0.0.9, hosts: ['*'], tls: {mode: SIMPLE, credentialName: x}}"),
		gatewayDocument("other", "edge", "{istio: edge}", "{port: {number: 81, name: http, protocol: HTTP}, hosts: ['*']}"),
		"apiVersion: v1\nkind: Service\nmetadata: {name: edge, namespace: edge}\nspec: {selector: {istio: edge}, ports: [{name: http, port: 80, targetPort: 8080}]}",
	)
	const web = "Gateway/edge/web"
	require.Equal(t, []string{"LDS 0.0.0.0_8080", "LDS 10.0.0.9_443", "RDS http.8080", "RDS https.443.https.web.edge.10.0.0.9"},
		w.concerns(&model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"istio": "edge"}}, keyOf(web)))
	require.Empty(t, w.concerns(&model.Proxy{Type: model.ProxyRouter, Namespace: "edge"}, keyOf(web)))
	require.Empty(t, w.concerns(&model.Proxy{Type: model.ProxySidecar, Namespace: "edge", Labels: map[string]string{"istio": "edge"}}, keyOf(web)))
}
