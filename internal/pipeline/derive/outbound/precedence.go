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
	out := slices.DeleteFunc(slices.Clone(list), IsCatchAll)
	if i := slices.IndexFunc(list, IsCatchAll); i >= 0 {
		out = append(out, list[i])
	}
	return out
}

// IsCatchAll reports whether a route is for everything.
func IsCatchAll(r ir.Route) bool { return isCatchAll(r.Match) }

// isCatchAll reports whether a route with the match is for everything. As in Istio it may have the regular expression ".*".
// Such a match stays: it rewrites whole paths.
func isCatchAll(m *ir.Match) bool {
	return m == nil || hasOnlyURI(m, model.StringMatch{Kind: model.MatchRegex, Value: ".*"})
}

// hasOnlyURI reports whether a match has a condition for paths and nothing else.
func hasOnlyURI(m *ir.Match, uri model.StringMatch) bool {
	return m.URI != nil && *m.URI == uri &&
		m.Scheme == nil && m.Method == nil && m.Authority == nil &&
		len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams) == 0
}
