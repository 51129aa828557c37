package meshtest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// resourceKey is a resource of a proxy.
type resourceKey struct {
	typ  resource.Type
	name string
}

// TestOrigins checks on the whole corpus that resources carry the objects that they are made from.
//
//   - Complete: an object without which a resource differs, or is not there, is among its origins.
//   - Sound: an origin is an object of the world, and without it the resource differs, but for the
//     pairs of types and kinds in spare.
func TestOrigins(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			f, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range f.Proxies {
				f.checkOrigins(t, p)
			}
		})
	}
}

// checkOrigins checks all that a proxy and its agent get.
func (f *File) checkOrigins(t *testing.T, p *Proxy) {
	for _, ask := range []func(*model.Proxy){
		func(*model.Proxy) {},
		func(m *model.Proxy) { m.Verified, m.Modules, m.ServiceAccount = true, true, "default" },
		func(m *model.Proxy) { m.Names = true },
		func(m *model.Proxy) { m.Extensions, m.Verified, m.ServiceAccount = true, true, "default" },
	} {
		proxy := p.Model(f.Mesh.Domain)
		ask(proxy)
		f.checkOriginsOf(t, proxy)
	}
}

// checkOriginsOf compiles the world without each of its objects.
func (f *File) checkOriginsOf(t *testing.T, p *model.Proxy) {
	t.Helper()
	all, group := f.compileFor(f.Objects, p)
	known := map[model.Key]bool{}
	for i, o := range f.Objects {
		key := o.Metadata().Key
		known[key] = true
		if !key.IsOrigin() {
			continue
		}
		without, _ := f.compileFor(slices.Concat(f.Objects[:i], f.Objects[i+1:]), p)
		for at, e := range all {
			now := without[at]
			differs := now == nil || now.Version != e.Version
			origins := originsOf(at, all)
			listed := origins.Has(key)
			switch {
			case differs && !listed && !group.Has(key):
				t.Errorf("%s: %s %s is not the same without %s, which is none of its origins: %s", p.Name, at.typ, at.name, key, origins.Keys())
			case !differs && listed && !spares(at.typ, key.Kind):
				t.Errorf("%s: %s %s is the same without %s, which is one of its origins", p.Name, at.typ, at.name, key)
			}
		}
	}
	for at, e := range all {
		for _, k := range e.MadeFrom().Keys() {
			if !known[k] {
				t.Errorf("%s: %s %s: %s is nowhere", p.Name, at.typ, at.name, k)
			}
		}
	}
}

// compileFor compiles objects for a proxy. group are the objects that decide its proxy group.
func (f *File) compileFor(objects []model.Object, p *model.Proxy) (out map[resourceKey]*table.Entry, group *model.Origins) {
	out = map[resourceKey]*table.Entry{}
	tables, _ := engine.CompileTables(f.Mesh, objects, p, derive.Sharding{}, "")
	for _, tab := range tables {
		group = group.Union(tab.Group())
		for typ := range resource.NumTypes {
			for e := range tab.State().All(typ) {
				out[resourceKey{typ, e.Name}] = e
			}
		}
	}
	return out, group
}

// spare are the kinds of origins, by type of resource, without which the resource may stay the same, because something
// else gives the same bytes:
//   - a Service or ServiceEntry that a route leads to, if the name alone gives the same cluster;
//   - a rule, route or Gateway that another one replaces, or that sets a default;
//   - one of several objects that need a Secret, or a cluster outside of a Sidecar's egress;
//   - an EndpointSlice of Pods that are known without it, or are not ready.
var spare = map[string][]model.Kind{
	"CDS":  {model.KindDestinationRule, model.KindService, model.KindVirtualService},
	"EDS":  {model.KindDestinationRule, model.KindService, model.KindVirtualService, model.KindEndpointSlice, model.KindWorkloadEntry},
	"SDS":  {model.KindDestinationRule, model.KindService, model.KindBackendTLSPolicy, model.KindKubernetesGateway, model.KindListenerSet},
	"NDS":  {model.KindEndpointSlice},
	"LDS":  append([]model.Kind{model.KindGateway, model.KindKubernetesGateway, model.KindListenerSet, model.KindIngress, model.KindTLSRoute}, spareRoutes...),
	"RDS":  append([]model.Kind{model.KindGateway, model.KindKubernetesGateway, model.KindListenerSet, model.KindIngress}, spareRoutes...),
	"VHDS": append([]model.Kind{model.KindIngress}, spareRoutes...),
}

var spareRoutes = []model.Kind{
	model.KindService, model.KindServiceEntry, model.KindEndpointSlice, model.KindDestinationRule, model.KindVirtualService, model.KindSidecar,
}

func spares(typ resource.Type, kind model.Kind) bool {
	return slices.Contains(spare[typ.String()], kind)
}

// originsOf returns the origins of an entry, and of the virtual hosts of a whole route configuration.
func originsOf(at resourceKey, all map[resourceKey]*table.Entry) *model.Origins {
	out := all[at].MadeFrom()
	if at.typ != resource.RouteConfig {
		return out
	}
	for other, e := range all {
		if other.typ == resource.VirtualHost && table.RouteConfigOf(other.name) == at.name {
			out = out.Union(e.MadeFrom())
		}
	}
	return out
}
