package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// extensionKeys are the scopes of a sidecar's agent: one of the plugins whose modules it is to fetch
// and of what is to be changed of Envoy's bootstrap, for all workloads that the same policies
// select, and an empty one.
func (x *Index) extensionKeys(p *model.Proxy) (extensions, none GroupKey) {
	extensions = GroupKey{Type: p.Type, Extensions: true, Namespace: p.Namespace, Labels: x.labels.relevant(p.Labels)}
	if x.pulls[p.Namespace] > 0 && p.Verified {
		extensions.Account = p.ServiceAccount
	}
	extensions.Version, extensions.Metadata = x.proxies.of(p)
	return extensions, GroupKey{Names: true, Inbound: true}
}

// deriveExtensions gives the plugins whose modules have to be fetched.
func (s *proxyGroup) deriveExtensions(r *reader) {
	now := map[string]bool{}
	for _, p := range policies[*model.WasmPlugin](r, model.KindWasmPlugin, s.Key.Namespace, s.labels) {
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

func (s *proxyGroup) extensionOf(r *reader, p *model.WasmPlugin) *ir.Wasm {
	v, mark := wasmOf(p), r.mark()
	r.use(p)
	v.Login = s.login(r, p)
	v.Made = r.madeSince(mark)
	v.From, v.Module = ir.WasmFromAgent, p.Module
	if p.Module.Always {
		v.Version = p.ResourceVersion
	}
	return v
}

// deriveBootstraps gives what EnvoyFilters change of bootstraps, in their order.
func (s *proxyGroup) deriveBootstraps(r *reader) {
	now, metadata := map[string]bool{}, parseLabels(s.Key.Metadata)
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
func (s *proxyGroup) login(r *reader, p *model.WasmPlugin) model.PrivateKey {
	key, named := p.PullSecretKey()
	if !named || key.Namespace != s.Key.Namespace || s.Key.Account == "" {
		return model.PrivateKey{}
	}
	mark := r.mark()
	secret := r.secret(key)
	if secret == nil || !secret.MayRead(s.Key.Account) {
		r.unread(mark)
		return model.PrivateKey{}
	}
	return secret.Login
}

func (x *Index) replaceWasmPlugin(old, now *model.WasmPlugin, touched *touched) {
	x.replacePolicy(asObject(old), asObject(now), touched)
	touched.labels = x.countPulls(now, 1) || touched.labels // before the old one, so that what both ask for is no news
	touched.labels = x.countPulls(old, -1) || touched.labels
}

// countPulls tells whether a namespace began or ceased to have plugins that name credentials.
func (x *Index) countPulls(p *model.WasmPlugin, by int) bool {
	if p == nil || p.Module.PullSecret == "" {
		return false
	}
	before := x.pulls[p.Namespace]
	x.pulls[p.Namespace] += by
	if before+by == 0 {
		delete(x.pulls, p.Namespace)
	}
	return before == 0 || before+by == 0
}

// asObject keeps nil pointers out of interfaces.
func asObject(p *model.WasmPlugin) model.Object {
	if p == nil {
		return nil
	}
	return p
}
