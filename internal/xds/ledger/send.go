package ledger

import (
	"cmp"
	"iter"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Response is a response that may be sent. Its parts are shared with other streams.
type Response struct {
	Type    resource.Type
	Nonce   uint64
	Parts   [2 * MaxTables]*table.Batch // nil: nothing
	Removed []string                    // delta
	Version string                      // state-of-the-world
	Newest  model.Revision              // of the states that it was made from
	Whole   bool                        // the first of its type, or one that has everything
}

// Next appends the responses that may be sent now, in the order of types. Each counts as sent.
func (l *Ledger) Next(out []Response) []Response {
	for range kinds {
		moved := false
		for k := range kinds {
			if k == lds {
				l.ordering.advance(l.prefetch.trusted)
				l.scopes.advance()
			}
			if l.off(k) || l.waitsForAnswer(&l.watches[k]) {
				continue
			}
			var m bool
			out, m = l.compose(k, out)
			moved = moved || m
		}
		if !moved { // a move may admit types that come before it
			break
		}
	}
	return out
}

// send applies a plan to its watch and appends its response, with the next nonce.
func (l *Ledger) send(p *plan, out []Response) []Response {
	w := p.w
	whole := w.nonce == 0 || l.fullState(w)
	l.nonce++
	f := flight{from: w.at, parts: p.parts, removed: p.removed, explicit: p.explicit}
	w.at, w.toSend, w.toRemove, w.firstPending = p.at, p.toSend, p.toRemove, false
	l.afterSend(&f, p)
	w.launch(f.shared(), l.nonce)
	return append(out, Response{
		Type: w.typ, Nonce: l.nonce, Parts: p.parts, Removed: p.removed, Version: w.version, Newest: l.newest(), Whole: whole,
	})
}

// flight is a response that the proxy has not answered yet. Its nonce is that of its watch. Streams
// that were sent the same response share one flight, which saves memory: it must not be changed.
type flight struct {
	from     [MaxTables]cursor // what was sent before it
	parts    [2 * MaxTables]*table.Batch
	removed  []string
	explicit bool // it has names of toSend, toRemove or groups
}

// shared returns an equal flight of another stream, if the last stream that was sent the same batch
// has one; else a copy of f.
func (f *flight) shared() *flight {
	var of *table.Batch
	for _, b := range f.parts {
		of = cmp.Or(of, b)
	}
	if of == nil || len(f.removed) > 0 {
		return f.own()
	}
	if last, ok := of.Memo.Load().(*flight); ok && last.from == f.from && last.parts == f.parts && last.explicit == f.explicit {
		return last
	}
	own := f.own()
	of.Memo.Store(own)
	return own
}

// own returns a copy that no other stream shares.
func (f *flight) own() *flight {
	out := *f
	return &out
}

// entries yields the resources of the response.
func (f *flight) entries() iter.Seq[*table.Entry] {
	return func(yield func(*table.Entry) bool) {
		for _, p := range f.parts {
			if p == nil {
				continue
			}
			for _, e := range p.Entries {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// names returns the names of the response, removals first: if the response is sent again in parts,
// a removal must not follow the addition that replaces it.
func (f *flight) names() (out []string) {
	out = append(out, f.removed...)
	for e := range f.entries() {
		out = append(out, e.Name)
	}
	return out
}

// versionsOf returns the versions that the response has of resources with these names.
func (f *flight) versionsOf(list []string) map[string]string {
	out, wanted := map[string]string{}, make(map[string]bool, len(list))
	for _, n := range list {
		wanted[n] = true
	}
	for e := range f.entries() {
		if wanted[e.Name] {
			out[e.Name], wanted[e.Name] = e.Version, false // the first one counts
		}
	}
	return out
}

// has reports whether the response contains or removes a name.
func (f *flight) has(name string) bool { return f.sends(name) || slices.Contains(f.removed, name) }

// sends reports whether the response contains a name.
func (f *flight) sends(name string) bool {
	for e := range f.entries() {
		if e.Name == name {
			return true
		}
	}
	return false
}

// afterSend updates the state of other types that depends on a response.
func (l *Ledger) afterSend(f *flight, p *plan) {
	switch p.k {
	case cds:
		l.carryNamed(f)
		if !l.asked { // else their endpoints have names of their own
			l.clustersSent(f)
		}
	case lds:
		l.scopes.listenersSent(f)
	case rds:
		if len(p.removed) > 0 {
			l.hosts.dropRoutes(names.Strings(p.removed))
		}
	case vhds:
		if loaded := l.pool.Minus(l.toLoad, p.toLoad); loaded != nil {
			l.synced, l.toLoad = l.pool.Union(l.synced, loaded), p.toLoad
		}
	}
}

// clustersSent schedules the endpoints of changed clusters. Envoy keeps a changed cluster warming
// until its endpoints come, and does not request them again, as it is already subscribed.
func (l *Ledger) clustersSent(f *flight) {
	e := &l.watches[eds]
	var again, later, all, ahead, known []string
	for i, part := range f.parts[:MaxTables] {
		if part == nil {
			continue
		}
		for _, c := range part.Entries {
			if l.protocol == Sotw && c.Revision <= f.from[i].add {
				continue // it is included because the response is complete
			}
			switch l.endpointsAfter(c, i, f) {
			case endpointsAgain:
				again = append(again, c.Name)
			case endpointsLater:
				later = append(later, c.Name)
			case endpointsAhead:
				ahead = append(ahead, c.Name)
				if l.prefetch.sentBefore(c, i, f) {
					known = append(known, c.Name)
				}
			}
			if f.explicit || l.watches[cds].held[c.Name] != nil { // or it was refused before
				all = append(all, c.Name)
			}
		}
	}
	l.resend = l.pool.With(l.resend, names.Strings(later))
	l.prefetch.schedule(ahead, known)
	if len(again) > 0 {
		e.toSend = l.pool.With(e.toSend, names.Strings(again))
		l.changed = l.pool.With(l.changed, names.Strings(again))
		l.postponed = l.pool.Without(l.postponed, names.Strings(again))
		e.notePending(l.newest())
	}
	if len(all) > 0 {
		f.explicit = true
		l.watches[cds].notePending(l.newest())
		l.ordering.waitFor(all)
	}
}

// endpointTurn is when the endpoints of a cluster that was just sent follow.
type endpointTurn uint8

const (
	endpointsNone  endpointTurn = iota
	endpointsAgain              // the proxy subscribes to them, and does not ask again
	endpointsLater              // the proxy will subscribe to all, also to those that it has
	endpointsAhead              // before the proxy asks
)

// endpointsAfter returns the turn of a cluster of the i-th table.
func (l *Ledger) endpointsAfter(c *table.Entry, i int, f *flight) endpointTurn {
	e := &l.watches[eds]
	switch {
	case e.on && e.names.Has(c.Name) && l.lookup(resource.Endpoints, c.Name) != nil:
		return endpointsAgain
	case !e.on && (f.explicit || c.Added <= f.from[i].add):
		return endpointsLater
	case l.prefetch.wants(c):
		return endpointsAhead
	}
	return endpointsNone
}
