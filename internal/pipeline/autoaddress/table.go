package autoaddress

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// Table knows the ServiceEntries that there are, and which addresses their hosts have. One goroutine uses it.
type Table struct {
	pools   [2]*pool // of IPv4 and IPv6
	entries map[model.Key]*entry
	touched map[model.Key]bool // entries some address of which moved since Touched was asked
}

// entry is what is known of one ServiceEntry.
type entry struct {
	object *model.ServiceEntry
	items  map[model.Host]*[2]item
	own    []netip.Addr // that it says itself
}

// New makes a table without entries.
func New(s model.AutoAddresses) *Table {
	t := &Table{entries: map[model.Key]*entry{}, touched: map[model.Key]bool{}}
	moved := func(it *item) { t.touched[it.entry.object.Key] = true }
	t.pools = [2]*pool{newPool(s.V4, moved), newPool(s.V6, moved)}
	return t
}

// Replace puts a ServiceEntry in the place of what there was under its key; nil: there is none any more.
func (t *Table) Replace(k model.Key, now *model.ServiceEntry) {
	e := t.entries[k]
	if e == nil {
		e = &entry{items: map[model.Host]*[2]item{}}
	}
	hosts := map[model.Host]bool{}
	var own []netip.Addr
	if now != nil {
		for _, h := range now.AutoHosts() {
			hosts[h] = true
		}
		own = ownAddresses(now)
	}
	anew := now != nil && e.object != nil && !e.object.Created.Equal(now.Created)
	for h, items := range e.items { // those that stay keep what they have
		if anew || !hosts[h] {
			t.remove(items)
			delete(e.items, h)
			t.touched[k] = true
		}
	}
	t.reserve(e, own)
	if now == nil {
		delete(t.entries, k)
		return
	}
	e.object, t.entries[k] = now, e
	for _, h := range slices.Sorted(maps.Keys(hosts)) {
		t.host(e, h)
	}
}

// ownAddresses are the single addresses that a ServiceEntry says itself.
func ownAddresses(e *model.ServiceEntry) []netip.Addr {
	var out []netip.Addr
	for _, p := range e.Template.Addresses {
		if p.IsSingleIP() {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

func (t *Table) reserve(e *entry, own []netip.Addr) {
	for _, a := range own {
		t.pools[family(a)].reserve(a)
	}
	for _, a := range e.own {
		t.pools[family(a)].release(a)
	}
	e.own = own
}

func family(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

// host gives a host of an entry its addresses, if it has none, and takes up what its status tells.
func (t *Table) host(e *entry, h model.Host) {
	items := e.items[h]
	fresh := items == nil
	if fresh {
		items = &[2]item{}
		e.items[h] = items
	}
	for i, p := range t.pools {
		it, claim := &items[i], e.object.Assigned(h, i == 1)
		switch {
		case fresh:
			*it = item{entry: e, host: h, claim: claim, home: p.homeOf(e.object.Key, h)}
			p.add(it)
		case it.claim == claim:
		case !it.claim.IsValid() && it.at == claim:
			p.confirm(it)
		default:
			p.remove(it)
			it.claim, it.at = claim, netip.Addr{}
			t.touched[e.object.Key] = true
			p.add(it)
		}
	}
}

func (t *Table) remove(items *[2]item) {
	for i, p := range t.pools {
		p.remove(&items[i])
	}
}

// Of are the addresses of a ServiceEntry's hosts, IPv4 first; nil: it has none.
func (t *Table) Of(k model.Key) map[model.Host][]netip.Addr {
	e := t.entries[k]
	if e == nil {
		return nil
	}
	var out map[model.Host][]netip.Addr
	for h, items := range e.items {
		for i := range items {
			if !items[i].at.IsValid() {
				continue
			}
			if out == nil {
				out = map[model.Host][]netip.Addr{}
			}
			out[h] = append(out[h], items[i].at)
		}
	}
	return out
}

// Touched are the ServiceEntries whose addresses may be others since it was asked last, in order; those that are gone, too.
func (t *Table) Touched() []model.Key {
	out := slices.SortedFunc(maps.Keys(t.touched), model.Key.Compare)
	clear(t.touched)
	return out
}

// Lack is a host that has no address of a family, as all of its range are taken. It is reached, if at all, as a host
// without any address is: all such share the listener of their port.
type Lack struct {
	Entry model.Key
	Host  model.Host
	Range netip.Prefix
}

// String says what is wrong, and what to do.
func (l Lack) String() string {
	family := 4
	if l.Range.Addr().Is6() {
		family = 6
	}
	return fmt.Sprintf("all addresses of %s are taken, so that %s gets none: set spec.addresses, give ServiceEntries that need none the label %s: \"false\", "+
		"or start all control planes with a larger range (PILOT_IP_AUTOALLOCATE_IPV%d_PREFIX)", l.Range, l.Host, model.LabelAutoAddress, family)
}

// Lacking are the hosts that have got no address of a family whose range has room for some, in order.
func (t *Table) Lacking() []Lack {
	var out []Lack
	for _, p := range t.pools {
		if p.size == 0 {
			continue
		}
		for it := range p.without {
			out = append(out, Lack{it.entry.object.Key, it.host, p.prefix})
		}
	}
	slices.SortFunc(out, func(a, b Lack) int {
		return cmp.Or(a.Entry.Compare(b.Entry), strings.Compare(string(a.Host), string(b.Host)), a.Range.Addr().Compare(b.Range.Addr()))
	})
	return out
}

// Given are the addresses of all hosts of ServiceEntries, by these, nil: it has none; and which have none.
func Given(s model.AutoAddresses, entries iter.Seq[*model.ServiceEntry]) (map[model.Key]map[model.Host][]netip.Addr, []Lack) {
	t := New(s)
	for e := range entries {
		t.Replace(e.Key, e)
	}
	out := make(map[model.Key]map[model.Host][]netip.Addr, len(t.entries))
	for k := range t.entries {
		out[k] = t.Of(k)
	}
	return out, t.Lacking()
}
