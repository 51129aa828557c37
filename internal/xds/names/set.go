// Package names has immutable, shared sets of resource names. Streams of proxies that subscribe to
// the same names share one set.
package names

import (
	"hash/maphash"
	"iter"
	"sync"
	"weak"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Set is an immutable set of names. The nil Set is the empty one. Sets of one Pool are equal if and
// only if their pointers are.
type Set struct {
	id   uint64 // number of the set in its pool, from 1; never reused
	sum  sum
	size int // bytes of the names
	tree *iradix.Tree[string]
}

// sum is the sum of the members' keyed hashes. The sum of a set that differs by a few names needs
// only the hashes of these. The seeds are secret and differ for each process, so that a client
// cannot choose names whose sums collide.
type sum [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (s sum) plus(name []byte) sum {
	return sum{s[0] + maphash.Bytes(seeds[0], name), s[1] + maphash.Bytes(seeds[1], name)}
}

func (s sum) minus(name []byte) sum {
	return sum{s[0] - maphash.Bytes(seeds[0], name), s[1] - maphash.Bytes(seeds[1], name)}
}

// Len returns the number of names.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.tree.Len()
}

// Size returns the bytes of the names.
func (s *Set) Size() int {
	if s == nil {
		return 0
	}
	return s.size
}

// Has reports whether name is a member.
func (s *Set) Has(name string) bool { return s.HasBytes([]byte(name)) }

// HasBytes is Has for a name in a request's buffer.
func (s *Set) HasBytes(name []byte) bool {
	if s == nil {
		return false
	}
	_, ok := s.tree.Get(name)
	return ok
}

// All returns the names in order.
func (s *Set) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		if s == nil {
			return
		}
		s.tree.Root().Walk(func(_ []byte, name string) bool { return !yield(name) })
	}
}

// Pool makes sets, and makes equal sets identical. It holds them weakly: unused sets are collected.
type Pool struct {
	recent recent

	mu    sync.Mutex // guards the fields below; held for map operations only
	known map[sum]weak.Pointer[Set]
	puts  int    // since the last sweep
	ids   uint64 // id of the last set
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{known: map[sum]weak.Pointer[Set]{}} }

// With returns s and the given names. If another stream made the same step recently, it compares
// the names. If the resulting set exists, it hashes the new names.
func (p *Pool) With(s *Set, add List) *Set { return p.step(s, false, add) }

// step returns the result of a recent equal step, or computes and records it.
func (p *Pool) step(s *Set, minus bool, l List) *Set {
	if l.Len() == 0 || minus && s == nil {
		return s
	}
	to, ok := p.recent.take(s, minus, l)
	if ok {
		return to
	}
	if minus {
		to = p.without(s, l)
	} else {
		to = p.with(s, l)
	}
	p.recent.keep(s, minus, l, to)
	return to
}

func (p *Pool) with(s *Set, add List) *Set {
	want, fresh := s.exact(), false
	for i := range add.Len() {
		if n := add.at(i); !s.HasBytes(n) {
			want, fresh = want.plus(n), true
		}
	}
	if !fresh {
		return s
	}
	if known := p.find(want); known != nil {
		return known
	}
	txn, exact, size := s.txn(), s.exact(), s.Size()
	for i := range add.Len() {
		name := string(add.at(i))
		if _, old := txn.Insert([]byte(name), name); !old {
			exact, size = exact.plus(add.at(i)), size+len(name)
		}
	}
	return p.put(&Set{sum: exact, size: size, tree: txn.CommitOnly()})
}

// Without returns s without the given names; nil if none is left.
func (p *Pool) Without(s *Set, drop List) *Set { return p.step(s, true, drop) }

func (p *Pool) without(s *Set, drop List) *Set {
	want, hit := s.sum, 0
	for i := range drop.Len() {
		if n := drop.at(i); s.HasBytes(n) {
			want, hit = want.minus(n), hit+1
		}
	}
	switch {
	case hit == 0:
		return s
	case want == sum{}:
		return nil
	}
	if known := p.find(want); known != nil {
		return known
	}
	txn, exact, size := s.txn(), s.sum, s.size
	for i := range drop.Len() {
		if _, old := txn.Delete(drop.at(i)); old {
			exact, size = exact.minus(drop.at(i)), size-len(drop.at(i))
		}
	}
	tree := txn.CommitOnly()
	if tree.Len() == 0 {
		return nil
	}
	return p.put(&Set{sum: exact, size: size, tree: tree})
}

// Union returns the names that are in a or in b.
func (p *Pool) Union(a, b *Set) *Set {
	switch {
	case a == b || b == nil:
		return a
	case a == nil:
		return b
	case a.Len() < b.Len():
		a, b = b, a
	}
	return p.With(a, b.list())
}

// Minus returns the names that are in a and not in b.
func (p *Pool) Minus(a, b *Set) *Set {
	if a == b {
		return nil
	}
	if a == nil || b == nil {
		return a
	}
	return p.Without(a, b.list())
}

// Of returns a set of names.
func (p *Pool) Of(names ...string) *Set { return p.With(nil, Strings(names)) }

// list returns the members of s.
func (s *Set) list() (out List) {
	s.tree.Root().Walk(func(k []byte, _ string) bool {
		out.slices = append(out.slices, k)
		return false
	})
	return out
}

func (s *Set) txn() *iradix.Txn[string] {
	if s == nil {
		return iradix.New[string]().Txn()
	}
	return s.tree.Txn()
}

func (s *Set) exact() sum {
	if s == nil {
		return sum{}
	}
	return s.sum
}

func (p *Pool) find(want sum) *Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[want].Value()
}

// put adds s to the known sets, unless another goroutine has added an equal one.
func (p *Pool) put(s *Set) *Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[s.sum].Value(); known != nil {
		return known
	}
	p.ids++
	s.id = p.ids
	p.known[s.sum] = weak.Make(s)
	if p.puts++; p.puts > len(p.known)/2+1024 {
		p.sweep()
	}
	return s
}

func (p *Pool) sweep() {
	p.puts = 0
	for k, w := range p.known {
		if w.Value() == nil {
			delete(p.known, k)
		}
	}
}

// List is a list of names that a caller passes to a Pool. It is a pair of slices and not an
// iterator, which would allocate on each stream.
type List struct {
	strings []string
	slices  [][]byte // of a request's buffer; a Pool does not keep them
}

// Strings returns a list of strings.
func Strings(names []string) List { return List{strings: names} }

// Slices returns a list of names in a request's buffer.
func Slices(names [][]byte) List { return List{slices: names} }

// Len returns the number of names, including duplicates.
func (l List) Len() int { return len(l.strings) + len(l.slices) }

// at returns the i-th name. The caller must not change it.
func (l List) at(i int) []byte {
	if i < len(l.strings) {
		return []byte(l.strings[i])
	}
	return l.slices[i-len(l.strings)]
}
