package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

// causeOf returns the cause of a refusal of a resource that no proxy had before, with a message that quotes
// nothing.
func (w *compiledWorld) causeOf(p *model.Proxy, typ resource.Type, name string) Cause {
	w.t.Helper()
	r := &distribution.Refusal{Type: typ, Name: name, About: []distribution.Part{w.part(p, typ, name)}}
	return (&Explainer{Changes: &changed{}, Mesh: model.DefaultMesh()}).Causes(w.store.Snapshot()).Of(r)
}

// TestOriginsOfRefusedResources checks that each type of resource leads back to the objects that it is made from.
func TestOriginsOfRefusedResources(t *testing.T) {
	w := compile(t,
		"apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: ledger, namespace: shop}\nspec: {clusterIP: 10.0.0.9, ports: [{name: tcp, port: 99}]}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}",
		reviews,
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: shop}\nspec: {host: reviews, trafficPolicy: {loadBalancer: {simple: RANDOM}}}",
		"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: bank, namespace: shop}\n"+
			"spec: {hosts: [bank.example.com], ports: [{number: 443, name: tls, protocol: TLS}], resolution: DNS}",
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: ledger, namespace: shop}\n"+
			"spec: {hosts: [ledger], tcp: [{route: [{destination: {host: ledger, port: {number: 99}}}]}]}",
		"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: auth.v1, namespace: shop}\nspec: {url: https://example.com/x.wasm}",
		"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: auth.v2, namespace: shop}\nspec: {url: https://example.com/x.wasm, type: NETWORK}",
		"apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: flush, namespace: shop}\n"+
			"spec: {configPatches: [{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {stats_flush_interval: 1s}}}]}",
	)
	sidecar := func() *model.Proxy { return &model.Proxy{Type: model.ProxySidecar, Namespace: "shop"} }
	agent := func() *model.Proxy {
		return &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Extensions: true, Modules: true, Verified: true, ServiceAccount: "default"}
	}
	const plugin = "extenstions.istio.io/wasmplugin/shop."
	for _, tc := range []struct {
		proxy *model.Proxy
		typ   resource.Type
		name  string
		want  []string
		sure  bool
	}{
		{sidecar(), resource.Cluster, "outbound|80||reviews.shop.svc.cluster.local", []string{"DestinationRule/shop/reviews"}, false},
		{sidecar(), resource.Cluster, "outbound|443||bank.example.com", []string{"ServiceEntry/shop/bank"}, false},
		{sidecar(), resource.Cluster, "outbound|80||web.shop.svc.cluster.local", []string{"Service/shop/web"}, false},
		{sidecar(), resource.VirtualHost, "80/reviews.shop.svc.cluster.local:80", []string{"VirtualService/shop/reviews"}, false},
		{sidecar(), resource.Listener, "10.0.0.9_99", []string{"VirtualService/shop/ledger", "WasmPlugin/shop/auth.v2"}, false},
		{agent(), resource.Extension, plugin + "auth.v1", []string{"WasmPlugin/shop/auth.v1"}, true},
		{agent(), resource.Extension, plugin + "auth.v2/network", []string{"WasmPlugin/shop/auth.v2"}, true},
		{agent(), resource.Bootstrap, "0000/shop/flush", []string{"EnvoyFilter/shop/flush"}, true},
	} {
		cause := w.causeOf(tc.proxy, tc.typ, tc.name)
		require.Equal(t, tc.want, texts(cause.Objects), tc.name)
		require.Equal(t, tc.sure, cause.Sure, tc.name)
	}
}

// TestOriginsOfListeners checks that what a router refuses leads back to the Gateways of its listener, and
// what a sidecar refuses for its files to its Sidecar.
func TestOriginsOfListeners(t *testing.T) {
	const service = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %[1]s, namespace: shop}\nspec: {hosts: [%[1]s.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}"
	const routes = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %[1]s, namespace: edge}\nspec: {hosts: [%[1]s.example.com], gateways: [%[2]s], http: [{route: [{destination: {host: a.example.com}}]}]}"
	w := compile(t,
		gatewayDocument("plain", "edge", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}"),
		gatewayDocument("elsewhere", "edge", "{istio: other}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}"),
		gatewayDocument("bound", "shop", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, bind: 10.0.0.9, hosts: ['*']}"),
		gatewayDocument("tls", "shop", "{istio: edge}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: x}}"),
		"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: api, namespace: edge}\n"+
			"spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: edge, namespace: edge}\nspec: {selector: {istio: edge}, ports: [{name: http, port: 80, targetPort: 8080}]}",
		"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: shop}\nspec: {workloadSelector: {labels: {app: web}}, ingress: ["+
			"{port: {number: 8443, protocol: HTTPS, name: https}, defaultEndpoint: '127.0.0.1:8080', tls: {mode: SIMPLE, serverCertificate: /certs/web.pem, privateKey: /certs/key.pem}}]}",
		"apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: off, namespace: shop}\nspec: {selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}}",
		fmt.Sprintf(service, "a"), fmt.Sprintf(routes, "b", "shop/bound"), fmt.Sprintf(routes, "t", "shop/tls"),
	)
	router := func() *model.Proxy {
		return &model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"istio": "edge"}}
	}
	kubernetes := func() *model.Proxy {
		return &model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"gateway.networking.k8s.io/gateway-name": "api"}}
	}
	sidecar := func() *model.Proxy {
		return &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web", "istio": "edge"}, Identity: true}
	}
	for _, tc := range []struct {
		proxy *model.Proxy
		typ   resource.Type
		name  string
		want  []string
	}{
		{router(), resource.Listener, "0.0.0.0_8080", []string{"Gateway/edge/plain"}},
		{router(), resource.Listener, "10.0.0.9_8080", []string{"Gateway/shop/bound"}},
		{router(), resource.Listener, "0.0.0.0_443", []string{"Gateway/shop/tls"}},
		{kubernetes(), resource.Listener, "0.0.0.0_80", []string{"KubernetesGateway/edge/api"}},
		{router(), resource.RouteConfig, "http.8080", []string{"Gateway/edge/plain"}},
		{router(), resource.VirtualHost, "http.8080.10.0.0.9/b.example.com:80", []string{"Gateway/shop/bound", "ServiceEntry/shop/a", "VirtualService/edge/b"}},
		{router(), resource.VirtualHost, "https.443.https.tls.shop/t.example.com:443", []string{"Gateway/shop/tls", "ServiceEntry/shop/a", "VirtualService/edge/t"}},
		{kubernetes(), resource.RouteConfig, "http.80", []string{"KubernetesGateway/edge/api"}},
		{sidecar(), resource.Listener, "virtualInbound", []string{"PeerAuthentication/shop/off", "Sidecar/shop/web"}},
	} {
		require.Equal(t, tc.want, texts(w.causeOf(tc.proxy, tc.typ, tc.name).Objects), tc.name)
	}
}

