package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

func TestPluginsOfAChain(t *testing.T) {
	plugin := func(name string, phase model.WasmPhase, matches ...model.WasmMatch) *model.WasmPlugin {
		return &model.WasmPlugin{Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: name}}, Phase: phase, Matches: matches}
	}
	client := &index.Client{}
	f := &Filters{Plugins: []*model.WasmPlugin{
		plugin("everywhere", model.WasmUnspecified), plugin("tokens", model.WasmAuthn),
		plugin("client", model.WasmStats, model.WasmMatch{Sides: model.SideClient}),
		plugin("server-80", model.WasmAuthz, model.WasmMatch{Sides: model.SideServer, Ports: []uint32{80}}),
	}}
	names := func(inbound bool, port uint32) (out []string) {
		client.Key.Inbound = inbound
		l := &ir.Listener{Port: 15006, Chains: []ir.FilterChain{{HTTP: &ir.HTTPChain{}, Match: ir.ChainMatch{DestinationPort: port}}, {TCP: &ir.TCPChain{}}}}
		before := l.Chains[0].HTTP
		f.AddTo(client, l, new(model.OriginList))
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

// TestPluginsOfConnections checks that chains of bytes and of requests have them, except for connections of applications to
// unknown destinations.
func TestPluginsOfConnections(t *testing.T) {
	plugin := func(name string, network bool, phase model.WasmPhase, ports ...uint32) *model.WasmPlugin {
		return &model.WasmPlugin{
			Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: name}}, Network: network, Phase: phase,
			Matches: []model.WasmMatch{{Sides: model.BothSides, Ports: ports}},
		}
	}
	client := &index.Client{}
	f := &Filters{Plugins: []*model.WasmPlugin{
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
		client.Key.Inbound = inbound
		l := &ir.Listener{Port: 81, Default: &c}
		f.AddTo(client, l, new(model.OriginList))
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
	require.Nil(t, extended(true, ClosingChain("virtualInbound-blackhole", 15006)).Wasm)
}

func TestFilterOfAFetchedPlugin(t *testing.T) {
	plugin := &model.WasmPlugin{Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: "a"}}, Module: model.WasmModule{URL: "oci://registry/a"}}
	const name = wasmPrefix + "shop.a"
	require.Equal(t, &ir.Wasm{Name: name, From: ir.WasmFromAgent}, filterOf(&index.Client{Key: index.GroupKey{Modules: true}}, plugin))
	require.Equal(t, &ir.Wasm{Name: name}, filterOf(&index.Client{}, plugin))
}
