// Package table has versioned tables of resources. A table maps, for each type, a name to an
// encoded resource and the revision of its last change. For some time it also has removed names.
//
// A table has one writer, the engine, which commits updates. Readers load the State, an immutable
// value behind an atomic pointer, and never lock the table. A log in the order of revisions, which
// successive states share, finds the changes after a cursor at a cost in proportion to these
// changes.
//
// Tables join route configurations. The engine commits headers and virtual hosts ("<route
// configuration>/<virtual host>"). The table has a RouteConfig entry for both, whose bytes are
// joined only if a stream needs them.
package table

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// Table has the resources of a proxy group.
type Table struct {
	name  string         // read-only
	group *model.Origins // read-only
	// onDemand: some clusters are sent only if a proxy asks for them. Read-only.
	onDemand bool
	state    atomic.Pointer[State]

	// Owned by the writer.
	graves [resource.NumTypes]map[string]*tombstone // names that do not exist again, by name
	routes map[string]*routeSum                     // by route configuration
}

// New returns an empty table. The name appears on debug pages.
func New(name string) *Table {
	t := &Table{name: name, routes: map[string]*routeSum{}}
	s := &State{table: t}
	for i := range s.columns {
		s.columns[i] = newColumn()
		t.graves[i] = map[string]*tombstone{}
	}
	t.state.Store(s)
	return t
}

// NewFor is New for proxies that are grouped by some objects, which may affect everything in the
// table.
func NewFor(name string, group *model.Origins) *Table {
	t := New(name)
	t.group = group
	return t
}

// NewOnDemand is NewFor for proxies that get clusters on demand.
func NewOnDemand(name string, group *model.Origins) *Table {
	t := NewFor(name, group)
	t.onDemand = true
	return t
}

// OnDemand reports whether some clusters are sent only if a proxy asks for them.
func (t *Table) OnDemand() bool { return t.onDemand }

// Group returns the objects of NewFor.
func (t *Table) Group() *model.Origins { return t.group }

// Name returns the name of the table.
func (t *Table) Name() string { return t.name }

// State returns the last committed state, never nil.
func (t *Table) State() *State { return t.state.Load() }

// Update is the new content of a resource.
type Update struct {
	Type     resource.Type
	Name     string
	Resource *resource.Encoded // nil: removed
	Origins  *model.Origins    // the resource is made from these
}

// Commit commits updates and returns how many of them changed the table. If none did, the State stays
// the same, whatever rev is. An update with the same content and other origins is not a change; the
// entry gets these origins. Of several updates of one name the last one counts. Commits must not
// overlap.
//
// Invariant: revisions of commits grow strictly, as a cursor cannot distinguish two commits of one
// revision. A violation is a fault of the engine, and panics.
func (t *Table) Commit(rev model.Revision, updates []Update) (changed int) {
	old := t.State()
	if rev <= old.Revision && rev != 0 {
		panic(fmt.Sprintf("table %s: commit of revision %d after %d", t.name, rev, old.Revision))
	}
	w := &commit{table: t, rev: rev, next: &State{table: t, Revision: rev, opened: cmp.Or(old.opened, rev), columns: old.columns}}
	for i := range updates {
		if w.apply(&updates[i]) {
			changed++
		}
	}
	if changed == 0 {
		return 0
	}
	w.finish()
	t.state.Store(w.next)
	return changed
}

// commit builds the next state.
type commit struct {
	table  *Table
	rev    model.Revision
	next   *State
	open   [resource.NumTypes]*columnWriter
	routes map[string]bool // route configurations that changed
}

// column returns the writer of a type's column.
func (w *commit) column(t resource.Type) *columnWriter {
	if w.open[t] == nil {
		w.open[t] = writeColumn(w.next.columns[t], w.table.graves[t], w.rev)
	}
	return w.open[t]
}

// apply applies an update. It reports whether it changed anything.
func (w *commit) apply(u *Update) bool {
	switch {
	case u.Type == resource.RouteConfig:
		return w.header(u)
	case u.Type == resource.VHDSRouteConfig && routeshard.IsOnDemand(u.Name):
		return false // see assembleRoutes
	}
	old, changed := w.column(u.Type).set(u)
	if changed && u.Type == resource.VirtualHost {
		w.part(u.Name, old, u.Resource)
	}
	return changed
}

// finish joins the changed route configurations and closes the columns.
func (w *commit) finish() {
	if c := w.open[resource.VirtualHost]; c != nil {
		w.next.columns[resource.VirtualHost] = c.close()
		w.open[resource.VirtualHost] = nil
	}
	w.assembleRoutes()
	for t, c := range w.open {
		if c != nil {
			w.next.columns[t] = c.close()
		}
	}
}

// RouteConfigOf returns the route configuration of a virtual host's resource name: everything before
// the last slash, as in Envoy.
func RouteConfigOf[N string | []byte](virtualHost N) N {
	rc, _ := resourcename.CutVirtualHost(virtualHost)
	return rc
}
