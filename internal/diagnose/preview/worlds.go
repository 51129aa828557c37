package preview

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// ProxyWorld is a proxy with what it gets. Proxies that get the same share World.
type ProxyWorld struct {
	*model.Proxy
	World     *simulate.World
	Principal string // the URI name in its certificate; empty: it has none

	tables [2]*content
}

// MadeFrom returns the objects that a resource was made from.
func (w *ProxyWorld) MadeFrom(t resource.Type, name string) []model.Key {
	var out []model.Key
	for _, c := range w.tables {
		if c == nil || c.entries[t][name] == nil {
			continue
		}
		out = append(out, c.entries[t][name].MadeFrom().Keys()...)
	}
	return out
}

// Worlds computes what each proxy of a side gets. mesh is the mesh's configuration without the MeshConfig among the objects;
// nil: the default. failures are resources that cannot be translated.
func Worlds(mesh *model.Mesh, s Side) (out []ProxyWorld, failures []string, err error) {
	if mesh == nil {
		mesh = model.DefaultMesh()
	}
	o, err := open(mesh, s)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range o.proxies {
		w, err := o.world(p)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, ProxyWorld{p, &w.World, caller.Principal(o.mesh, p), w.tables})
	}
	for _, f := range o.compiled.Failures() {
		failures = append(failures, fmt.Sprintf("%s %s: cannot be translated: %s", f.Type, f.Name, f.Error))
	}
	return out, failures, nil
}
