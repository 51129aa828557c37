package server

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// distributionQuery is the work on one query.
type distributionQuery struct {
	*distribution.Query
	tables map[*table.Table]*touched
}

// touched is what a query is about in one table.
type touched struct {
	names [resource.NumTypes]map[string]bool // true: superseded
	about int                                // of names
	any   bool                               // the revision changed something in the table, or may have
}

// of returns what the query is about in a table.
func (sv *distributionQuery) of(t *table.Table) *touched {
	if have := sv.tables[t]; have != nil {
		return have
	}
	s := t.State()
	var out *touched
	if s.Opened() >= sv.Revision && sv.Object != (model.Key{}) {
		// The query reads the whole table: once, however often it is asked.
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

// find returns what the query is about in one state of a table.
func (sv *distributionQuery) find(s *table.State) *touched {
	out := &touched{}
	for typ := range resource.NumTypes {
		out.names[typ] = sv.Resources(s, typ)
		out.about += len(out.names[typ])
		for range s.Touched(typ, sv.Revision) {
			out.any = true
			break
		}
	}
	return out
}
