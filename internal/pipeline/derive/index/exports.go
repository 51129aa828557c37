package index

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// exports applies the mesh's default visibility to objects without their own. The index gets copies of these; the store's
// objects do not change.
type exports struct {
	discovery *discovery
	defaults  map[model.Kind][]string
	copies    map[model.Key]model.Object // that the index has instead of the store's objects
}

// exported are the kinds that can be exported. The value is the kind whose default counts.
var exported = map[model.Kind]model.Kind{
	model.KindService: model.KindService, model.KindServiceEntry: model.KindService,
	model.KindVirtualService: model.KindVirtualService, model.KindDestinationRule: model.KindDestinationRule,
}

// resolve returns the changes for the index. A change of the defaults changes all objects that they apply to.
func (e *exports) resolve(changes []store.Change) []store.Change {
	out := e.reset(changes)
	if len(e.defaults) == 0 && len(e.copies) == 0 && len(out) == 0 {
		return changes // as in most meshes
	}
	for _, c := range changes {
		out = append(out, e.replace(c))
	}
	return out
}

// reset puts new defaults in force, and returns the changes of objects that are not among changes.
func (e *exports) reset(changes []store.Change) []store.Change {
	i := slices.IndexFunc(changes, func(c store.Change) bool { return c.Key.IsMeshConfig() })
	if i < 0 {
		return nil
	}
	var now map[model.Kind][]string
	if c := as[*model.MeshConfig](changes[i].New); c != nil {
		now = c.ExportTo
	}
	if maps.EqualFunc(e.defaults, now, slices.Equal) {
		return nil
	}
	e.defaults = now
	changed := make(map[model.Key]bool, len(changes))
	for _, c := range changes {
		changed[c.Key] = true
	}
	var out []store.Change
	for _, ns := range slices.Sorted(maps.Keys(e.discovery.objects)) {
		if !e.discovery.selected(ns) {
			continue
		}
		for k, o := range e.discovery.objects[ns] {
			if exported[k.Kind] == "" || changed[k] {
				continue
			}
			if c := e.replace(store.Change{Key: k, Old: o, New: o}); c.Old != c.New {
				out = append(out, c)
			}
		}
	}
	return out
}

// replace puts copies into a change.
func (e *exports) replace(c store.Change) store.Change {
	kind := exported[c.Key.Kind]
	if kind == "" {
		return c
	}
	if old := e.copies[c.Key]; old != nil && c.Old != nil {
		c.Old = old
	}
	delete(e.copies, c.Key)
	if c.New == nil {
		return c
	}
	v := model.VisibilityOf(e.defaults[kind], c.Key.Namespace)
	if o := withVisibility(c.New, v); v.Private && o != nil {
		if e.copies == nil {
			e.copies = map[model.Key]model.Object{}
		}
		e.copies[c.Key], c.New = o, o
	}
	return c
}

// withVisibility returns a copy of an object that sets no visibility; nil for other objects.
func withVisibility(o model.Object, v model.Visibility) model.Object {
	switch o := o.(type) {
	case *model.Service:
		if c := *o; c.Visibility.IsDefault() {
			c.Visibility = v
			return &c
		}
	case *model.ServiceEntry:
		if c := *o; c.Template.Visibility.IsDefault() {
			c.Template.Visibility = v
			return &c
		}
	case *model.VirtualService:
		if c := *o; c.Visibility.IsDefault() {
			c.Visibility = v
			return &c
		}
	case *model.DestinationRule:
		if c := *o; c.Visibility.IsDefault() {
			c.Visibility = v
			return &c
		}
	}
	return nil
}
