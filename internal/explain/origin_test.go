package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
	"github.com/moonsail/moonsail/internal/translate"
	"github.com/moonsail/moonsail/internal/view"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
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
		{resource.Listener, "10.0.0.9_99", "outbound|99||ledger.shop.svc.cluster.local\x1a", []string{"VirtualService/shop/ledger", "VirtualService/shop/reviews"}},
		{resource.Extension, "extenstions.istio.io/wasmplugin/shop.auth.v1", "", []string{"WasmPlugin/shop/auth.v1"}},
		{resource.Extension, "extenstions.istio.io/wasmplugin/shop.gone", "", nil},
		{resource.Bootstrap, "0001/shop/flush", "", []string{"EnvoyFilter/shop/flush"}},
	} {
		tab := table.New("t")
		tab.Commit(1, []table.Update{{Type: tc.typ, Name: tc.name, Resource: resource.EncodeBytes(tc.typ, tc.name, []byte(tc.text))}})
		var got []string
		for _, k := range Origins(s.Snapshot(), server.Part{Type: tc.typ, Entry: tab.State().Get(tc.typ, tc.name)}) {
			got = append(got, k.String())
		}
		require.Equal(t, tc.want, got, "%s %q", tc.name, tc.text)
	}
	require.NotNil(t, s.Snapshot().Get(model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "bank"}))
}

// TestCredentialsOfPluginsAreNotShown: what an agent is told to show a registry is nobody else's.
func TestCredentialsOfPluginsAreNotShown(t *testing.T) {
	named, err := translate.Extension(&view.Wasm{
		Name: "extenstions.istio.io/wasmplugin/shop.auth", Module: model.WasmModule{URL: "oci://example.com/auth"}, Login: model.NewPrivateKey("password"),
		Env: map[string]string{"A": "b"},
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
