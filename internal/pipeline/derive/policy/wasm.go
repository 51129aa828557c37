package policy

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Plugins lists the WasmPlugins of the clients, in the order of their filters.
func Plugins(r *index.Reader) []*model.WasmPlugin {
	out := index.Policies[*model.WasmPlugin](r, model.KindWasmPlugin)
	slices.SortStableFunc(out, func(a, b *model.WasmPlugin) int { return cmp.Compare(b.Priority, a.Priority) })
	return out
}

// Unfetched lists the names of plugins whose modules must be fetched; never nil.
func Unfetched(list []*model.WasmPlugin) []string {
	out := []string{}
	for _, p := range list {
		if p.Module.URL != "" {
			out = append(out, p.Key.String())
		}
	}
	return out
}

// leadsNowhereKnown reports whether no service has the destination of connections: they pass through, or are closed. As in
// Istio, such connections of applications have no plugins, unlike those to applications.
func leadsNowhereKnown(c *ir.TCPChain) bool {
	return c.StatPrefix == ir.PassthroughCluster || c.StatPrefix == ir.BlackHoleCluster
}

// pluginsOn are the plugins for traffic of a side at a port, of connections or of requests; nil: none.
func (f *Filters) pluginsOn(c *index.Client, network bool, side model.Sides, port uint32, from *model.OriginList) *ir.WasmFilters {
	var out *ir.WasmFilters
	for _, p := range f.Plugins {
		if p.Network != network || !p.On(side, port) {
			continue
		}
		if out == nil {
			out = &ir.WasmFilters{}
		}
		into := map[model.WasmPhase]*[]*ir.Wasm{model.WasmAuthn: &out.Authn, model.WasmAuthz: &out.Authz, model.WasmStats: &out.Stats}[p.Phase]
		if into == nil {
			into = &out.Last
		}
		*into = append(*into, filterOf(c, p))
		from.Add(p.Key)
	}
	return out
}

// wasmPrefix begins the names of such filters, as Istio spells it. Names of filters for connections have a suffix. Envoy
// asks for a plugin by its name. If the type of a plugin changes, its new content must not reach filters of the old type.
const (
	wasmPrefix  = "extenstions.istio.io/wasmplugin/"
	networkWasm = "/network"
)

func pluginName(p *model.WasmPlugin) string {
	name := wasmPrefix + p.Namespace + "." + p.Name
	if p.Network {
		name += networkWasm
	}
	return name
}

// filterOf is a plugin in a listener. If an agent fetches the module, the agent has everything except what decides while
// there is no module.
func filterOf(c *index.Client, p *model.WasmPlugin) *ir.Wasm {
	if p.File != "" {
		return wasmOf(p)
	}
	out := &ir.Wasm{Name: pluginName(p), Network: p.Network, FailOpen: p.FailOpen}
	if c.Key.Modules {
		out.From = ir.WasmFromAgent
	}
	return out
}

func wasmOf(p *model.WasmPlugin) *ir.Wasm {
	out := &ir.Wasm{
		Name: pluginName(p), Network: p.Network, File: p.File, RootID: p.PluginName,
		Config: p.Config, FailOpen: p.FailOpen, Reload: p.Reload,
	}
	for _, e := range p.Env {
		if e.FromHost {
			out.HostEnv = append(out.HostEnv, e.Name)
			continue
		}
		if out.Env == nil {
			out.Env = map[string]string{}
		}
		out.Env[e.Name] = e.Value
	}
	return out
}

// Extensions are the plugins whose modules agents fetch, by name.
func Extensions(r *index.Reader) map[string]*ir.Wasm {
	out := map[string]*ir.Wasm{}
	for _, p := range index.Policies[*model.WasmPlugin](r, model.KindWasmPlugin) {
		if p.Module.URL != "" {
			v := extensionOf(r, p)
			out[v.Name] = v
		}
	}
	return out
}

func extensionOf(r *index.Reader, p *model.WasmPlugin) *ir.Wasm {
	v, mark := wasmOf(p), r.Mark()
	r.Use(p)
	v.Login = login(r, p)
	v.Made = r.MadeSince(mark)
	v.From, v.Module = ir.WasmFromAgent, p.Module
	if p.Module.Always {
		v.Version = p.ResourceVersion
	}
	return v
}

// login returns the credentials for fetching a plugin's module: of the plugin's own namespace, for service accounts that
// may read them. Other agents fetch the module without credentials.
func login(r *index.Reader, p *model.WasmPlugin) model.PrivateKey {
	key, named := p.PullSecretKey()
	if !named || key.Namespace != r.Key.Namespace || r.Key.Account == "" {
		return model.PrivateKey{}
	}
	mark := r.Mark()
	secret := r.Secret(key)
	if secret == nil || !secret.MayRead(r.Key.Account) {
		r.Unread(mark)
		return model.PrivateKey{}
	}
	return secret.Login
}
