// Package table holds the versioned resources of one scope: for each type, name ->
// encoded resource and the revision in which it came to be as it is, and for a while
// the names that are gone.
//
// A table has a single writer, the engine, which commits updates. Readers take the
// State, an immutable value behind an atomic pointer, and never lock the table. What
// changed after a cursor is found at a cost in proportion to what changed, by a log in
// revision order that successive states share.
//
// Route configurations are put together here: the engine commits their headers and
// their virtual hosts ("<route configuration>/<virtual host>"), and the table keeps a
// RouteConfig entry whose bytes are joined only if a stream asks for them.
package table

import (
	"cmp"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Table is the resources of one scope, or of one kind of workload.
type Table struct {
	name  string         // read-only
	group *model.Origins // likewise
	state atomic.Pointer[State]

	// Owned by the writer.
	graves [resource.NumTypes]map[string]*tombstone // the open ones, by name
	routes map[string]*routeSum                     // by route configuration
}

// New makes an empty table. The name is for people: it appears on debug pages.
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

// NewFor is New for proxies that some objects group: all that is in the table may be as it is for these.
func NewFor(name string, group *model.Origins) *Table {
	t := New(name)
	t.group = group
	return t
}

// Group are the objects that NewFor was given.
func (t *Table) Group() *model.Origins { return t.group }

// Name is what the table was made with.
func (t *Table) Name() string { return t.name }

// State is what was committed last. It is never nil.
func (t *Table) State() *State { return t.state.Load() }

// Update is one resource's new content.
type Update struct {
	Type     resource.Type
	Name     string
	Resource *resource.Encoded // nil: removed
	Origins  *model.Origins    // that the resource is made from
}

// Commit makes a new State of the updates and gives the number of those that changed
// anything: where it is 0, the State is as it was, whatever rev. An update with the same content and
// other origins changes nothing; the live entry has these origins from then on. Of several updates of
// one name the last counts. Commits must come from one goroutine at a time.
//
// Invariant: revisions of commits grow strictly. A cursor could not tell two commits of
// one revision apart, so breaking it panics: it is a fault in the engine, never of an input.
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

// commit is the work on one new state.
type commit struct {
	table  *Table
	rev    model.Revision
	next   *State
	open   [resource.NumTypes]*columnWriter
	routes map[string]bool // route configurations to put together again
}

// column opens a type's column for writing.
func (w *commit) column(t resource.Type) *columnWriter {
	if w.open[t] == nil {
		w.open[t] = writeColumn(w.next.columns[t], w.table.graves[t], w.rev)
	}
	return w.open[t]
}

func (w *commit) apply(u *Update) bool {
	if u.Type == resource.RouteConfig {
		return w.header(u)
	}
	old, changed := w.column(u.Type).set(u)
	if changed && u.Type == resource.VirtualHost {
		w.part(u.Name, old, u.Resource)
	}
	return changed
}

// finish puts the touched route configurations together and closes the columns.
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

// RouteConfigOf is the route configuration of a virtual host's resource name: what is
// before the last slash, as Envoy reads it.
func RouteConfigOf(virtualHost string) string {
	return virtualHost[:max(strings.LastIndexByte(virtualHost, '/'), 0)]
}
