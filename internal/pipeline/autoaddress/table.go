// Package autoaddress assigns addresses to the hosts of ServiceEntries that have none: one of IPv4 and one of IPv6.
// It is pure.
//
// Invariant: the assignment depends only on the ServiceEntries that exist. It depends neither on the order in which they
// were created or observed, nor on earlier ones. So all control planes assign the same addresses, and a restarted
// one assigns those that it had before.
//
// A host prefers these addresses, in order:
//
//   - the address in its ServiceEntry's status;
//   - the address at the hash of its name, and the following ones, around the range.
//
// If several hosts want an address, one with that address in its status is first, then the older ServiceEntry
// (model.CompareAge). Addresses in the spec of a ServiceEntry (spec.addresses) are not assigned.
//
// Start reading at Table.Replace and pool.settle.
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

// Table has all ServiceEntries and the addresses of their hosts. One goroutine uses it.
type Table struct {
	pools   [2]*pool // of IPv4 and IPv6
	entries map[model.Key]*entry
	touched map[model.Key]bool // entries whose addresses have changed since the last call of Touched
}

// entry is one ServiceEntry with its addresses.
type entry struct {
	object *model.ServiceEntry
	items  map[model.Host]*[2]item
	own    []netip.Addr // in its spec
}

// New makes a table without entries.
func New(s model.AutoAddresses) *Table {
	t := &Table{entries: map[model.Key]*entry{}, touched: map[model.Key]bool{}}
	moved := func(it *item) { t.touched[it.entry.object.Key] = true }
	t.pools = [2]*pool{newPool(s.V4, moved), newPool(s.V6, moved)}
	return t
}

// Replace replaces the ServiceEntry of a key; nil: it was deleted.
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
	for h, items := range e.items { // hosts that stay keep their addresses
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

// ownAddresses are the single addresses in the spec of a ServiceEntry.
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

// host assigns addresses to a host of an entry if it has none, and applies the addresses in its status.
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

// Of returns the addresses of a ServiceEntry's hosts, IPv4 first; nil: none.
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

// Touched lists the ServiceEntries whose addresses may have changed since its last call, in order, with those that were
// deleted.
func (t *Table) Touched() []model.Key {
	out := slices.SortedFunc(maps.Keys(t.touched), model.Key.Compare)
	clear(t.touched)
	return out
}

// Lack is a host without an address of a family, because all addresses of the range are in use. Such hosts share the
// listener of their port.
type Lack struct {
	Entry model.Key
	Host  model.Host
	Range netip.Prefix
}

// String describes the problem and what to do.
func (l Lack) String() string {
	family := 4
	if l.Range.Addr().Is6() {
		family = 6
	}
	return fmt.Sprintf("all addresses of %s are in use, so %s has none: set spec.addresses, set on ServiceEntries that need no address the label %s: \"false\", "+
		"or start all control planes with a larger range (PILOT_IP_AUTOALLOCATE_IPV%d_PREFIX)", l.Range, l.Host, model.LabelAutoAddress, family)
}

// Lacking lists the hosts without an address of a family, in order. Ranges without any address do not count.
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

// Given returns the addresses of all hosts by ServiceEntry (nil: none), and the hosts for which no address is left.
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
