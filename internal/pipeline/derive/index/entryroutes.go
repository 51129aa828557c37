package index

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// entryRoutes are the routes of the Gateway API with ServiceEntries as parents, and what they need: such a route is for
// whatever hosts the ServiceEntry has.
type entryRoutes struct {
	all    map[model.Key]*model.VirtualService // as they are written
	served map[model.Key]*model.VirtualService // with the hosts of the ServiceEntries
	hosts  map[model.Key][]model.Host          // of each ServiceEntry
}

func newEntryRoutes() entryRoutes {
	return entryRoutes{map[model.Key]*model.VirtualService{}, map[model.Key]*model.VirtualService{}, map[model.Key][]model.Host{}}
}

// replaceRoute takes a route of the Gateway API.
func (x *Index) replaceRoute(k model.Key, old, now *model.VirtualService, touched *Touched) {
	e := &x.entryRoutes
	if served := e.served[k]; served != nil {
		old = served
	}
	delete(e.all, k)
	delete(e.served, k)
	if now != nil && now.HasEntries() {
		e.all[k] = now
		now = now.InEntries(e.hostsOf)
		e.served[k] = now
	}
	x.replaceVirtualService(old, now, touched)
}

// replaceEntry takes the hosts of a ServiceEntry, and replaces the routes that have it as a parent.
func (x *Index) replaceEntry(k model.Key, now *model.ServiceEntry, touched *Touched) {
	e, was := &x.entryRoutes, x.entryRoutes.hosts[k]
	delete(e.hosts, k)
	if now != nil {
		e.hosts[k] = now.Hosts
	}
	if slices.Equal(was, e.hosts[k]) {
		return
	}
	for _, route := range slices.SortedFunc(maps.Keys(e.all), model.Key.Compare) {
		v := e.all[route]
		if slices.ContainsFunc(v.Parents, func(p model.MeshParent) bool { return p.Entry != nil && *p.Entry == k }) {
			x.replaceRoute(route, nil, v, touched)
		}
	}
}

func (e *entryRoutes) hostsOf(k model.Key) []model.Host { return e.hosts[k] }
