package server

import (
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// maxAbout bounds how many parts of a refused whole are looked at.
const maxAbout = 64

// refusalKey: what one table's proxies refuse may be made of other objects than what another's do.
type refusalKey struct {
	typ           resource.Type
	name, version string
	of            *table.Table
}

// Refusals are in no order. A proxy that refuses nothing costs a lock.
func (s *Server) Refusals() []*distribution.Refusal {
	all := map[refusalKey]*distribution.Refusal{}
	for _, st := range s.streams.all() {
		st.addRefusals(all)
	}
	out := make([]*distribution.Refusal, 0, len(all))
	for _, r := range all {
		out = append(out, r)
	}
	return out
}

func (st *stream) addRefusals(all map[refusalKey]*distribution.Refusal) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed || !st.ledger.Refuses() {
		return
	}
	for _, t := range st.ledger.Types() {
		for _, h := range t.Held {
			st.addRefusal(all, t.Type, &h)
		}
	}
}

func (st *stream) addRefusal(all map[refusalKey]*distribution.Refusal, typ resource.Type, h *ledger.Held) {
	key := refusalKey{typ, h.Name, h.Version, st.tableOf(typ, h.Name)}
	if r := all[key]; r != nil {
		r.Proxies++
		r.Since = max(r.Since, h.Since())
		r.Message = min(r.Message, h.Message)
		// Of a whole, a proxy that accepted it before tells best what is wrong with it.
		if len(r.About) > 1 {
			if about := st.about(typ, h); len(about) > 0 && len(about) < len(r.About) {
				r.About = about
			}
		}
		return
	}
	about := st.about(typ, h)
	if len(about) == 0 {
		return // what it refused is not there any more
	}
	r := &distribution.Refusal{Type: typ, Name: h.Name, Message: h.Message, Proxies: 1, Since: h.Since(), About: about}
	if h.Name == ledger.Whole {
		r.Name = ""
	}
	all[key] = r
}

// tableOf is the one that has a resource; of a whole response the first.
func (st *stream) tableOf(typ resource.Type, name string) *table.Table {
	for _, t := range st.tables {
		if name == ledger.Whole || t.State().Get(typ, name) != nil {
			return t
		}
	}
	return nil
}

// about is what a proxy refuses, as it is in the tables now.
func (st *stream) about(typ resource.Type, h *ledger.Held) []distribution.Part {
	if h.Name == ledger.Whole {
		return st.newParts(typ, "", h.Since())
	}
	for _, t := range st.tables {
		e := t.State().Get(typ, h.Name)
		switch {
		case e == nil:
		case e.Version != h.Version:
			return nil
		case typ == resource.RouteConfig:
			if parts := st.newParts(typ, h.Name, h.Since()); len(parts) > 0 && h.Since() > 0 {
				return parts
			}
			// The header changed, or all of it is new to a proxy that connected since.
			return append(st.newParts(typ, h.Name, 0), distribution.Part{Type: typ, Entry: e, Group: t.Group(), Proxy: st.proxy})
		default:
			return []distribution.Part{{Type: typ, Entry: e, Group: t.Group(), Proxy: st.proxy}}
		}
	}
	return nil
}

// newParts are the resources of a type that came after a revision: of route configurations
// (of one, where it is named) their virtual hosts.
func (st *stream) newParts(typ resource.Type, routeConfig string, since model.Revision) []distribution.Part {
	of := typ
	if typ == resource.RouteConfig {
		of = resource.VirtualHost
	}
	var out []distribution.Part
	for _, t := range st.tables {
		for e := range t.State().Changed(of, since) {
			if routeConfig != "" && !strings.HasPrefix(e.Name, routeConfig+"/") {
				continue
			}
			if out = append(out, distribution.Part{Type: of, Entry: e, Group: t.Group(), Proxy: st.proxy}); len(out) == maxAbout {
				return out
			}
		}
	}
	return out
}
