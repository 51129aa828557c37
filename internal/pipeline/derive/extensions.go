package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// deriveExtensions gives the plugins whose modules have to be fetched.
func (s *proxyGroup) deriveExtensions(r *index.Reader) {
	now := map[string]bool{}
	for _, p := range index.Policies[*model.WasmPlugin](r, model.KindWasmPlugin) {
		if p.Module.URL == "" {
			continue
		}
		v := s.extensionOf(r, p)
		now[v.Name], s.out.Extensions[v.Name] = true, v
	}
	for name := range s.extensions {
		if !now[name] {
			s.out.Extensions[name] = nil
		}
	}
	s.extensions = now
}

func (s *proxyGroup) extensionOf(r *index.Reader, p *model.WasmPlugin) *ir.Wasm {
	v, mark := wasmOf(p), r.Mark()
	r.Use(p)
	v.Login = s.login(r, p)
	v.Made = r.MadeSince(mark)
	v.From, v.Module = ir.WasmFromAgent, p.Module
	if p.Module.Always {
		v.Version = p.ResourceVersion
	}
	return v
}

// deriveBootstraps gives what EnvoyFilters change of bootstraps, in their order.
func (s *proxyGroup) deriveBootstraps(r *index.Reader) {
	now, metadata := map[string]bool{}, index.ParseLabels(s.Key.Metadata)
	for i, f := range s.envoyFilters(r) {
		v := &ir.Bootstrap{Made: ir.Made{Origins: model.OriginsOf(f.Key)}, Name: agentapi.BootstrapPatchName(i, f.Namespace, f.Name)}
		for j := range f.Patches {
			p := &f.Patches[j]
			gateway := p.Context == model.PatchGateway && s.Key.Type != model.ProxyRouter
			if p.Target == model.PatchBootstrap && !gateway && p.MeetsProxy(s.Key.Version, metadata) {
				v.Patches = append(v.Patches, ir.Patch{EnvoyPatch: p, Origin: f.Key})
			}
		}
		if len(v.Patches) > 0 {
			now[v.Name], s.out.Bootstraps[v.Name] = true, v
		}
	}
	for name := range s.bootstraps {
		if !now[name] {
			s.out.Bootstraps[name] = nil
		}
	}
	s.bootstraps = now
}

// login are the credentials that a plugin's module is fetched with: of its own namespace, as other
// credentials, and for service accounts that may read them. Others ask for the module without.
func (s *proxyGroup) login(r *index.Reader, p *model.WasmPlugin) model.PrivateKey {
	key, named := p.PullSecretKey()
	if !named || key.Namespace != s.Key.Namespace || s.Key.Account == "" {
		return model.PrivateKey{}
	}
	mark := r.Mark()
	secret := r.Secret(key)
	if secret == nil || !secret.MayRead(s.Key.Account) {
		r.Unread(mark)
		return model.PrivateKey{}
	}
	return secret.Login
}
