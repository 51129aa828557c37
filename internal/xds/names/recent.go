package names

import (
	"sync/atomic"
	"weak"
)

// Streams of one batch go from the same sets to the same sets, one after the other: the steps
// that were taken last are kept, so that the next stream hashes nothing and takes no lock.
const (
	recentSteps = 64 // a power of two; two steps that share a slot drive each other out
	recentNames = 4  // of a step at most: longer ones are rare, and comparing them is dear
)

// recent are the steps that were taken last. It holds no set in memory.
type recent [recentSteps]atomic.Pointer[step]

// step is what became of a set: immutable once it is in recent.
type step struct {
	from  uint64 // its id; 0: the empty set
	minus bool
	names []string
	to    weak.Pointer[Set] // the zero one: of the empty set
}

// take is what became of s by the same step before; false where that is not known any more.
func (r *recent) take(s *Set, minus bool, l List) (*Set, bool) {
	if l.Len() > recentNames {
		return nil, false
	}
	known := r.slot(s, minus, l).Load()
	if known == nil || known.from != s.number() || known.minus != minus || !l.equals(known.names) {
		return nil, false
	}
	to := known.to.Value()
	return to, to != nil || known.to == weak.Pointer[Set]{}
}

// keep makes a step known.
func (r *recent) keep(s *Set, minus bool, l List, to *Set) {
	if l.Len() > recentNames {
		return
	}
	r.slot(s, minus, l).Store(&step{s.number(), minus, l.copied(), weak.Make(to)})
}

func (r *recent) slot(s *Set, minus bool, l List) *atomic.Pointer[step] {
	key := s.number() * 4
	if minus {
		key++
	}
	for i := range l.Len() {
		n := l.at(i)
		key = key*31 + uint64(len(n))
		if len(n) > 0 {
			key = key*31 + uint64(n[len(n)/2])
		}
	}
	return &r[key*0x9E3779B97F4A7C15>>58]
}

// number tells sets of a pool apart, also those that are gone.
func (s *Set) number() uint64 {
	if s == nil {
		return 0
	}
	return s.id
}

func (l List) equals(names []string) bool {
	if l.Len() != len(names) {
		return false
	}
	for i, n := range names {
		if string(l.at(i)) != n {
			return false
		}
	}
	return true
}

func (l List) copied() []string {
	out := make([]string, l.Len())
	for i := range out {
		out[i] = string(l.at(i))
	}
	return out
}
