package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// discovery keeps objects of namespaces out that do not belong to the mesh: those that no
// discovery selector of the mesh's configuration selects. Who asks for nothing gets all.
type discovery struct {
	config    model.Key // of the mesh's configuration
	selectors []model.LabelSelector
	labels    map[string]map[string]string // of namespaces that have an object
	objects   map[string]map[model.Key]model.Object
	// relabelled: some namespace has come or gone, or has other labels, since it was last asked.
	relabelled bool
}

func newDiscovery(rootNamespace string) *discovery {
	return &discovery{
		config:  model.Key{Kind: model.KindMeshConfig, Namespace: rootNamespace, Name: model.MeshConfigName},
		labels:  map[string]map[string]string{},
		objects: map[string]map[model.Key]model.Object{},
	}
}

// selected tells whether a namespace belongs to the mesh; "" holds what has no namespace.
func (d *discovery) selected(ns string) bool {
	if len(d.selectors) == 0 || ns == "" {
		return true
	}
	labels := d.labelsOf(ns)
	return slices.ContainsFunc(d.selectors, func(s model.LabelSelector) bool { return s.Matches(labels) })
}

func (d *discovery) labelsOf(ns string) map[string]string {
	if labels, ok := d.labels[ns]; ok {
		return labels
	}
	return model.ImpliedLabels(ns)
}

// matching are the namespaces that a selector selects, sorted: of those that have an object themselves, or
// objects in them.
func (d *discovery) matching(s *model.LabelSelector) []string {
	var out []string
	for ns := range both(d.labels, d.objects) {
		if s.Matches(d.labelsOf(ns)) {
			out = append(out, ns)
		}
	}
	slices.Sort(out)
	return out
}

// takeRelabelled tells whether namespaces are others than when it was last asked.
func (d *discovery) takeRelabelled() bool {
	was := d.relabelled
	d.relabelled = false
	return was
}

// filter gives what changes mean to the mesh. Namespaces that come to belong to it bring
// all that they have, and those that cease to take it along.
func (d *discovery) filter(changes []store.Change) []store.Change {
	was := d.selection(changes)
	for _, c := range changes {
		switch {
		case c.Key == d.config:
			d.selectors = selectorsOf(c.New)
		case c.Key.Kind == model.KindNamespace:
			d.label(c)
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

func (d *discovery) label(c store.Change) {
	was, had := d.labels[c.Key.Name]
	if c.New == nil {
		delete(d.labels, c.Key.Name)
	} else {
		d.labels[c.Key.Name] = c.New.Metadata().Labels
	}
	now, has := d.labels[c.Key.Name]
	d.relabelled = d.relabelled || had != has || !maps.Equal(was, now)
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
	before := len(d.objects[ns])
	if c.New == nil {
		take(d.objects, ns, c.Key)
	} else {
		insert(d.objects, ns, c.Key, c.New)
	}
	d.relabelled = d.relabelled || (before == 0) != (len(d.objects[ns]) == 0)
}

// passes tells whether a change means something to the mesh. Where a namespace has come to
// belong to it, move has brought what the change replaces.
func (d *discovery) passes(k model.Key) bool {
	if k.IsMeshConfig() {
		return k == d.config
	}
	return d.selected(k.Namespace)
}
