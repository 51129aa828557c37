package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/pipeline/translate"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

func TestOrigins(t *testing.T) {
	s := store.New()
	for _, doc := range []string{
		reviews,
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: shop}\nspec: {host: reviews}",
		"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: bank, namespace: shop}\n" +
			"spec: {hosts: [bank.example.com], ports: [{number: 443, name: tls, protocol: TLS}], resolution: DNS}",
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: ledger, namespace: shop}\n" +
			"spec: {hosts: [ledger], tcp: [{route: [{destination: {host: ledger, port: {number: 99}}}]}]}",
		"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: auth.v1, namespace: shop}\nspec: {url: https://example.com/x.wasm}",
	} {
		o := decode(t, doc)
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	filter := &model.EnvoyFilter{Meta: model.Meta{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "flush"}}}
	s.Apply([]store.Event{{Key: filter.Key, Object: filter}})
	for _, tc := range []struct {
		typ        resource.Type
		name, text string
		want       []string
	}{
		{resource.Cluster, "outbound|80||reviews.shop.svc.cluster.local", "/apis/x/v1/namespaces/shop/destination-rule/reviews\x12", []string{"DestinationRule/shop/reviews"}},
		{resource.Cluster, "outbound|80||reviews.shop.svc.cluster.local", "/apis/x/v1/namespaces/shop/destination-rule/gone", nil},
		{resource.Cluster, "outbound|443||bank.example.com", "", []string{"ServiceEntry/shop/bank"}},
		{resource.Cluster, "outbound|80||web.shop.svc.cluster.local", "", nil},
		{resource.VirtualHost, "80/x:80", "/namespaces/shop/virtual-service/reviews\x12 /namespaces/a/b/virtual-service/ledger /namespaces/shop/virtual-service/ledger\x1a",
			[]string{"VirtualService/shop/ledger", "VirtualService/shop/reviews"}},
		{resource.Listener, "10.0.0.9_99", "\x2aoutbound|99||ledger.shop.svc.cluster.local\x1a", []string{"VirtualService/shop/ledger", "VirtualService/shop/reviews"}},
		{resource.Extension, "extenstions.istio.io/wasmplugin/shop.auth.v1", "", []string{"WasmPlugin/shop/auth.v1"}},
		{resource.Extension, "extenstions.istio.io/wasmplugin/shop.auth.v1/network", "", []string{"WasmPlugin/shop/auth.v1"}},
		{resource.Extension, "extenstions.istio.io/wasmplugin/shop.gone", "", nil},
		{resource.Bootstrap, "0001/shop/flush", "", []string{"EnvoyFilter/shop/flush"}},
	} {
		tab := table.New("t")
		tab.Commit(1, []table.Update{{Type: tc.typ, Name: tc.name, Resource: resource.EncodeBytes(tc.typ, tc.name, []byte(tc.text))}})
		var got []string
		for _, k := range Origins(s.Snapshot(), distribution.Part{Type: tc.typ, Entry: tab.State().Get(tc.typ, tc.name)}) {
			got = append(got, k.String())
		}
		require.Equal(t, tc.want, got, "%s %q", tc.name, tc.text)
	}
	require.NotNil(t, s.Snapshot().Get(model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "bank"}))
}

// TestOriginsOfListeners: what a router refuses is led back to the Gateways that have it listen there, what
// a sidecar refuses for its files to its Sidecar.
func TestOriginsOfListeners(t *testing.T) {
	s := store.New()
	for _, doc := range []string{
		gatewayDocument("plain", "edge", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}"),
		gatewayDocument("elsewhere", "edge", "{istio: other}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}"),
		gatewayDocument("bound", "shop", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, bind: 10.0.0.9, hosts: ['*']}"),
		gatewayDocument("tls", "shop", "{istio: edge}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: x}}"),
		"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: api, namespace: edge}\n" +
			"spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: edge, namespace: edge}\nspec: {selector: {istio: edge}, ports: [{name: http, port: 80, targetPort: 8080}]}",
		"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: shop}\nspec: {workloadSelector: {labels: {app: web}}, ingress: [" +
			"{port: {number: 8443, protocol: HTTPS}, tls: {mode: SIMPLE, serverCertificate: /certs/web.pem, privateKey: /certs/key.pem}}]}",
	} {
		o := decode(t, doc)
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	router := &model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"istio": "edge"}}
	kubernetes := &model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"gateway.networking.k8s.io/gateway-name": "api"}}
	sidecar := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web", "istio": "edge"}}
	for _, tc := range []struct {
		proxy      *model.Proxy
		typ        resource.Type
		name, text string
		want       []string
	}{
		{router, resource.Listener, "0.0.0.0_8080", "", []string{"Gateway/edge/plain"}},
		{router, resource.Listener, "10.0.0.9_8080", "", []string{"Gateway/shop/bound"}},
		{router, resource.Listener, "0.0.0.0_443", "", []string{"Gateway/shop/tls"}},
		{kubernetes, resource.Listener, "0.0.0.0_80", "", []string{"KubernetesGateway/edge/api"}},
		{router, resource.RouteConfig, "http.8080", "", []string{"Gateway/edge/plain"}},
		{router, resource.VirtualHost, "http.8080.10.0.0.9/a.example.com:80", "", []string{"Gateway/shop/bound"}},
		{router, resource.VirtualHost, "https.443.https.tls.shop/a.example.com:443", "", []string{"Gateway/shop/tls"}},
		{kubernetes, resource.RouteConfig, "http.80", "", []string{"KubernetesGateway/edge/api"}},
		{sidecar, resource.Listener, "0.0.0.0_8080", "", nil},
		{sidecar, resource.Listener, "0.0.0.0_8443", "", []string{"Sidecar/shop/web"}},
		{sidecar, resource.Listener, "virtualInbound", "\x0e/certs/web.pem\x12", []string{"Sidecar/shop/web"}},
		{router, resource.Listener, "virtualInbound", "\x0e/certs/web.pem\x12", nil},
		{nil, resource.Listener, "0.0.0.0_8080", "", nil},
	} {
		tab := table.New("t")
		tab.Commit(1, []table.Update{{Type: tc.typ, Name: tc.name, Resource: resource.EncodeBytes(tc.typ, tc.name, []byte(tc.text))}})
		var got []string
		for _, k := range Origins(s.Snapshot(), distribution.Part{Type: tc.typ, Entry: tab.State().Get(tc.typ, tc.name), Proxy: tc.proxy}) {
			got = append(got, k.String())
		}
		require.Equal(t, tc.want, got, "%s %q", tc.name, tc.text)
	}
}

