package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// discovery keeps objects of namespaces out that do not belong to the mesh: those that no
// discovery selector of the mesh's configuration selects. Who asks for nothing gets all.
type discovery struct {
	config    model.Key // of the mesh's configuration
	selectors []model.LabelSelector
	labels    map[string]map[string]string // of namespaces that have an object
	objects   map[string]map[model.Key]model.Object
}

func newDiscovery(rootNamespace string) *discovery {
	return &discovery{
		config:  model.Key{Kind: model.KindMeshConfig, Namespace: rootNamespace, Name: model.MeshConfigName},
		labels:  map[string]map[string]string{},
		objects: map[string]map[model.Key]model.Object{},
	}
}

// labelNamespace is the label that every namespace has, with its name.
const labelNamespace = "kubernetes.io/metadata.name"

// selected tells whether a namespace belongs to the mesh; "" holds what has no namespace.
func (d *discovery) selected(ns string) bool {
	if len(d.selectors) == 0 || ns == "" {
		return true
	}
	labels, ok := d.labels[ns]
	if !ok {
		labels = map[string]string{labelNamespace: ns}
	}
	return slices.ContainsFunc(d.selectors, func(s model.LabelSelector) bool { return s.Matches(labels) })
}

// filter gives what changes mean to the mesh. Namespaces that come to belong to it bring
// all that they have, and those that cease to take it along.
func (d *discovery) filter(changes []store.Change) []store.Change {
	was := d.selection(changes)
	for _, c := range changes {
		switch {
		case c.Key == d.config:
			d.selectors = selectorsOf(c.New)
		case c.Key.Kind == model.KindNamespace && c.New != nil:
			d.labels[c.Key.Name] = c.New.Metadata().Labels
		case c.Key.Kind == model.KindNamespace:
			delete(d.labels, c.Key.Name)
		}
	}
	out := make([]store.Change, 0, len(changes))
	moved := map[string]bool{} // namespaces whose objects come or go, all of them
	for ns, before := range was {
		moved[ns] = d.selected(ns) != before
	}
	for _, ns := range slices.Sorted(maps.Keys(moved)) {
		if moved[ns] {
			out = append(out, d.move(ns, was[ns])...)
		}
	}
	for _, c := range changes {
		d.keep(c)
		if d.passes(c.Key) {
			out = append(out, c)
		}
	}
	return out
}

func selectorsOf(o model.Object) []model.LabelSelector {
	if c := as[*model.MeshConfig](o); c != nil {
		return c.Discovery
	}
	return nil
}

// selection is which of the namespaces belong to the mesh that changes may bring in or out.
func (d *discovery) selection(changes []store.Change) map[string]bool {
	was := map[string]bool{}
	for _, c := range changes {
		switch {
		case c.Key == d.config:
			for ns := range d.objects {
				was[ns] = d.selected(ns)
			}
		case c.Key.Kind == model.KindNamespace:
			was[c.Key.Name] = d.selected(c.Key.Name)
		}
	}
	return was
}

// move gives the coming, or the going, of all that a namespace had before this batch.
func (d *discovery) move(ns string, going bool) []store.Change {
	var out []store.Change
	for _, k := range slices.SortedFunc(maps.Keys(d.objects[ns]), model.Key.Compare) {
		if c := (store.Change{Key: k, New: d.objects[ns][k]}); !going {
			out = append(out, c)
		} else {
			out = append(out, store.Change{Key: k, Old: c.New})
		}
	}
	return out
}

// keep remembers what there is.
func (d *discovery) keep(c store.Change) {
	ns := c.Key.Namespace
	if ns == "" || c.Key.IsMeshConfig() {
		return
	}
	if c.New == nil {
		take(d.objects, ns, c.Key)
		return
	}
	insert(d.objects, ns, c.Key, c.New)
}

// passes tells whether a change means something to the mesh. Where a namespace has come to
// belong to it, move has brought what the change replaces.
func (d *discovery) passes(k model.Key) bool {
	if k.IsMeshConfig() {
		return k == d.config
	}
	return d.selected(k.Namespace)
}
