package derive

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

var worldProxyVersions = []string{"1.8.3", "1.31.1", ""}

func (w *world) envoyFilter() model.Object {
	f := &model.EnvoyFilter{Meta: w.meta(model.KindEnvoyFilter), Priority: int32(w.IntN(3) - 1)}
	w.selectOrTarget(&f.Selector, &f.Targets)
	for i := range 1 + w.IntN(3) {
		p := model.EnvoyPatch{
			Index: i, Value: []byte{byte(w.IntN(3))}, Operation: model.PatchMerge,
			Target: pick(w, []model.PatchTarget{
				model.PatchHTTPFilter, model.PatchListener, model.PatchCluster, model.PatchHTTPRoute, model.PatchRouteConfig, model.PatchVirtualHost, model.PatchBootstrap,
			}),
			Context: pick(w, []model.PatchContext{model.PatchAnywhere, model.PatchInbound, model.PatchOutbound, model.PatchGateway}),
		}
		if w.chance(0.3) {
			p.ProxyVersion = regexp.MustCompile(`^1\.8.*`)
		}
		if w.chance(0.2) {
			p.ProxyMetadata = map[string]string{"TEAM": pick(w, worldNames)}
		}
		if w.chance(0.4) {
			w.adds(&p)
		}
		f.Patches = append(f.Patches, p)
	}
	return f
}

// adds makes a patch one that adds something.
func (w *world) adds(p *model.EnvoyPatch) {
	p.Operation, p.Name = model.PatchAdd, pick(w, worldNames)
	p.Target = pick(w, []model.PatchTarget{model.PatchCluster, model.PatchListener, model.PatchVirtualHost})
	if p.Target != model.PatchVirtualHost {
		return
	}
	p.Domains = pick(w, [][]string{{"added.example.com"}, {"api.example.com", "x.a"}, {"*"}})
	if w.chance(0.5) {
		p.Routes = &model.RouteConfigMatch{Port: pick(w, []uint32{80, 9000})}
	}
}

// patched derives the scopes of a proxy with some EnvoyFilters, and gives what is in force.
func patched(p *model.Proxy, filters ...*model.EnvoyFilter) (outbound, inbound []string) {
	d := New(model.DefaultMesh(), 1)
	var changes []store.Change
	for _, f := range filters {
		changes = append(changes, store.Change{Key: f.Key, New: f})
	}
	d.Apply(changes)
	list := func(k GroupKey) []string {
		var out []string
		for _, p := range d.Open(k).patches() {
			out = append(out, fmt.Sprintf("%s/%s[%d]", p.Origin.Namespace, p.Origin.Name, p.Index))
		}
		return out
	}
	out, in := d.Index().Keys(p)
	return list(out), list(in)
}

func filterOf(namespace, name string, priority int32, patches ...model.EnvoyPatch) *model.EnvoyFilter {
	for i := range patches {
		patches[i].Index, patches[i].Target, patches[i].Operation = i, model.PatchCluster, model.PatchMerge
	}
	return &model.EnvoyFilter{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: namespace, Name: name}},
		Priority: priority, Patches: patches,
	}
}

// TestPatchOrder: by priority, then the root namespace first, then by age and name.
func TestPatchOrder(t *testing.T) {
	out, in := patched(&model.Proxy{Type: model.ProxySidecar, Namespace: "a"},
		filterOf("a", "late", 1, model.EnvoyPatch{}),
		filterOf("a", "own", 0, model.EnvoyPatch{}, model.EnvoyPatch{Context: model.PatchInbound}, model.EnvoyPatch{Context: model.PatchGateway}),
		filterOf("istio-system", "z", 0, model.EnvoyPatch{Context: model.PatchOutbound}),
		filterOf("istio-system", "y", 0, model.EnvoyPatch{}),
		filterOf("a", "early", -1, model.EnvoyPatch{}),
		filterOf("b", "others", 0, model.EnvoyPatch{}),
	)
	require.Equal(t, []string{"a/early[0]", "istio-system/y[0]", "istio-system/z[0]", "a/own[0]", "a/late[0]"}, out)
	require.Equal(t, []string{"a/early[0]", "istio-system/y[0]", "a/own[0]", "a/own[1]", "a/late[0]"}, in)
}

// TestPatchesForSomeProxies: by version, by the node's metadata and by labels. Proxies share
// scopes as long as nobody asks for these.
func TestPatchesForSomeProxies(t *testing.T) {
	old := &model.Proxy{Type: model.ProxySidecar, Namespace: "a", IstioVersion: "1.8.3", Labels: map[string]string{"app": "x"}}
	now := &model.Proxy{Type: model.ProxySidecar, Namespace: "a", IstioVersion: "1.31.1", Metadata: map[string]string{"TEAM": "blue"}}
	d := New(model.DefaultMesh(), 1)
	a, _ := d.Index().Keys(old)
	b, _ := d.Index().Keys(now)
	require.Equal(t, a, b)

	byVersion := filterOf("a", "v", 0, model.EnvoyPatch{ProxyVersion: regexp.MustCompile(`^1\.8.*`)})
	byMetadata := filterOf("a", "m", 0, model.EnvoyPatch{ProxyMetadata: map[string]string{"TEAM": "blue"}})
	byLabel := filterOf("a", "l", 0, model.EnvoyPatch{})
	byLabel.Selector = map[string]string{"app": "x"}
	for proxy, want := range map[*model.Proxy][]string{old: {"a/l[0]", "a/v[0]"}, now: {"a/m[0]"}} {
		out, in := patched(proxy, byVersion, byMetadata, byLabel)
		require.Equal(t, want, out)
		require.Equal(t, want, in)
	}
}

// TestPatchesReachTheirScopesAlone: a changed EnvoyFilter has nothing derived for workloads
// that it does not select, and of those that it does no more than it concerns.
func TestPatchesReachTheirScopesAlone(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	d.Apply([]store.Change{changeOf(&model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "a", Name: "x"}},
		Hostname: "x.a.svc.cluster.local", Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
	})})
	inA, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "a"})
	inB, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "b"})
	d.Open(inA)
	d.Open(inB)
	f := filterOf("a", "f", 0, model.EnvoyPatch{})
	f.Patches[0].Target = model.PatchHTTPFilter
	deltas := d.Apply([]store.Change{changeOf(f)}).Deltas
	require.Contains(t, deltas, inA)
	require.NotContains(t, deltas, inB)
	require.Contains(t, deltas[inA].Listeners, "0.0.0.0_80")
	require.NotContains(t, deltas[inA].Clusters, "outbound|80||x.a.svc.cluster.local")
	require.Empty(t, d.Apply([]store.Change{{Key: f.Key, Old: f, New: f}}).Deltas, "nothing has changed")
}

func changeOf(o model.Object) store.Change { return store.Change{Key: o.Metadata().Key, New: o} }

// patches are those in force, as far as the delta says.
func (d *Delta) patches() []ir.Patch {
	if d.Patches == nil {
		return nil
	}
	return d.Patches.List
}