func gatewayDocument(name, namespace, selector, server string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: %s}\nspec: {selector: %s, servers: [%s]}", name, namespace, selector, server)
}

// TestCredentialsOfPluginsAreNotShown: what an agent is told to show a registry is nobody else's.
func TestCredentialsOfPluginsAreNotShown(t *testing.T) {
	for _, network := range []bool{false, true} {
		named, err := translate.Extension(&ir.Wasm{
			Name: "extenstions.istio.io/wasmplugin/shop.auth", Network: network,
			Module: model.WasmModule{URL: "oci://example.com/auth"}, Login: model.NewPrivateKey("password"), Env: map[string]string{"A": "b"},
		})
		require.NoError(t, err)
		encoded, err := resource.Encode(resource.Extension, named.Name, named)
		require.NoError(t, err)
		require.Contains(t, string(encoded.Value()), "password")
		text, err := readable(encoded)
		require.NoError(t, err)
		require.NotContains(t, string(text), "password")
		require.Contains(t, string(text), redacted)
		require.Contains(t, string(text), "oci://example.com/auth")
	}
}

// TestOriginsOfSecrets: what is refused of a Secret is led back to each object that has the proxy given it.
func TestOriginsOfSecrets(t *testing.T) {
	s := store.New()
	const rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: %s}\n" +
		"spec: {host: a.example.com, workloadSelector: {matchLabels: {app: web}}, trafficPolicy: {tls: {mode: %s, credentialName: '%s'}}}"
	for _, doc := range []string{
		gatewayDocument("one", "edge", "{istio: edge}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: MUTUAL, credentialName: api}}"),
		gatewayDocument("two", "shop", "{istio: edge}", "{port: {number: 8443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: api}}"),
		gatewayDocument("other", "edge", "{istio: other}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: api}}"),
		fmt.Sprintf(rule, "client", "shop", "MUTUAL", "api"), fmt.Sprintf(rule, "roots", "shop", "SIMPLE", "configmap://shop/roots"),
		fmt.Sprintf(rule, "foreign", "bank", "MUTUAL", "api"),
		"apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: web, namespace: shop}\nspec: {targetRefs: [{group: '', kind: Service, name: web}], " +
			"validation: {hostname: web.example.com, caCertificateRefs: [{group: '', kind: ConfigMap, name: roots}]}}",
		"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: shop}\nspec: {workloadSelector: {labels: {app: web}}, ingress: [" +
			"{port: {number: 8443, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: own}}]}",
	} {
		o := decode(t, doc)
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	forAll := decode(t, fmt.Sprintf(rule, "for-all", "shop", "MUTUAL", "api")).(*model.DestinationRule)
	forAll.WorkloadSelector = nil // nobody gets its Secret
	s.Apply([]store.Event{{Key: forAll.Key, Object: forAll}})
	router := &model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"istio": "edge"}}
	sidecar := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}}
	for _, tc := range []struct {
		proxy *model.Proxy
		name  string
		want  []string
	}{
		{router, "kubernetes://api", []string{"Gateway/edge/one", "Gateway/shop/two"}},
		{router, "kubernetes://api-cacert", []string{"Gateway/edge/one", "Gateway/shop/two"}},
		{router, "kubernetes://none", nil},
		{sidecar, "kubernetes://api", []string{"DestinationRule/shop/client"}},
		{sidecar, "kubernetes://own", []string{"Sidecar/shop/web"}},
		{sidecar, "configmap://shop/roots-cacert", []string{"BackendTLSPolicy/shop/web", "DestinationRule/shop/roots"}},
		{router, "configmap://shop/roots-cacert", []string{"BackendTLSPolicy/shop/web"}},
		{nil, "kubernetes://api", nil},
	} {
		tab := table.New("t")
		tab.Commit(1, []table.Update{{Type: resource.Secret, Name: tc.name, Resource: resource.EncodeBytes(resource.Secret, tc.name, nil)}})
		r := &distribution.Refusal{Type: resource.Secret, Name: tc.name, About: []distribution.Part{
			{Type: resource.Secret, Entry: tab.State().Get(resource.Secret, tc.name), Proxy: tc.proxy},
		}}
		cause := (&Explainer{Changes: &changed{}, Mesh: model.DefaultMesh()}).Causes(s.Snapshot()).Of(r)
		var got []string
		for _, k := range cause.Objects {
			got = append(got, k.String())
		}
		require.Equal(t, tc.want, got, tc.name)
		require.True(t, cause.Each && cause.Sure)
	}
}
