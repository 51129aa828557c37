// Package autoaddress gives addresses to the hosts of ServiceEntries that have none: one of IPv4 and one of IPv6 each. It is
// pure.
//
// Who has which address depends on the ServiceEntries that there are, and on nothing else: not on the order in which
// they came, nor on what there was before. So all control planes give the same addresses, and one that starts again gives
// those that it gave before. A host gets the first of these that nobody goes before it at:
//
//   - the address that its ServiceEntry's status tells;
//   - the one at the hash of its name, and those after it, around the range.
//
// At an address those go first whose status tells it, and of these, and then of all others, the older ServiceEntry
// (model.CompareAge). What a ServiceEntry says itself (spec.addresses) is given to nobody.
package autoaddress

import (
	"encoding/binary"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/moonsail/moonsail/internal/model"
)

// item is one host's wish for an address of one family.
type item struct {
	entry *entry
	host  model.Host
	claim netip.Addr // that its status tells; not valid: none
	home  uint64     // the slot at its hash
	at    netip.Addr // that it has; not valid: none is left
}

// older orders items: the earlier ServiceEntry first, then the smaller host.
func (it *item) older(other *item) bool {
	if it.entry != other.entry {
		return model.Older(it.entry.object, other.entry.object)
	}
	return it.host < other.host
}

// goesBefore tells who has an address that both want.
func (it *item) goesBefore(other *item, at netip.Addr) bool {
	if mine, others := it.claim == at, other.claim == at; mine != others {
		return mine
	}
	return it.older(other)
}

// pool gives addresses of one family.
//
// Invariant, between calls: no item would rather have an address (see wish) at which it goes before whoever has it. One
// assignment alone satisfies that, since at slots all go by the same order, and who claims an address wants it most.
type pool struct {
	prefix netip.Prefix
	first  netip.Addr // of slot 0
	size   uint64     // slots
	// holders have addresses, within the range or, by claim, anywhere.
	holders map[netip.Addr]*item
	// reserved counts who says an address itself.
	reserved map[netip.Addr]int
	claims   map[netip.Addr]map[*item]bool
	without  map[*item]bool // no address is left for them
	moved    func(*item)    // told of each item whose address is another
}

// newPool is a pool of a range, without its first and last address. A range that is not valid, or has no room, gives nothing.
func newPool(p netip.Prefix, moved func(*item)) *pool {
	out := &pool{
		holders: map[netip.Addr]*item{}, reserved: map[netip.Addr]int{},
		claims: map[netip.Addr]map[*item]bool{}, without: map[*item]bool{}, moved: moved,
	}
	if p.IsValid() {
		p = p.Masked()
		out.prefix = p
		bits := min(p.Addr().BitLen()-p.Bits(), 63)
		out.first, out.size = p.Addr().Next(), max(uint64(1)<<bits, 2)-2
	}
	return out
}

// homeOf is the slot at which the search for a host's address begins.
func (p *pool) homeOf(k model.Key, h model.Host) uint64 {
	if p.size == 0 {
		return 0
	}
	return xxhash.Sum64String(k.Namespace+"/"+k.Name+"/"+string(h)) % p.size
}

// address is that of a slot.
func (p *pool) address(slot uint64) netip.Addr {
	if p.first.Is4() {
		b := p.first.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(slot))
		return netip.AddrFrom4(b)
	}
	b := p.first.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+slot) // ranges begin at multiples of their size
	return netip.AddrFrom16(b)
}

// slot is an address's; false: it is not one of the range.
func (p *pool) slot(a netip.Addr) (uint64, bool) {
	var n uint64
	switch {
	case p.size == 0 || a.BitLen() != p.first.BitLen() || a.Less(p.first):
		return 0, false
	case a.Is4():
		x, y := a.As4(), p.first.As4()
		n = uint64(binary.BigEndian.Uint32(x[:]) - binary.BigEndian.Uint32(y[:]))
	default:
		x, y := a.As16(), p.first.As16()
		if [8]byte(x[:8]) != [8]byte(y[:8]) {
			return 0, false
		}
		n = binary.BigEndian.Uint64(x[8:]) - binary.BigEndian.Uint64(y[8:])
	}
	return n, n < p.size
}

