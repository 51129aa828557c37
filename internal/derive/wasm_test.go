package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

func TestPluginsOfAChain(t *testing.T) {
	plugin := func(name string, phase model.WasmPhase, matches ...model.WasmMatch) *model.WasmPlugin {
		return &model.WasmPlugin{Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: name}}, Phase: phase, Matches: matches}
	}
	s := &scope{plugins: []*model.WasmPlugin{
		plugin("everywhere", model.WasmUnspecified), plugin("tokens", model.WasmAuthn),
		plugin("client", model.WasmStats, model.WasmMatch{Sides: model.SideClient}),
		plugin("server-80", model.WasmAuthz, model.WasmMatch{Sides: model.SideServer, Ports: []uint32{80}}),
	}}
	names := func(inbound bool, port uint32) (out []string) {
		s.Key.Inbound = inbound
		l := &view.Listener{Port: 15006, Chains: []view.FilterChain{{HTTP: &view.HTTPChain{}, Match: view.ChainMatch{DestinationPort: port}}, {TCP: &view.TCPChain{}}}}
		before := l.Chains[0].HTTP
		s.extend(l)
		require.Nil(t, before.Wasm, "what was put out before stays as it was")
		w := l.Chains[0].HTTP.Wasm
		for phase, list := range [][]*view.Wasm{w.Authn, w.Authz, w.Stats, w.Last} {
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
