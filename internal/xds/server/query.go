package server

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// distributionQuery is the work on one Question.
type distributionQuery struct {
	*distribution.Query
	tables map[*table.Table]*touched
}

// touched is what a question is about, of one table.
type touched struct {
	names [resource.NumTypes]map[string]bool // true: superseded
	count int
}

func (sv *distributionQuery) of(t *table.Table) *touched {
	if have := sv.tables[t]; have != nil {
		return have
	}
	s := t.State()
	var out *touched
	if s.Opened() >= sv.Revision && sv.Related != nil && sv.Object != (model.Key{}) {
		// All of the table must be looked at: once, however often somebody asks.
		out = s.Memo(memoKey{sv.Object, sv.Revision}, func() any { return sv.find(s) }).(*touched)
	} else {
		out = sv.find(s)
	}
	sv.tables[t] = out
	return out
}

// memoKey is what a table's answer depends on.
type memoKey struct {
	object   model.Key
	revision model.Revision
}

// find finds what a question is about in one state of a table.
func (sv *distributionQuery) find(s *table.State) *touched {
	out := &touched{}
	for typ := range resource.NumTypes {
		out.names[typ] = map[string]bool{}
		if s.Opened() >= sv.Revision && sv.Related != nil {
			sv.related(s, typ, out.names[typ])
		} else {
			for touch := range s.Touched(typ, sv.Revision) {
				out.names[typ][touch.Name] = touch.Superseded
			}
		}
		out.count += len(out.names[typ])
	}
	return out
}

// related finds what is made of the object in a table that was opened after the change.
// Whole route configurations are found by their virtual hosts, which cost less to look at.
func (sv *distributionQuery) related(s *table.State, typ resource.Type, into map[string]bool) {
	of, name := typ, func(n string) string { return n }
	if typ == resource.RouteConfig {
		of, name = resource.VirtualHost, table.RouteConfigOf
	}
	for e := range s.All(of) {
		if sv.Related(of, e) {
			into[name(e.Name)] = false
		}
	}
}