// wish is the number of slots that an item would rather have than an address; 0 for what it claims, which it wants most
// of all. false: the address is none that it could want.
func (p *pool) wish(it *item, a netip.Addr) (uint64, bool) {
	if it.claim == a {
		return 0, true
	}
	slot, ok := p.slot(a)
	return 1 + (slot+p.size-it.home)%max(p.size, 1), ok
}

// add gives an item an address.
func (p *pool) add(it *item) {
	if it.claim.IsValid() {
		if p.claims[it.claim] == nil {
			p.claims[it.claim] = map[*item]bool{}
		}
		p.claims[it.claim][it] = true
	}
	p.settle(it, 0)
}

// settle finds a place for an item from a wish on, then for the one that it has put out there, and so on.
func (p *pool) settle(it *item, from uint64) {
	for it != nil {
		var out *item
		if it.claim.IsValid() && from == 0 {
			if out = p.take(it, it.claim); out == it {
				from = 1
			}
		} else {
			out = it
			from = max(from, 1)
		}
		for ; out == it && from <= p.size; from++ {
			out = p.take(it, p.address((it.home+from-1)%p.size))
		}
		if out == it {
			p.without[it] = true
			p.put(it, netip.Addr{})
			return
		}
		if it = out; it != nil {
			wish, _ := p.wish(it, it.at)
			from = wish + 1
		}
	}
}

// take gives an address to an item if it goes before whoever has it; what it gives has no place then: nil where the address
// was free, and the item itself where it does not get it.
func (p *pool) take(it *item, a netip.Addr) *item {
	holder := p.holders[a]
	if p.reserved[a] > 0 || holder != nil && !it.goesBefore(holder, a) {
		return it
	}
	p.put(it, a)
	return holder
}

func (p *pool) put(it *item, a netip.Addr) {
	if a.IsValid() {
		p.holders[a] = it
	}
	if it.at != a {
		it.at = a
		p.moved(it)
	}
}

// remove takes an item's address, which others may have wanted.
func (p *pool) remove(it *item) {
	if it.claim.IsValid() {
		if delete(p.claims[it.claim], it); len(p.claims[it.claim]) == 0 {
			delete(p.claims, it.claim)
		}
	}
	delete(p.without, it)
	if it.at.IsValid() {
		p.free(it.at)
	}
}

// confirm notes that an item claims what it has. Nothing else changes by that: who wants the address does not get it as before.
func (p *pool) confirm(it *item) {
	it.claim = it.at
	p.claims[it.at] = map[*item]bool{it: true}
}

// free gives an address to the first of those that would rather have it than theirs, then theirs, and so on.
func (p *pool) free(a netip.Addr) {
	for p.reserved[a] == 0 {
		it := p.waiting(a)
		if it == nil {
			break
		}
		was := it.at
		delete(p.without, it)
		p.put(it, a)
		if !was.IsValid() {
			return
		}
		a = was
	}
	delete(p.holders, a)
}

// waiting finds who goes first of those that would rather have an address than theirs. Who was turned away there is
// among those that claim it, in the run of taken slots behind it, or without any.
func (p *pool) waiting(a netip.Addr) *item {
	var first *item
	consider := func(it *item) {
		wish, wants := p.wish(it, a)
		has, _ := p.wish(it, it.at)
		if wants && (!it.at.IsValid() || wish < has) && (first == nil || it.goesBefore(first, a)) {
			first = it
		}
	}
	for it := range p.claims[a] {
		if it.at != a {
			consider(it)
		}
	}
	slot, ok := p.slot(a)
	if first != nil || !ok {
		return first
	}
	for it := range p.without {
		consider(it)
	}
	for n := uint64(1); n < p.size; n++ {
		next := p.address((slot + n) % p.size)
		holder := p.holders[next]
		if holder == nil && p.reserved[next] == 0 {
			break
		}
		if holder != nil {
			consider(holder)
		}
	}
	return first
}

// reserve takes an address out, and whoever has it away from it.
func (p *pool) reserve(a netip.Addr) {
	if p.reserved[a]++; p.reserved[a] > 1 {
		return
	}
	if it := p.holders[a]; it != nil {
		wish, _ := p.wish(it, a)
		delete(p.holders, a)
		p.settle(it, wish+1)
	}
}

// release ends one reservation of an address.
func (p *pool) release(a netip.Addr) {
	if p.reserved[a]--; p.reserved[a] == 0 {
		delete(p.reserved, a)
		p.free(a)
	}
}
