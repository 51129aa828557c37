package server

import (
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Refusal is a resource that connected proxies refuse as it is now.
type Refusal struct {
	Type    resource.Type
	Name    string // empty: the proxies did not tell which one of a response it was
	Message string // the words of one proxy: of many, the first in order
	Proxies int
	// Since is the newest revision of which one of them may have what it refuses now; 0: none had it.
	Since model.Revision
	// About is what the proxies may have meant: the resource, or those parts of it that
	// were new to them.
	About []Part
}

// Part is a resource of a table.
type Part struct {
	Type  resource.Type
	Entry *table.Entry
	Proxy *model.Proxy // one that refuses it; nil: not known
}

// maxAbout bounds how many parts of a refused whole are looked at.
const maxAbout = 64

// refusalKey: what one table's proxies refuse may be made of other objects than what another's do.
type refusalKey struct {
	typ           resource.Type
	name, version string
	of            *table.Table
}

// Refusals are in no order. A proxy that refuses nothing costs a lock.
func (s *Server) Refusals() []*Refusal {
	all := map[refusalKey]*Refusal{}
	for _, st := range s.streams.all() {
		st.addRefusals(all)
	}
	out := make([]*Refusal, 0, len(all))
	for _, r := range all {
		out = append(out, r)
	}
	return out
}

func (st *stream) addRefusals(all map[refusalKey]*Refusal) {
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

func (st *stream) addRefusal(all map[refusalKey]*Refusal, typ resource.Type, h *ledger.Held) {
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
	r := &Refusal{Type: typ, Name: h.Name, Message: h.Message, Proxies: 1, Since: h.Since(), About: about}
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
func (st *stream) about(typ resource.Type, h *ledger.Held) []Part {
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
			for _, since := range []model.Revision{h.Since(), 0} { // all of it was new to a proxy that has come since
				if parts := st.newParts(typ, h.Name, since); len(parts) > 0 {
					return parts
				}
			}
			return []Part{{typ, e, st.proxy}}
		default:
			return []Part{{typ, e, st.proxy}}
		}
	}
	return nil
}

// newParts are the resources of a type that came after a revision: of route configurations
// (of one, where it is named) their virtual hosts.
func (st *stream) newParts(typ resource.Type, routeConfig string, since model.Revision) []Part {
	of := typ
	if typ == resource.RouteConfig {
		of = resource.VirtualHost
	}
	var out []Part
	for _, t := range st.tables {
		for e := range t.State().Changed(of, since) {
			if routeConfig != "" && !strings.HasPrefix(e.Name, routeConfig+"/") {
				continue
			}
			if out = append(out, Part{of, e, st.proxy}); len(out) == maxAbout {
				return out
			}
		}
	}
	return out
}
