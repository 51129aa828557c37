package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// TestSelects checks which disconnected proxies an object may concern if their tables are closed. Connected
// proxies have tables, and these know what is made from the object.
func TestSelects(t *testing.T) {
	proxies := map[string]*model.Proxy{
		"web":  {Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}},
		"api":  {Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "api"}},
		"bank": {Type: model.ProxySidecar, Namespace: "bank", Labels: map[string]string{"app": "web"}},
		"edge": {Type: model.ProxyRouter, Namespace: "shop", Labels: map[string]string{"app": "web", model.LabelGatewayName: "edge"}},
	}
	const security, networking, web = "apiVersion: security.istio.io/v1\n", "apiVersion: networking.istio.io/v1\n", "selector: {matchLabels: {app: web}}"
	meta := func(namespace string) string { return "metadata: {name: x, namespace: " + namespace + "}\n" }
	for name, tc := range map[string]struct {
		text  string
		moved bool
		want  string // proxies
	}{
		"a policy":        {security + "kind: AuthorizationPolicy\n" + meta("shop") + "spec: {" + web + "}", false, "edge web"},
		"one that moved":  {security + "kind: AuthorizationPolicy\n" + meta("shop") + "spec: {" + web + "}", true, "api bank edge web"},
		"by zone":         {security + "kind: AuthorizationPolicy\n" + meta("shop") + "spec: {selector: {matchLabels: {app: web, topology.kubernetes.io/zone: z1}}}", false, "api bank edge web"},
		"Sidecar by zone": {networking + "kind: Sidecar\n" + meta("shop") + "spec: {workloadSelector: {labels: {topology.kubernetes.io/zone: z1}}, egress: [{hosts: [./*]}]}", false, "api bank edge web"},
		"of the root":     {security + "kind: RequestAuthentication\n" + meta("istio-system") + "spec: {" + web + "}", false, "bank edge web"},
		"of a Gateway":    {security + "kind: AuthorizationPolicy\n" + meta("shop") + "spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]}", false, "edge"},
		"of a namespace":  {"apiVersion: telemetry.istio.io/v1\nkind: Telemetry\n" + meta("bank") + "spec: {accessLogging: [{disabled: true}]}", false, "bank"},
		"STRICT":          {security + "kind: PeerAuthentication\n" + meta("shop") + "spec: {" + web + ", mtls: {mode: STRICT}}", false, "edge web"},
		"DISABLE":         {security + "kind: PeerAuthentication\n" + meta("shop") + "spec: {" + web + ", mtls: {mode: DISABLE}}", false, "api bank edge web"},
		"a Sidecar":       {networking + "kind: Sidecar\n" + meta("shop") + "spec: {workloadSelector: {labels: {app: web}}, egress: [{hosts: [./*]}]}", false, "web"},
		"the root's":      {networking + "kind: Sidecar\n" + meta("istio-system") + "spec: {egress: [{hosts: [./*]}]}", false, "api bank web"},
		"a ProxyConfig":   {"apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\n" + meta("shop") + "spec: {concurrency: 1}", false, ""},
		"of no selector":  {reviews, false, "api bank edge web"},
		"a WasmPlugin":    {"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\n" + meta("shop") + "spec: {" + web + ", url: file:///x.wasm}", false, "edge web"},
		"an EnvoyFilter":  {"apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n" + meta("bank") + "spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}", false, "bank"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			o := decode(t, tc.text)
			o.Metadata().ResourceVersion = "1"
			key := o.Metadata().Key
			rev := w.put(key, o)
			w.begin(rev, changelog.ChangedObject{Key: key, Operation: changelog.Updated, ResourceVersion: "1", Moved: tc.moved})
			w.log.Published(rev, 3, time.Now())
			_, err := w.Object(key, Ask{Max: 9})
			require.NoError(t, err)
			require.Equal(t, tc.moved, w.asked.Moved)
			var got []string
			for _, name := range slices.Sorted(maps.Keys(proxies)) {
				if w.asked.Selects == nil || w.asked.Selects(proxies[name]) {
					got = append(got, name)
				}
			}
			require.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
}

// TestProxiesThatHaveASecret checks that a query about a Secret is about the proxies that something gives it to:
// those of its own namespace.
func TestProxiesThatHaveASecret(t *testing.T) {
	const rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: shop}\n" +
		"spec: {host: a.example.com, workloadSelector: {matchLabels: {app: web}}, trafficPolicy: {tls: {mode: SIMPLE, credentialName: '%s'}}}"
	w := compile(t,
		gatewayDocument("one", "shop", "{istio: edge}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: web}}"),
		"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: shop}\nspec: {hosts: [a.example.com], ports: [{number: 443, name: http, protocol: HTTP}], resolution: DNS}",
		fmt.Sprintf(rule, "roots", "configmap://shop/roots"),
		"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: x, namespace: shop}\n"+
			"spec: {selector: {matchLabels: {app: web}}, url: oci://example.com/x, imagePullSecret: registry}",
	)
	keys := []model.Key{
		{Kind: model.KindSecret, Namespace: "shop", Name: "web"}, {Kind: model.KindSecret, Namespace: "bank", Name: "web"},
		{Kind: model.KindSecret, Namespace: "shop", Name: "registry"}, {Kind: model.KindConfigMap, Namespace: "shop", Name: "roots"},
		{Kind: model.KindSecret, Namespace: "shop", Name: "other"},
	}
	for _, k := range keys {
		w.put(&model.Secret{Meta: model.Meta{Key: k}, Certificate: "c", PrivateKey: model.NewPrivateKey("k"), CA: "ca", Login: model.NewPrivateKey("{}")})
	}
	proxies := map[string]*model.Proxy{
		"edge":    {Type: model.ProxyRouter, Namespace: "shop", Labels: map[string]string{"istio": "edge"}},
		"foreign": {Type: model.ProxyRouter, Namespace: "bank", Labels: map[string]string{"istio": "edge"}},
		"sidecar": {Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"istio": "edge"}},
		"web":     {Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}},
		"agent":   {Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}, Extensions: true},
	}
	got := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(proxies)) {
		proxies[name].Verified, proxies[name].ServiceAccount = true, "default"
		for _, k := range keys {
			if len(w.concerns(proxies[name], k)) > 0 {
				got[k.String()] = append(got[k.String()], name)
			}
		}
	}
	require.Equal(t, map[string][]string{
		"Secret/shop/web": {"edge"}, "Secret/bank/web": {"foreign"}, "Secret/shop/registry": {"agent"}, "ConfigMap/shop/roots": {"web"},
	}, got)
}

// TestPoliciesShapeListeners checks what of a proxy that connects after a policy's last change is made from the policy.
func TestPoliciesShapeListeners(t *testing.T) {
	const meta = "metadata: {name: x, namespace: shop}\n"
	for name, text := range map[string]string{
		"AuthorizationPolicy":   "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n" + meta + "spec: {}",
		"RequestAuthentication": "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\n" + meta + "spec: {jwtRules: [{issuer: a, jwksUri: \"https://a/\"}]}",
		"WasmPlugin":            "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\n" + meta + "spec: {url: file:///x.wasm}",
	} {
		t.Run(name, func(t *testing.T) {
			w := compile(t, text, webService)
			p := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}}
			require.Contains(t, w.concerns(p, keyOf(name+"/shop/x")), "LDS virtualInbound")
			require.Empty(t, w.concerns(p, keyOf(name+"/shop/other")))
			require.Empty(t, w.concerns(&model.Proxy{Type: model.ProxySidecar, Namespace: "bank"}, keyOf(name+"/shop/x")))
		})
	}
}
