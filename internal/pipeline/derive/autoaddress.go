package derive

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/autoaddress"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// autoAddresses gives ServiceEntries addresses that have none. The index sees copies of these; the store's objects stay as
// they are. One that gets an address may take it from another, which is then a change of that one, too.
type autoAddresses struct {
	model.AutoAddresses
	table *autoaddress.Table
	// entries are as exports gives them, and as the index has them.
	entries map[model.Key]*model.ServiceEntry
	copies  map[model.Key]*model.ServiceEntry // of those that have got addresses
	lacking []Lack                            // replaced as a whole
}

func newAutoAddresses(s model.AutoAddresses) *autoAddresses {
	return &autoAddresses{
		AutoAddresses: s, table: autoaddress.New(s), entries: map[model.Key]*model.ServiceEntry{}, copies: map[model.Key]*model.ServiceEntry{},
	}
}

// resolve gives the changes as the index is to see them; others tells whether proxies that capture DNS began or ceased to be
// others than those that do not.
func (a *autoAddresses) resolve(changes []store.Change) (out []store.Change, others bool) {
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

// Lacking are all of them. Nobody may change the list.
func (d *Deriver) Lacking() []Lack { return d.index.auto.lacking }

func isServiceEntry(c store.Change) bool { return c.Key.Kind == model.KindServiceEntry }

// stays tells whether an entry's addresses are what they were.
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

// usedBy tells whether a proxy is another than those that do not capture DNS.
func (a *autoAddresses) usedBy(p *model.Proxy) bool { return len(a.copies) > 0 && a.UsedBy(p) }

// addresses are those at which the scope's applications reach a service.
func (s *proxyGroup) addresses(svc *model.Service) []netip.Prefix {
	if len(svc.Addresses) > 0 || len(svc.Auto) == 0 || !s.Key.AutoAddress {
		return svc.Addresses
	}
	var out []netip.Prefix
	for _, a := range s.Key.Families.Of(svc.Auto) {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// AutoAddresses are what the hosts of a snapshot's ServiceEntries get of those that belong to the mesh, nil for one that has
// none, and for which no address is left. mesh is what the control plane was started with.
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