func gatewayDocument(name, namespace, selector, server string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: %s}\nspec: {selector: %s, servers: [%s]}", name, namespace, selector, server)
}

// TestCredentialsOfPluginsAreNotShown checks that pages do not have a plugin's registry credentials.
func TestCredentialsOfPluginsAreNotShown(t *testing.T) {
	for _, network := range []bool{false, true} {
		named, err := listener.Extension(&ir.Wasm{
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
		require.Contains(t, string(text), wasmplugin.Redacted)
		require.Contains(t, string(text), "oci://example.com/auth")
	}
}

// TestOriginsOfSecrets checks that a refused Secret leads back to each object that names it for the proxy.
func TestOriginsOfSecrets(t *testing.T) {
	const rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: %s}\n" +
		"spec: {host: %s.example.com, workloadSelector: {matchLabels: {app: web}}, trafficPolicy: {tls: {mode: %s, credentialName: '%s'}}}"
	const entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %[1]s, namespace: shop}\nspec: {hosts: [%[1]s.example.com], ports: [{number: 443, name: http, protocol: HTTP}], resolution: DNS}"
	w := compile(t,
		gatewayDocument("one", "edge", "{istio: edge}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: MUTUAL, credentialName: api}}"),
		gatewayDocument("two", "shop", "{istio: edge}", "{port: {number: 8443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: api}}"),
		gatewayDocument("other", "edge", "{istio: other}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: api}}"),
		fmt.Sprintf(entry, "a"), fmt.Sprintf(entry, "b"),
		fmt.Sprintf(rule, "client", "shop", "a", "MUTUAL", "api"), fmt.Sprintf(rule, "roots", "shop", "b", "SIMPLE", "configmap://shop/roots"),
		fmt.Sprintf(rule, "foreign", "bank", "a", "MUTUAL", "api"),
		"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: web, namespace: shop}\nspec: {targetRefs: [{group: '', kind: Service, name: web}], "+
			"validation: {hostname: web.example.com, caCertificateRefs: [{group: '', kind: ConfigMap, name: roots}]}}",
		"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: shop}\nspec: {workloadSelector: {labels: {app: web}}, egress: [{hosts: ['*/*']}], ingress: ["+
			"{port: {number: 8443, protocol: HTTPS, name: https}, defaultEndpoint: '127.0.0.1:8080', tls: {mode: SIMPLE, credentialName: own}}]}",
	)
	for _, k := range []string{"Secret/edge/api", "Secret/shop/api", "Secret/shop/own", "ConfigMap/shop/roots"} {
		w.put(&model.Secret{Meta: model.Meta{Key: keyOf(k)}, Certificate: "c", PrivateKey: model.NewPrivateKey("k"), CA: "ca"})
	}
	router := func() *model.Proxy {
		return &model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"istio": "edge"}, Verified: true, ServiceAccount: "default"}
	}
	sidecar := func() *model.Proxy {
		return &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}, Verified: true, ServiceAccount: "default"}
	}
	for _, tc := range []struct {
		proxy *model.Proxy
		name  string
		want  []string
	}{
		{router(), "kubernetes://api", []string{"Gateway/edge/one", "Gateway/shop/two"}},
		{router(), "kubernetes://api-cacert", []string{"Gateway/edge/one"}}, // the other one asks for no CAs
		{sidecar(), "kubernetes://api", []string{"DestinationRule/shop/client"}},
		{sidecar(), "kubernetes://own", []string{"Sidecar/shop/web"}},
		{sidecar(), "configmap://shop/roots-cacert", []string{"BackendTLSPolicy/shop/web", "DestinationRule/shop/roots"}},
		{router(), "configmap://shop/roots-cacert", []string{"BackendTLSPolicy/shop/web"}},
	} {
		cause := w.causeOf(tc.proxy, resource.Secret, tc.name)
		require.Equal(t, tc.want, texts(cause.Objects), tc.name)
		require.True(t, cause.Each && cause.Sure)
	}
}
