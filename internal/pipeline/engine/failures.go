package engine

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Failure is a resource that could not be translated, as a whole or in part. The proxies keep its last
// valid version, unless the kind of the failure has another rule.
type Failure struct {
	Group string `json:"group"` // name of the proxy group
	Type  string `json:"type"`
	Name  string `json:"name"`
	Error string `json:"error"`

	key  derive.GroupKey
	kind failureKind
}

// failureKind is what a failure means for the proxies.
type failureKind uint8

const (
	notTranslated failureKind = iota // the last valid version stays in force
	patchLeftOut                     // the resource is served without a patch of an EnvoyFilter
	notFetched                       // without its module a plugin follows its failStrategy
	routesRefused                    // the resource is served; some of its routes answer with an error
)

// message is the log line of a kind of failure.
func (k failureKind) message() string {
	switch k {
	case patchLeftOut:
		return "patch of an EnvoyFilter left out"
	case notFetched:
		return "module of a WasmPlugin is not fetched"
	case routesRefused:
		return "routes not translated; they answer with an error"
	}
	return "resource not translated; its last valid version stays in force"
}

// Failures about all resources of a proxy group have one of these types.
const (
	envoyFilters = "EnvoyFilter" // patches that are left out of all resources
	wasmPlugins  = "WasmPlugin"  // plugins that the proxies of the group cannot have
)

// failures is the list of what cannot be translated at the moment. Run's goroutine owns it; any goroutine may call sorted.
type failures struct {
	log     *slog.Logger
	list    map[failureKey]Failure
	changed bool                      // since the last publish
	public  atomic.Pointer[[]Failure] // sorted
	total   atomic.Uint64             // failures since the start, also those that are gone
}

type failureKey struct {
	group     derive.GroupKey
	typ, name string
}

func newFailures(log *slog.Logger) *failures {
	return &failures{log: log, list: map[failureKey]Failure{}}
}

// replace removes the failures of the resources that a translation replaces, and adds and logs its own failures.
func (f *failures) replace(t *translation) {
	if t.repatched {
		f.forget(t.key, envoyFilters)
	}
	if t.replugged {
		f.forget(t.key, wasmPlugins)
	}
	if len(f.list) > 0 {
		for _, u := range t.updates {
			f.remove(failureKey{t.key, u.Type.String(), u.Name})
		}
	}
	added := map[failureKey]bool{}
	for _, one := range t.failed {
		f.add(one, added)
		f.log.Warn(one.kind.message(), "group", one.Group, "type", one.Type, "name", one.Name, "error", one.Error)
	}
	f.publish()
}

func (f *failures) remove(k failureKey) {
	if _, ok := f.list[k]; ok {
		delete(f.list, k)
		f.changed = true
	}
}

// publish shows the list to other goroutines.
func (f *failures) publish() {
	if !f.changed {
		return
	}
	f.changed = false
	list := slices.SortedFunc(maps.Values(f.list), func(a, b Failure) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
	})
	f.public.Store(&list)
}

// add replaces the older failures of a resource. Those of the same translation are joined.
func (f *failures) add(one Failure, added map[failureKey]bool) {
	f.total.Add(1)
	k := failureKey{one.key, one.Type, one.Name}
	if added[k] {
		one.Error = f.list[k].Error + "; " + one.Error
	}
	f.list[k], added[k], f.changed = one, true, true
}

// refusesRoutes reports whether a virtual host is served with routes that answer with an error.
func (f *failures) refusesRoutes(group derive.GroupKey, virtualHost string) bool {
	one, ok := f.list[failureKey{group, resource.VirtualHost.String(), virtualHost}]
	return ok && one.kind == routesRefused
}

// forget removes the failures of one type of a proxy group.
func (f *failures) forget(k derive.GroupKey, typ string) {
	f.removeAll(func(f failureKey) bool { return f.group == k && f.typ == typ })
}

// forgetGroup removes all failures of a proxy group.
func (f *failures) forgetGroup(k derive.GroupKey) {
	f.removeAll(func(f failureKey) bool { return f.group == k })
	f.publish()
}

func (f *failures) removeAll(gone func(failureKey) bool) {
	for k := range f.list {
		if gone(k) {
			f.remove(k)
		}
	}
}

// sorted lists all failures by proxy group, type and name, as of the last translation. Callers must not change the list.
func (f *failures) sorted() []Failure {
	if list := f.public.Load(); list != nil {
		return *list
	}
	return nil
}
