package outbound

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// BySpecificity orders the routes of several objects as the Gateway API does. Equally specific routes stay in the order of
// their objects' age. Routes for everything are last, and only the first of them stays.
func BySpecificity(list []ir.Route) []ir.Route {
	slices.SortStableFunc(list, func(a, b ir.Route) int { return specificity(a.Match).Compare(specificity(b.Match)) })
	return CatchAllLast(list)
}

func specificity(m *ir.Match) model.Specificity {
	if m == nil {
		return model.Specificity{}
	}
	return model.SpecificityOf(m.URI, m.Method, m.Headers, m.QueryParams)
}

// CatchAllLast puts routes for everything behind those of other virtual services, and drops all after the first of them.
func CatchAllLast(list []ir.Route) []ir.Route {
	out := slices.DeleteFunc(slices.Clone(list), func(r ir.Route) bool { return r.Match == nil })
	if i := slices.IndexFunc(list, func(r ir.Route) bool { return r.Match == nil }); i >= 0 {
		out = append(out, list[i])
	}
	return out
}
