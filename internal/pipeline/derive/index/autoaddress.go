package index

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/autoaddress"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// autoAddresses assigns addresses to hosts of ServiceEntries that have none. The index gets copies of these entries; the
// store's objects do not change. An entry that gets an address may take it from another entry, which then changes, too.
type autoAddresses struct {
	model.AutoAddresses
	table *autoaddress.Table
	// entries are those that exports returned, before addresses are added.
	entries map[model.Key]*model.ServiceEntry
	copies  map[model.Key]*model.ServiceEntry // of those with assigned addresses
	lacking []Lack                            // replaced as a whole
}

func newAutoAddresses(s model.AutoAddresses) *autoAddresses {
	return &autoAddresses{
		AutoAddresses: s, table: autoaddress.New(s), entries: map[model.Key]*model.ServiceEntry{}, copies: map[model.Key]*model.ServiceEntry{},
	}
}

// resolve returns the changes for the index. rekeyed reports whether proxies that capture DNS began or ceased to differ
// from those that do not.
func (a *autoAddresses) resolve(changes []store.Change) (out []store.Change, rekeyed bool) {
	if !slices.ContainsFunc(changes, isServiceEntry) {
		return changes, false
	}
	before, batch := len(a.copies) > 0, map[model.Key]bool{}
	for _, c := range changes {
		if isServiceEntry(c) {
			batch[c.Key] = true
			a.table.Replace(c.Key, as[*model.ServiceEntry](c.New))
		}
	}
	out = make([]store.Change, 0, len(changes))
	for _, c := range changes {
		if isServiceEntry(c) {
			c = a.replace(c)
		}
		out = append(out, c)
	}
	for _, k := range a.table.Touched() {
		if e := a.entries[k]; e != nil && !batch[k] && !a.stays(k) {
			out = append(out, a.replace(store.Change{Key: k, Old: e, New: e}))
		}
	}
	a.lacking = a.table.Lacking()
	return out, before != (len(a.copies) > 0)
}

// Lack is a host of a ServiceEntry for which no address is left.
type Lack = autoaddress.Lack

func isServiceEntry(c store.Change) bool { return c.Key.Kind == model.KindServiceEntry }

// stays reports whether an entry's addresses are the same as before.
func (a *autoAddresses) stays(k model.Key) bool {
	var was map[model.Host][]netip.Addr
	if c := a.copies[k]; c != nil {
		was = c.Auto
	}
	return maps.EqualFunc(was, a.table.Of(k), slices.Equal)
}

// replace puts copies into a change.
func (a *autoAddresses) replace(c store.Change) store.Change {
	if old := a.copies[c.Key]; old != nil && c.Old != nil {
		c.Old = old
	}
	delete(a.copies, c.Key)
	e := as[*model.ServiceEntry](c.New)
	if e == nil {
		delete(a.entries, c.Key)
		return c
	}
	a.entries[c.Key] = e
	if given := a.table.Of(c.Key); given != nil {
		with := *e
		with.Auto = given
		a.copies[c.Key], c.New = &with, &with
	}
	return c
}

// usedBy reports whether a proxy differs from proxies that do not capture DNS.
func (a *autoAddresses) usedBy(p *model.Proxy) bool { return len(a.copies) > 0 && a.UsedBy(p) }

// AutoAddresses returns the addresses that hosts of a snapshot's ServiceEntries get, and the hosts for which no address is
// left. Only entries that belong to the mesh count. mesh is what the control plane was started with.
func AutoAddresses(mesh *model.Mesh, snap *store.Snapshot) (map[model.Key]map[model.Host][]netip.Addr, []Lack) {
	var changes []store.Change
	for _, kind := range []model.Kind{model.KindMeshConfig, model.KindNamespace, model.KindServiceEntry} {
		for o := range snap.All(kind) {
			changes = append(changes, store.Change{Key: o.Metadata().Key, New: o})
		}
	}
	return autoaddress.Given(mesh.AutoAddresses, func(yield func(*model.ServiceEntry) bool) {
		for _, c := range newDiscovery(mesh.RootNamespace).filter(changes) {
			if e := as[*model.ServiceEntry](c.New); e != nil && !yield(e) {
				return
			}
		}
	})
}
