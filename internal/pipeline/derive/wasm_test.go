package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestFetchedPlugins: agents are told of what selects their workload; listeners only who has it.
func TestFetchedPlugins(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	plugin := func(version string) *model.WasmPlugin {
		return &model.WasmPlugin{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "auth"}, ResourceVersion: version},
			Selector: map[string]string{"app": "web"}, Module: model.WasmModule{URL: "oci://example.com/auth", Always: true},
		}
	}
	d.Apply([]store.Change{{Key: plugin("1").Key, New: plugin("1")}})
	agent := &model.Proxy{Type: model.ProxySidecar, Extensions: true, Namespace: "shop", Labels: map[string]string{"app": "web", "b": "c"}, IPs: []string{"0.0.0.0"}}
	key, none := d.Index().Keys(agent)
	require.Zero(t, d.Open(none).Len())
	got := d.Open(key)
	name := "extenstions.istio.io/wasmplugin/shop.auth"
	require.Equal(t, 1, got.Len(), "plugins and nothing else")
	require.Equal(t, "oci://example.com/auth", got.Extensions[name].Module.URL)
	require.Equal(t, "1", got.Extensions[name].Version, "it is fetched anew for each version")
	other := *agent
	other.Labels = map[string]string{"app": "db"}
	otherKey, _ := d.Index().Keys(&other)
	require.Zero(t, d.Open(otherKey).Len())

	require.Equal(t, "2", d.Apply([]store.Change{{Key: plugin("2").Key, Old: plugin("1"), New: plugin("2")}}).Deltas[key].Extensions[name].Version)
	delta := d.Apply([]store.Change{{Key: plugin("2").Key, Old: plugin("2")}}).Deltas[key]
	require.Contains(t, delta.Extensions, name)
	require.Nil(t, delta.Extensions[name])

}

// TestUnfetchedPlugins: it is known where nobody fetches a module, and where that is over.
func TestUnfetchedPlugins(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	plugin := &model.WasmPlugin{
		Meta:   model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "auth"}},
		Module: model.WasmModule{URL: "oci://example.com/auth"},
	}
	p := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", IPs: []string{"10.0.0.1"}}
	old, _ := d.Index().Keys(p)
	p.Modules = true
	able, _ := d.Index().Keys(p)
	d.Open(old)
	d.Open(able)
	deltas := d.Apply([]store.Change{{Key: plugin.Key, New: plugin}}).Deltas
	require.Equal(t, []string{"WasmPlugin/shop/auth"}, deltas[old].Unfetched)
	require.Nil(t, deltas[able].Unfetched)
	deltas = d.Apply([]store.Change{{Key: plugin.Key, Old: plugin}}).Deltas
	require.NotNil(t, deltas[old].Unfetched)
	require.Empty(t, deltas[old].Unfetched)
}

// TestPullSecrets: credentials for registries go to those of the plugin's namespace whose service
// account may read them, and shows that it is theirs; to nobody else.
func TestPullSecrets(t *testing.T) {
	plugin := func(ns string) *model.WasmPlugin {
		return &model.WasmPlugin{
			Meta:   model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: ns, Name: "auth"}},
			Module: model.WasmModule{URL: "oci://example.com/auth", PullSecret: "registry"},
		}
	}
	secret := func(ns string, readers ...string) *model.Secret {
		return &model.Secret{
			Meta:  model.Meta{Key: model.Key{Kind: model.KindSecret, Namespace: ns, Name: "registry"}},
			Login: model.NewPrivateKey("login of " + ns), Readers: append([]string{}, readers...),
		}
	}
	d := New(model.DefaultMesh(), 1)
	d.Apply([]store.Change{{Key: plugin("shop").Key, New: plugin("shop")}, {Key: secret("shop").Key, New: secret("shop", "web")}})
	login := func(account string, verified bool, ns string) string {
		p := &model.Proxy{Type: model.ProxySidecar, Extensions: true, Namespace: ns, ServiceAccount: account, Verified: verified, IPs: []string{"0.0.0.0"}}
		key, _ := d.Index().Keys(p)
		d.Close(key)
		for _, v := range d.Open(key).Extensions {
			return v.Login.PEM()
		}
		return "nothing"
	}
	require.Equal(t, "login of shop", login("web", true, "shop"))
	require.Empty(t, login("web", false, "shop"), "who does not show it")
	require.Empty(t, login("other", true, "shop"), "who may not read it")
	require.Equal(t, "nothing", login("web", true, "other"))

	root := d.Index().Mesh().RootNamespace
	d.Apply([]store.Change{{Key: plugin("shop").Key, Old: plugin("shop")}, {Key: plugin(root).Key, New: plugin(root)}, {Key: secret(root).Key, New: secret(root, "web")}})
	require.Empty(t, login("web", true, "shop"), "another namespace's Secret")

	d.Apply([]store.Change{{Key: plugin("shop").Key, New: plugin("shop")}})
	key, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Extensions: true, Namespace: "shop", ServiceAccount: "web", Verified: true, IPs: []string{"0.0.0.0"}})
	d.Open(key)
	delta := d.Apply([]store.Change{{Key: secret("shop").Key, Old: secret("shop", "web"), New: secret("shop")}}).Deltas[key]
	require.Empty(t, delta.Extensions["extenstions.istio.io/wasmplugin/shop.auth"].Login.PEM(), "a right that was withdrawn")
}
