package engine

import (
	"errors"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// replacePatches puts a delta's patches in force: they count for its views, and for all later
// ones of the scope.
func (t *translation) replacePatches(s *group, d *derive.Delta) {
	if d.Patches != nil {
		t.repatched = true
		var problems []envoyfilter.Problem
		s.patches, problems = envoyfilter.New(d.Patches)
		for _, p := range problems {
			t.leftOut(envoyFilters, p.Origin.String(), []envoyfilter.Problem{p})
		}
	}
	t.patches = s.patches.Noting(t.patchedBy.Add)
}

// envoyFilters is the type under which patches are told of that are left out everywhere.
const envoyFilters = "EnvoyFilter"

// leftOut notes patches that a resource is served without.
func (t *translation) leftOut(typ, name string, problems []envoyfilter.Problem) {
	for _, p := range problems {
		t.failure(typ, name, p.Error()).patch = true
	}
}

// wasmPlugins is the type under which plugins are told of that proxies cannot have.
const wasmPlugins = "WasmPlugin"

// replaceUnfetched notes the plugins whose modules nobody fetches for the scope's proxies.
func (t *translation) replaceUnfetched(d *derive.Delta) {
	t.replugged = d.Unfetched != nil
	for _, name := range d.Unfetched {
		t.failure(wasmPlugins, name,
			"the agents of these proxies are too old to fetch modules: failStrategy decides for all requests").plugin = true
	}
}

// forget forgets what was told of a scope's patches or plugins before they were replaced.
func (e *Engine) forget(k derive.GroupKey, typ string) {
	maps.DeleteFunc(e.failures, func(f failureKey, _ Failure) bool { return f.scope == k && f.typ == typ })
}

// The messages of views, with the scope's patches; nil: a patch removes it.

func (t *translation) cluster(v *ir.Cluster) (proto.Message, error) {
	m, err := translate.Cluster(v)
	if err != nil || v.Added != nil {
		return signed(m, v.Added, err)
	}
	m, there, problems := t.patches.Cluster(v.Service.Host, m)
	t.leftOut(resource.Cluster.String(), v.Name, problems)
	return messageIf(there, m)
}

func (t *translation) listener(v *ir.Listener) (proto.Message, error) {
	m, err := translate.Listener(v)
	if err != nil || v.Added != nil {
		return signed(m, v.Added, err)
	}
	m, there, problems := t.patches.Listener(m)
	t.leftOut(resource.Listener.String(), v.Name, problems)
	return messageIf(there, m)
}

func (t *translation) virtualHost(v *ir.VirtualHost) (proto.Message, error) {
	m, refused, err := translate.VirtualHost(v)
	if len(refused) > 0 && t.key.Type != model.ProxyRouter && t.has(resource.VirtualHost, v.ResourceName()) {
		return nil, errors.Join(refused...) // of a sidecar all are one object's: nobody else waits for a change of it
	}
	if err != nil || v.Added != nil {
		return signed(m, v.Added, err)
	}
	m, there, problems := t.patches.VirtualHost(v.RouteConfig, v.Name, m)
	t.leftOut(resource.VirtualHost.String(), v.ResourceName(), problems)
	if len(refused) > 0 {
		t.failure(resource.VirtualHost.String(), v.ResourceName(), errors.Join(refused...).Error()).routes = true
	}
	return messageIf(there, m)
}

// has tells whether proxies have a form of a resource.
func (t *translation) has(typ resource.Type, name string) bool {
	return t.table != nil && t.table.State().Get(typ, name) != nil
}

// signed is what a patch adds: no other patch changes it.
func signed(m proto.Message, p *ir.Patch, err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	envoyfilter.Sign(m, p.Origin)
	return m, nil
}

// routeConfig is told of once, for both ways in which it is served.
func (t *translation) routeConfig(v *ir.RouteConfig) (proto.Message, error) {
	m, problems := t.patches.RouteConfig(translate.RouteConfig(*v, false))
	t.leftOut(resource.RouteConfig.String(), v.Name, problems)
	return m, nil
}

func (t *translation) shell(v *ir.RouteConfig) (proto.Message, error) {
	m, _ := t.patches.RouteConfig(translate.RouteConfig(*v, true))
	return m, nil
}

func messageIf(there bool, m proto.Message) (proto.Message, error) {
	if !there {
		return nil, nil
	}
	return m, nil
}
