package derive

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// deriveWasm finds the plugins of the scope's workloads. Where they differ from before, every
// listener is derived again.
func (s *proxyGroup) deriveWasm(r *index.Reader) {
	now := index.Policies[*model.WasmPlugin](r, model.KindWasmPlugin)
	slices.SortStableFunc(now, func(a, b *model.WasmPlugin) int { return cmp.Compare(b.Priority, a.Priority) })
	if reflect.DeepEqual(now, s.plugins) {
		return
	}
	s.plugins = now
	if !s.Key.Modules {
		s.out.Unfetched = unfetched(now)
	}
	s.markTelling(r.Mesh())
}

// unfetched are the names of plugins whose modules have to be fetched; never nil.
func unfetched(list []*model.WasmPlugin) []string {
	out := []string{}
	for _, p := range list {
		if p.Module.URL != "" {
			out = append(out, p.Key.String())
		}
	}
	return out
}

// extend gives a listener's chains the plugins that are for them; port is the listener's where
// a chain says none.
// It adds the plugins to what the listener is made from.
func (s *proxyGroup) extend(l *ir.Listener, from *model.OriginList) {
	if len(s.plugins) == 0 {
		return
	}
	for i := range l.Chains {
		s.extendChain(&l.Chains[i], l.Port, from)
	}
	if l.Default != nil {
		s.extendChain(l.Default, l.Port, from)
	}
}

func (s *proxyGroup) extendChain(c *ir.FilterChain, port uint32, from *model.OriginList) {
	if strings.HasSuffix(c.Name, blackHoleSuffix) {
		return
	}
	side := model.SideClient
	if s.Key.Inbound {
		side, port = model.SideServer, cmp.Or(c.Match.DestinationPort, port)
	}
	if c.HTTP != nil || !leadsNowhereKnown(c.TCP) {
		c.Wasm = s.pluginsOn(true, side, port, from)
	}
	if c.HTTP == nil {
		return
	}
	if filters := s.pluginsOn(false, side, port, from); filters != nil {
		http := *c.HTTP // a copy: what has been put out does not change
		http.Wasm, c.HTTP = filters, &http
	}
}

// leadsNowhereKnown tells whether connections go to where they were going, or are closed, as no service
// has them. Such of applications, unlike those to them, have no plugins, as in Istio.
func leadsNowhereKnown(c *ir.TCPChain) bool {
	return c.StatPrefix == ir.PassthroughCluster || c.StatPrefix == ir.BlackHoleCluster
}

// pluginsOn are the plugins for traffic of a side at a port, of connections or of requests; nil: none.
func (s *proxyGroup) pluginsOn(network bool, side model.Sides, port uint32, from *model.OriginList) *ir.WasmFilters {
	var out *ir.WasmFilters
	for _, p := range s.plugins {
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
		*into = append(*into, s.filterOf(p))
		from.Add(p.Key)
	}
	return out
}

// wasmPrefix begins the names of such filters: Istio's, as it spells them. Those of connections have
// an end of their own: Envoy asks for a plugin by its name, and one whose type changes would be
// given to filters that are of the other type yet.
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

// filterOf is a plugin as a listener has it. Of one whose module is fetched, its agent has all
// but what decides while there is no module.
func (s *proxyGroup) filterOf(p *model.WasmPlugin) *ir.Wasm {
	if p.File != "" {
		return wasmOf(p)
	}
	out := &ir.Wasm{Name: pluginName(p), Network: p.Network, FailOpen: p.FailOpen}
	if s.Key.Modules {
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
