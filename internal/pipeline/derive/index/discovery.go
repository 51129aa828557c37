package index

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// discovery leaves out objects of namespaces that no discovery selector of the mesh's configuration selects. Without
// selectors all namespaces belong to the mesh.
type discovery struct {
	config    model.Key // of the mesh's configuration
	selectors []model.LabelSelector
	labels    map[string]map[string]string // of namespaces that have an object
	objects   map[string]map[model.Key]model.Object
	// relabelled: namespaces, or their labels, have changed since the last call of takeRelabelled.
	relabelled bool
}

func newDiscovery(rootNamespace string) *discovery {
	return &discovery{
		config:  model.Key{Kind: model.KindMeshConfig, Namespace: rootNamespace, Name: model.MeshConfigName},
		labels:  map[string]map[string]string{},
		objects: map[string]map[model.Key]model.Object{},
	}
}

// selected reports whether a namespace belongs to the mesh. Objects without a namespace, in "", always do.
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

// matching lists the namespaces that a selector selects, sorted. A namespace counts if it has an object itself, or if
// objects are in it.
func (d *discovery) matching(s *model.LabelSelector) []string {
	var out []string
	for ns := range d.labels {
		if s.Matches(d.labelsOf(ns)) {
			out = append(out, ns)
		}
	}
	for ns := range d.objects {
		if _, seen := d.labels[ns]; !seen && s.Matches(d.labelsOf(ns)) {
			out = append(out, ns)
		}
	}
	slices.Sort(out)
	return out
}

// takeRelabelled reports whether namespaces differ from those at its last call.
func (d *discovery) takeRelabelled() bool {
	was := d.relabelled
	d.relabelled = false
	return was
}

// filter returns what changes mean to the mesh. A namespace that begins to belong to it adds all its objects, and one that
// ceases to removes them.
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
	moved := map[string]bool{} // namespaces whose objects all come or go
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

// selection returns, for each namespace that changes may move, whether it belongs to the mesh.
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

// move returns changes that add, or remove, everything that a namespace had before this batch.
func (d *discovery) move(ns string, removed bool) []store.Change {
	var out []store.Change
	for _, k := range slices.SortedFunc(maps.Keys(d.objects[ns]), model.Key.Compare) {
		if c := (store.Change{Key: k, New: d.objects[ns][k]}); !removed {
			out = append(out, c)
		} else {
			out = append(out, store.Change{Key: k, Old: c.New})
		}
	}
	return out
}

// keep records an object or its removal.
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

// passes reports whether a change matters to the mesh. If a namespace has just begun to belong to it, move has added what
// the change replaces.
func (d *discovery) passes(k model.Key) bool {
	if k.IsMeshConfig() {
		return k == d.config
	}
	return d.selected(k.Namespace)
}
