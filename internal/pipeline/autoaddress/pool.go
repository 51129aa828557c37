package autoaddress

import (
	"encoding/binary"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/moonsail/moonsail/internal/model"
)

// item is one host that needs an address of one family.
type item struct {
	entry *entry
	host  model.Host
	claim netip.Addr // the address in its status; not valid: none
	home  uint64     // the slot of its hash
	at    netip.Addr // the address that it has; not valid: none is left
}

// older orders items: the earlier ServiceEntry first, then the smaller host.
func (it *item) older(other *item) bool {
	if it.entry != other.entry {
		return model.Older(it.entry.object, other.entry.object)
	}
	return it.host < other.host
}

// precedes reports whether an item has a right to an address before another item.
func (it *item) precedes(other *item, at netip.Addr) bool {
	if mine, others := it.claim == at, other.claim == at; mine != others {
		return mine
	}
	return it.older(other)
}

// pool assigns addresses of one family.
//
// Invariant, between calls: no item prefers (see preference) an address at which it precedes the holder. Exactly one
// assignment satisfies this, since all slots use the same order of items, and an item prefers its claim to all others.
// (It is a stable matching.)
type pool struct {
	prefix netip.Prefix
	first  netip.Addr // of slot 0
	size   uint64     // slots
	// holders are the items that have addresses. A claim may be outside of the range.
	holders map[netip.Addr]*item
	// reserved counts the ServiceEntries whose spec.addresses has an address.
	reserved map[netip.Addr]int
	claims   map[netip.Addr]map[*item]bool
	without  map[*item]bool // items for which no address is left
	moved    func(*item)    // called for each item whose address changes
}

// newPool makes a pool of a range, without its first and last address. A range that is invalid or too small has no
// addresses.
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

// homeOf returns the slot at which the search for a host's address begins.
func (p *pool) homeOf(k model.Key, h model.Host) uint64 {
	if p.size == 0 {
		return 0
	}
	return xxhash.Sum64String(k.Namespace+"/"+k.Name+"/"+string(h)) % p.size
}

// address returns the address of a slot.
func (p *pool) address(slot uint64) netip.Addr {
	if p.first.Is4() {
		b := p.first.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(slot))
		return netip.AddrFrom4(b)
	}
	b := p.first.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+slot) // no carry: a range begins at a multiple of its size
	return netip.AddrFrom16(b)
}

// slot returns the slot of an address; false: the address is outside of the range.
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

// preference returns the rank of an address for an item: 0 for its claim, else one more than the distance of its slot
// from the item's home. false: the item cannot have the address.
func (p *pool) preference(it *item, a netip.Addr) (uint64, bool) {
	if it.claim == a {
		return 0, true
	}
	slot, ok := p.slot(a)
	return 1 + (slot+p.size-it.home)%max(p.size, 1), ok
}

// add assigns an address to an item.
func (p *pool) add(it *item) {
	if it.claim.IsValid() {
		if p.claims[it.claim] == nil {
			p.claims[it.claim] = map[*item]bool{}
		}
		p.claims[it.claim][it] = true
	}
	p.settle(it, 0)
}

// settle finds an address for an item, beginning at a preference. If that displaces another item it continues with that
// one.
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
			rank, _ := p.preference(it, it.at)
			from = rank + 1
		}
	}
}

// take assigns an address to an item if it precedes the holder. It returns the item without an address then: the
// former holder, nil if the address was free, or the item itself if it does not get the address.
func (p *pool) take(it *item, a netip.Addr) *item {
	holder := p.holders[a]
	if p.reserved[a] > 0 || holder != nil && !it.precedes(holder, a) {
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

// remove frees the address of an item.
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

// confirm records that an item claims the address that it has. No other item is affected.
func (p *pool) confirm(it *item) {
	it.claim = it.at
	p.claims[it.at] = map[*item]bool{it: true}
}

// free assigns an address to the first item that prefers it to its own, then that item's former address, and so on.
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

// waiting finds the first of the items that prefer an address to their own. They are among the items that claim it,
// those in the run of used slots after it, and those without an address.
func (p *pool) waiting(a netip.Addr) *item {
	var first *item
	consider := func(it *item) {
		rank, possible := p.preference(it, a)
		current, _ := p.preference(it, it.at)
		if possible && (!it.at.IsValid() || rank < current) && (first == nil || it.precedes(first, a)) {
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

// reserve removes an address from the pool. Its holder gets another one.
func (p *pool) reserve(a netip.Addr) {
	if p.reserved[a]++; p.reserved[a] > 1 {
		return
	}
	if it := p.holders[a]; it != nil {
		rank, _ := p.preference(it, a)
		delete(p.holders, a)
		p.settle(it, rank+1)
	}
}

// release ends one reservation of an address.
func (p *pool) release(a netip.Addr) {
	if p.reserved[a]--; p.reserved[a] == 0 {
		delete(p.reserved, a)
		p.free(a)
	}
}
