package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// extensionKeys are the scopes of a sidecar's agent that fetches modules: one of the plugins
// that need some, for all workloads that the same policies select, and an empty one.
func (x *Index) extensionKeys(p *model.Proxy) (extensions, none ScopeKey) {
	extensions = ScopeKey{Type: p.Type, Extensions: true, Namespace: p.Namespace, Labels: x.labels.relevant(p.Labels)}
	extensions.Account = x.accountOf(p)
	return extensions, ScopeKey{Names: true, Inbound: true}
}

// deriveExtensions gives the plugins whose modules have to be fetched.
func (s *scope) deriveExtensions(r *reader) {
	now := map[string]bool{}
	for _, p := range policies[*model.WasmPlugin](r, model.KindWasmPlugin, s.Key.Namespace, s.labels) {
		if p.Module.URL == "" {
			continue
		}
		v := s.extensionOf(p)
		now[v.Name], s.out.Extensions[v.Name] = true, v
	}
	for name := range s.extensions {
		if !now[name] {
			s.out.Extensions[name] = nil
		}
	}
	s.extensions = now
}

func (s *scope) extensionOf(p *model.WasmPlugin) *view.Wasm {
	v := wasmOf(p)
	v.From, v.Module = view.WasmFromAgent, p.Module
	if p.Module.Always {
		v.Version = p.ResourceVersion
	}
	return v
}
