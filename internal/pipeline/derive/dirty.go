package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// dirtyUnits are what is to be derived again, by kind. A kind's map is given up once its units are taken: at
// first everything is dirty, and a map that was large takes as long to go through when it is empty.
type dirtyUnits [unitKinds]map[unit]struct{}

// any tells whether anything is dirty.
func (d *dirtyUnits) any() bool {
	return slices.ContainsFunc(d[:], func(units map[unit]struct{}) bool { return len(units) > 0 })
}

// mark makes u dirty.
func (s *proxyGroup) mark(u unit) {
	if s.dirty[u.kind] == nil {
		s.dirty[u.kind] = map[unit]struct{}{}
	}
	s.dirty[u.kind][u] = struct{}{}
}

// touch makes dirty what depends on the facts, and hosts that came into sight.
func (s *proxyGroup) touch(t *touched) {
	for f := range t.facts {
		s.touchFact(f)
	}
	if s.Key.Inbound || s.Key.Extensions {
		return
	}
	for _, svc := range t.services {
		if s.sees(svc) || s.hosts[svc.Hostname] != nil || s.named[svc.Hostname] {
			s.mark(hostUnit(svc.Hostname))
		}
	}
	if s.router != nil {
		for _, v := range t.bound {
			s.touchBound(v)
		}
		return
	}
	for _, v := range t.routes {
		if s.Key.Names || !s.importsRoutes(v) {
			continue
		}
		for _, h := range v.Hosts {
			s.mark(hostUnit(h))
		}
	}
}

// touchFact makes dirty what has asked for a fact, or for one that its wildcard covers. Who
// asks for a host writes down that one name, not one for each pattern that could cover it;
// a change of a wildcard, which is rare, looks through all facts instead.
func (s *proxyGroup) touchFact(f fact) {
	s.markDependents(s.dependents[f.name], f.kinds)
	h := model.Host(f.name)
	if f.kinds&factsOfWildcards == 0 || !h.IsWildcard() {
		return
	}
	for name, list := range s.dependents {
		if h.Matches(model.Host(name)) {
			s.markDependents(list, f.kinds)
		}
	}
}

func (s *proxyGroup) markDependents(list []dependent, kinds factKind) {
	for _, d := range list {
		if d.kinds&kinds != 0 {
			s.mark(d.unit)
		}
	}
}

// depend replaces what a unit has asked for.
func (s *proxyGroup) depend(u unit, facts factList) {
	old := s.asked[u]
	for _, f := range old {
		if !facts.has(f.name) {
			s.dependents[f.name] = slices.DeleteFunc(s.dependents[f.name], func(d dependent) bool { return d.unit == u })
			dropEmpty(s.dependents, f.name)
		}
	}
	for _, f := range facts {
		list := s.dependents[f.name]
		if !old.has(f.name) {
			s.dependents[f.name] = append(list, dependent{u, f.kinds})
			continue
		}
		list[slices.IndexFunc(list, func(d dependent) bool { return d.unit == u })].kinds = f.kinds
	}
	if len(facts) == 0 {
		delete(s.asked, u)
	} else {
		s.asked[u] = slices.Clip(facts)
	}
}

// takeDirty takes the dirty units of one kind.
func (s *proxyGroup) takeDirty(kind unitKind) []unit {
	units := s.dirty[kind]
	s.dirty[kind] = nil
	return slices.AppendSeq(make([]unit, 0, len(units)), maps.Keys(units))
}
