package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// mayChangeHost tells whether a filter of the scope's listeners may change a request's host and have
// its route chosen anew. Its bucket is found before any filter runs, and stays: such listeners look
// for whole route configurations.
//
// Filters of ours do not do it. Those of EnvoyFilters may (a Lua script, say), and plugins. What else
// EnvoyFilters change of listeners and routes is written for what Istio has in them, a connection
// manager with RDS and a route configuration "80"; with it, too, listeners stay as they are there.
func (s *proxyGroup) mayChangeHost() bool {
	if slices.ContainsFunc(s.plugins, func(p *model.WasmPlugin) bool { return !p.Network && p.OnSide(model.SideClient) }) {
		return true
	}
	if s.patches == nil {
		return false
	}
	for i := range s.patches.List {
		switch s.patches.List[i].Target {
		case model.PatchCluster, model.PatchListenerFilter:
		default:
			return true
		}
	}
	return false
}
