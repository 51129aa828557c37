package explain

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestAudience: who is concerned by what selects workloads is told by its selector, whatever else was in its batch.
func TestAudience(t *testing.T) {
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
		want  map[string]string // by proxy: of which types
	}{
		"a policy":       {security + "kind: AuthorizationPolicy\n" + meta("shop") + "spec: {" + web + "}", false, map[string]string{"web": "all", "edge": "all"}},
		"one that moved": {security + "kind: AuthorizationPolicy\n" + meta("shop") + "spec: {" + web + "}", true, map[string]string{"web": "all", "edge": "all", "api": "all", "bank": "all"}},
		"of the root":    {security + "kind: RequestAuthentication\n" + meta("istio-system") + "spec: {" + web + "}", false, map[string]string{"web": "all", "edge": "all", "bank": "all"}},
		"of a Gateway":   {security + "kind: AuthorizationPolicy\n" + meta("shop") + "spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]}", false, map[string]string{"edge": "all"}},
		"of a namespace": {"apiVersion: telemetry.istio.io/v1\nkind: Telemetry\n" + meta("bank") + "spec: {accessLogging: [{disabled: true}]}", false, map[string]string{"bank": "all"}},
		"STRICT":         {security + "kind: PeerAuthentication\n" + meta("shop") + "spec: {" + web + ", mtls: {mode: STRICT}}", false, map[string]string{"web": "all", "edge": "all"}},
		"DISABLE":        {security + "kind: PeerAuthentication\n" + meta("shop") + "spec: {" + web + ", mtls: {mode: DISABLE}}", false, map[string]string{"web": "all", "edge": "all", "api": "CDS EDS", "bank": "CDS EDS"}},
		"a Sidecar":      {networking + "kind: Sidecar\n" + meta("shop") + "spec: {workloadSelector: {labels: {app: web}}, egress: [{hosts: [./*]}]}", false, map[string]string{"web": "all"}},
		"the root's":     {networking + "kind: Sidecar\n" + meta("istio-system") + "spec: {egress: [{hosts: [./*]}]}", false, map[string]string{"web": "all", "api": "all", "bank": "all"}},
		"a ProxyConfig":  {"apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\n" + meta("shop") + "spec: {concurrency: 1}", false, nil},
		"of no selector": {reviews, false, map[string]string{"web": "all", "api": "all", "bank": "all", "edge": "all"}},
		"a WasmPlugin":   {"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\n" + meta("shop") + "spec: {" + web + ", url: file:///x.wasm}", false, map[string]string{"web": "all", "edge": "all"}},
		"an EnvoyFilter": {"apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n" + meta("bank") + "spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}", false, map[string]string{"bank": "all"}},
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
			got := map[string]string{}
			for proxy, p := range proxies {
				if types := concernedIn(w.asked.Concerns, p); types != "" {
					got[proxy] = types
				}
			}
			require.Equal(t, len(tc.want), len(got), got)
			for proxy, types := range tc.want {
				require.Equal(t, types, got[proxy], proxy)
			}
		})
	}
}

// TestWhoIsGivenASecret: of Secrets those are concerned that something has given it, of its own namespace alone.
func TestWhoIsGivenASecret(t *testing.T) {
	s := store.New()
	put := func(o model.Object) {
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	const rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: shop}\n" +
		"spec: {host: a.example.com, workloadSelector: {matchLabels: {app: web}}, trafficPolicy: {tls: {mode: SIMPLE, credentialName: '%s'}}}"
	for _, doc := range []string{
		gatewayDocument("one", "shop", "{istio: edge}", "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: web}}"),
		fmt.Sprintf(rule, "roots", "configmap://shop/roots"),
		"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: x, namespace: shop}\n" +
			"spec: {selector: {matchLabels: {app: web}}, url: oci://example.com/x, imagePullSecret: registry}",
	} {
		put(decode(t, doc))
	}
	proxies := map[string]*model.Proxy{
		"edge":    {Type: model.ProxyRouter, Namespace: "shop", Labels: map[string]string{"istio": "edge"}},
		"foreign": {Type: model.ProxyRouter, Namespace: "bank", Labels: map[string]string{"istio": "edge"}},
		"sidecar": {Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"istio": "edge"}},
		"web":     {Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}},
	}
	for _, tc := range []struct {
		key  model.Key
		want []string
	}{
		{model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "web"}, []string{"edge"}},
		{model.Key{Kind: model.KindSecret, Namespace: "bank", Name: "web"}, []string{"foreign"}},
		{model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "registry"}, []string{"web"}},
		{model.Key{Kind: model.KindConfigMap, Namespace: "shop", Name: "roots"}, []string{"web"}},
		{model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "other"}, nil},
	} {
		secret := &model.Secret{Meta: model.Meta{Key: tc.key}}
		put(secret)
		concerns := (&Explainer{Mesh: model.DefaultMesh()}).audience(s.Snapshot(), secret, &changelog.LastChange{})
		var got []string
		for _, name := range slices.Sorted(maps.Keys(proxies)) {
			if concernedIn(concerns, proxies[name]) == "all" {
				got = append(got, name)
			}
		}
		require.Equal(t, tc.want, got, tc.key)
	}
}

// concernedIn are those in which a proxy is concerned.
func concernedIn(concerns func(*model.Proxy, resource.Type) bool, p *model.Proxy) string {
	out, n := "", 0
	for typ := range resource.NumTypes {
		if concerns == nil || concerns(p, typ) {
			out, n = out+" "+typ.String(), n+1
		}
	}
	if n == int(resource.NumTypes) {
		return "all"
	}
	return map[bool]string{true: out[min(1, len(out)):]}[n > 0]
}

// TestPoliciesShapeListeners: what a proxy has that connects after a policy's last change.
func TestPoliciesShapeListeners(t *testing.T) {
	const meta = "metadata: {name: x, namespace: shop}\n"
	for name, tc := range map[string]struct{ text, listener string }{
		"AuthorizationPolicy":   {"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n" + meta + "spec: {}", "envoy.filters.http.rbac"},
		"RequestAuthentication": {"apiVersion: security.istio.io/v1\nkind: RequestAuthentication\n" + meta + "spec: {jwtRules: [{issuer: a, jwksUri: \"https://a/\"}]}", "envoy.filters.http.jwt_authn"},
		"WasmPlugin":            {"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\n" + meta + "spec: {url: file:///x.wasm}", "extensions.istio.io/wasmplugin/shop.x"},
	} {
		o := decode(t, tc.text)
		related := ofAudience(o)
		require.True(t, related(resource.Listener, entryOf(resource.Listener, "virtualInbound", tc.listener)), name)
		require.False(t, related(resource.Listener, entryOf(resource.Listener, "virtualInbound", "envoy.filters.http.router")), name)
		require.False(t, related(resource.Cluster, entryOf(resource.Cluster, "c", tc.listener)), name)
	}
}

func entryOf(typ resource.Type, name, text string) *table.Entry {
	tab := table.New("t")
	tab.Commit(1, []table.Update{{Type: typ, Name: name, Resource: resource.EncodeBytes(typ, name, []byte(text))}})
	return tab.State().Get(typ, name)
}
