package fleet

import (
	"slices"
)

// typicalEntry is about the size of a resource in a list of versions, in bytes.
const typicalEntry = 96

// maxNode is more than a node and a type URL need, in bytes.
const maxNode = 4 << 10

// forget makes a proxy complete without any resources.
func (s *state) forget() { *s = state{ready: true, bare: true} }

// reconnect returns the first requests of a stream, which list the proxy's versions.
func (s *state) reconnect(c *Catalog) []request {
	if s.bare {
		s.ready, s.reported, s.probing = false, false, true
		s.asked = [Kinds]bool{CDS: true, LDS: true, RDS: true}
		return []request{newRequest(EDS).text(fieldSubscribe, Probe)}
	}
	again := s.ready
	if !again { // it was never complete: begin anew
		*s = state{asked: [Kinds]bool{CDS: true}}
		return []request{newRequest(CDS)}
	}
	scoped := s.asked[SRDS]
	s.asked = [Kinds]bool{}
	s.ready, s.reported, s.probing = false, false, true
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []request
	for k := range Kinds {
		r := s.listed(c, k)
		switch k {
		case SRDS:
			s.asked[k] = scoped
		case VHDS:
			s.asked[k] = slices.ContainsFunc(s.held[VHDS], held.has)
		default:
			s.asked[k] = true
		}
		if s.asked[k] {
			out = append(out, r)
		}
	}
	return append(out, newRequest(EDS).text(fieldSubscribe, Probe))
}

// listed is the first request of a kind, with the versions of it. It requires the catalog's lock.
func (s *state) listed(c *Catalog, k Kind) request {
	r := append(request(borrow(len(s.held[k])*typicalEntry+maxNode)), newRequest(k)...)
	for id, h := range s.held[k] {
		if h == none {
			continue
		}
		name, version := c.text(k, id, h)
		if k == EDS || k == RDS {
			r = r.text(fieldSubscribe, name)
		}
		if h.has() {
			r = r.initial(name, version)
		}
	}
	return r
}
