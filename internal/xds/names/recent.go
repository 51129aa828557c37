package names

import (
	"sync/atomic"
	"weak"
)

// Streams of one batch make the same changes to the same sets, one after the other. The latest
// steps are kept, so that the next stream needs no hash and no lock.
const (
	recentSteps = 64 // a power of two; two steps with the same slot replace each other
	recentNames = 4  // maximum of a step: longer steps are rare and expensive to compare
)

// recent has the latest steps. It keeps no set in memory.
type recent [recentSteps]atomic.Pointer[step]

// step is a change of a set. It is immutable once it is in recent.
type step struct {
	from  uint64 // id of the set; 0: the empty set
	minus bool
	names []string
	to    weak.Pointer[Set] // zero: the empty set
}

// take returns the result of an earlier equal step; false if it is unknown.
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

// keep records a step.
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

// number identifies a set of a pool, also after the set was collected.
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
