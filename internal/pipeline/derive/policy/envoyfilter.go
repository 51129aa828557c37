package policy

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// envoyFilters lists those that select the clients: by priority, then those of the root namespace first, then the older.
func envoyFilters(r *index.Reader) []*model.EnvoyFilter {
	list := index.Policies[*model.EnvoyFilter](r, model.KindEnvoyFilter)
	slices.SortStableFunc(list, func(a, b *model.EnvoyFilter) int { return cmp.Compare(a.Priority, b.Priority) })
	return list
}

// Patches are those that apply to the clients' resources.
func Patches(r *index.Reader) *ir.Patches {
	out := &ir.Patches{Gateway: r.Key.Type == model.ProxyRouter}
	metadata := index.ParseMetadata(r.Key.Metadata)
	addedOutbound := map[addition]bool{}
	for _, f := range envoyFilters(r) {
		for i := range f.Patches {
			p := &f.Patches[i]
			if p.Target == model.PatchBootstrap || !p.MeetsProxy(r.Key.Version, metadata) {
				continue
			}
			if inContext(&r.Key, p.Context) {
				out.List = append(out.List, ir.Patch{EnvoyPatch: p, Origin: f.Key})
			}
			if p.Operation == model.PatchAdd && (p.Context == model.PatchOutbound || p.Context == model.PatchAnywhere) {
				addedOutbound[addition{p.Target, p.Name}] = true
			}
		}
	}
	if r.Key.Inbound {
		out.List = slices.DeleteFunc(out.List, func(p ir.Patch) bool {
			resource := p.Target == model.PatchCluster || p.Target == model.PatchListener
			return resource && p.Operation == model.PatchAdd && addedOutbound[addition{p.Target, p.Name}]
		})
	}
	return out
}

// addition is what a patch adds. If patches add a cluster or a listener of one name to both groups of a sidecar, only the
// outbound one has it, as in Istio: Envoy refuses two of one name.
type addition struct {
	target model.PatchTarget
	name   string
}

// TextsNamingClusters returns the values of patches and the configurations of plugins for a client's proxy, outbound or
// inbound, that name outbound clusters; nil for groups that get all clusters.
func TextsNamingClusters(r *index.Reader) (texts [][]byte) {
	if !r.Key.OnDemand() {
		return nil
	}
	add := func(text []byte) {
		if index.NamesClusters(text) {
			texts = append(texts, text)
		}
	}
	for _, f := range envoyFilters(r) {
		for i := range f.Patches {
			if f.Patches[i].Target != model.PatchBootstrap {
				add(f.Patches[i].Value)
			}
		}
	}
	for _, p := range Plugins(r) {
		add([]byte(p.Config))
		for _, e := range p.Env {
			add([]byte(e.Value))
		}
	}
	return texts
}

// inContext reports whether patches of a context apply to a group.
func inContext(k *index.GroupKey, c model.PatchContext) bool {
	switch {
	case c == model.PatchAnywhere:
		return true
	case k.Inbound:
		return c == model.PatchInbound && k.Type == model.ProxySidecar
	case k.Type == model.ProxyRouter:
		return c == model.PatchGateway
	}
	return c == model.PatchOutbound
}

// ChangedTargets are the targets for which two lists of patches differ.
func ChangedTargets(a, b *ir.Patches) map[model.PatchTarget]bool {
	byTarget := func(v *ir.Patches) map[model.PatchTarget][]ir.Patch {
		out := map[model.PatchTarget][]ir.Patch{}
		if v != nil {
			for _, p := range v.List {
				out[p.Target] = append(out[p.Target], p)
			}
		}
		return out
	}
	was, is, out := byTarget(a), byTarget(b), map[model.PatchTarget]bool{}
	for _, m := range []map[model.PatchTarget][]ir.Patch{was, is} {
		for t := range m {
			if !reflect.DeepEqual(was[t], is[t]) {
				out[t] = true
			}
		}
	}
	return out
}

// AddedClusters are the clusters that patches add, by name.
func AddedClusters(k *index.GroupKey, v *ir.Patches) map[string]*ir.Cluster {
	out := map[string]*ir.Cluster{}
	for _, p := range Added(k, v, model.PatchCluster) {
		out[p.Name] = &ir.Cluster{Made: madeBy(p), Name: p.Name, Added: p, Inbound: k.Inbound, Discovery: ir.DiscoverStatic}
	}
	return out
}

// AddedListeners are the listeners that patches add, by name.
func AddedListeners(k *index.GroupKey, v *ir.Patches) map[string]*ir.Listener {
	out := map[string]*ir.Listener{}
	for _, p := range Added(k, v, model.PatchListener) {
		out[p.Name] = &ir.Listener{Made: madeBy(p), Name: p.Name, Added: p, Inbound: k.Inbound}
	}
	return out
}

func madeBy(p *ir.Patch) ir.Made { return ir.Made{Origins: model.OriginsOf(p.Origin)} }

// Added are the patches that add a target, in order. Of several with one name the first counts. As in Istio, a patch for all
// contexts adds to outbound configuration only.
func Added(k *index.GroupKey, v *ir.Patches, target model.PatchTarget) []*ir.Patch {
	if v == nil {
		return nil
	}
	var out []*ir.Patch
	for i := range v.List {
		p := &v.List[i]
		if p.Target != target || p.Operation != model.PatchAdd || k.Inbound && p.Context == model.PatchAnywhere {
			continue
		}
		if !slices.ContainsFunc(out, func(o *ir.Patch) bool { return o.Name == p.Name }) {
			out = append(out, p)
		}
	}
	return out
}

// Bootstraps are what EnvoyFilters change of bootstraps, by name. Agents apply them in the order of names.
func Bootstraps(r *index.Reader) map[string]*ir.Bootstrap {
	out, metadata := map[string]*ir.Bootstrap{}, index.ParseMetadata(r.Key.Metadata)
	for i, f := range envoyFilters(r) {
		v := &ir.Bootstrap{Made: ir.Made{Origins: model.OriginsOf(f.Key)}, Name: agentapi.BootstrapPatchName(i, f.Namespace, f.Name)}
		for j := range f.Patches {
			p := &f.Patches[j]
			gateway := p.Context == model.PatchGateway && r.Key.Type != model.ProxyRouter
			if p.Target == model.PatchBootstrap && !gateway && p.MeetsProxy(r.Key.Version, metadata) {
				v.Patches = append(v.Patches, ir.Patch{EnvoyPatch: p, Origin: f.Key})
			}
		}
		if len(v.Patches) > 0 {
			out[v.Name] = v
		}
	}
	return out
}

// MayChangeHost reports whether a filter of the clients' listeners may change a request's host and have its route chosen
// again. Envoy finds the shard of a request before any filter runs, and keeps it: such listeners need whole route
// configurations.
//
// Filters of Moonsail do not do it. Plugins and those of EnvoyFilters, for example Lua scripts, may. Other patches of
// listeners and routes are written for what Istio has in them: a connection manager with RDS and a route configuration
// "80". With such patches listeners keep this form, too.
func MayChangeHost(plugins []*model.WasmPlugin, patches *ir.Patches) bool {
	if slices.ContainsFunc(plugins, func(p *model.WasmPlugin) bool { return !p.Network && p.OnSide(model.SideClient) }) {
		return true
	}
	if patches == nil {
		return false
	}
	for i := range patches.List {
		switch patches.List[i].Target {
		case model.PatchCluster, model.PatchListenerFilter:
		default:
			return true
		}
	}
	return false
}
