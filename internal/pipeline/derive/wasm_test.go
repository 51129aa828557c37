package derive

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

func TestPluginsOfAChain(t *testing.T) {
	plugin := func(name string, phase model.WasmPhase, matches ...model.WasmMatch) *model.WasmPlugin {
		return &model.WasmPlugin{Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: name}}, Phase: phase, Matches: matches}
	}
	s := &proxyGroup{Client: &index.Client{}, plugins: []*model.WasmPlugin{
		plugin("everywhere", model.WasmUnspecified), plugin("tokens", model.WasmAuthn),
		plugin("client", model.WasmStats, model.WasmMatch{Sides: model.SideClient}),
		plugin("server-80", model.WasmAuthz, model.WasmMatch{Sides: model.SideServer, Ports: []uint32{80}}),
	}}
	names := func(inbound bool, port uint32) (out []string) {
		s.Key.Inbound = inbound
		l := &ir.Listener{Port: 15006, Chains: []ir.FilterChain{{HTTP: &ir.HTTPChain{}, Match: ir.ChainMatch{DestinationPort: port}}, {TCP: &ir.TCPChain{}}}}
		before := l.Chains[0].HTTP
		s.extend(l, new(model.OriginList))
		require.Nil(t, before.Wasm, "what was put out before stays as it was")
		w := l.Chains[0].HTTP.Wasm
		for phase, list := range [][]*ir.Wasm{w.Authn, w.Authz, w.Stats, w.Last} {
			for _, p := range list {
				out = append(out, []string{"authn ", "authz ", "stats ", "last "}[phase]+p.Name[len(wasmPrefix):])
			}
		}
		return out
	}
	require.Equal(t, []string{"authn shop.tokens", "authz shop.server-80", "last shop.everywhere"}, names(true, 80))
	require.Equal(t, []string{"authn shop.tokens", "last shop.everywhere"}, names(true, 81))
	require.Equal(t, []string{"authn shop.tokens", "stats shop.client", "last shop.everywhere"}, names(false, 80))
}

// TestPluginsOfConnections: they are on chains of bytes and of requests alike, but where nobody's
// connections go that leave for places that no service has.
func TestPluginsOfConnections(t *testing.T) {
	plugin := func(name string, network bool, phase model.WasmPhase, ports ...uint32) *model.WasmPlugin {
		return &model.WasmPlugin{
			Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: name}}, Network: network, Phase: phase,
			Matches: []model.WasmMatch{{Sides: model.BothSides, Ports: ports}},
		}
	}
	s := &proxyGroup{Client: &index.Client{}, plugins: []*model.WasmPlugin{
		plugin("bytes", true, model.WasmAuthz), plugin("bytes-81", true, model.WasmUnspecified, 81), plugin("requests", false, model.WasmAuthz),
	}}
	names := func(w *ir.WasmFilters) (out []string) {
		if w == nil {
			return nil
		}
		for _, p := range slices.Concat(w.Authz, w.Last) {
			require.Equal(t, strings.HasPrefix(p.Name, wasmPrefix+"shop.bytes"), p.Network)
			out = append(out, p.Name[len(wasmPrefix):])
		}
		return out
	}
	extended := func(inbound bool, c ir.FilterChain) ir.FilterChain {
		s.Key.Inbound = inbound
		l := &ir.Listener{Port: 81, Default: &c}
		s.extend(l, new(model.OriginList))
		return *l.Default
	}
	tcp := func(prefix string) ir.FilterChain { return ir.FilterChain{TCP: &ir.TCPChain{StatPrefix: prefix}} }
	both := []string{"shop.bytes/network", "shop.bytes-81/network"}
	require.Equal(t, both, names(extended(false, tcp("db")).Wasm))
	require.Equal(t, both[:1], names(extended(true, ir.FilterChain{Match: ir.ChainMatch{DestinationPort: 80}, TCP: &ir.TCPChain{}}).Wasm))
	http := extended(false, ir.FilterChain{HTTP: &ir.HTTPChain{}})
	require.Equal(t, both, names(http.Wasm))
	require.Equal(t, []string{"shop.requests"}, names(http.HTTP.Wasm))
	require.Equal(t, both, names(extended(true, tcp(ir.InboundPassthroughCluster)).Wasm))
	require.Nil(t, extended(false, tcp(ir.PassthroughCluster)).Wasm)
	require.Nil(t, extended(false, tcp(ir.BlackHoleCluster)).Wasm)
	black := tcp("")
	black.Name = "virtualInbound" + blackHoleSuffix
	require.Nil(t, extended(true, black).Wasm)
}

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

	with := &proxyGroup{Client: &index.Client{Key: GroupKey{Modules: true}}}
	require.Equal(t, &ir.Wasm{Name: name, From: ir.WasmFromAgent}, with.filterOf(plugin("1")))
	require.Equal(t, &ir.Wasm{Name: name}, (&proxyGroup{Client: &index.Client{}}).filterOf(plugin("1")))
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
