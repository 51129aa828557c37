package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
)

// dirtyUnits are the units to derive again, by kind. A kind's map is given up once its units are taken: at first everything
// is dirty, and iterating over a map that was large stays slow when it is empty.
type dirtyUnits [unitKinds]map[unit]struct{}

// any reports whether a unit is dirty.
func (d *dirtyUnits) any() bool {
	return slices.ContainsFunc(d[:], func(units map[unit]struct{}) bool { return len(units) > 0 })
}

// mark makes u dirty.
func (d *dirtyUnits) mark(u unit) {
	if d[u.kind] == nil {
		d[u.kind] = map[unit]struct{}{}
	}
	d[u.kind][u] = struct{}{}
}

// take takes the dirty units of one kind.
func (d *dirtyUnits) take(kind unitKind) []unit {
	units := d[kind]
	d[kind] = nil
	return slices.AppendSeq(make([]unit, 0, len(units)), maps.Keys(units))
}

// touch makes dirty what depends on the facts, and hosts that came into sight.
func (g *proxyGroup) touch(t *index.Touched) {
	for f := range t.Facts {
		g.dependents.Of(f, g.mark)
	}
	if g.Key.Inbound || g.Key.Extensions {
		return
	}
	for _, svc := range t.Services {
		if g.Sees(svc) || g.hosts[svc.Hostname] != nil || g.named[svc.Hostname] {
			g.mark(hostUnit(svc.Hostname))
		}
	}
	if g.router != nil {
		for _, v := range t.Bound {
			g.touchBound(v)
		}
		return
	}
	for _, v := range t.Routes {
		if g.Key.Names || !g.ImportsRoutes(v) {
			continue
		}
		for _, h := range v.Hosts {
			g.mark(hostUnit(h))
		}
	}
}
