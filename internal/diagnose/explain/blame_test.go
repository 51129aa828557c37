package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestBlames checks that the object which a resource is refused for has its file and line, and that a guess names EnvoyFilters
// and new changes first.
func TestBlames(t *testing.T) {
	w := policyWorld(t)
	for _, o := range w.objects {
		if k := o.Metadata().Key; k.Kind == model.KindWasmPlugin {
			o.Metadata().Origin = "plugins.yaml:3"
		}
	}
	proxies := &wholeWorld{}
	x := &Explainer{Snapshot: w.store.Snapshot, Changes: w.log, Mesh: w.mesh, Proxies: proxies}
	for name, tc := range map[string]struct {
		message string
		since   model.Revision
		want    string
	}{
		"quoted":       {"Invalid path: /opt/auth.wasm", 0, "by WasmPlugin shop/auth, plugins.yaml:3"},
		"only changed": {"x", 7, "by PeerAuthentication shop/default"},
		"one of two":   {"x", 6, "by one of: WasmPlugin shop/auth, plugins.yaml:3; PeerAuthentication shop/default"},
		"one of many":  {"x", 0, "by one of: WasmPlugin shop/auth, plugins.yaml:3; Telemetry istio-system/mesh; PeerAuthentication shop/default; 4 more; the mesh's configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.refusedListener(tc.message, tc.since, 8)
			r.Version = "1"
			proxies.refusals = []*distribution.Refusal{r}
			b := x.Blames()[RefusedVersion{"LDS", "virtualInbound", "1"}]
			require.Equal(t, tc.want, b.String())
			found := x.refusalsOf(keyOf("WasmPlugin/shop/auth"))
			require.Equal(t, name != "only changed", len(found) == 1)
		})
	}
}

// TestEnvoyFilterIsBlamedFirst checks that of several objects which may be meant, an EnvoyFilter comes first.
func TestEnvoyFilterIsBlamedFirst(t *testing.T) {
	filter, rule := keyOf("EnvoyFilter/shop/region"), keyOf("AuthorizationPolicy/shop/ours")
	w := compile(t, policyDocument("EnvoyFilter", "networking.istio.io/v1alpha3", "region", "shop",
		"configPatches: [{applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND}, patch: {operation: INSERT_FIRST, value: {name: x}}}]"),
		policyDocument("AuthorizationPolicy", security, "ours", "shop", ""))
	tab := table.New("t")
	tab.Commit(1, []table.Update{{Type: resource.Listener, Name: "l", Origins: model.OriginsOf(filter, rule), Resource: resource.EncodeBytes(resource.Listener, "l", []byte("x"))}})
	x := &Explainer{Changes: &changed{at: map[model.Key]model.Revision{filter: 1, rule: 2}}, Mesh: model.DefaultMesh()}
	b := x.Causes(w.store.Snapshot()).blame(&distribution.Refusal{Type: resource.Listener, Name: "l", About: []distribution.Part{{
		Type: resource.Listener, Entry: tab.State().Get(resource.Listener, "l"),
	}}})
	require.Equal(t, "by one of: EnvoyFilter shop/region; AuthorizationPolicy shop/ours; the mesh's configuration", b.String())
}
